/* Rows of weights and the importance of their columns, for tests of rounding by importance. No function of libm: the
 * same numbers on every machine. */
#ifndef HEARTH_TESTS_SUPPORT_KERNELS_WEIGHTED_ROWS_H
#define HEARTH_TESTS_SUPPORT_KERNELS_WEIGHTED_ROWS_H

#include "support/test.h"

enum { WEIGHTED_KINDS = 3, WEIGHTED_ROWS = 24, WEIGHTED_COLS = 1024 };

/* About normal. */
static inline float weighted_normal(test_random *r)
{
    float sum = 0.0f;
    for (int i = 0; i < 6; i++) sum += test_random_float(r);
    return sum * 0.7071f;
}

/* Kind 0: importance within an octave up and down; 1: over twelve octaves, and some weights are large; 2: one column of
 * 32 is a hundred times as important as the others, and its weights are small. */
static inline void weighted_fill(int kind, float *x, float *importance)
{
    test_random r = {77 + (uint64_t)kind};
    for (int c = 0; c < WEIGHTED_COLS; c++) {
        float octave = (float)(1u << test_random_below(&r, kind == 0 ? 3 : 13)) / (kind == 0 ? 2.0f : 64.0f);
        importance[c] = kind == 2 ? (c % 32 == 17 ? 100.0f : 1.0f) : octave * (1.2f + 0.4f * test_random_float(&r));
    }
    for (int i = 0; i < WEIGHTED_ROWS * WEIGHTED_COLS; i++) {
        float v = 0.02f * weighted_normal(&r);
        if (kind == 1 && test_random_below(&r, 16) == 0) v *= 4.0f;
        if (kind == 2 && i % 32 == 17) v *= 0.3f;
        x[i] = v;
    }
}

#endif
