/* Pieces that the x86 levels of the quantised rows share: the eight partial sums
 * in one 256-bit register, and the float work of rules R3 and R4. */
#ifndef HTH_KERNELS_X86_H
#define HTH_KERNELS_X86_H

#include "base/bits.h"
#include "kernels/levels.h"

#include <immintrin.h>

typedef __m256 partials;

HTH_INLINE partials no_partials(void) { return _mm256_setzero_ps(); }

/* p + (weight scales * activation scales) * isum, each operation rounded. */
HTH_INLINE partials add_scaled(partials p, __m256 weight_d, const float *d, __m256i isum)
{
    __m256 t = _mm256_mul_ps(weight_d, _mm256_loadu_ps(d));
    return _mm256_add_ps(p, _mm256_mul_ps(t, _mm256_cvtepi32_ps(isum)));
}

/* Neighbours first, as hth_tree8. */
HTH_INLINE float tree(partials p)
{
    __m256 pairs = _mm256_hadd_ps(p, p), fours = _mm256_hadd_ps(pairs, pairs);
    return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1)));
}

/* Scales of eight blocks of MXFP4 from their exponents: 2^(e - 128), where 0 and 1 are
 * subnormal and 255 is NaN. */
HTH_INLINE __m256 mxfp4_scales(__m128i exponents)
{
    __m256i e = _mm256_cvtepu8_epi32(exponents);
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), e);
    __m256i bits = _mm256_blendv_epi8(normal, subnormal, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e));
    __m256i is_nan = _mm256_cmpeq_epi32(e, _mm256_set1_epi32(255));
    return _mm256_castsi256_ps(
        _mm256_or_si256(bits, _mm256_and_si256(is_nan, _mm256_set1_epi32(0x7fc00000))));
}

/* Any bytes as a vector. */
HTH_INLINE __m256i load_256(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
HTH_INLINE __m128i load_128(const void *p) { return _mm_loadu_si128((const __m128i *)p); }

#endif
