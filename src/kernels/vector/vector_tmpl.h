/* Norms, rotation, softmax, activations (activate_tmpl.h) and their quantisation, state spaces (ssm_scan_tmpl.h):
 * everything except rows of weights and attention (attn_tmpl.h). One source for all ISA levels: vector_ref.c,
 * vector_avx2.c and others define LEVEL and include it, compiled with their flags. The order of every sum is that of
 * docs/arithmetic.md 3 to 5. */
#include "kernels/axpy/axpy_flush.h"
#include "kernels/vector/activate_tmpl.h"
#include "kernels/vector/ssm_scan_tmpl.h"
#include "kernels/isa.h"
#include "kernels/vector/vector_math.h"

#define HTH_PASTE_(a, b) a##b
#define HTH_PASTE(a, b) HTH_PASTE_(a, b)

/* ---- reductions --------------------------------------------------------------- */

/* Sum of f(i) over [0, n) with eight partials by index mod 8. A partial end is padded with zeros, which are
 * added. */
static float sum_of_squares(const float *x, size_t n, float minus)
{
    hth_v8 p = v8_set(0.0f), m = v8_set(minus);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        hth_v8 d = v8_load(x + i) - m;
        p += d * d;
    }
    if (i < n) {
        float padded[8];
        v8_store(padded, m);
        hth_v8 d = v8_load_part(x + i, n - i) - v8_load_part(padded, n - i);
        p += d * d;
    }
    return v8_sum(p);
}

static float sum_of(const float *x, size_t n)
{
    hth_v8 p = v8_set(0.0f);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) p += v8_load(x + i);
    if (i < n) p += v8_load_part(x + i, n - i);
    return v8_sum(p);
}

/* Largest of n > 0 values (any order gives the same). */
static float largest(const float *x, size_t n)
{
    float best = x[0];
    size_t i = 0;
    if (n >= 8) {
        hth_v8 m = v8_load(x);
        for (i = 8; i + 8 <= n; i += 8) m = v8_max(v8_load(x + i), m);
        for (int k = 0; k < 8; k++) best = m[k] > best ? m[k] : best;
    }
    for (; i < n; i++) best = x[i] > best ? x[i] : best;
    return best;
}

/* ---- norms --------------------------------------------------------------------- */

static void rms_norm(const float *x, const float *w, size_t n, float inv_n, float eps, float *y)
{
    float r = one_rsqrt(sum_of_squares(x, n, 0.0f) * inv_n + eps);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) v8_store(y + i, (v8_load(x + i) * v8_set(r)) * v8_load(w + i));
    for (; i < n; i++) y[i] = (x[i] * r) * w[i];
}

static void layer_norm(const float *x, const float *w, const float *b, size_t n, float inv_n, float eps,
                       float *y)
{
    float mean = sum_of(x, n) * inv_n;
    float r = one_rsqrt(sum_of_squares(x, n, mean) * inv_n + eps);
    for (size_t i = 0; i < n; i++) {
        float scaled = ((x[i] - mean) * r) * w[i];
        y[i] = b ? scaled + b[i] : scaled;
    }
}

/* ---- rotation, sums, F16 --------------------------------------------------------- */

static void rope_interleaved(float *x, const float *cosine, const float *sine, size_t n_pair)
{
    for (size_t i = 0; i < n_pair; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cosine[i] - b * sine[i];
        x[2 * i + 1] = a * sine[i] + b * cosine[i];
    }
}

static void rope_neox(float *x, const float *cosine, const float *sine, size_t n_pair)
{
    for (size_t i = 0; i < n_pair; i++) {
        float a = x[i], b = x[i + n_pair];
        x[i] = a * cosine[i] - b * sine[i];
        x[i + n_pair] = a * sine[i] + b * cosine[i];
    }
}

static void add(const float *a, const float *b, size_t n, float *y)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) v8_store(y + i, v8_load(a + i) + v8_load(b + i));
    for (; i < n; i++) y[i] = a[i] + b[i];
}

static void mul(const float *a, const float *b, size_t n, float *y)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) v8_store(y + i, v8_load(a + i) * v8_load(b + i));
    for (; i < n; i++) y[i] = a[i] * b[i];
}

static void conv(const float *const *rows, const float *taps, size_t d_conv, size_t n, float *y)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        hth_v8 sum = v8_load(taps + i) * v8_load(rows[0] + i);
        for (size_t j = 1; j < d_conv; j++) sum += v8_load(taps + j * n + i) * v8_load(rows[j] + i);
        v8_store(y + i, sum);
    }
    for (; i < n; i++) {
        y[i] = taps[i] * rows[0][i];
        for (size_t j = 1; j < d_conv; j++) y[i] += taps[j * n + i] * rows[j][i];
    }
}

