/* Blocks of Q8_0 on AArch64: one source for all ISA levels (quant/arm_32.h). */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 34 };

#include "kernels/quant/arm_blocks.h"

/* Weights 16i to 16i + 15 of the block at p. */
HTH_INLINE int8x16_t block_half(const uint8_t *p, int i) { return vld1q_s8((const int8_t *)p + 2 + 16 * i); }

HTH_INLINE float32x4_t block_scales(const uint8_t *p) { return four_scales(p, BLOCK_SIZE); }

#include "kernels/quant/arm_32.h"
