/* Packs rows in blocks of 32: Q4_1, Q5_0, Q5_1 with the rounding of the format (the range of a block is divided
 * evenly); by importance these and Q4_0 by search. quantize and tests call it through the kernel table. */
#include "kernels/isa.h"
#include "kernels/quant/pack_fit.h"

#include <stdbool.h>
#include <string.h>

enum { BLOCK = 32 };

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
    float d = (high - low) / (float)top, inverse = hth_fit_inverse(d);
    hth_store_u16(p, hth_f32_to_f16(d));
    hth_store_u16(p + 2, hth_f32_to_f16(low));
    for (int i = 0; i < BLOCK; i++) q[i] = (uint8_t)hth_fit_round((x[i] - low) * inverse, 0, top);
}

static void pack_q4_1(const float *x, size_t n_col, uint8_t *row)
{
    for (size_t b = 0; b < n_col / BLOCK; b++, row += 20, x += BLOCK) {
        uint8_t q[BLOCK];
        pack_range(x, 15, q, row);
        hth_fit_put_nibbles(q, row + 4);
    }
}

static void pack_q5_1(const float *x, size_t n_col, uint8_t *row)
{
    for (size_t b = 0; b < n_col / BLOCK; b++, row += 24, x += BLOCK) {
        uint8_t q[BLOCK];
        pack_range(x, 31, q, row);
        put_fifth_bits(q, row + 4);
        hth_fit_put_nibbles(q, row + 8);
    }
}

/* d = x / -16 for the x of largest magnitude, with its sign. The quantised value of that weight is 0. */
static void pack_q5_0(const float *x, size_t n_col, uint8_t *row)
{
    for (size_t b = 0; b < n_col / BLOCK; b++, row += 22, x += BLOCK) {
        uint8_t q[BLOCK];
        float d = hth_fit_top(x, BLOCK) / -16.0f, inverse = hth_fit_inverse(d);
        hth_store_u16(row, hth_f32_to_f16(d));
        for (int i = 0; i < BLOCK; i++) q[i] = (uint8_t)(hth_fit_round(x[i] * inverse, -16, 15) + 16);
        put_fifth_bits(q, row + 2);
        hth_fit_put_nibbles(q, row + 6);
    }
}

/* ---- by importance ------------------------------------------------------------------ */

/* A block: weight = d * q + m; without a minimum m is 0, and q in low..top. */
typedef struct fitted {
    float d, m;
    int low, top;
    int8_t q[BLOCK];
} fitted;

/* The integers for d and m; returns their weighted error. */
static float choose(const float *x, const float *weight, fitted *f)
{
    float inverse = hth_fit_inverse(f->d), error = 0.0f;
    for (int i = 0; i < BLOCK; i++) {
        f->q[i] = (int8_t)hth_fit_round((x[i] - f->m) * inverse, f->low, f->top);
        float e = f->d * (float)f->q[i] + f->m - x[i];
        error += weight[i] * (e * e);
    }
    return error;
}

/* d, and m of types that have it, by least squares for the integers. */
static void solve(const float *x, const float *weight, bool has_minimum, fitted *f)
{
    float w = 0.0f, wq = 0.0f, wqq = 0.0f, wx = 0.0f, wxq = 0.0f;
    for (int i = 0; i < BLOCK; i++) {
        float q = (float)f->q[i], wi = weight[i];
        w += wi, wq += wi * q, wqq += wi * q * q;
        wx += wi * x[i], wxq += wi * x[i] * q;
    }
    float det = w * wqq - wq * wq;
    if (!has_minimum) f->d = wqq > 0.0f ? wxq / wqq : 0.0f;
    else if (det > 0.0f) f->d = (w * wxq - wq * wx) / det, f->m = (wqq * wx - wq * wxq) / det;
    f->d = hth_fit_half(f->d), f->m = hth_fit_half(f->m);
}

