/* Who fires, in C: the definition of hth_pick_fn. Called once or twice a layer by run/ffn.c. */
#include "kernels/levels.h"

#include "base/bits.h"

HTH_INLINE size_t pick(const hth_pick *job, uint32_t mask)
{
    size_t n = 0;
    for (size_t i = 0; i < job->n; i++) {
        int32_t number = job->list ? job->list[i] : (int32_t)i;
        float x = job->x[i], floor = job->floors ? job->floors[number] : job->floor;
        bool below = hth_float_of(hth_bits_of(x) & mask) < floor;
        job->kept_list[n] = number;
        if (job->kept_x) job->kept_x[n] = x;
        n += !below;
    }
    return n;
}

static size_t pick_values(const hth_pick *job) { return pick(job, 0xffffffffu); }
static size_t pick_magnitudes(const hth_pick *job) { return pick(job, 0x7fffffffu); }

void hth_kernels_pick_ref(hth_kernels *k)
{
    k->pick = pick_values;
    k->pick_magnitudes = pick_magnitudes;
}
