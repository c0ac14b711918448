/* Rows and neuron-major down of F32, F16 and BF16 with AVX2 and FMA: the sixteen partial sums are two
 * registers. */
#include "kernels/isa.h"

#include <immintrin.h>

typedef struct floats {
    __m256 low, high;
} floats;

HTH_INLINE floats zeros(void) { return (floats){_mm256_setzero_ps(), _mm256_setzero_ps()}; }

HTH_INLINE floats load_f32(const uint8_t *p)
{
    const float *x = (const float *)(const void *)p;
    return (floats){_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)};
}

HTH_INLINE __m128i load_halves(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }

HTH_INLINE floats load_f16(const uint8_t *p)
{
    return (floats){_mm256_cvtph_ps(load_halves(p)), _mm256_cvtph_ps(load_halves(p + 16))};
}

HTH_INLINE __m256 widen_bf16(__m128i halves)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

HTH_INLINE floats load_bf16(const uint8_t *p)
{
    return (floats){widen_bf16(load_halves(p)), widen_bf16(load_halves(p + 16))};
}

HTH_INLINE floats add_products(floats p, floats w, floats x)
{
    return (floats){_mm256_fmadd_ps(w.low, x.low, p.low), _mm256_fmadd_ps(w.high, x.high, p.high)};
}

HTH_INLINE float tree(floats p)
{
    __m256 a = _mm256_add_ps(p.low, p.high);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

enum { ROWS_AT_ONCE = 1 };

#include "kernels/float/float_tmpl.h"

HTH_INLINE floats all_of(float x) { return (floats){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }

HTH_INLINE void store_floats(float *y, floats p)
{
    _mm256_storeu_ps(y, p.low);
    _mm256_storeu_ps(y + 8, p.high);
}

#include "kernels/axpy/axpy_float_tmpl.h"

/* trunc(a 2^32), |a| < 2^31. AVX2 has no instruction for it: the mantissa is shifted left or right by the
 * exponent. Shift counts of 64 and more, which include negative ones, give 0. */
HTH_INLINE __m256i to_fixed(__m128 a)
{
    __m256i bits = _mm256_cvtepu32_epi64(_mm_castps_si128(a));
    __m256i e = _mm256_and_si256(_mm256_srli_epi64(bits, 23), _mm256_set1_epi64x(255));
    __m256i m = _mm256_and_si256(bits, _mm256_set1_epi64x(0x7fffff));
    m = _mm256_or_si256(m, _mm256_set1_epi64x(0x800000));
    __m256i left = _mm256_sub_epi64(e, _mm256_set1_epi64x(150 - 32));
    __m256i right = _mm256_sub_epi64(_mm256_setzero_si256(), left);
    __m256i size = _mm256_or_si256(_mm256_sllv_epi64(m, left), _mm256_srlv_epi64(m, right));
    __m256i sign = _mm256_sub_epi64(_mm256_setzero_si256(), _mm256_srli_epi64(bits, 31));
    return _mm256_sub_epi64(_mm256_xor_si256(size, sign), sign);
}

static bool flush_chain(size_t n_out, float *chain, int64_t *acc64)
{
    size_t n_whole = n_out - n_out % 4;
    __m128 all_fit = _mm_castsi128_ps(_mm_set1_epi32(-1));
    for (size_t o = 0; o < n_whole; o += 4) {
        __m128 a = _mm_loadu_ps(chain + o), size = _mm_andnot_ps(_mm_set1_ps(-0.0f), a);
        __m128 fits = _mm_cmplt_ps(size, _mm_set1_ps(0x1p23f));
        __m256i *sum = (__m256i *)(void *)(acc64 + o);
        all_fit = _mm_and_ps(all_fit, fits);
        _mm256_storeu_si256(sum, _mm256_add_epi64(_mm256_loadu_si256(sum), to_fixed(_mm_and_ps(a, fits))));
        _mm_storeu_ps(chain + o, _mm_setzero_ps());
    }
    bool rest = hth_axpy_flush_chain(n_out - n_whole, chain + n_whole, acc64 + n_whole);
    return rest && _mm_movemask_ps(all_fit) == 15;
}

void hth_kernels_float_avx2(hth_kernels *k)
{
    k->axpy[HTH_TYPE_F32] = down_f32;
    k->axpy[HTH_TYPE_F16] = down_f16;
    k->axpy[HTH_TYPE_BF16] = down_bf16;
    k->axpy_flush_chain = flush_chain;
    k->rows[HTH_TYPE_F32] = rows_f32;
    k->rows[HTH_TYPE_F16] = rows_f16;
    k->rows[HTH_TYPE_BF16] = rows_bf16;
}
