/* Searches for small integers with a scale that approximate floats; the files pack_*.c share them. The first estimate
 * spans the largest value. Others near it are tried and refined by least squares, and the one with the least weighted
 * squared error is kept. Packing is not part of the token loop: it divides. Its results are the same on every CPU
 * because nothing is contracted. */
#ifndef HTH_KERNELS_QUANT_PACK_FIT_H
#define HTH_KERNELS_QUANT_PACK_FIT_H

#include "base/bits.h"
#include "kernels/vector/math.h"

#include <stdint.h>

enum { HTH_FIT_MAX = 32 }; /* values per fit */

static inline float hth_fit_magnitude(float v) { return hth_float_of(hth_bits_of(v) & 0x7fffffffu); }

static inline float hth_fit_inverse(float d) { return d != 0.0f ? 1.0f / d : 0.0f; }
static inline float hth_fit_half(float d) { return hth_f16_to_f32(hth_f32_to_f16(d)); }

/* The low four bits of 32 numbers: the first half in the low nibbles of 16 bytes. */
static inline void hth_fit_put_nibbles(const uint8_t *q, uint8_t *p)
{
    for (int i = 0; i < 16; i++) p[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
}

/* The nearest integer within lo..hi, halves up; NaN gives lo. */
static inline int hth_fit_round(float v, int lo, int hi)
{
    float low = (float)lo, high = (float)hi;
    v = v > low ? v : low;
    v = v < high ? v : high;
    return (int)(v - low + 0.5f) + lo;
}

/* The value of largest magnitude, sign kept; 0 for none. */
static inline float hth_fit_top(const float *x, int n)
{
    float top = 0.0f;
    for (int i = 0; i < n; i++) top = hth_fit_magnitude(x[i]) > hth_fit_magnitude(top) ? x[i] : top;
    return top;
}

/* The scale s for which s * q is nearest to x, with q in lo..hi; lo < 0 is the wider side. weight[n]: weights
 * of the values. */
static inline float hth_fit_scale(const float *x, const float *weight, int n, int lo, int hi)
{
    float top = hth_fit_top(x, n), best = 0.0f, best_scale = 0.0f;
    if (hth_fit_magnitude(top) < 1e-30f) return 0.0f;
    for (int step = -9; step <= 9; step++) {
        float inverse = ((float)lo + 0.1f * (float)step) / top, xq = 0.0f, qq = 0.0f;
        for (int i = 0; i < n; i++) {
            float q = (float)hth_fit_round(x[i] * inverse, lo, hi);
            xq += weight[i] * x[i] * q;
            qq += weight[i] * q * q;
        }
        /* The error is sum(w x^2) - xq^2 / qq. */
        if (qq > 0.0f && xq * xq > best * qq) best = xq * xq / qq, best_scale = xq / qq;
    }
    return best_scale;
}

/* scale >= 0 and min >= 0 for which scale * q - min is nearest to x, with q in 0..hi. */
typedef struct hth_fit {
    float scale, min;
} hth_fit;

/* Least squares for given integers. */
static inline hth_fit hth_fit_solve(const float *x, const float *weight, const uint8_t *q, int n)
{
    float w = 0.0f, wq = 0.0f, wqq = 0.0f, wx = 0.0f, wxq = 0.0f;
    for (int i = 0; i < n; i++) {
        float f = (float)q[i], wf = weight[i] * f;
        w += weight[i], wq += wf, wqq += wf * f;
        wx += weight[i] * x[i], wxq += wf * x[i];
    }
    float det = w * wqq - wq * wq;
    hth_fit fit = {0};
    if (det > 0.0f) fit.scale = (w * wxq - wq * wx) / det, fit.min = (wq * wxq - wqq * wx) / det;
    if (fit.min < 0.0f || det <= 0.0f) fit.min = 0.0f, fit.scale = wqq > 0.0f ? wxq / wqq : 0.0f;
    return fit;
}

static inline float hth_fit_error(const float *x, const float *weight, const uint8_t *q, int n, hth_fit fit)
{
    float error = 0.0f;
    for (int i = 0; i < n; i++) {
        float e = fit.scale * (float)q[i] - fit.min - x[i];
        error += weight[i] * e * e;
    }
    return error;
}

static inline hth_fit hth_fit_affine(const float *x, const float *weight, int n, int hi)
{
    float low = 0.0f, high = x[0];
    for (int i = 0; i < n; i++) low = x[i] < low ? x[i] : low, high = x[i] > high ? x[i] : high;
    hth_fit best = {0.0f, -low};
    if (!(high - low >= 1e-30f)) return best;
    float best_error = 0.0f;
    for (int step = -5; step <= 5; step++) {
        uint8_t q[HTH_FIT_MAX];
        float inverse = ((float)hi + 0.2f * (float)step) / (high - low);
        for (int i = 0; i < n; i++) q[i] = (uint8_t)hth_fit_round((x[i] - low) * inverse, 0, hi);
        hth_fit fit = hth_fit_solve(x, weight, q, n);
        float error = hth_fit_error(x, weight, q, n, fit);
        if (step == -5 || error < best_error) best = fit, best_error = error;
    }
    return best;
}

/* Weights of n values by importance for types of few bits: larger for a large value, which also matters to inputs that
 * the importance was not measured on. Returns weight. */
static inline const float *hth_fit_emphasis(const float *x, const float *importance, int n, float *weight)
{
    double mean = 1e-30;
    for (int i = 0; i < n; i++) mean += (double)x[i] * (double)x[i] / n;
    for (int i = 0; i < n; i++) weight[i] = importance[i] * (float)hth_sqrt_d(mean + (double)x[i] * (double)x[i]);
    return weight;
}

#endif
