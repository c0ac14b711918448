/* Blocks of IQ4_XS on AArch64: one source for all ISA levels (quant/arm_256.h). */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 136, SCALE_AT = 0, OFFSET_SHIFT = -1 };

#include "kernels/quant/arm_k.h"

HTH_INLINE block unpack(const uint8_t *p)
{
    block k = {.p = p};
    hth_iq4_xs_scales(p, k.scale);
    return k;
}

/* Part i is half `half` of 32 consecutive weights. */
HTH_INLINE int8x16_t weights(const block *k, int i)
{
    int s = i / 2, half = i % 2;
    return look_up(hth_iq4_values, vreinterpretq_s8_u8(bits_of(k->p + 8 + 16 * s, 4 * half, 4)));
}

#include "kernels/quant/arm_256.h"
