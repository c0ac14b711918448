/* Rows of Q8_0 on AArch64: one text for the levels neon and dotprod. */
#define HAS_MINIMUM 0
#include "kernels/arm.h"

enum { BLOCK_SIZE = 34 };

HTH_INLINE group unpack(const uint8_t *p)
{
    group g = {.d_low = four_scales(p, BLOCK_SIZE), .d_high = four_scales(p + 4 * BLOCK_SIZE, BLOCK_SIZE)};
    for (int i = 0; i < 8; i++) {
        const int8_t *w = (const int8_t *)p + i * BLOCK_SIZE + 2;
        g.w[2 * i] = vld1q_s8(w);
        g.w[2 * i + 1] = vld1q_s8(w + 16);
    }
    return g;
}

#include "kernels/rows_tmpl.h"
