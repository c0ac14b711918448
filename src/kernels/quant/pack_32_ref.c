/* Packs rows in blocks of 32: Q4_1, Q5_0, Q5_1 with the rounding of the format (the range of a block is divided
 * evenly), IQ4_NL by search. quantize and tests call it through the kernel table. */
#include "kernels/quant/blocks.h"
#include "kernels/isa.h"
#include "kernels/quant/pack_fit.h"

#include <string.h>

enum { BLOCK = 32 };

static float inverse_of(float d) { return d != 0.0f ? 1.0f / d : 0.0f; }

/* Low nibbles of the bytes first, then the high ones. */
static void put_nibbles(const uint8_t *q, uint8_t *p)
{
    for (int i = 0; i < BLOCK / 2; i++) p[i] = (uint8_t)((q[i] & 15) | (q[i + BLOCK / 2] & 15) << 4);
}

static void put_fifth_bits(const uint8_t *q, uint8_t *p)
{
    uint32_t bits = 0;
    for (int i = 0; i < BLOCK; i++) bits |= (uint32_t)(q[i] >> 4) << i;
    memcpy(p, &bits, sizeof bits);
}

/* q = (x - min) / d with d = (max - min) / top. Stores the F16 values d and min first. */
static void pack_range(const float *x, int top, uint8_t *q, uint8_t *p)
{
    float low = x[0], high = x[0];
    for (int i = 1; i < BLOCK; i++) low = x[i] < low ? x[i] : low, high = x[i] > high ? x[i] : high;
    float d = (high - low) / (float)top, inverse = inverse_of(d);
    hth_store_u16(p, hth_f32_to_f16(d));
    hth_store_u16(p + 2, hth_f32_to_f16(low));
    for (int i = 0; i < BLOCK; i++) q[i] = (uint8_t)hth_fit_round((x[i] - low) * inverse, 0, top);
}

static void pack_q4_1(const float *x, size_t n_col, uint8_t *row)
{
    for (size_t b = 0; b < n_col / BLOCK; b++, row += 20, x += BLOCK) {
        uint8_t q[BLOCK];
        pack_range(x, 15, q, row);
        put_nibbles(q, row + 4);
    }
}

static void pack_q5_1(const float *x, size_t n_col, uint8_t *row)
{
    for (size_t b = 0; b < n_col / BLOCK; b++, row += 24, x += BLOCK) {
        uint8_t q[BLOCK];
        pack_range(x, 31, q, row);
        put_fifth_bits(q, row + 4);
        put_nibbles(q, row + 8);
    }
}

/* d = x / -16 for the x of largest magnitude, with its sign. The quantised value of that weight is 0. */
static void pack_q5_0(const float *x, size_t n_col, uint8_t *row)
{
    for (size_t b = 0; b < n_col / BLOCK; b++, row += 22, x += BLOCK) {
        uint8_t q[BLOCK];
        float d = hth_fit_top(x, BLOCK) / -16.0f, inverse = inverse_of(d);
        hth_store_u16(row, hth_f32_to_f16(d));
        for (int i = 0; i < BLOCK; i++) q[i] = (uint8_t)(hth_fit_round(x[i] * inverse, -16, 15) + 16);
        put_fifth_bits(q, row + 2);
        put_nibbles(q, row + 6);
    }
}

/* ---- IQ4_NL ------------------------------------------------------------------------ */

/* Midpoints between the values of the format. */
static const float middles[15] = {-115.5f, -93.5f, -74.0f, -57.0f, -42.0f, -28.5f, -16.0f, -4.5f,
                                  7.0f,    19.0f,  31.5f,  45.5f,  61.0f,  79.0f,  101.0f};

/* The index of the value nearest to v; the lower of two equally near ones; NaN gives 0. */
static uint8_t nearest_value(float v)
{
    int n = 0;
    for (int i = 0; i < 15; i++) n += v > middles[i];
    return (uint8_t)n;
}

/* The scale with the least squared error. The largest value is tried against the values near both ends of the
 * table. */
static float fit_values(const float *x)
{
    float top = hth_fit_top(x, BLOCK), best = 0.0f, best_scale = 0.0f;
    if (hth_fit_magnitude(top) < 1e-30f) return 0.0f;
    for (int step = -14; step <= 28; step += 2) {
        float inverse = (step <= 7 ? -127.0f + (float)step : 113.0f + (float)(step - 18)) / top, xq = 0.0f,
              qq = 0.0f;
        for (int i = 0; i < BLOCK; i++) {
            float q = (float)hth_iq4_values[nearest_value(x[i] * inverse)];
            xq += x[i] * q;
            qq += q * q;
        }
        if (qq > 0.0f && xq * xq > best * qq) best = xq * xq / qq, best_scale = xq / qq;
    }
    return best_scale;
}

static void pack_iq4_nl(const float *x, size_t n_col, uint8_t *row)
{
    for (size_t b = 0; b < n_col / BLOCK; b++, row += 18, x += BLOCK) {
        uint8_t q[BLOCK];
        uint16_t half = hth_f32_to_f16(fit_values(x));
        float inverse = inverse_of(hth_f16_to_f32(half));
        for (int i = 0; i < BLOCK; i++) q[i] = nearest_value(x[i] * inverse);
        hth_store_u16(row, half);
        put_nibbles(q, row + 2);
    }
}

void hth_kernels_pack_32_ref(hth_kernels *k)
{
    k->pack[HTH_TYPE_Q4_1] = pack_q4_1;
    k->pack[HTH_TYPE_Q5_0] = pack_q5_0;
    k->pack[HTH_TYPE_Q5_1] = pack_q5_1;
    k->pack[HTH_TYPE_IQ4_NL] = pack_iq4_nl;
}
