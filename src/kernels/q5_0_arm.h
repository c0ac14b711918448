/* Rows of Q5_0 on AArch64: one text for the levels neon and dotprod. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 22 };

#include "kernels/arm_blocks.h"

HTH_INLINE group unpack(const uint8_t *p)
{
    group g;
    take_scales(&g, p);
    for (int i = 0; i < 8; i++, p += BLOCK_SIZE) {
        int8x16_t low = vorrq_s8(low_nibbles(p + 6), fifth_bits(p + 2));
        int8x16_t high = vorrq_s8(high_nibbles(p + 6), fifth_bits(p + 4));
        g.w[2 * i] = vsubq_s8(low, vdupq_n_s8(16));
        g.w[2 * i + 1] = vsubq_s8(high, vdupq_n_s8(16));
    }
    return g;
}

#include "kernels/rows_tmpl.h"
