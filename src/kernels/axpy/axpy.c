/* Operations of neuron-major down other than the sums: bounds of coefficients, the flush of chains, and the
 * conversion to outputs. Called once per matrix, or per cluster and token. */
#include "kernels/axpy/axpy.h"

#include "base/bits.h"
#include "kernels/quant/blocks.h"

#include <limits.h>
#include <string.h>

size_t hth_axpy_sub_block(hth_type type)
{
    uint32_t block = hth_type_act_block(type);
    return block == 256 ? 16 : block;
}

/* n neurons with coefficients of up to 32767 (minima of up to 2^19): n * 32767 * the largest integer stays
 * below 2^31, and so does n * 2^19 for types that have minima. */
size_t hth_axpy_limit(hth_type type)
{
    switch (type) {
    case HTH_TYPE_F32:
    case HTH_TYPE_F16:
    case HTH_TYPE_BF16: return SIZE_MAX;
    case HTH_TYPE_Q8_0:
    case HTH_TYPE_IQ4_NL:
    case HTH_TYPE_IQ4_XS: return 512; /* 128 */
    case HTH_TYPE_Q6_K: return 1024;  /* 63 */
    case HTH_TYPE_Q5_0:
    case HTH_TYPE_Q5_1:
    case HTH_TYPE_Q5_K: return 2048; /* 31 */
    case HTH_TYPE_Q4_0:
    case HTH_TYPE_Q4_1:
    case HTH_TYPE_MXFP4:
    case HTH_TYPE_Q2_K:
    case HTH_TYPE_Q3_K:
    case HTH_TYPE_Q4_K: return 4096; /* 15 */
    default: return 0;
    }
}

/* ---- bounds --------------------------------------------------------------------------------- */

static float magnitude(float x) { return hth_float_of(hth_bits_of(x) & 0x7fffffffu); }

/* The larger one. NaN if one is NaN or infinite. */
static float larger(float a, float b)
{
    uint32_t x = hth_bits_of(a) & 0x7fffffffu, y = hth_bits_of(b) & 0x7fffffffu;
    uint32_t top = x > y ? x : y;
    return hth_float_of(top >= 0x7f800000u ? 0x7fc00000u : top);
}

static float half_at(const uint8_t *p, size_t at) { return hth_f16_to_f32(hth_load_u16(p + at)); }

static int largest_of(const int16_t *scale, int n)
{
    int top = 0;
    for (int i = 0; i < n; i++) {
        int size = scale[i] < 0 ? -scale[i] : scale[i];
        top = size > top ? size : top;
    }
    return top;
}

/* d times the largest scale, and m times the largest minimum / 16. The products are exact, because d and m are
 * F16. d and m are also checked by themselves, because infinity times a scale of 0 would be missed. */
static float of_wide_block(float d, int scale, float m, int minimum)
{
    float finite = larger(d, m) * 0.0f;
    return larger(finite, larger(d * (float)scale, m * (float)minimum * 0.0625f));
}

static float of_k_block(const uint8_t *p)
{
    uint8_t scale[8], minimum[8];
    int16_t wide[16];
    hth_k_scales(p + 4, scale, minimum);
    for (int i = 0; i < 8; i++) wide[i] = scale[i], wide[8 + i] = minimum[i];
    return of_wide_block(half_at(p, 0), largest_of(wide, 8), half_at(p, 2), largest_of(wide + 8, 8));
}

