/* Blocks of MXFP4 on AArch64: one source for all ISA levels (quant/arm_32.h). */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 17 };

#include "kernels/quant/blocks.h"
#include "kernels/quant/arm_blocks.h"

HTH_INLINE float32x4_t block_scales(const uint8_t *p)
{
    uint32_t e[4];
    for (int i = 0; i < 4; i++) e[i] = p[i * BLOCK_SIZE];
    return powers(vld1q_u32(e));
}

/* Weights 16i to 16i + 15 of the block at p. */
HTH_INLINE int8x16_t block_half(const uint8_t *p, int i)
{
    return look_up(hth_mxfp4_values, i ? high_nibbles(p + 1) : low_nibbles(p + 1));
}

#include "kernels/quant/arm_32.h"
