/* Rows of Q5_1 on AArch64: one text for the levels neon and dotprod. */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 24 };

#include "kernels/arm_blocks.h"

HTH_INLINE group unpack(const uint8_t *p)
{
    group g;
    take_scales(&g, p);
    for (int i = 0; i < 8; i++, p += BLOCK_SIZE) {
        g.w[2 * i] = vorrq_s8(low_nibbles(p + 8), fifth_bits(p + 4));
        g.w[2 * i + 1] = vorrq_s8(high_nibbles(p + 8), fifth_bits(p + 6));
    }
    return g;
}

#include "kernels/rows_tmpl.h"
