/* Packs rows of TQ1_0, TQ2_0 and MXFP4: the largest magnitude of a block sets its scale, and the weights are rounded to
 * the nearest value, as llama-quantize does it. quantize and tests call it through the kernel table. Layouts:
 * quant/TYPE. */
#include "kernels/isa.h"
#include "kernels/quant/blocks.h"
#include "kernels/quant/pack_fit.h"

#include <string.h>

enum { BLOCK = 256 };

/* ---- ternary ----------------------------------------------------------------------------- */

/* Stores the scale, and weights as -1, 0, 1, plus 1; halves away from zero. */
static void round_ternary(const float *x, uint8_t *q, uint8_t *scale)
{
    float d = hth_fit_magnitude(hth_fit_top(x, BLOCK)), inverse = hth_fit_inverse(d);
    hth_store_u16(scale, hth_f32_to_f16(d));
    for (int i = 0; i < BLOCK; i++) {
        float v = x[i] * inverse;
        q[i] = (uint8_t)(1 + (v >= 0.5f) - (v <= -0.5f));
    }
}

/* n bytes of n_digit digits to the base 3: digit k of byte i is weight k * n + i, the first one highest. A byte is the
 * number as a fraction of 3^5, in units of 1/256, rounded up. */
static void put_digits(const uint8_t *q, int n, int n_digit, uint8_t *p)
{
    for (int i = 0; i < n; i++) {
        int number = 0;
        for (int k = 0; k < 5; k++) number = 3 * number + (k < n_digit ? q[k * n + i] : 0);
        p[i] = (uint8_t)((number * 256 + 242) / 243);
    }
}

static void pack_tq1_0(const float *x, size_t n_col, uint8_t *row)
{
    for (size_t b = 0; b < n_col / BLOCK; b++, row += 54, x += BLOCK) {
        uint8_t q[BLOCK];
        round_ternary(x, q, row + 52);
        put_digits(q, 32, 5, row);
        put_digits(q + 160, 16, 5, row + 32);
        put_digits(q + 240, 4, 4, row + 48);
    }
}

static void pack_tq2_0(const float *x, size_t n_col, uint8_t *row)
{
    for (size_t b = 0; b < n_col / BLOCK; b++, row += 66, x += BLOCK) {
        uint8_t q[BLOCK];
        round_ternary(x, q, row + 64);
        for (int i = 0; i < 64; i++) {
            const uint8_t *first = q + i / 32 * 128 + i % 32;
            row[i] = (uint8_t)(first[0] | first[32] << 2 | first[64] << 4 | first[96] << 6);
        }
    }
}

/* ---- MXFP4 ------------------------------------------------------------------------------- */

/* The value nearest to v in units of scale; the smaller one of two equally near ones. */
static uint8_t nearest_fp4(float v, float scale)
{
    static const float middles[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5.0f, 7.0f, 10.0f};
    int n = 0;
    for (int i = 0; i < 7; i++) n += hth_fit_magnitude(v) > middles[i] * scale;
    return (uint8_t)(n > 0 && v < 0.0f ? n + 8 : n);
}

/* The power of two of the largest magnitude is that of the value 4. */
static void pack_mxfp4(const float *x, size_t n_col, uint8_t *row)
{
    enum { SIZE = 32 };
    for (size_t b = 0; b < n_col / SIZE; b++, row += 17, x += SIZE) {
        uint32_t power = hth_bits_of(hth_fit_magnitude(hth_fit_top(x, SIZE))) >> 23;
        row[0] = (uint8_t)(power > 2 ? power - 2 : 0);
        float scale = hth_mxfp4_scale(row[0]);
        for (int i = 0; i < SIZE / 2; i++)
            row[1 + i] = (uint8_t)(nearest_fp4(x[i], scale) | nearest_fp4(x[i + SIZE / 2], scale) << 4);
    }
}

void hth_kernels_pack_fixed_ref(hth_kernels *k)
{
    k->pack[HTH_TYPE_TQ1_0] = pack_tq1_0;
    k->pack[HTH_TYPE_TQ2_0] = pack_tq2_0;
    k->pack[HTH_TYPE_MXFP4] = pack_mxfp4;
}
