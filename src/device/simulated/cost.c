/* Costs on a simulated device (rules: simulated_int.h), and execution of command lists at these costs. */
#include "device/simulated/simulated_int.h"

#include "base/random.h"

#include <stdatomic.h>
#include <string.h>

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Uniform in [-1, 1). */
static double draw(uint64_t *random) { return (double)(hth_random_next(random) >> 11) * 0x1p-52 - 1.0; }

uint64_t hth_sim_cost(const hth_sim *sim, uint64_t *random, double ns)
{
    return (uint64_t)(ns * (1.0 + sim->gpu.jitter * draw(random)) + 0.5);
}

static double at_rate(uint64_t bytes, double rate) { return (double)bytes / rate * 1e9; }

/* Both queues may begin one at once: a wall clock has a thread for each. */
uint64_t hth_sim_transfer(const hth_sim *sim, uint64_t *random, _Atomic uint64_t *link_ns, double rate,
                          uint64_t bytes, uint64_t start)
{
    uint64_t cost = hth_sim_cost(sim, random, sim->gpu.pcie_latency_ns + at_rate(bytes, rate));
    uint64_t busy = atomic_load(link_ns), end;
    do end = later(start, busy) + cost;
    while (!atomic_compare_exchange_weak(link_ns, &busy, end));
    return end;
}

uint64_t hth_sim_transfer_up(hth_sim *sim, hth_queue_id queue, uint64_t *random, uint64_t bytes, uint64_t start)
{
    _Atomic uint64_t *link_ns = &sim->clocks[queue].up_ns;
    bool shares = queue == HTH_QUEUE_MAIN && later(start, *link_ns) < sim->clocks[HTH_QUEUE_BESIDE].up_ns;
    return hth_sim_transfer(sim, random, link_ns, shares ? sim->gpu.pcie_up / 2 : sim->gpu.pcie_up, bytes, start);
}

/* ---- commands ------------------------------------------------------------------------------------- */

static uint64_t smallest_of(const hth_buffer_range *s, size_t n)
{
    uint64_t min = UINT64_MAX;
    for (size_t i = 0; i < n; i++)
        if (s[i].size < min) min = s[i].size;
    return n > 0 ? min : 0;
}

/* Set bits among those that the dispatch was recorded with. */
static uint64_t count_set_bits(const hth_cmd *cmd)
{
    const uint8_t *bytes =
        cmd->mask.buffer->map + cmd->mask.offset; /* bit i % 32 of word i / 32, little-endian words */
    uint64_t n = 0;
    for (uint64_t i = cmd->first_bit; i < (uint64_t)cmd->first_bit + cmd->n_bit; i++)
        n += bytes[i / 8] >> i % 8 & 1;
    return n;
}

/* More bytes than this take longer than any timeout. */
static const uint64_t MAX_BYTES = UINT64_MAX >> 16;

static uint64_t bytes_of(uint64_t bytes, uint64_t times)
{
    if (__builtin_mul_overflow(bytes, times, &bytes)) return MAX_BYTES;
    return bytes < MAX_BYTES ? bytes : MAX_BYTES;
}

/* Workgroups of a dispatch that begins now. */
static uint64_t count_groups(const hth_cmdlist *t, const hth_cmd *cmd)
{
    const hth_buffer_range *in_memory = t->ranges + cmd->first_range + cmd->n_range - 1;
    bool indirect = cmd->kind == HTH_CMD_DISPATCH_INDIRECT;
    uint32_t grid[3];
    uint64_t n;
    memcpy(grid, indirect ? (const void *)(in_memory->buffer->map + in_memory->offset) : cmd->grid, sizeof grid);
    return __builtin_mul_overflow((uint64_t)grid[0] * grid[1], grid[2], &n) ? UINT64_MAX : n;
}

/* When a dispatch ends that begins now. */
static uint64_t dispatch_end(hth_sim *sim, hth_queue_id queue, const hth_cmdlist *t, const hth_cmd *cmd, uint64_t now)
{
    bool indirect = cmd->kind == HTH_CMD_DISPATCH_INDIRECT;
    hth_sim_clock *clock = &sim->clocks[queue];
    uint64_t n_group = count_groups(t, cmd), n_reader = indirect ? n_group : 1, bytes = 0;
    if (n_group > 0 && cmd->read_bytes > 0)
        bytes = bytes_of(cmd->read_bytes, cmd->mask.buffer ? count_set_bits(cmd) : n_reader);
    else if (n_group > 0 && cmd->link_bytes == 0)
        bytes = smallest_of(t->ranges + cmd->first_range, cmd->n_range - indirect);
    uint64_t end =
        now + hth_sim_cost(sim, &clock->random, sim->gpu.dispatch_ns + at_rate(bytes, sim->gpu.bandwidth));
    if (n_group == 0 || cmd->link_bytes == 0) return end;
    return later(end, hth_sim_transfer_up(sim, queue, &clock->random, bytes_of(cmd->link_bytes, n_reader), now));
}

/* A copy starting at *now: advances *now for a copy within the device, *copied for a copy over a link. */
static void copy(hth_sim *sim, hth_queue_id queue, const hth_buffer_range *s, uint64_t *now, uint64_t *copied)
{
    uint64_t *random = &sim->clocks[queue].random;
    const hth_sim_gpu *gpu = &sim->gpu;
    uint64_t bytes = s[0].size < s[1].size ? s[0].size : s[1].size, end = *now;
    bool up = s[0].buffer->memory != HTH_MEMORY_DEVICE, down = s[1].buffer->memory != HTH_MEMORY_DEVICE;
    if (!up && !down) {
        *now += hth_sim_cost(sim, random, gpu->dispatch_ns + at_rate(2 * bytes, gpu->bandwidth));
        return;
    }
    if (up) end = hth_sim_transfer_up(sim, queue, random, bytes, end);
    if (down) end = hth_sim_transfer(sim, random, &sim->down_ns, gpu->pcie_down, bytes, end);
    *copied = later(*copied, end);
}

/* Commands that bring lists of experts to where grids and the host read them. */
static bool is_for_clock(const hth_cmd *cmd)
{
    return cmd->kind == HTH_CMD_COPY || (cmd->pipeline && cmd->pipeline->id == HTH_SHADER_route);
}

uint64_t hth_sim_execute(hth_sim *sim, hth_queue_id queue, const hth_cmdlist *t, uint64_t start)
{
    uint64_t now = start, copied = start;
    for (size_t i = 0; i < t->n_cmd; i++) {
        const hth_cmd *cmd = &t->cmds[i];
        if (cmd->kind == HTH_CMD_BARRIER) now = later(now, copied);
        else if (cmd->kind == HTH_CMD_COPY) copy(sim, queue, t->ranges + cmd->first_range, &now, &copied);
        else now = dispatch_end(sim, queue, t, cmd, now);
        if (!sim->gpu.no_values || is_for_clock(cmd)) hth_ref_dispatch(&sim->ref, t, cmd);
    }
    return later(now, copied);
}
