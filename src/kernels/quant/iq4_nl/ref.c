/* Rows of IQ4_NL (blocks of 32: F16 scale, 16 bytes of nibbles that are indices into a table of values): the
 * definition, with ref_32.h. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 18 };

#include "kernels/quant/ref_32.h"

static block read_block(const uint8_t *p)
{
    block k = {.d = hth_f16_to_f32(hth_load_u16(p))};
    read_nibbles(p + 2, k.w);
    for (int i = 0; i < HTH_ACT_BLOCK; i++) k.w[i] = hth_iq4_values[k.w[i]];
    return k;
}

#include "kernels/quant/entry.h"
