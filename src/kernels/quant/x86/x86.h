/* Helpers shared by the x86 levels of the quantised rows: the eight partial sums in one 256-bit register, and
 * the float operations of rules R3 and R4. */
#ifndef HTH_KERNELS_QUANT_X86_H
#define HTH_KERNELS_QUANT_X86_H

#include "base/bits.h"
#include "kernels/isa.h"

#include <immintrin.h>

typedef __m256 partials;

HTH_INLINE partials no_partials(void) { return _mm256_setzero_ps(); }

/* p + (weight scales * activation scales) * isum, each operation rounded. */
HTH_INLINE partials add_scaled(partials p, __m256 weight_d, const float *d, __m256i isum)
{
    __m256 t = _mm256_mul_ps(weight_d, _mm256_loadu_ps(d));
    return _mm256_add_ps(p, _mm256_mul_ps(t, _mm256_cvtepi32_ps(isum)));
}

/* Adds neighbours first, as hth_reduce8. */
HTH_INLINE float tree(partials p)
{
    __m256 pairs = _mm256_hadd_ps(p, p), fours = _mm256_hadd_ps(pairs, pairs);
    return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1)));
}

/* Any bytes as a vector. */
HTH_INLINE __m256i load_256(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
HTH_INLINE __m128i load_128(const void *p) { return _mm_loadu_si128((const __m128i *)p); }

#endif
