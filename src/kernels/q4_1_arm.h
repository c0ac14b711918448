/* Rows of Q4_1 on AArch64: one text for the levels neon and dotprod. */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 20 };

#include "kernels/arm_blocks.h"

HTH_INLINE group unpack(const uint8_t *p)
{
    group g;
    take_scales(&g, p);
    for (int i = 0; i < 8; i++, p += BLOCK_SIZE) {
        g.w[2 * i] = low_nibbles(p + 4);
        g.w[2 * i + 1] = high_nibbles(p + 4);
    }
    return g;
}

#include "kernels/rows_tmpl.h"
