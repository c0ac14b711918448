/* Blocks of Q4_1 on AArch64: one source for all ISA levels (quant/arm_32.h). */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 20 };

#include "kernels/quant/arm_blocks.h"

/* Weights 16i to 16i + 15 of the block at p. */
HTH_INLINE int8x16_t block_half(const uint8_t *p, int i)
{
    return i ? high_nibbles(p + 4) : low_nibbles(p + 4);
}

HTH_INLINE float32x4_t block_scales(const uint8_t *p) { return four_scales(p, BLOCK_SIZE); }
HTH_INLINE float32x4_t block_minima(const uint8_t *p) { return four_scales(p + 2, BLOCK_SIZE); }

#include "kernels/quant/arm_32.h"
