/* Rows of Q4_0 (blocks of 32: F16 scale, 16 bytes of nibbles; weight j is the low nibble of byte j, weight j +
 * 16 the high nibble, both minus 8): the definition, with ref_32.h. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 18 };

#include "kernels/quant/ref_32.h"

static block read_block(const uint8_t *p)
{
    block k = {.d = hth_f16_to_f32(hth_load_u16(p))};
    read_nibbles(p + 2, k.w);
    for (int i = 0; i < HTH_ACT_BLOCK; i++) k.w[i] = (int8_t)(k.w[i] - 8);
    return k;
}

#include "kernels/quant/entry.h"
