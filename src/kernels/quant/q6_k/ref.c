/* Rows of Q6_K (blocks of 256: 128 bytes of low nibbles, 64 bytes of two high bits of four weights each,
 * sixteen signed scales, F16 scale): the definition, with ref_256.h. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 210 };

#include "kernels/quant/ref_256.h"

/* Weight 128a + 32b + c is nibble b / 2 of byte 64a + 32 (b mod 2) + c of the low bits, with bits 2b, 2b + 1 of
 * byte 32a + c of the high bits above it, minus 32. */
static void read_block(const uint8_t *p, block *k)
{
    const uint8_t *low = p, *high = p + 128;
    k->d = hth_f16_to_f32(hth_load_u16(p + 208));
    for (int i = 0; i < N_PART; i++) k->scale[i] = (int8_t)p[192 + i];
    for (int a = 0; a < 2; a++)
        for (int b = 0; b < 4; b++)
            for (int c = 0; c < 32; c++) {
                int four = low[64 * a + 32 * (b % 2) + c] >> 4 * (b / 2) & 15,
                    two = high[32 * a + c] >> 2 * b & 3;
                k->w[128 * a + 32 * b + c] = (int8_t)(four + 16 * two - 32);
            }
}

#include "kernels/quant/entry.h"
