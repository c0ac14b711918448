/* Rows of Q8_0 (blocks of 32: scale as half, 32 signed bytes): the definition, with ref_32.h. */
#include "kernels/kernels.h"

#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 34 };

#include "kernels/ref_32.h"

static block read_block(const uint8_t *p)
{
    block k = {.d = hth_f16_to_f32(hth_load_u16(p))};
    memcpy(k.w, p + 2, sizeof k.w);
    return k;
}

void hth_kernels_q8_0_ref(hth_kernels *k)
{
    k->rows[HTH_TYPE_Q8_0] = rows;
    k->axpy[HTH_TYPE_Q8_0] = down;
    k->unpack[HTH_TYPE_Q8_0] = unpack;
}