/* Tries a first estimate, then what least squares make of it. */
static void try_estimate(const float *x, const float *weight, bool has_minimum, fitted f, fitted *best, float *least)
{
    enum { ROUNDS = 2 };
    choose(x, weight, &f);
    for (int round = 0; round < ROUNDS; round++) {
        solve(x, weight, has_minimum, &f);
        float error = choose(x, weight, &f);
        if (error < *least) *least = error, *best = f;
    }
}

static fitted fit_range_by(const float *x, const float *weight, int top)
{
    float low = x[0], high = x[0], least;
    for (int i = 1; i < BLOCK; i++) low = x[i] < low ? x[i] : low, high = x[i] > high ? x[i] : high;
    fitted best = {.d = hth_fit_half((high - low) / (float)top), .m = hth_fit_half(low), .top = top};
    least = choose(x, weight, &best);
    for (int step = -9; step <= 9 && high - low >= 1e-30f; step++) {
        fitted f = {.d = (high - low) / ((float)top + 0.1f * (float)step), .m = low, .top = top};
        try_estimate(x, weight, true, f, &best, &least);
    }
    return best;
}

static fitted fit_scale_by(const float *x, const float *weight, int low)
{
    float widest = hth_fit_top(x, BLOCK), least;
    fitted best = {.d = hth_fit_half(widest / (float)low), .low = low, .top = -low - 1};
    least = choose(x, weight, &best);
    for (int step = -9; step <= 9 && hth_fit_magnitude(widest) >= 1e-30f; step++) {
        fitted f = {.d = widest / ((float)low + 0.1f * (float)step), .low = low, .top = -low - 1};
        try_estimate(x, weight, false, f, &best, &least);
    }
    return best;
}

/* The integers from 0 on. */
static void put_block(const fitted *f, bool has_minimum, bool has_fifth_bits, uint8_t *p)
{
    uint8_t q[BLOCK];
    for (int i = 0; i < BLOCK; i++) q[i] = (uint8_t)(f->q[i] - f->low);
    hth_store_u16(p, hth_f32_to_f16(f->d));
    p += 2;
    if (has_minimum) hth_store_u16(p, hth_f32_to_f16(f->m)), p += 2;
    if (has_fifth_bits) put_fifth_bits(q, p), p += 4;
    hth_fit_put_nibbles(q, p);
}

static void q4_0_by(const float *x, const float *importance, size_t n_col, uint8_t *row)
{
    for (size_t b = 0; b < n_col / BLOCK; b++, row += 18) {
        fitted f = fit_scale_by(x + b * BLOCK, importance + b * BLOCK, -8);
        put_block(&f, false, false, row);
    }
}

static void q5_0_by(const float *x, const float *importance, size_t n_col, uint8_t *row)
{
    for (size_t b = 0; b < n_col / BLOCK; b++, row += 22) {
        fitted f = fit_scale_by(x + b * BLOCK, importance + b * BLOCK, -16);
        put_block(&f, false, true, row);
    }
}

static void q4_1_by(const float *x, const float *importance, size_t n_col, uint8_t *row)
{
    for (size_t b = 0; b < n_col / BLOCK; b++, row += 20) {
        fitted f = fit_range_by(x + b * BLOCK, importance + b * BLOCK, 15);
        put_block(&f, true, false, row);
    }
}

static void q5_1_by(const float *x, const float *importance, size_t n_col, uint8_t *row)
{
    for (size_t b = 0; b < n_col / BLOCK; b++, row += 24) {
        fitted f = fit_range_by(x + b * BLOCK, importance + b * BLOCK, 31);
        put_block(&f, true, true, row);
    }
}

void hth_kernels_pack_32_ref(hth_kernels *k)
{
    k->pack[HTH_TYPE_Q4_1] = pack_q4_1;
    k->pack[HTH_TYPE_Q5_0] = pack_q5_0;
    k->pack[HTH_TYPE_Q5_1] = pack_q5_1;
    k->pack_by[HTH_TYPE_Q4_0] = q4_0_by;
    k->pack_by[HTH_TYPE_Q4_1] = q4_1_by;
    k->pack_by[HTH_TYPE_Q5_0] = q5_0_by;
    k->pack_by[HTH_TYPE_Q5_1] = q5_1_by;
}
