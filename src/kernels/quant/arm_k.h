/* A block of 256 on AArch64 with its scales and minima: what quant/arm_wide.h wants of a type but weights() and, unless
 * SCALES_OF_32 is defined (the layout of Q4_K and Q5_K), unpack(). */
#include "kernels/quant/arm.h"
#include "kernels/quant/blocks.h"

typedef struct block {
    const uint8_t *p;
    int16_t scale[16];
#if HAS_MINIMUM
    int16_t minimum[16];
#endif
} block;

#ifdef SCALES_OF_32
HTH_INLINE block unpack(const uint8_t *p)
{
    block k = {.p = p};
    uint8_t scale[8], minimum[8];
    hth_k_scales(p + 4, scale, minimum);
    for (int i = 0; i < 16; i++) k.scale[i] = scale[i / 2], k.minimum[i] = minimum[i / 2];
    return k;
}
#endif