static void scale(const float *x, float factor, size_t n, float *y)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) v8_store(y + i, v8_load(x + i) * v8_set(factor));
    for (; i < n; i++) y[i] = x[i] * factor;
}

/* Four rows at a time, so that additions do not wait for each other. */
HTH_INLINE void dot_some(const float *w, size_t n_row, size_t n_col, const float *x, float *y)
{
    enum { AT_ONCE = 4 };
    hth_v8 sums[AT_ONCE] = {v8_set(0.0f), v8_set(0.0f), v8_set(0.0f), v8_set(0.0f)};
    size_t i = 0;
    for (; i + 8 <= n_col; i += 8) {
        hth_v8 x8 = v8_load(x + i);
        for (size_t r = 0; r < n_row; r++) sums[r] += v8_load(w + r * n_col + i) * x8;
    }
    for (size_t r = 0; i < n_col && r < n_row; r++)
        sums[r] += v8_load_part(w + r * n_col + i, n_col - i) * v8_load_part(x + i, n_col - i);
    for (size_t r = 0; r < n_row; r++) y[r] = v8_sum(sums[r]);
}

static void dot_rows(const float *w, size_t n_row, size_t n_col, const float *x, float *y)
{
    size_t r = 0;
    for (; r + 4 <= n_row; r += 4) dot_some(w + r * n_col, 4, n_col, x, y + r);
    for (; r < n_row; r++) dot_some(w + r * n_col, 1, n_col, x, y + r);
}

