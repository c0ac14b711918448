/* The random number generator: xoshiro256++ (Blackman and Vigna, 2019), its 256 bits filled by splitmix64 from the
 * seed. */
#ifndef HTH_SAMPLE_RANDOM_H
#define HTH_SAMPLE_RANDOM_H

#include <stdint.h>

typedef struct hth_sample_random {
    uint64_t s[4];
} hth_sample_random;

void hth_sample_random_seed(hth_sample_random *r, uint64_t seed);
uint64_t hth_sample_random_next(hth_sample_random *r);
/* In [0, 1): the most significant 53 bits of the next number, times 2^-53. */
double hth_sample_random_unit(hth_sample_random *r);

#endif
