/* Rows of IQ4_XS (blocks of 256: scale as half, eight scales of six bits in two and four
 * bytes, 128 bytes of nibbles that are places in a table of values): the definition, with
 * ref_256.h. */
#include "kernels/kernels.h"

#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 136 };

#include "kernels/ref_256.h"

/* Weights 32s + c and 32s + 16 + c are the halves of byte 16s + c. */
static void read_block(const uint8_t *p, block *k)
{
    uint32_t high = hth_load_u16(p + 2), low = hth_load_u32(p + 4);
    k->d = hth_f16_to_f32(hth_load_u16(p));
    for (int i = 0; i < N_PART; i++) {
        int s = i / 2;
        k->scale[i] = (int16_t)((int)((low >> 4 * s & 15) | (high >> 2 * s & 3) << 4) - 32);
    }
    for (int s = 0; s < 8; s++)
        for (int c = 0; c < 16; c++) {
            k->w[32 * s + c] = hth_iq4_values[p[8 + 16 * s + c] & 15];
            k->w[32 * s + 16 + c] = hth_iq4_values[p[8 + 16 * s + c] >> 4];
        }
}

void hth_kernels_iq4_xs_ref(hth_kernels *k)
{
    k->rows[HTH_TYPE_IQ4_XS] = rows;
    k->unpack[HTH_TYPE_IQ4_XS] = unpack;
}
