/* xoshiro256++ and splitmix64, from the authors' public-domain definitions. Used by sampler.c, one number per
 * draw. The numbers are part of what a seed guarantees and never change. */
#include "sample/random.h"

static uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

void hth_sample_random_seed(hth_sample_random *r, uint64_t seed)
{
    for (int i = 0; i < 4; i++) r->s[i] = splitmix64(&seed);
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
