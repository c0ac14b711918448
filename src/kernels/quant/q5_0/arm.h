/* Blocks of Q5_0 on AArch64: one source for all ISA levels (quant/arm_32.h). */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 22 };

#include "kernels/quant/arm_blocks.h"

/* Weights 16i to 16i + 15 of the block at p. */
HTH_INLINE int8x16_t block_half(const uint8_t *p, int i)
{
    int8x16_t w = vorrq_s8(i ? high_nibbles(p + 6) : low_nibbles(p + 6), fifth_bits(p + 2 + 2 * i));
    return vsubq_s8(w, vdupq_n_s8(16));
}

HTH_INLINE float32x4_t block_scales(const uint8_t *p) { return four_scales(p, BLOCK_SIZE); }

#include "kernels/quant/arm_32.h"
