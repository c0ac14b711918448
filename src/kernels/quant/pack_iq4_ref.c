/* Packs rows of IQ4_NL (blocks of 32) and IQ4_XS (eight of them with scales of six bits): weights are a scale times one
 * of sixteen values, found by search. quantize and tests call it through the kernel table. */
#include "kernels/isa.h"
#include "kernels/quant/blocks.h"
#include "kernels/quant/pack_fit.h"

#include <string.h>

enum { SUB = 32, BLOCK = 256, N_SUB = BLOCK / SUB };

/* ---- thirty-two weights ------------------------------------------------------------------ */

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
 * table. weight NULL: all equal, as below. */
static float fit_values(const float *x, const float *weight)
{
    float top = hth_fit_top(x, SUB), best = 0.0f, best_scale = 0.0f;
    if (hth_fit_magnitude(top) < 1e-30f) return 0.0f;
    for (int step = -14; step <= 28; step += 2) {
        float inverse = (step <= 7 ? -127.0f + (float)step : 113.0f + (float)(step - 18)) / top, xq = 0.0f,
              qq = 0.0f;
        for (int i = 0; i < SUB; i++) {
            float q = (float)hth_iq4_values[nearest_value(x[i] * inverse)], wq = weight ? weight[i] * q : q;
            xq += x[i] * wq;
            qq += wq * q;
        }
        if (qq > 0.0f && xq * xq > best * qq) best = xq * xq / qq, best_scale = xq / qq;
    }
    return best_scale;
}

/* The values for a scale; returns their error. */
static float choose_values(const float *x, const float *weight, float scale, uint8_t *q)
{
    float inverse = hth_fit_inverse(scale), error = 0.0f;
    for (int i = 0; i < SUB; i++) {
        q[i] = nearest_value(x[i] * inverse);
        float e = scale * (float)hth_iq4_values[q[i]] - x[i];
        error += weight ? weight[i] * (e * e) : e * e;
    }
    return error;
}

static void iq4_nl_by(const float *x, const float *importance, size_t n_col, uint8_t *row)
{
    for (size_t b = 0; b < n_col / SUB; b++, row += 18, x += SUB) {
        uint8_t q[SUB];
        float scale = hth_fit_half(fit_values(x, importance ? importance + b * SUB : NULL));
        choose_values(x, NULL, scale, q);
        hth_store_u16(row, hth_f32_to_f16(scale));
        hth_fit_put_nibbles(q, row + 2);
    }
}

static void pack_iq4_nl(const float *x, size_t n_col, uint8_t *row) { iq4_nl_by(x, NULL, n_col, row); }

/* ---- two hundred and fifty-six ------------------------------------------------------------ */

enum { LOW = -32, TOP = 31, ROUNDS = 2 }; /* range of the scales of sub-blocks; rounds of the search for them */

typedef struct iq4_block {
    float d;
    int8_t scale[N_SUB];
    uint8_t q[BLOCK];
} iq4_block;

static const float *weight_at(const float *weight, int k) { return weight ? weight + k * SUB : NULL; }

/* Chooses values, and moves scales to a neighbour that errs less. Returns the error of the block. */
static float move_scales(const float *x, const float *weight, iq4_block *l)
{
    float sum = 0.0f;
    for (int k = 0; k < N_SUB; k++) {
        int scale = l->scale[k];
        uint8_t q[SUB];
        float best = choose_values(x + k * SUB, weight_at(weight, k), l->d * (float)scale, l->q + k * SUB);
        for (int s = scale - 1; s <= scale + 1; s += 2) {
            if (s < LOW || s > TOP) continue;
            float error = choose_values(x + k * SUB, weight_at(weight, k), l->d * (float)s, q);
            if (!(error < best)) continue;
            best = error, l->scale[k] = (int8_t)s;
            memcpy(l->q + k * SUB, q, sizeof q);
        }
        sum += best;
    }
    return sum;
}

/* d by least squares for the current values. */
static float solve_block(const float *x, const float *weight, const iq4_block *l)
{
    float xs = 0.0f, ss = 0.0f;
    for (int i = 0; i < BLOCK; i++) {
        float s = (float)l->scale[i / SUB] * (float)hth_iq4_values[l->q[i]], ws = weight ? weight[i] * s : s;
        xs += x[i] * ws, ss += ws * s;
    }
    return ss > 0.0f ? hth_fit_half(xs / ss) : 0.0f;
}

static void fit_block(const float *x, const float *weight, iq4_block *l)
{
    float scale[N_SUB];
    for (int k = 0; k < N_SUB; k++) scale[k] = fit_values(x + k * SUB, weight_at(weight, k));
    l->d = hth_fit_half(hth_fit_top(scale, N_SUB) / (float)LOW);
    float inverse = hth_fit_inverse(l->d);
    for (int k = 0; k < N_SUB; k++) l->scale[k] = (int8_t)hth_fit_round(scale[k] * inverse, LOW, TOP);
    float best = move_scales(x, weight, l);
    for (int round = 0; round < ROUNDS; round++) {
        iq4_block next = *l;
        next.d = solve_block(x, weight, l);
        float error = move_scales(x, weight, &next);
        if (!(error < best)) break;
        best = error, *l = next;
    }
}

static void iq4_xs_by(const float *x, const float *importance, size_t n_col, uint8_t *row)
{
    for (size_t b = 0; b < n_col / BLOCK; b++, row += 136, x += BLOCK) {
        iq4_block l;
        unsigned high = 0;
        fit_block(x, importance ? importance + b * BLOCK : NULL, &l);
        hth_store_u16(row, hth_f32_to_f16(l.d));
        memset(row + 4, 0, 4);
        for (int k = 0; k < N_SUB; k++) {
            unsigned s = (unsigned)(l.scale[k] - LOW);
            row[4 + k / 2] |= (uint8_t)((s & 15) << 4 * (k % 2));
            high |= s >> 4 << 2 * k;
            hth_fit_put_nibbles(l.q + k * SUB, row + 8 + k * SUB / 2);
        }
        hth_store_u16(row + 2, (uint16_t)high);
    }
}

static void pack_iq4_xs(const float *x, size_t n_col, uint8_t *row) { iq4_xs_by(x, NULL, n_col, row); }

void hth_kernels_pack_iq4_ref(hth_kernels *k)
{
    k->pack[HTH_TYPE_IQ4_NL] = pack_iq4_nl;
    k->pack[HTH_TYPE_IQ4_XS] = pack_iq4_xs;
    k->pack_by[HTH_TYPE_IQ4_NL] = iq4_nl_by;
    k->pack_by[HTH_TYPE_IQ4_XS] = iq4_xs_by;
}
