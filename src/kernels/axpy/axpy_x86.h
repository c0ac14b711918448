/* Coefficients of neuron-major down on x86: those of two rows are 16-bit pairs. */
#ifndef HTH_KERNELS_AXPY_AXPY_X86_H
#define HTH_KERNELS_AXPY_AXPY_X86_H

#include "kernels/quant/x86/x86.h"

HTH_INLINE void store_256(void *p, __m256i v) { _mm256_storeu_si256((__m256i *)p, v); }

HTH_INLINE __m256i coefficients(__m256 h, __m256 d) { return _mm256_cvtps_epi32(_mm256_mul_ps(h, d)); }

/* Coefficients of two rows as 16-bit pairs. */
HTH_INLINE __m256i in_pairs(__m256i a, __m256i b)
{
    return _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa);
}

#endif
