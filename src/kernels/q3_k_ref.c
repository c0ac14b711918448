/* Rows of Q3_K (blocks of 256: 32 bytes of third bits, 64 bytes of four weights, twelve of
 * sixteen scales, scale as half): the definition, with ref_256.h. */
#include "kernels/kernels.h"

#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 110 };

#include "kernels/ref_256.h"

/* Weight 128a + 32b + c is the bits 2b, 2b + 1 of byte 32a + c of the low bits, less 4
 * where bit 4a + b of byte c of the high bits is not set. */
static void read_block(const uint8_t *p, block *k)
{
    const uint8_t *high = p, *low = p + 32, *s = p + 96;
    k->d = hth_f16_to_f32(hth_load_u16(p + 108));
    for (int i = 0; i < N_PART; i++) {
        int low_bits = i < 8 ? s[i] & 15 : s[i - 8] >> 4;
        k->scale[i] = (int16_t)((low_bits | (s[8 + i % 4] >> 2 * (i / 4) & 3) << 4) - 32);
    }
    for (int i = 0; i < HTH_ACT_BLOCK_256; i++) {
        int a = i / 128, b = i / 32 % 4, c = i % 32;
        k->w[i] = (int8_t)((low[32 * a + c] >> 2 * b & 3) - (high[c] >> (4 * a + b) & 1 ? 0 : 4));
    }
}

void hth_kernels_q3_k_ref(hth_kernels *k)
{
    k->rows[HTH_TYPE_Q3_K] = rows;
    k->unpack[HTH_TYPE_Q3_K] = unpack;
}
