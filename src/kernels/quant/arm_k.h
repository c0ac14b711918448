/* Scales and minima of a block of Q4_K or Q5_K on AArch64: what quant/arm_wide.h wants of a type but weights(). */
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
