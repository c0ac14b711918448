/* Rows of Q8_0 on AArch64: one text for the levels neon and dotprod. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 34 };

#include "kernels/arm_blocks.h"

HTH_INLINE group unpack(const uint8_t *p)
{
    group g;
    take_scales(&g, p);
    for (int i = 0; i < 8; i++, p += BLOCK_SIZE) {
        g.w[2 * i] = vld1q_s8((const int8_t *)p + 2);
        g.w[2 * i + 1] = vld1q_s8((const int8_t *)p + 18);
    }
    return g;
}

#include "kernels/rows_tmpl.h"
