/* Rows of Q2_K (blocks of 256: 16 bytes with a four-bit scale and a four-bit minimum each, 64 bytes of four
 * weights each, F16 scale and minimum): the definition, with ref_256.h. */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 84 };

#include "kernels/quant/ref_256.h"

/* Weight 128a + 32b + c is bits 2b, 2b + 1 of byte 32a + c. */
static void read_block(const uint8_t *p, block *k)
{
    k->d = hth_f16_to_f32(hth_load_u16(p + 80));
    k->m = hth_f16_to_f32(hth_load_u16(p + 82));
    for (int i = 0; i < N_PART; i++) k->scale[i] = p[i] & 15, k->minimum[i] = p[i] >> 4;
    for (int a = 0; a < 2; a++)
        for (int b = 0; b < 4; b++)
            for (int c = 0; c < 32; c++)
                k->w[128 * a + 32 * b + c] = (int8_t)(p[16 + 32 * a + c] >> 2 * b & 3);
}

#include "kernels/quant/entry.h"
