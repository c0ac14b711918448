/* Blocks of Q3_K on AArch64: one source for all ISA levels (quant/arm_256.h). */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 110, SCALE_AT = 108, OFFSET_SHIFT = 2 };

#include "kernels/quant/arm_k.h"

HTH_INLINE block unpack(const uint8_t *p)
{
    block k = {.p = p};
    hth_q3_k_scales(p + 96, k.scale);
    return k;
}

/* Part i is half `half` of 32 consecutive weights. */
HTH_INLINE int8x16_t weights(const block *k, int i)
{
    int a = i / 8, b = i / 2 % 4, half = i % 2;
    uint8x16_t two = bits_of(k->p + 32 + 32 * a + 16 * half, 2 * b, 2);
    uint8x16_t third = vshlq_n_u8(bits_of(k->p + 16 * half, 4 * a + b, 1), 2);
    return vsubq_s8(vreinterpretq_s8_u8(vorrq_u8(two, third)), vdupq_n_s8(4));
}

#include "kernels/quant/arm_256.h"
