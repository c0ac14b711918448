/* Rows of TQ2_0 (blocks of 256: 64 bytes of four weights each, F16 scale): the definition, with ref_256.h. */
#define HAS_MINIMUM 0
#define NO_AXPY
enum { BLOCK_SIZE = 66, SCALE_AT = 64 };

#ifdef HTH_LEVEL_REF
#include "kernels/quant/ref_256.h"

/* Weight 128a + 32b + c is bits 2b, 2b + 1 of byte 32a + c, minus 1. */
static void read_block(const uint8_t *p, block *k)
{
    k->d = hth_f16_to_f32(hth_load_u16(p + SCALE_AT));
    for (int i = 0; i < N_PART; i++) k->scale[i] = 1;
    for (int i = 0; i < HTH_ACT_BLOCK_256; i++)
        k->w[i] = (int8_t)((p[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3) - 1);
}
#endif

#include "kernels/quant/entry.h"
