/* Rows of floats to floats (exact) and back, and Q8_0 and Q4_0 from floats (the rounding of the format, as
 * llama-quantize without an importance matrix). Used for embeddings, quantize and tests. Layouts follow the
 * block structs of the format. */
#include "base/bits.h"
#include "kernels/isa.h"
#include "kernels/quant/pack_fit.h"

#include <string.h>

enum { BLOCK = 32, Q8_0_SIZE = 34, Q4_0_SIZE = 18 };

static void unpack_f32(const uint8_t *row, size_t n_col, float *x) { memcpy(x, row, n_col * sizeof *x); }

static void unpack_f16(const uint8_t *row, size_t n_col, float *x)
{
    for (size_t i = 0; i < n_col; i++) x[i] = hth_f16_to_f32(hth_load_u16(row + 2 * i));
}

static void unpack_bf16(const uint8_t *row, size_t n_col, float *x)
{
    for (size_t i = 0; i < n_col; i++) x[i] = hth_bf16_to_f32(hth_load_u16(row + 2 * i));
}

static void pack_f32(const float *x, size_t n_col, uint8_t *row) { memcpy(row, x, n_col * sizeof *x); }

static void pack_f16(const float *x, size_t n_col, uint8_t *row)
{
    for (size_t i = 0; i < n_col; i++) hth_store_u16(row + 2 * i, hth_f32_to_f16(x[i]));
}

static void pack_bf16(const float *x, size_t n_col, uint8_t *row)
{
    for (size_t i = 0; i < n_col; i++) hth_store_u16(row + 2 * i, hth_f32_to_bf16(x[i]));
}

/* Rounds to the nearest integer, halves away from zero, and clamps to the bytes of Q8_0 (a subnormal scale has
 * an infinite inverse). NaN gives 0. */
static int round_away(float v)
{
    if (!(v < 127.0f)) return v >= 127.0f ? 127 : 0;
    if (v < -127.0f) return -127;
    int n = (int)v;
    float rest = v - (float)n;
    return rest >= 0.5f ? n + 1 : rest <= -0.5f ? n - 1 : n;
}

/* d = max|x| / 127. */
static void pack_q8_0(const float *x, size_t n_col, uint8_t *row)
{
    for (size_t b = 0; b < n_col / BLOCK; b++, row += Q8_0_SIZE, x += BLOCK) {
        float amax = 0.0f;
        for (int i = 0; i < BLOCK; i++) amax = hth_fit_magnitude(x[i]) > amax ? hth_fit_magnitude(x[i]) : amax;
        float d = amax / 127.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;
        hth_store_u16(row, hth_f32_to_f16(d));
        for (int i = 0; i < BLOCK; i++) row[2 + i] = (uint8_t)(int8_t)round_away(x[i] * inverse);
    }
}

/* Rounds v + 8 to the nearest of 0..15; NaN gives 8. */
static uint8_t nibble(float v)
{
    if (!(v < 7.0f)) return v >= 7.0f ? 15 : 8;
    return v < -8.0f ? 0 : (uint8_t)(v + 8.5f);
}

/* d = x / -8 for the x of largest magnitude, with its sign. The quantised value of that weight is 0. */
static void pack_q4_0(const float *x, size_t n_col, uint8_t *row)
{
    for (size_t b = 0; b < n_col / BLOCK; b++, row += Q4_0_SIZE, x += BLOCK) {
        float top = 0.0f;
        for (int i = 0; i < BLOCK; i++) top = hth_fit_magnitude(x[i]) > hth_fit_magnitude(top) ? x[i] : top;
        float d = top / -8.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;
        hth_store_u16(row, hth_f32_to_f16(d));
        for (int i = 0; i < BLOCK / 2; i++)
            row[2 + i] = (uint8_t)(nibble(x[i] * inverse) | nibble(x[i + BLOCK / 2] * inverse) << 4);
    }
}

void hth_kernels_codec_ref(hth_kernels *k)
{
    k->unpack[HTH_TYPE_F32] = unpack_f32;
    k->unpack[HTH_TYPE_F16] = unpack_f16;
    k->unpack[HTH_TYPE_BF16] = unpack_bf16;
    k->pack[HTH_TYPE_F32] = pack_f32;
    k->pack[HTH_TYPE_F16] = pack_f16;
    k->pack[HTH_TYPE_BF16] = pack_bf16;
    k->pack[HTH_TYPE_Q8_0] = pack_q8_0;
    k->pack[HTH_TYPE_Q4_0] = pack_q4_0;
}
