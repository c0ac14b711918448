/* Rows of IQ4_NL on AArch64: one text for the levels neon and dotprod. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 18 };

#include "kernels/blocks.h"
#include "kernels/arm_blocks.h"

HTH_INLINE group unpack(const uint8_t *p)
{
    group g;
    take_scales(&g, p);
    for (int i = 0; i < 8; i++, p += BLOCK_SIZE) {
        g.w[2 * i] = look_up(hth_iq4_values, low_nibbles(p + 2));
        g.w[2 * i + 1] = look_up(hth_iq4_values, high_nibbles(p + 2));
    }
    return g;
}

#include "kernels/rows_tmpl.h"
