/* Rows of MXFP4 on AArch64: one text for the levels neon and dotprod. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 17 };

#include "kernels/blocks.h"
#include "kernels/arm_blocks.h"

HTH_INLINE group unpack(const uint8_t *p)
{
    group g;
    uint32_t e[8];
    for (int i = 0; i < 8; i++) e[i] = p[i * BLOCK_SIZE];
    g.d_low = powers(vld1q_u32(e)), g.d_high = powers(vld1q_u32(e + 4));
    for (int i = 0; i < 8; i++, p += BLOCK_SIZE) {
        g.w[2 * i] = look_up(hth_mxfp4_values, low_nibbles(p + 1));
        g.w[2 * i + 1] = look_up(hth_mxfp4_values, high_nibbles(p + 1));
    }
    return g;
}

#include "kernels/rows_tmpl.h"
