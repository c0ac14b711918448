/* Rows of F32, F16 and BF16 with AVX2 and FMA: the sixteen partial sums are two
 * registers. */
#include "kernels/levels.h"

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

#include "kernels/float_tmpl.h"

void hth_kernels_float_avx2(hth_kernels *k)
{
    k->rows[HTH_TYPE_F32] = rows_f32;
    k->rows[HTH_TYPE_F16] = rows_f16;
    k->rows[HTH_TYPE_BF16] = rows_bf16;
}
