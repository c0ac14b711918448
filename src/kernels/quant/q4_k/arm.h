/* Blocks of Q4_K on AArch64: one source for all ISA levels (quant/arm_256.h). */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 144, SCALE_AT = 0, MINIMUM_AT = 2, OFFSET_SHIFT = -1 };

#define SCALES_OF_32
#include "kernels/quant/arm_k.h"

/* Part i is half `half` of 32 consecutive weights. */
HTH_INLINE int8x16_t weights(const block *k, int i)
{
    int s = i / 2, half = i % 2;
    return vreinterpretq_s8_u8(bits_of(k->p + 16 + 32 * (s / 2) + 16 * half, 4 * (s % 2), 4));
}

#include "kernels/quant/arm_256.h"
