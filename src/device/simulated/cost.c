/* What things cost on a simulated device (simulated_int.h has the rules), and tapes that pass at these
 * costs. */
#include "device/simulated/simulated_int.h"

#include <string.h>

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Uniform in [-1, 1): splitmix64. */
static double draw(uint64_t *random)
{
    uint64_t z = *random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-52 - 1.0;
}

uint64_t hth_sim_cost(const hth_sim *own, uint64_t *random, double ns)
{
    return (uint64_t)(ns * (1.0 + own->card.jitter * draw(random)) + 0.5);
}

static double at_rate(uint64_t bytes, double rate) { return (double)bytes / rate * 1e9; }

uint64_t hth_sim_transfer(const hth_sim *own, uint64_t *random, uint64_t *link_ns, double rate,
                          uint64_t bytes, uint64_t start)
{
    double ns = own->card.pcie_latency_ns + at_rate(bytes, rate);
    return *link_ns = later(start, *link_ns) + hth_sim_cost(own, random, ns);
}

/* ---- commands ------------------------------------------------------------------------------------- */

static uint64_t smallest_of(const hth_slice *s, size_t n)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < n; i++)
        if (s[i].bytes < least) least = s[i].bytes;
    return n > 0 ? least : 0;
}

/* Bits that are set among those that the run was recorded with. */
static uint64_t count_marks(const hth_op *op)
{
    const uint8_t *bytes =
        op->marks.of->map + op->marks.at; /* bit i % 32 of word i / 32, words as bytes ascend */
    uint64_t n = 0;
    for (uint64_t i = op->first_mark; i < (uint64_t)op->first_mark + op->n_mark; i++)
        n += bytes[i / 8] >> i % 8 & 1;
    return n;
}

static uint64_t run_bytes(const hth_tape *t, const hth_op *op)
{
    const hth_slice *s = t->slices + op->first_slice;
    bool in_memory = op->kind == HTH_OP_RUN_AT;
    uint32_t grid[3];
    size_t n = op->n_slice - in_memory;
    memcpy(grid, in_memory ? (const void *)(s[n].of->map + s[n].at) : op->grid, sizeof grid);
    uint64_t groups = (uint64_t)grid[0] * grid[1];
    if (groups == 0 || grid[2] == 0) return 0;
    if (op->reads == 0) return smallest_of(s, n);
    /* More than that is later than anybody waits. */
    const uint64_t most = UINT64_MAX >> 16;
    uint64_t bytes = op->reads, times = op->marks.of ? count_marks(op) : 1;
    if ((in_memory && __builtin_mul_overflow(groups, grid[2], &times)) ||
        __builtin_mul_overflow(times, bytes, &bytes))
        return most;
    return bytes < most ? bytes : most;
}

/* A copy from `now` on: to *now where the device does it, to *copied where a link does. */
static void copy(hth_sim *own, const hth_slice *s, uint64_t *now, uint64_t *copied)
{
    const hth_sim_card *card = &own->card;
    uint64_t bytes = s[0].bytes < s[1].bytes ? s[0].bytes : s[1].bytes, end = *now;
    bool up = s[0].of->memory != HTH_MEMORY_DEVICE, down = s[1].of->memory != HTH_MEMORY_DEVICE;
    if (!up && !down) {
        *now +=
            hth_sim_cost(own, &own->device_random, card->dispatch_ns + at_rate(2 * bytes, card->bandwidth));
        return;
    }
    if (up) end = hth_sim_transfer(own, &own->device_random, &own->up_ns, card->pcie_up, bytes, end);
    if (down) end = hth_sim_transfer(own, &own->device_random, &own->down_ns, card->pcie_down, bytes, end);
    *copied = later(*copied, end);
}

uint64_t hth_sim_play(hth_sim *own, const hth_tape *t, uint64_t start)
{
    uint64_t now = start, copied = start;
    for (size_t i = 0; i < t->n_op; i++) {
        const hth_op *op = &t->ops[i];
        if (op->kind == HTH_OP_ORDER) now = later(now, copied);
        else if (op->kind == HTH_OP_COPY) copy(own, t->slices + op->first_slice, &now, &copied);
        else
            now += hth_sim_cost(own, &own->device_random,
                                own->card.dispatch_ns + at_rate(run_bytes(t, op), own->card.bandwidth));
        hth_null_run(&own->null, t, op);
    }
    return later(now, copied);
}
