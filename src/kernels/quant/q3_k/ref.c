/* Rows of Q3_K (blocks of 256: 32 bytes of third bits, 64 bytes of four weights each, twelve bytes of sixteen
 * scales, F16 scale): the definition, with ref_256.h. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 110 };

#include "kernels/quant/ref_256.h"

/* Weight 128a + 32b + c is bits 2b, 2b + 1 of byte 32a + c of the low bits, minus 4 if bit 4a + b of byte c of
 * the high bits is not set. */
static void read_block(const uint8_t *p, block *k)
{
    const uint8_t *high = p, *low = p + 32;
    k->d = hth_f16_to_f32(hth_load_u16(p + 108));
    hth_q3_k_scales(p + 96, k->scale);
    for (int a = 0; a < 2; a++)
        for (int b = 0; b < 4; b++)
            for (int c = 0; c < 32; c++) {
                int two = low[32 * a + c] >> 2 * b & 3, third = high[c] >> (4 * a + b) & 1;
                k->w[128 * a + 32 * b + c] = (int8_t)(two + 4 * third - 4);
            }
}

#include "kernels/quant/entry.h"
