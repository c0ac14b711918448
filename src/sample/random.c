/* xoshiro256++, from the authors' public-domain definition. Used by sampler.c, one number per
 * draw. The numbers are part of what a seed guarantees and never change. */
#include "sample/random.h"

#include "base/random.h"

void hth_sample_random_seed(hth_sample_random *r, uint64_t seed)
{
    for (int i = 0; i < 4; i++) r->s[i] = hth_random_next(&seed);
}

static uint64_t rotate(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

uint64_t hth_sample_random_next(hth_sample_random *r)
{
    uint64_t *s = r->s, result = rotate(s[0] + s[3], 23) + s[0], t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

double hth_sample_random_unit(hth_sample_random *r)
{
    return (double)(hth_sample_random_next(r) >> 11) * 0x1p-53;
}
