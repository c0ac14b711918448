/* Rows of Q5_K (blocks of 256: as Q4_K, with 32 bytes of fifth bits before the nibbles):
 * the definition, with ref_256.h. */
#include "kernels/kernels.h"

#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 176 };

#include "kernels/ref_256.h"

/* Weights 64a + c and 64a + 32 + c are the halves of byte 32a + c, with bits 2a and
 * 2a + 1 of byte c of the fifth bits above them. */
static void read_block(const uint8_t *p, block *k)
{
    uint8_t scale[8], minimum[8];
    k->d = hth_f16_to_f32(hth_load_u16(p));
    k->m = hth_f16_to_f32(hth_load_u16(p + 2));
    hth_k_scales(p + 4, scale, minimum);
    for (int i = 0; i < N_PART; i++) k->scale[i] = scale[i / 2], k->minimum[i] = minimum[i / 2];
    for (int i = 0; i < HTH_ACT_BLOCK_256; i++) {
        int a = i / 64, high = i / 32 % 2, c = i % 32;
        k->w[i] = (int8_t)((p[48 + 32 * a + c] >> 4 * high & 15) | (p[16 + c] >> (2 * a + high) & 1) << 4);
    }
}

void hth_kernels_q5_k_ref(hth_kernels *k)
{
    k->rows[HTH_TYPE_Q5_K] = rows;
    k->unpack[HTH_TYPE_Q5_K] = unpack;
}
