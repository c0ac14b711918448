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

static uint64_t dispatch_bytes(const hth_cmdlist *t, const hth_cmd *cmd)
{
    const hth_buffer_range *s = t->ranges + cmd->first_range;
    bool in_memory = cmd->kind == HTH_CMD_DISPATCH_INDIRECT;
    uint32_t grid[3];
    size_t n = cmd->n_range - in_memory;
    memcpy(grid, in_memory ? (const void *)(s[n].buffer->map + s[n].offset) : cmd->grid, sizeof grid);
    uint64_t groups = (uint64_t)grid[0] * grid[1];
    if (groups == 0 || grid[2] == 0) return 0;
    if (cmd->read_bytes == 0) return smallest_of(s, n);
    /* More bytes than this take longer than any timeout. */
    const uint64_t max = UINT64_MAX >> 16;
    uint64_t bytes = cmd->read_bytes, times = cmd->mask.buffer ? count_set_bits(cmd) : 1;
    if ((in_memory && __builtin_mul_overflow(groups, grid[2], &times)) ||
        __builtin_mul_overflow(times, bytes, &bytes))
        return max;
    return bytes < max ? bytes : max;
}

/* A copy starting at *now: advances *now for a copy within the device, *copied for a copy over a link. */
static void copy(hth_sim *sim, uint64_t *random, const hth_buffer_range *s, uint64_t *now, uint64_t *copied)
{
    const hth_sim_gpu *gpu = &sim->gpu;
    uint64_t bytes = s[0].size < s[1].size ? s[0].size : s[1].size, end = *now;
    bool up = s[0].buffer->memory != HTH_MEMORY_DEVICE, down = s[1].buffer->memory != HTH_MEMORY_DEVICE;
    if (!up && !down) {
        *now += hth_sim_cost(sim, random, gpu->dispatch_ns + at_rate(2 * bytes, gpu->bandwidth));
        return;
    }
    if (up) end = hth_sim_transfer(sim, random, &sim->up_ns, gpu->pcie_up, bytes, end);
    if (down) end = hth_sim_transfer(sim, random, &sim->down_ns, gpu->pcie_down, bytes, end);
    *copied = later(*copied, end);
}

uint64_t hth_sim_execute(hth_sim *sim, hth_queue_id queue, const hth_cmdlist *t, uint64_t start)
{
    uint64_t now = start, copied = start, *random = &sim->clocks[queue].random;
    for (size_t i = 0; i < t->n_cmd; i++) {
        const hth_cmd *cmd = &t->cmds[i];
        if (cmd->kind == HTH_CMD_BARRIER) now = later(now, copied);
        else if (cmd->kind == HTH_CMD_COPY) copy(sim, random, t->ranges + cmd->first_range, &now, &copied);
        else
            now += hth_sim_cost(sim, random,
                                sim->gpu.dispatch_ns + at_rate(dispatch_bytes(t, cmd), sim->gpu.bandwidth));
        hth_ref_dispatch(&sim->ref, t, cmd);
    }
    return later(now, copied);
}
