/* Pseudo-random numbers: splitmix64 (Steele et al. 2014, Vigna 2015). Its numbers are part of what seeds of texts,
 * synthetic weights and simulations guarantee: they never change. Any state is a good seed. */
#ifndef HTH_BASE_RANDOM_H
#define HTH_BASE_RANDOM_H

#include <stdint.h>

static inline uint64_t hth_random_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

#endif
