/* Rows of Q4_0 on AArch64: one text for the levels neon and dotprod. */
#define HAS_MINIMUM 0
#include "kernels/arm.h"

enum { BLOCK_SIZE = 18 };

HTH_INLINE group unpack(const uint8_t *p)
{
    group g = {.d_low = four_scales(p, BLOCK_SIZE), .d_high = four_scales(p + 4 * BLOCK_SIZE, BLOCK_SIZE)};
    for (int i = 0; i < 8; i++) {
        uint8x16_t bytes = vld1q_u8(p + i * BLOCK_SIZE + 2);
        g.w[2 * i] = vsubq_s8(vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(15))), vdupq_n_s8(8));
        g.w[2 * i + 1] = vsubq_s8(vreinterpretq_s8_u8(vshrq_n_u8(bytes, 4)), vdupq_n_s8(8));
    }
    return g;
}

#include "kernels/rows_tmpl.h"
