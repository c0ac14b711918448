/* Rows of MXFP4 (blocks of 32: an exponent in one byte, 16 bytes of nibbles that are indices into a table of
 * values): the definition, with ref_32.h. The integers are twice the values, so the scale is half of the
 * format's. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 17 };

#include "kernels/quant/ref_32.h"

static block read_block(const uint8_t *p)
{
    block k = {.d = hth_mxfp4_scale(*p)};
    read_nibbles(p + 1, k.w);
    for (int i = 0; i < HTH_ACT_BLOCK; i++) k.w[i] = hth_mxfp4_values[k.w[i]];
    return k;
}

#include "kernels/quant/entry.h"
