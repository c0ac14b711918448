/* Compaction in C: the definition of hth_compact_fn. forward/ffn.c calls it once or twice per layer. */
#include "kernels/isa.h"

#include "base/bits.h"

HTH_INLINE size_t compact_masked(const hth_compact *job, uint32_t mask)
{
    size_t n = 0;
    for (size_t i = 0; i < job->n; i++) {
        int32_t number = job->list ? job->list[i] : (int32_t)i;
        float x = job->x[i], threshold = job->thresholds ? job->thresholds[number] : job->threshold;
        bool below = hth_float_of(hth_bits_of(x) & mask) < threshold;
        job->out_idx[n] = number;
        if (job->out_x) job->out_x[n] = x;
        n += !below;
    }
    return n;
}

static size_t compact_values(const hth_compact *job) { return compact_masked(job, 0xffffffffu); }
static size_t compact_magnitudes(const hth_compact *job) { return compact_masked(job, 0x7fffffffu); }

void hth_kernels_compact_ref(hth_kernels *k)
{
    k->compact = compact_values;
    k->compact_abs = compact_magnitudes;
}
