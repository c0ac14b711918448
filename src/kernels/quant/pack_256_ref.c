/* Packs rows in blocks of 256 (K types): fits sub-blocks one by one, rounds their scales to multiples of the
 * block's, recomputes the integers for the stored scales, and then the block's scales for the integers. With the
 * importance of columns all errors are weighted. quantize and tests call it through the kernel table. Layouts:
 * quant/TYPE/ref.c. */
#include "kernels/isa.h"
#include "kernels/quant/pack_fit.h"

#include <stdbool.h>
#include <string.h>

enum { BLOCK = 256, MAX_SUB = 16, ROUNDS = 2 };

/* ---- scale and minimum: Q2_K, Q4_K, Q5_K ------------------------------------------------- */

/* A block: weight = d * scale[k] * q - m * min[k]. */
typedef struct affine {
    int n_sub, n; /* sub-blocks, weights of each */
    int top_scale, top;
    bool is_coarse; /* see hth_fit_emphasis */
    float d, m;
    uint8_t scale[MAX_SUB], min[MAX_SUB], q[BLOCK];
} affine;

static void choose_integers(const float *x, affine *a)
{
    for (int k = 0; k < a->n_sub; k++) {
        float inverse = hth_fit_inverse(a->d * (float)a->scale[k]), min = a->m * (float)a->min[k];
        for (int i = k * a->n; i < (k + 1) * a->n; i++)
            a->q[i] = (uint8_t)hth_fit_round((x[i] + min) * inverse, 0, a->top);
    }
}

static float error_of(const float *x, const affine *a)
{
    float error = 0.0f;
    for (int i = 0; i < BLOCK; i++) {
        int k = i / a->n;
        float e = a->d * (float)a->scale[k] * (float)a->q[i] - a->m * (float)a->min[k] - x[i];
        error += e * e;
    }
    return error;
}

/* Computes d and m by least squares for the current integers. weight NULL: all equal, as below. */
static void solve_block(const float *x, const float *weight, affine *a)
{
    float ss = 0.0f, sm = 0.0f, mm = 0.0f, sx = 0.0f, mx = 0.0f;
    for (int i = 0; i < BLOCK; i++) {
        int k = i / a->n;
        float s = (float)a->scale[k] * (float)a->q[i], m = -(float)a->min[k], w = weight ? weight[i] : 1.0f,
              ws = w * s, wm = w * m;
        ss += ws * s, sm += ws * m, mm += wm * m, sx += ws * x[i], mx += wm * x[i];
    }
    float det = ss * mm - sm * sm;
    if (det > 0.0f) {
        a->d = hth_fit_half((mm * sx - sm * mx) / det);
        a->m = hth_fit_half((ss * mx - sm * sx) / det);
    } else if (ss > 0.0f) {
        a->d = hth_fit_half(sx / ss);
    }
}

/* Weights of values in the fit of a sub-block without importance: larger for a large value, which contributes more to
 * every product. */
static void weigh(const float *x, int n, float *weight)
{
    float sum = 0.0f;
    for (int i = 0; i < n; i++) sum += hth_fit_magnitude(x[i]);
    for (int i = 0; i < n; i++) weight[i] = sum / (float)n + hth_fit_magnitude(x[i]) + 1e-30f;
}

/* Rounds scales and minima of sub-blocks to multiples of d and m, which the largest ones set. */
static void round_scales(const hth_fit *fit, affine *a)
{
    float top_scale = 0.0f, top_min = 0.0f;
    for (int k = 0; k < a->n_sub; k++) {
        top_scale = fit[k].scale > top_scale ? fit[k].scale : top_scale;
        top_min = fit[k].min > top_min ? fit[k].min : top_min;
    }
    a->d = hth_fit_half(top_scale / (float)a->top_scale), a->m = hth_fit_half(top_min / (float)a->top_scale);
    float to_scale = hth_fit_inverse(a->d), to_min = hth_fit_inverse(a->m);
    for (int k = 0; k < a->n_sub; k++) {
        a->scale[k] = (uint8_t)hth_fit_round(fit[k].scale * to_scale, 0, a->top_scale);
        a->min[k] = (uint8_t)hth_fit_round(fit[k].min * to_min, 0, a->top_scale);
    }
}

static void fit_affine_block(const float *x, affine *a)
{
    hth_fit fit[MAX_SUB];
    float weight[HTH_FIT_MAX];
    for (int k = 0; k < a->n_sub; k++) {
        weigh(x + k * a->n, a->n, weight);
        fit[k] = hth_fit_affine(x + k * a->n, weight, a->n, a->top);
    }
    round_scales(fit, a);
    choose_integers(x, a);
    float best = error_of(x, a);
    for (int round = 0; round < ROUNDS; round++) {
        affine next = *a;
        solve_block(x, NULL, &next);
        choose_integers(x, &next);
        float error = error_of(x, &next);
        if (!(error < best)) break;
        best = error, *a = next;
    }
}

