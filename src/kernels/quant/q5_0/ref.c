/* Rows of Q5_0 (blocks of 32: F16 scale, 32 fifth bits, 16 bytes of nibbles; a weight is d * (nibble + 16 * bit
 * - 16)): the definition, with ref_32.h. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 22 };

#include "kernels/quant/ref_32.h"

static block read_block(const uint8_t *p)
{
    block k = {.d = hth_f16_to_f32(hth_load_u16(p))};
    uint32_t bits = hth_load_u32(p + 2);
    read_nibbles(p + 6, k.w);
    for (int i = 0; i < HTH_ACT_BLOCK; i++) k.w[i] = (int8_t)(k.w[i] + (int)(bits >> i & 1) * 16 - 16);
    return k;
}

#include "kernels/quant/entry.h"