static void to_f16(const float *x, size_t n, uint16_t *h)
{
    size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(h + i),
                         _mm256_cvtps_ph((__m256)v8_load(x + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; i++) h[i] = hth_f32_to_f16(x[i]);
}

/* ---- functions of each element ---------------------------------------------------- */

/* y = f(x) for n elements, eight at a time; the end through a padded vector. */
#define DEFINE_MAP(NAME, FUNCTION)                                                                           \
    static void NAME(const float *x, size_t n, float *y)                                                     \
    {                                                                                                        \
        size_t i = 0;                                                                                        \
        for (; i + 8 <= n; i += 8) v8_store(y + i, FUNCTION(v8_load(x + i)));                                \
        if (i < n) v8_store_part(y + i, FUNCTION(v8_load_part(x + i, n - i)), n - i);                        \
    }
DEFINE_MAP(map_exp, v8_exp)
DEFINE_MAP(map_tanh, v8_tanh)
DEFINE_MAP(map_rcp, v8_rcp)
DEFINE_MAP(map_rsqrt, v8_rsqrt)

static void soft_cap(const float *x, float cap, float inverse, size_t n, float *y)
{
    scale(x, inverse, n, y);
    map_tanh(y, n, y);
    scale(y, cap, n, y);
}

static void softmax(float *x, size_t n)
{
    float max = largest(x, n);
    for (size_t i = 0; i < n; i++) x[i] -= max;
    map_exp(x, n, x);
    float r = one_rcp(sum_of(x, n));
    for (size_t i = 0; i < n; i++) x[i] *= r;
}

/* ---- quantisation of activations --------------------------------------------------- */

/* The absmax of n values (a multiple of 8). NaN counts as the largest. */
HTH_INLINE float largest_magnitude(const float *x, size_t n)
{
    const hth_v8i magnitude = v8_set_i(0x7fffffff);
    hth_v8i top = v8_set_i(0);
    for (size_t i = 0; i < n; i += 8) {
        hth_v8i bits = v8_bits(v8_load(x + i)) & magnitude, above = bits > top;
        top = (above & bits) | (~above & top);
    }
    int32_t largest_bits = 0;
    for (int i = 0; i < 8; i++) largest_bits = top[i] > largest_bits ? top[i] : largest_bits;
    return hth_float_of((uint32_t)largest_bits);
}

/* Blocks whose absmax is below 2^-60 become zero. Above 2^60 (which includes infinities and NaNs) the scale is
 * NaN, and so are the results. */
HTH_INLINE bool can_round(float amax, float *d)
{
    *d = amax * (1.0f / 127.0f);
    if (amax >= 0x1p-60f && amax <= 0x1p60f) return true;
    *d = amax < 0x1p-60f ? 0.0f : hth_float_of(0x7fc00000u);
    return false;
}

/* Quantises 32 values to q; gives the sums of the first and of the second 16, in eight parts each. All values
 * are loaded before any is stored: bytes may alias, and compilers would store them one by one. */
HTH_INLINE void round_32(const float *x, hth_v8 inverse, int8_t *q, hth_v8i sums[2])
{
    const hth_v8 magic = v8_set(0x1.8p23f);
    hth_v8 v[4];
    for (int i = 0; i < 4; i++) v[i] = v8_load(x + 8 * i);
    sums[0] = sums[1] = v8_set_i(0);
    for (int i = 0; i < 4; i++) {
        hth_v8i n = v8_bits(v[i] * inverse + magic) - v8_bits(magic);
        sums[i / 2] += n;
        for (int k = 0; k < 8; k++) q[8 * i + k] = (int8_t)n[k];
    }
}

HTH_INLINE int32_t sum_of_parts(hth_v8i parts)
{
    int32_t sum = 0;
    for (int i = 0; i < 8; i++) sum += parts[i];
    return sum;
}

static void quant_act(const float *x, size_t n_col, int8_t *q, float *d, int32_t *sum)
{
    for (size_t b = 0; b < n_col / HTH_ACT_BLOCK; b++, x += HTH_ACT_BLOCK, q += HTH_ACT_BLOCK) {
        hth_v8i sums[2];
        float amax = largest_magnitude(x, HTH_ACT_BLOCK);
        sum[b] = 0;
        if (!can_round(amax, &d[b])) {
            memset(q, 0, HTH_ACT_BLOCK);
            continue;
        }
        round_32(x, v8_set(127.0f * one_rcp(amax)), q, sums);
        sum[b] = sum_of_parts(sums[0] + sums[1]);
    }
}

static void quant_act_256(const float *x, size_t n_col, int8_t *q, float *d, int16_t *sum_16)
{
    enum { N_PART = HTH_ACT_BLOCK_256 / HTH_ACT_SUBBLOCK };
    for (size_t b = 0; b < n_col / HTH_ACT_BLOCK_256; b++, x += HTH_ACT_BLOCK_256, sum_16 += N_PART) {
        int8_t *to = q + b * HTH_ACT_BLOCK_256;
        float amax = largest_magnitude(x, HTH_ACT_BLOCK_256);
        if (!can_round(amax, &d[b])) {
            memset(to, 0, HTH_ACT_BLOCK_256);
            memset(sum_16, 0, N_PART * sizeof *sum_16);
            continue;
        }
        hth_v8 inverse = v8_set(127.0f * one_rcp(amax));
        for (size_t i = 0; i < N_PART; i += 2) {
            hth_v8i sums[2];
            round_32(x + i * HTH_ACT_SUBBLOCK, inverse, to + i * HTH_ACT_SUBBLOCK, sums);
            sum_16[i] = (int16_t)sum_of_parts(sums[0]), sum_16[i + 1] = (int16_t)sum_of_parts(sums[1]);
        }
    }
}

/* The scale of a cache block is a bf16, rounded away from zero so that no value exceeds -127..127. */
static void quant_cache(const float *x, size_t n, int8_t *q, uint16_t *d)
{
    for (size_t b = 0; b < n / HTH_ACT_BLOCK; b++, x += HTH_ACT_BLOCK, q += HTH_ACT_BLOCK) {
        float scale;
        hth_v8i sums[2];
        if (!can_round(largest_magnitude(x, HTH_ACT_BLOCK), &scale)) {
            memset(q, 0, HTH_ACT_BLOCK);
            d[b] = (uint16_t)(hth_bits_of(scale) >> 16);
            continue;
        }
        d[b] = (uint16_t)((hth_bits_of(scale) + 0xffffu) >> 16);
        round_32(x, v8_set(one_rcp(hth_bf16_to_f32(d[b]))), q, sums);
    }
}

void HTH_PASTE(hth_kernels_vector_, LEVEL)(hth_kernels *k)
{
    k->quant_act = quant_act;
    k->quant_act_256 = quant_act_256;
    k->rms_norm = rms_norm;
    k->layer_norm = layer_norm;
    k->rope_interleaved = rope_interleaved;
    k->rope_neox = rope_neox;
    k->softmax = softmax;
    k->add = add;
    k->mul = mul;
    k->conv = conv;
    k->scale = scale;
    k->soft_cap = soft_cap;
    k->to_f16 = to_f16;
    k->activate[HTH_ACTIVATION_SILU] = activate_silu;
    k->activate[HTH_ACTIVATION_GELU] = activate_gelu;
    k->activate[HTH_ACTIVATION_RELU] = activate_relu;
    k->activate[HTH_ACTIVATION_RELU2] = activate_relu2;
    k->activate[HTH_ACTIVATION_DRELU] = activate_drelu;
    k->activate[HTH_ACTIVATION_SWIGLU_OAI] = activate_swiglu_oai;
    k->quant_cache = quant_cache;
    k->exp = map_exp;
    k->tanh = map_tanh;
    k->rcp = map_rcp;
    k->rsqrt = map_rsqrt;
    k->sigmoid = map_sigmoid;
    k->softplus = map_softplus;
    k->ssm_scan = ssm_scan;
    k->gate_sigmoid = activate_sigmoid;
    k->dot_rows = dot_rows;
    k->axpy_flush = flush_sums;
}