/* The weighted error of a sub-block with this scale and minimum. */
static float error_with(const float *x, const float *weight, const affine *a, int scale, int min)
{
    float d = a->d * (float)scale, m = a->m * (float)min, inverse = hth_fit_inverse(d), error = 0.0f;
    for (int i = 0; i < a->n; i++) {
        float e = d * (float)hth_fit_round((x[i] + m) * inverse, 0, a->top) - m - x[i];
        error += weight[i] * (e * e);
    }
    return error;
}

/* Moves scales and minima to neighbours that err less. Returns the error of the block. */
static float move_scales(const float *x, const float *weight, affine *a)
{
    float sum = 0.0f;
    for (int k = 0; k < a->n_sub; k++) {
        const float *sub = x + k * a->n, *w = weight + k * a->n;
        int scale = a->scale[k], min = a->min[k];
        float best = error_with(sub, w, a, scale, min);
        for (int s = scale - 1; s <= scale + 1; s++)
            for (int m = min - 1; m <= min + 1; m++) {
                if (s < 0 || s > a->top_scale || m < 0 || m > a->top_scale || (s == scale && m == min)) continue;
                float error = error_with(sub, w, a, s, m);
                if (error < best) best = error, a->scale[k] = (uint8_t)s, a->min[k] = (uint8_t)m;
            }
        sum += best;
    }
    return sum;
}

/* By importance: scales are also chosen for the rounded d and m. */
static void fit_affine_block_by(const float *x, const float *importance, affine *a)
{
    hth_fit fit[MAX_SUB];
    float emphasis[BLOCK];
    const float *weight = importance;
    if (a->is_coarse) weight = hth_fit_emphasis(x, importance, BLOCK, emphasis);
    for (int k = 0; k < a->n_sub; k++) fit[k] = hth_fit_affine(x + k * a->n, weight + k * a->n, a->n, a->top);
    round_scales(fit, a);
    float best = move_scales(x, weight, a);
    choose_integers(x, a);
    for (int round = 0; round < ROUNDS; round++) {
        affine next = *a;
        solve_block(x, weight, &next);
        float error = move_scales(x, weight, &next);
        if (!(error < best)) break;
        choose_integers(x, &next);
        best = error, *a = next;
    }
}

static void q2_k_by(const float *x, const float *importance, size_t n_col, uint8_t *row)
{
    for (size_t b = 0; b < n_col / BLOCK; b++, row += 84, x += BLOCK) {
        affine a = {.n_sub = 16, .n = 16, .top_scale = 15, .top = 3, .is_coarse = true};
        importance ? fit_affine_block_by(x, importance + b * BLOCK, &a) : fit_affine_block(x, &a);
        for (int k = 0; k < 16; k++) row[k] = (uint8_t)(a.scale[k] | a.min[k] << 4);
        for (int i = 0; i < 64; i++) {
            const uint8_t *q = a.q + i / 32 * 128 + i % 32;
            row[16 + i] = (uint8_t)(q[0] | q[32] << 2 | q[64] << 4 | q[96] << 6);
        }
        hth_store_u16(row + 80, hth_f32_to_f16(a.d));
        hth_store_u16(row + 82, hth_f32_to_f16(a.m));
    }
}

/* Stores scales and minima of six bits in twelve bytes. */
static void put_six_bits(const uint8_t *scale, const uint8_t *min, uint8_t *p)
{
    memset(p, 0, 12);
    for (int k = 0; k < 4; k++) p[k] = scale[k], p[k + 4] = min[k];
    for (int k = 4; k < 8; k++) {
        p[k + 4] = (uint8_t)((scale[k] & 15) | (min[k] & 15) << 4);
        p[k - 4] = (uint8_t)(p[k - 4] | scale[k] >> 4 << 6);
        p[k] = (uint8_t)(p[k] | min[k] >> 4 << 6);
    }
}

static void put_nibble_pairs(const uint8_t *q, uint8_t *p)
{
    for (int i = 0; i < 128; i++) {
        const uint8_t *low = q + i / 32 * 64 + i % 32;
        p[i] = (uint8_t)((low[0] & 15) | (low[32] & 15) << 4);
    }
}

