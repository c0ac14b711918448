/* Rows of Q4_0 on AArch64: one text for the levels neon and dotprod. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 18 };

#include "kernels/arm_blocks.h"

HTH_INLINE group unpack(const uint8_t *p)
{
    group g;
    take_scales(&g, p);
    for (int i = 0; i < 8; i++, p += BLOCK_SIZE) {
        g.w[2 * i] = vsubq_s8(low_nibbles(p + 2), vdupq_n_s8(8));
        g.w[2 * i + 1] = vsubq_s8(high_nibbles(p + 2), vdupq_n_s8(8));
    }
    return g;
}

#include "kernels/rows_tmpl.h"
