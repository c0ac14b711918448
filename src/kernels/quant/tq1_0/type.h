/* Rows of TQ1_0 (blocks of 256: 48 bytes of five weights each, four bytes of four weights, F16 scale): the definition,
 * with ref_256.h. A byte b is a fraction b / 256 whose digits to the base 3 are the weights plus 1. */
#define HAS_MINIMUM 0
#define NO_AXPY
enum { BLOCK_SIZE = 54, SCALE_AT = 52 };

#ifdef HTH_LEVEL_REF
#include "kernels/quant/ref_256.h"

/* Digit n of the byte, minus 1; the digits before it are the whole part of a product, which is dropped. */
static int8_t digit(uint8_t byte, int n)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    return (int8_t)(((uint8_t)(byte * power[n]) * 3 >> 8) - 1);
}

/* Digit n of 32 bytes after digit n - 1 of them all, then the same of sixteen bytes and of four. */
static void read_block(const uint8_t *p, block *k)
{
    k->d = hth_f16_to_f32(hth_load_u16(p + SCALE_AT));
    for (int i = 0; i < N_PART; i++) k->scale[i] = 1;
    for (int i = 0; i < 160; i++) k->w[i] = digit(p[i % 32], i / 32);
    for (int i = 0; i < 80; i++) k->w[160 + i] = digit(p[32 + i % 16], i / 16);
    for (int i = 0; i < 16; i++) k->w[240 + i] = digit(p[48 + i % 4], i / 4);
}
#endif

#include "kernels/quant/entry.h"