static void q4_k_by(const float *x, const float *importance, size_t n_col, uint8_t *row)
{
    for (size_t b = 0; b < n_col / BLOCK; b++, row += 144, x += BLOCK) {
        affine a = {.n_sub = 8, .n = 32, .top_scale = 63, .top = 15};
        importance ? fit_affine_block_by(x, importance + b * BLOCK, &a) : fit_affine_block(x, &a);
        hth_store_u16(row, hth_f32_to_f16(a.d));
        hth_store_u16(row + 2, hth_f32_to_f16(a.m));
        put_six_bits(a.scale, a.min, row + 4);
        put_nibble_pairs(a.q, row + 16);
    }
}

static void q5_k_by(const float *x, const float *importance, size_t n_col, uint8_t *row)
{
    for (size_t b = 0; b < n_col / BLOCK; b++, row += 176, x += BLOCK) {
        affine a = {.n_sub = 8, .n = 32, .top_scale = 63, .top = 31};
        importance ? fit_affine_block_by(x, importance + b * BLOCK, &a) : fit_affine_block(x, &a);
        hth_store_u16(row, hth_f32_to_f16(a.d));
        hth_store_u16(row + 2, hth_f32_to_f16(a.m));
        put_six_bits(a.scale, a.min, row + 4);
        memset(row + 16, 0, 32);
        for (int i = 0; i < BLOCK; i++) row[16 + i % 32] |= (uint8_t)(a.q[i] >> 4 << i / 32);
        put_nibble_pairs(a.q, row + 48);
    }
}

/* ---- scale alone: Q3_K, Q6_K --------------------------------------------------------------- */

/* A block of 16 sub-blocks of 16: weight = d * scale[k] * q. */
typedef struct linear {
    int low_scale, top_scale, low, top;
    bool is_coarse;
    float d;
    int8_t scale[16], q[BLOCK];
} linear;

static float choose_linear(const float *x, linear *l)
{
    float error = 0.0f;
    for (int k = 0; k < 16; k++) {
        float unit = l->d * (float)l->scale[k], inverse = hth_fit_inverse(unit);
        for (int i = 16 * k; i < 16 * (k + 1); i++) {
            l->q[i] = (int8_t)hth_fit_round(x[i] * inverse, l->low, l->top);
            float e = unit * (float)l->q[i] - x[i];
            error += e * e;
        }
    }
    return error;
}

/* d of a block by least squares for the current integers. */
static float solve_linear(const float *x, const float *weight, const linear *l)
{
    float xs = 0.0f, ss = 0.0f;
    for (int i = 0; i < BLOCK; i++) {
        float s = (float)l->scale[i / 16] * (float)l->q[i], ws = weight ? weight[i] * s : s;
        xs += x[i] * ws, ss += ws * s;
    }
    return ss > 0.0f ? hth_fit_half(xs / ss) : 0.0f;
}

static void round_linear(const float *scale, linear *l)
{
    l->d = hth_fit_half(hth_fit_top(scale, 16) / (float)l->low_scale);
    float inverse = hth_fit_inverse(l->d);
    for (int k = 0; k < 16; k++)
        l->scale[k] = (int8_t)hth_fit_round(scale[k] * inverse, l->low_scale, l->top_scale);
}

static void fit_linear_block(const float *x, linear *l)
{
    float scale[16], weight[16];
    for (int k = 0; k < 16; k++) {
        for (int i = 0; i < 16; i++) weight[i] = x[16 * k + i] * x[16 * k + i];
        scale[k] = hth_fit_scale(x + 16 * k, weight, 16, l->low, l->top);
    }
    round_linear(scale, l);
    float best = choose_linear(x, l);
    for (int round = 0; round < ROUNDS; round++) {
        linear next = *l;
        next.d = solve_linear(x, NULL, l);
        float error = choose_linear(x, &next);
        if (!(error < best)) break;
        best = error, *l = next;
    }
}

/* The weighted error of sub-block k with this scale; its integers. */
static float choose_linear_with(const float *x, const float *weight, const linear *l, int scale, int8_t *q)
{
    float unit = l->d * (float)scale, inverse = hth_fit_inverse(unit), error = 0.0f;
    for (int i = 0; i < 16; i++) {
        q[i] = (int8_t)hth_fit_round(x[i] * inverse, l->low, l->top);
        float e = unit * (float)q[i] - x[i];
        error += weight[i] * (e * e);
    }
    return error;
}

