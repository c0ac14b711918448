/* Rows of Q4_K (blocks of 256: F16 scale and minimum, twelve bytes of scales and minima of 32 weights each, 128
 * bytes of nibbles): the definition, with ref_256.h. */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 144 };

#include "kernels/quant/ref_256.h"

/* Weights 64a + c and 64a + 32 + c are the nibbles of byte 32a + c. */
static void read_block(const uint8_t *p, block *k)
{
    uint8_t scale[8], minimum[8];
    k->d = hth_f16_to_f32(hth_load_u16(p));
    k->m = hth_f16_to_f32(hth_load_u16(p + 2));
    hth_k_scales(p + 4, scale, minimum);
    for (int i = 0; i < N_PART; i++) k->scale[i] = scale[i / 2], k->minimum[i] = minimum[i / 2];
    for (int s = 0; s < 8; s++)
        for (int c = 0; c < 32; c++)
            k->w[32 * s + c] = (int8_t)(p[16 + 32 * (s / 2) + c] >> 4 * (s % 2) & 15);
}

#include "kernels/quant/entry.h"
