/* Helpers of neuron-major down with AVX2: integers of two rows are paired in 16 bits, so that one instruction
 * multiplies both by their coefficients and adds them. */
#ifndef HTH_KERNELS_AXPY_AXPY_AVX2_H
#define HTH_KERNELS_AXPY_AXPY_AVX2_H

#include "kernels/axpy/axpy_x86.h"
#include "kernels/quant/x86/x86_256.h"

/* Rows computed together, and the prefetch distance in rows. With Q4_0 and 4096 outputs 18 KiB are in flight, less than
 * the L1 cache holds. */
enum { AXPY_ROWS = 4, AXPY_PREFETCH_DIST = 8 };

/* Outputs 8i to 8i + 7 of both rows in w[i]. */
HTH_INLINE void unsigned_pairs(__m256i a, __m256i b, __m256i w[4])
{
    __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
    w[0] = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(low));
    w[1] = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(high));
    w[2] = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(low, 1));
    w[3] = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(high, 1));
}

HTH_INLINE void signed_pairs(__m256i a, __m256i b, __m256i w[4])
{
    __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
    w[0] = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(low));
    w[1] = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(high));
    w[2] = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(low, 1));
    w[3] = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(high, 1));
}

/* Sixteen bytes of each row: first their low nibbles, then the high ones. */
HTH_INLINE void nibble_pairs(const uint8_t *a, const uint8_t *b, __m256i w[4])
{
    const __m256i low = _mm256_set1_epi16(15);
    __m128i x = load_128(a), y = load_128(b);
    __m256i first = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(x, y));
    __m256i second = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(x, y));
    w[0] = _mm256_and_si256(first, low), w[1] = _mm256_and_si256(second, low);
    w[2] = _mm256_srli_epi16(first, 4), w[3] = _mm256_srli_epi16(second, 4);
}

#endif
