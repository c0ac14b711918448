/* Rows of Q4_1 (blocks of 32: F16 scale and minimum, 16 bytes of nibbles; a weight is d * nibble + m): the
 * definition, with ref_32.h. */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 20 };

#include "kernels/quant/ref_32.h"

static block read_block(const uint8_t *p)
{
    block k = {.d = hth_f16_to_f32(hth_load_u16(p)), .m = hth_f16_to_f32(hth_load_u16(p + 2))};
    read_nibbles(p + 4, k.w);
    return k;
}

#include "kernels/quant/entry.h"
