/* Blocks of MXFP4 on AArch64: one source for all ISA levels (quant/arm_32.h). */
#define KERNEL_NAME mxfp4
#define KERNEL_TYPE HTH_TYPE_MXFP4
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

HTH_INLINE group unpack(const uint8_t *p)
{
    group g;
    g.d_low = block_scales(p), g.d_high = block_scales(p + 4 * BLOCK_SIZE);
    for (int i = 0; i < 16; i++) g.w[i] = block_half(p + i / 2 * BLOCK_SIZE, i % 2);
    return g;
}

#define KERNEL_PANEL "kernels/quant/mxfp4/panel.h"
#include "kernels/quant/arm_32.h"
