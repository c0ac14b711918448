/* Rows of Q5_K (blocks of 256: as Q4_K, with 32 bytes of fifth bits before the nibbles):
 * the definition, with ref_256.h. */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 176 };

#include "kernels/quant/ref_256.h"

/* Weights 64a + c and 64a + 32 + c are the nibbles of byte 32a + c, with bits 2a and 2a + 1 of byte c of the
 * fifth bits above them. */
static void read_block(const uint8_t *p, block *k)
{
    uint8_t scale[8], minimum[8];
    k->d = hth_f16_to_f32(hth_load_u16(p));
    k->m = hth_f16_to_f32(hth_load_u16(p + 2));
    hth_k_scales(p + 4, scale, minimum);
    for (int i = 0; i < N_PART; i++) k->scale[i] = scale[i / 2], k->minimum[i] = minimum[i / 2];
    for (int s = 0; s < 8; s++)
        for (int c = 0; c < 32; c++) {
            int four = p[48 + 32 * (s / 2) + c] >> 4 * (s % 2) & 15, fifth = p[16 + c] >> s & 1;
            k->w[32 * s + c] = (int8_t)(four + 16 * fifth);
        }
}

#include "kernels/quant/entry.h"
