/* Rows of Q5_1 on AArch64: one text for the levels neon and dotprod. */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 24 };

#include "kernels/arm_blocks.h"

/* Weights 16i to 16i + 15 of the block at p. */
HTH_INLINE int8x16_t block_half(const uint8_t *p, int i)
{
    return vorrq_s8(i ? high_nibbles(p + 8) : low_nibbles(p + 8), fifth_bits(p + 4 + 2 * i));
}

HTH_INLINE group unpack(const uint8_t *p)
{
    group g;
    take_scales(&g, p);
    for (int i = 0; i < 16; i++) g.w[i] = block_half(p + i / 2 * BLOCK_SIZE, i % 2);
    return g;
}

#include "kernels/rows_tmpl.h"
