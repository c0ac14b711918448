/* Blocks of Q6_K on AArch64: one source for all ISA levels (quant/arm_256.h). */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 210, SCALE_AT = 208, OFFSET_SHIFT = 5 };

#include "kernels/quant/arm_k.h"

HTH_INLINE block unpack(const uint8_t *p)
{
    block k = {.p = p};
    int8x16_t scale = vld1q_s8((const int8_t *)p + 192);
    vst1q_s16(k.scale, vmovl_s8(vget_low_s8(scale)));
    vst1q_s16(k.scale + 8, vmovl_high_s8(scale));
    return k;
}

/* Part i is half `half` of 32 consecutive weights. */
HTH_INLINE int8x16_t weights(const block *k, int i)
{
    int a = i / 8, b = i / 2 % 4, half = i % 2;
    uint8x16_t four = bits_of(k->p + 64 * a + 32 * (b % 2) + 16 * half, 4 * (b / 2), 4);
    uint8x16_t two = vshlq_n_u8(bits_of(k->p + 128 + 32 * a + 16 * half, 2 * b, 2), 4);
    return vsubq_s8(vreinterpretq_s8_u8(vorrq_u8(four, two)), vdupq_n_s8(32));
}

#include "kernels/quant/arm_256.h"
