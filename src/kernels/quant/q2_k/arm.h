/* Blocks of Q2_K on AArch64: one source for all ISA levels (quant/arm_256.h). */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 84, SCALE_AT = 80, MINIMUM_AT = 82, OFFSET_SHIFT = -1 };

#include "kernels/quant/arm_k.h"

HTH_INLINE block unpack(const uint8_t *p)
{
    block k = {.p = p};
    for (int i = 0; i < 16; i++) k.scale[i] = p[i] & 15, k.minimum[i] = p[i] >> 4;
    return k;
}

/* Part i is half `half` of 32 consecutive weights. */
HTH_INLINE int8x16_t weights(const block *k, int i)
{
    int a = i / 8, b = i / 2 % 4, half = i % 2;
    return vreinterpretq_s8_u8(bits_of(k->p + 16 + 32 * a + 16 * half, 2 * b, 2));
}

#include "kernels/quant/arm_256.h"
