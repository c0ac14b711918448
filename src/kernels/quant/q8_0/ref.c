/* Rows of Q8_0 (blocks of 32: F16 scale, 32 signed bytes): the definition, with ref_32.h. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 34 };

#include "kernels/quant/ref_32.h"

static block read_block(const uint8_t *p)
{
    block k = {.d = hth_f16_to_f32(hth_load_u16(p))};
    memcpy(k.w, p + 2, sizeof k.w);
    return k;
}

#include "kernels/quant/entry.h"
