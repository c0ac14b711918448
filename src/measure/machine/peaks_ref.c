/* The loop of the level without its own instructions: multiply and add of four floats, as in the C kernels. C
 * has no byte product, so there is no int8 peak. */
#include "measure/machine/peaks.h"

typedef float four __attribute__((vector_size(16)));

/* A sum waits for its product and its last value, so twelve of them keep both units busy. Each has a name,
 * because sums in an array would be in memory. */
#define EACH(DO) DO(a) DO(b) DO(c) DO(d) DO(e) DO(f) DO(g) DO(h) DO(i) DO(j) DO(k) DO(l)
#define BEGIN(SUM)                                                                                           \
    four SUM = factor;                                                                                       \
    __asm__ volatile("" : "+m"(SUM)); /* otherwise equal sums would be computed once */
#define STEP(SUM) SUM = SUM * factor + factor;
#define COLLECT(SUM) all += SUM;
enum { N_SUM = 12 };

static void multiply_add(uint64_t n_round)
{
    float half = 0.5f;
    __asm__ volatile("" : "+m"(half)); /* a value unknown to the compiler */
    four factor = {half, half, half, half}, all = factor;
    EACH(BEGIN)
    for (uint64_t round = 0; round < n_round; round++) {
        EACH(STEP)
    }
    EACH(COLLECT)
    __asm__ volatile("" : : "m"(all)); /* marks the sum as used */
}

const hth_peak hth_peaks_ref[] = {
    {"multiply, add (C, 128 bits)", HTH_PEAK_F32, 2 * N_SUM, 4 * N_SUM, multiply_add},
    {0},
};
