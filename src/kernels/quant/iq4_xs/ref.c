/* Rows of IQ4_XS (blocks of 256: F16 scale, eight scales of six bits in two and four bytes, 128 bytes of
 * nibbles that are indices into a table of values): the definition, with ref_256.h. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 136 };

#include "kernels/quant/ref_256.h"

/* Weights 32s + c and 32s + 16 + c are the nibbles of byte 16s + c. */
static void read_block(const uint8_t *p, block *k)
{
    k->d = hth_f16_to_f32(hth_load_u16(p));
    hth_iq4_xs_scales(p, k->scale);
    for (int s = 0; s < 8; s++)
        for (int c = 0; c < 16; c++) {
            k->w[32 * s + c] = hth_iq4_values[p[8 + 16 * s + c] & 15];
            k->w[32 * s + 16 + c] = hth_iq4_values[p[8 + 16 * s + c] >> 4];
        }
}

#include "kernels/quant/entry.h"