static float of_block(hth_type type, const uint8_t *p)
{
    int16_t scale[16], minimum[16];
    switch (type) {
    case HTH_TYPE_Q4_1:
    case HTH_TYPE_Q5_1: return larger(half_at(p, 0), half_at(p, 2) * 0.0625f);
    case HTH_TYPE_MXFP4: return hth_mxfp4_scale(*p);
    case HTH_TYPE_Q2_K:
        for (int i = 0; i < 16; i++) scale[i] = p[i] & 15, minimum[i] = p[i] >> 4;
        return of_wide_block(half_at(p, 80), largest_of(scale, 16), half_at(p, 82), largest_of(minimum, 16));
    case HTH_TYPE_Q3_K:
        hth_q3_k_scales(p + 96, scale);
        return of_wide_block(half_at(p, 108), largest_of(scale, 16), 0.0f, 0);
    case HTH_TYPE_Q4_K:
    case HTH_TYPE_Q5_K: return of_k_block(p);
    case HTH_TYPE_Q6_K:
        for (int i = 0; i < 16; i++) scale[i] = (int8_t)p[192 + i];
        return of_wide_block(half_at(p, 208), largest_of(scale, 16), 0.0f, 0);
    case HTH_TYPE_IQ4_XS:
        hth_iq4_xs_scales(p, scale);
        return of_wide_block(half_at(p, 0), largest_of(scale, 16), 0.0f, 0);
    default: return half_at(p, 0);
    }
}

float hth_axpy_absmax_scale(hth_type type, const uint8_t *row, size_t n_out)
{
    const hth_type_info *info = hth_type_find(type);
    float top = 0.0f;
    if (!info->quantised) return top;
    for (size_t b = 0; b < n_out / info->n_weight; b++)
        top = larger(top, of_block(type, row + b * info->size));
    return top;
}

float hth_axpy_absmax_h(const float *h, size_t n)
{
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = hth_bits_of(h[i]) & 0x7fffffffu;
        top = bits > top ? bits : top;
    }
    return hth_float_of(top);
}

static int exponent(float x) { return (int)(hth_bits_of(x) >> 23) - 127; }

/* With P = h_max (x) d_max = f 2^e: k = 14 - e if f <= 32766/16384, else 13 - e. (A subnormal P counts as
 * 2^-127: k is 32 either way.) */
static int largest_exponent(float h_max, float d_max)
{
    float product = h_max * d_max;
    int k = ((hth_bits_of(product) & 0x7fffffu) > 0x7ffc00u ? 13 : 14) - exponent(product);
    int max = 126 - exponent(h_max) < 32 ? 126 - exponent(h_max) : 32;
    return exponent(product) == 128 ? INT_MIN : k < max ? k : max;
}

/* A coefficient of up to 32767 and a minimum of up to 16 times that contribute less than 2^32 / limit, so a cluster
 * contributes less than 2^40 / limit, and all of them times 2^(32 - k) fit into 63 bits. */
int hth_axpy_safe_exponent(hth_type type, size_t n_cluster)
{
    int k = 9;
    for (size_t n = hth_axpy_limit(type); n > 1; n /= 2) k--;
    for (size_t n = n_cluster; n > 1; n = (n + 1) / 2) k++;
    return k;
}

/* Each k below the safe one halves the sum of the coefficients that is allowed. */
static bool fits(const float *h, size_t n, float scale, float d_max, int n_below)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += (uint32_t)(magnitude(h[i]) * scale * d_max) + (h[i] != 0.0f);
    return n_below < 32 && sum <= (uint32_t)HTH_CLUSTER_NEURONS * 32767u >> n_below;
}

float hth_axpy_scale(const float *h, size_t n, float d_max, int safe_exponent)
{
    d_max = magnitude(d_max);
    int k = largest_exponent(hth_axpy_absmax_h(h, n), d_max);
    if (k < -100) return 0.0f;
    int n_below = safe_exponent - k;
    float scale = hth_float_of((uint32_t)(k + 127) << 23);
    return n_below <= 0 || fits(h, n, scale, d_max, n_below) ? scale : 0.0f;
}

/* ---- from sums to outputs -------------------------------------------------------------------- */

bool hth_axpy_flush_chain(size_t n_out, float *chain, int64_t *acc64)
{
    bool ok = true;
    for (size_t o = 0; o < n_out; o++) {
        bool fits = magnitude(chain[o]) < 0x1p23f;
        acc64[o] += fits ? (int64_t)(chain[o] * 0x1p32f) : 0;
        ok = ok && fits;
    }
    memset(chain, 0, n_out * sizeof *chain);
    return ok;
}

void hth_axpy_finish(const int64_t *acc64, size_t n_out, float *y)
{
    for (size_t o = 0; o < n_out; o++) y[o] = (float)acc64[o] * 0x1p-32f;
}