/* Chooses integers, and moves scales to a neighbour that errs less. Returns the error of the block. */
static float move_linear(const float *x, const float *weight, linear *l)
{
    float sum = 0.0f;
    for (int k = 0; k < 16; k++) {
        const float *sub = x + 16 * k, *w = weight + 16 * k;
        int scale = l->scale[k];
        int8_t q[16];
        float best = choose_linear_with(sub, w, l, scale, l->q + 16 * k);
        for (int s = scale - 1; s <= scale + 1; s += 2) {
            if (s < l->low_scale || s > l->top_scale) continue;
            float error = choose_linear_with(sub, w, l, s, q);
            if (!(error < best)) continue;
            best = error, l->scale[k] = (int8_t)s;
            memcpy(l->q + 16 * k, q, sizeof q);
        }
        sum += best;
    }
    return sum;
}

static void fit_linear_block_by(const float *x, const float *importance, linear *l)
{
    float scale[16], emphasis[BLOCK];
    const float *weight = importance;
    if (l->is_coarse) weight = hth_fit_emphasis(x, importance, BLOCK, emphasis);
    for (int k = 0; k < 16; k++) scale[k] = hth_fit_scale(x + 16 * k, weight + 16 * k, 16, l->low, l->top);
    round_linear(scale, l);
    float best = move_linear(x, weight, l);
    for (int round = 0; round < ROUNDS; round++) {
        linear next = *l;
        next.d = solve_linear(x, weight, l);
        float error = move_linear(x, weight, &next);
        if (!(error < best)) break;
        best = error, *l = next;
    }
}

static void q3_k_by(const float *x, const float *importance, size_t n_col, uint8_t *row)
{
    for (size_t b = 0; b < n_col / BLOCK; b++, row += 110, x += BLOCK) {
        linear l = {.low_scale = -32, .top_scale = 31, .low = -4, .top = 3, .is_coarse = true};
        importance ? fit_linear_block_by(x, importance + b * BLOCK, &l) : fit_linear_block(x, &l);
        memset(row, 0, 108);
        for (int i = 0; i < BLOCK; i++) {
            unsigned q = (unsigned)(l.q[i] + 4), c = (unsigned)i % 32, b32 = (unsigned)i / 32;
            row[c] |= (uint8_t)(q >> 2 << b32);
            row[32 + i / 128 * 32 + i % 32] |= (uint8_t)((q & 3) << 2 * (b32 % 4));
        }
        for (int k = 0; k < 16; k++) {
            unsigned s = (unsigned)(l.scale[k] + 32);
            row[96 + k % 8] |= (uint8_t)((s & 15) << (k < 8 ? 0 : 4));
            row[104 + k % 4] |= (uint8_t)(s >> 4 << 2 * (k / 4));
        }
        hth_store_u16(row + 108, hth_f32_to_f16(l.d));
    }
}

static void q6_k_by(const float *x, const float *importance, size_t n_col, uint8_t *row)
{
    for (size_t b = 0; b < n_col / BLOCK; b++, row += 210, x += BLOCK) {
        linear l = {.low_scale = -128, .top_scale = 127, .low = -32, .top = 31};
        importance ? fit_linear_block_by(x, importance + b * BLOCK, &l) : fit_linear_block(x, &l);
        memset(row, 0, 192);
        for (int i = 0; i < BLOCK; i++) {
            unsigned q = (unsigned)(l.q[i] + 32);
            int half = i / 128, b32 = i % 128 / 32, c = i % 32;
            row[64 * half + 32 * (b32 % 2) + c] |= (uint8_t)((q & 15) << (b32 < 2 ? 0 : 4));
            row[128 + 32 * half + c] |= (uint8_t)(q >> 4 << 2 * b32);
        }
        memcpy(row + 192, l.scale, 16);
        hth_store_u16(row + 208, hth_f32_to_f16(l.d));
    }
}

#define PACK(TYPE)                                                                                           \
    static void pack_##TYPE(const float *x, size_t n_col, uint8_t *row) { TYPE##_by(x, NULL, n_col, row); }
PACK(q2_k)
PACK(q3_k)
PACK(q4_k)
PACK(q5_k)
PACK(q6_k)

void hth_kernels_pack_256_ref(hth_kernels *k)
{
    k->pack[HTH_TYPE_Q2_K] = pack_q2_k;
    k->pack[HTH_TYPE_Q3_K] = pack_q3_k;
    k->pack[HTH_TYPE_Q4_K] = pack_q4_k;
    k->pack[HTH_TYPE_Q5_K] = pack_q5_k;
    k->pack[HTH_TYPE_Q6_K] = pack_q6_k;
    k->pack_by[HTH_TYPE_Q2_K] = q2_k_by;
    k->pack_by[HTH_TYPE_Q3_K] = q3_k_by;
    k->pack_by[HTH_TYPE_Q4_K] = q4_k_by;
    k->pack_by[HTH_TYPE_Q5_K] = q5_k_by;
    k->pack_by[HTH_TYPE_Q6_K] = q6_k_by;
}
