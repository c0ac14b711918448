/* Helpers shared by the x86 levels of the types in blocks of 256: scales for every 16 weights as sixteen 16-bit
 * integers, independent of their packing in the type, and the float operations. */
#ifndef HTH_KERNELS_QUANT_X86_WIDE_H
#define HTH_KERNELS_QUANT_X86_WIDE_H

#include "kernels/quant/x86/x86.h"

/* A block and its scales. The including file defines HAS_MINIMUM, HIGH_BITS as the type of the loaded high bits of a
 * type that has them, UNIT as a factor of the block's scale if there is one, and unpack(p). */
typedef struct block {
    const uint8_t *p;
#ifdef HIGH_BITS
    HIGH_BITS high;
#endif
    __m256i scale;
#if HAS_MINIMUM
    __m256i minimum;
#endif
} block;

/* Eight parts of the integer sum of one block. */
typedef __m256i lanes;

HTH_INLINE lanes no_lanes(void) { return _mm256_setzero_si256(); }

/* Adds (h * d) * (sum of s[i]); h: eight F16 values. */
HTH_INLINE partials add_eight(partials p, const uint16_t *h, const float *d, const lanes *s)
{
    __m256i low = _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
    __m256i high = _mm256_hadd_epi32(_mm256_hadd_epi32(s[4], s[5]), _mm256_hadd_epi32(s[6], s[7]));
    __m256i isum = _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20),
                                    _mm256_permute2x128_si256(low, high, 0x31));
    __m256 weight_d = _mm256_cvtph_ps(load_128(h));
#ifdef UNIT
    weight_d = _mm256_mul_ps(weight_d, _mm256_set1_ps(UNIT));
#endif
    return add_scaled(p, weight_d, d, isum);
}

/* The contribution of the scales (or minima) of a block times the sums of 16 inputs each. */
HTH_INLINE lanes times_sums(__m256i scale, const int16_t *sum_16)
{
    return _mm256_madd_epi16(scale, load_256(sum_16));
}

/* Q4_K, Q5_K: eight scales (low bytes) and eight minima from the first 16 bytes of a block. The first four of
 * each are the low six bits of bytes 4 to 7 (8 to 11). The others are nibbles of bytes 12 to 15 with the two
 * remaining bits above them. */
HTH_INLINE __m128i k_scales(const uint8_t *p)
{
    const __m128i first = _mm_setr_epi8(4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m128i above = _mm_setr_epi8(-1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, 8, 9, 10, 11);
    const __m128i mask = _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f);
    __m128i bytes = load_128(p), low = _mm_shuffle_epi8(bytes, first);
    low = _mm_and_si128(_mm_srlv_epi32(low, _mm_setr_epi32(0, 0, 0, 4)), mask);
    __m128i high = _mm_srli_epi16(_mm_shuffle_epi8(bytes, above), 2);
    return _mm_or_si128(low, _mm_and_si128(high, _mm_set1_epi8(0x30)));
}

/* Each of the eight low (or high) bytes twice, as 16 bits. */
HTH_INLINE __m256i low_twice(__m128i bytes) { return _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(bytes, bytes)); }

HTH_INLINE __m256i high_twice(__m128i bytes) { return _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(bytes, bytes)); }

/* Q3_K: sixteen scales of six bits, minus 32, from the last 16 bytes of a block. */
HTH_INLINE __m256i q3_k_scales(const uint8_t *p)
{
    const __m128i low_at = _mm_setr_epi8(2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5, 6, 7, 8, 9);
    const __m128i high_at = _mm_setr_epi8(10, 11, 12, 13, 10, 11, 12, 13, 10, 11, 12, 13, 10, 11, 12, 13);
    __m128i bytes = load_128(p);
    __m128i low = _mm_srlv_epi64(_mm_shuffle_epi8(bytes, low_at), _mm_set_epi64x(4, 0));
    __m128i high = _mm_srlv_epi32(_mm_shuffle_epi8(bytes, high_at), _mm_setr_epi32(0, 2, 4, 6));
    low = _mm_and_si128(low, _mm_set1_epi8(15));
    high = _mm_slli_epi16(_mm_and_si128(high, _mm_set1_epi8(3)), 4);
    return _mm256_cvtepi8_epi16(_mm_sub_epi8(_mm_or_si128(low, high), _mm_set1_epi8(32)));
}

/* IQ4_XS: eight scales of six bits, minus 32, each twice, from the first 8 bytes of a block. */
HTH_INLINE __m256i iq4_xs_scales(const uint8_t *p)
{
    const __m256i fours = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i twos = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    __m256i low = _mm256_srlv_epi32(_mm256_set1_epi32((int)hth_load_u32(p + 4)), fours);
    __m256i high = _mm256_srlv_epi32(_mm256_set1_epi32(hth_load_u16(p + 2)), twos);
    low = _mm256_and_si256(low, _mm256_set1_epi32(15));
    high = _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4);
    __m256i scale = _mm256_or_si256(low, high);
    scale = _mm256_or_si256(scale, _mm256_slli_epi32(scale, 16));
    return _mm256_sub_epi16(scale, _mm256_set1_epi16(32));
}

#endif
