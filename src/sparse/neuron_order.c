/* Orders of neurons. Called by convert/pack.c and study/act_stats.c, one layer at a time. engine/load.c checks the
 * orders in a file. */
#include "sparse/neuron_order.h"

#include "base/alloc.h"
#include "base/bits.h"

#include <stddef.h>

static uint32_t octave(uint32_t n) { return n ? 32u - (uint32_t)__builtin_clz(n) : 0; }

/* Sorts neurons by octave of n_fired, the hottest octave first, ascending within. first: the start of each octave. */
static void sort_by_octave(const hth_act_stats *f, int32_t *order, uint32_t first[34])
{
    uint32_t n = 0;
    for (uint32_t o = 33; o-- > 0;) {
        first[32 - o] = n;
        for (uint32_t i = 0; i < f->d_ff; i++)
            if (octave(f->n_fired[i]) == o) order[n++] = (int32_t)i;
    }
    first[33] = n;
}

uint32_t hth_order_coactivation(const hth_act_stats *f, size_t a, size_t b)
{
    const uint32_t *x = f->coact_bits + a * f->n_word, *y = f->coact_bits + b * f->n_word;
    uint32_t n = 0;
    for (uint32_t w = 0; w < f->n_word; w++) n += hth_count_bits(x[w] & y[w]);
    return n;
}

/* Orders n neurons as a chain that starts with the hottest. left: neurons that are not in the chain yet,
 * ascending. */
static void chain(const hth_act_stats *f, int32_t *order, uint32_t n, int32_t *left)
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < n; i++) {
        left[i] = order[i];
        if (f->n_fired[left[i]] > f->n_fired[left[next]]) next = i;
    }
    for (uint32_t i = 0; i < n; i++) {
        int32_t last = order[i] = left[next];
        uint32_t max = 0, n_left = n - i - 1;
        for (uint32_t k = next; k < n_left; k++) left[k] = left[k + 1];
        next = 0;
        for (uint32_t k = 0; k < n_left; k++) {
            uint32_t count = hth_order_coactivation(f, (size_t)last, (size_t)left[k]);
            if (count > max) max = count, next = k;
        }
    }
}

void hth_order_neurons(const hth_act_stats *f, int32_t *order, int32_t *scratch)
{
    uint32_t first[34];
    sort_by_octave(f, order, first);
    for (int o = 0; o < 33 && f->coact_bits; o++)
        if (first[o + 1] - first[o] > 1) chain(f, order + first[o], first[o + 1] - first[o], scratch);
}

hearth_status hth_order_read(const hth_gguf *file, const hth_gguf_tensor *t, uint32_t d_ff, int32_t *order,
                             hearth_error *err)
{
    uint8_t *seen = hth_alloc(d_ff, 1);
    hearth_status st = seen ? hth_gguf_read(file, t, 0, d_ff * sizeof *order, order, err)
                            : hth_fail_memory(err, d_ff, "the order of neurons");
    for (uint32_t i = 0; st == HEARTH_OK && i < d_ff; i++) {
        bool inside = order[i] >= 0 && (uint32_t)order[i] < d_ff;
        if (!inside || seen[order[i]])
            st = hth_fail(err, HEARTH_ERROR_FORMAT,
                          "%s: tensor '%s' at %llu: entry %u is %d%s; expected each of %u neurons once",
                          hth_gguf_part_path(file, t->i_part), t->name.bytes, (unsigned long long)t->offset,
                          i, order[i], inside ? " again" : "", d_ff);
        else seen[order[i]] = 1;
    }
    hth_free(seen);
    return st;
}

double hth_order_mean_run(const hth_act_stats *f, const int32_t *order)
{
    uint64_t n_fired = 0, n_run = 0;
    for (uint32_t w = 0; f->coact_bits && w < f->n_word; w++) {
        uint32_t before = 0;
        for (uint32_t i = 0; i < f->d_ff; i++) {
            uint32_t now = f->coact_bits[(size_t)(order ? order[i] : (int32_t)i) * f->n_word + w];
            n_fired += hth_count_bits(now);
            n_run += hth_count_bits(now & ~before);
            before = now;
        }
    }
    return n_run ? (double)n_fired / (double)n_run : 0.0;
}
