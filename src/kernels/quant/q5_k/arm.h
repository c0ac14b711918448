/* Blocks of Q5_K on AArch64: one source for all ISA levels (quant/arm_256.h). */
#define KERNEL_NAME q5_k
#define KERNEL_TYPE HTH_TYPE_Q5_K
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 176, SCALE_AT = 0, MINIMUM_AT = 2, OFFSET_SHIFT = -1 };

#include "kernels/quant/arm.h"
#include "kernels/quant/blocks.h"

typedef struct block {
    const uint8_t *p;
    int16_t scale[16], minimum[16];
} block;

HTH_INLINE block unpack(const uint8_t *p)
{
    block k = {.p = p};
    uint8_t scale[8], minimum[8];
    hth_k_scales(p + 4, scale, minimum);
    for (int i = 0; i < 16; i++) k.scale[i] = scale[i / 2], k.minimum[i] = minimum[i / 2];
    return k;
}

/* Part i is half `half` of 32 consecutive weights. */
HTH_INLINE int8x16_t weights(const block *k, int i)
{
    int s = i / 2, half = i % 2;
    uint8x16_t four = bits_of(k->p + 48 + 32 * (s / 2) + 16 * half, 4 * (s % 2), 4);
    uint8x16_t fifth = vshlq_n_u8(bits_of(k->p + 16 + 16 * half, s, 1), 4);
    return vreinterpretq_s8_u8(vorrq_u8(four, fifth));
}

#define KERNEL_PANEL "kernels/quant/q5_k/panel.h"
#include "kernels/quant/arm_256.h"
