/* Helpers shared by the AVX-512 levels of the quantised rows. */
#ifndef HTH_KERNELS_QUANT_X86_512_H
#define HTH_KERNELS_QUANT_X86_512_H

#include "kernels/quant/x86/x86.h"

HTH_INLINE __m512i load_512(const void *p) { return _mm512_loadu_si512(p); }

/* x * 2^shift; 0 for a negative shift. */
HTH_INLINE __m512i shifted(__m512i x, int shift)
{
    return shift < 0 ? _mm512_setzero_si512() : _mm512_slli_epi32(x, (unsigned)shift);
}

/* Each 128-bit lane of x holds a part of the sums of blocks (b, b + 2, b + 4, b + 6): b = 0 in lanes 0 and 1, b
 * = 1 in lanes 2 and 3. Returns the eight sums in order. */
HTH_INLINE __m256i sums_in_order(__m512i x)
{
    const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    __m512i y = _mm512_permutexvar_epi32(order, x);
    return _mm256_add_epi32(_mm512_castsi512_si256(y), _mm512_extracti64x4_epi64(y, 1));
}

/* Right shifts for bits that are masked afterwards: bits may cross bytes. */
HTH_INLINE __m512i bits_from(__m512i x, int shift) { return _mm512_srlv_epi64(x, _mm512_set1_epi64(shift)); }

/* The 32 bytes at p in both halves. */
HTH_INLINE __m512i twice_256(const uint8_t *p) { return _mm512_broadcast_i64x4(load_256(p)); }

/* Shift counts for the lower and for the upper half of a register. */
HTH_INLINE __m512i by_halves(int low, int high)
{
    return _mm512_inserti64x4(_mm512_set1_epi64(low), _mm256_set1_epi64x(high), 1);
}

/* a | (b & c) */
HTH_INLINE __m512i or_and(__m512i a, __m512i b, __m512i c)
{
    return _mm512_ternarylogic_epi64(a, b, c, 0xf8);
}

/* Four byte indices: those of the F16 values at `first` and at `second`. */
HTH_INLINE int two_places(int first, int second)
{
    return first | (first + 1) << 8 | second << 16 | (second + 1) << 24;
}

/* The F16 values at offset `at` of eight blocks of `size` bytes: four at a time if they are within 64 bytes,
 * else two at a time. Every load stays inside the group. */
HTH_INLINE __m256 eight_halves(const uint8_t *p, int at, int size)
{
    if (3 * size + at + 2 <= 64) {
        int low = two_places(at, at + size), high = two_places(at + 2 * size, at + 3 * size);
        __m512i places = _mm512_castsi128_si512(_mm_setr_epi32(low, high, low, high));
        __m512i four = _mm512_permutexvar_epi8(places, load_512(p));
        __m512i all = _mm512_mask_permutexvar_epi8(four, 0xff00, places, load_512(p + 4 * size));
        return _mm256_cvtph_ps(_mm512_castsi512_si128(all));
    }
    __m128i two[4];
    HTH_UNROLL
    for (int i = 0; i < 4; i++) {
        int base = 2 * size * i + 64 <= 8 * size ? 2 * size * i : 8 * size - 64;
        int first = 2 * size * i + at - base;
        __m512i places = _mm512_castsi128_si512(_mm_set1_epi32(two_places(first, first + size)));
        two[i] = _mm512_castsi512_si128(_mm512_permutexvar_epi8(places, load_512(p + base)));
    }
    __m128i low = _mm_blend_epi32(two[0], two[1], 2), high = _mm_blend_epi32(two[2], two[3], 8);
    return _mm256_cvtph_ps(_mm_blend_epi32(low, high, 12));
}

/* Scales of eight blocks of MXFP4 from their exponents: 2^(e - 128), where 0 and 1 are
 * subnormal and 255 is NaN. */
HTH_INLINE __m256 mxfp4_scales(__m128i exponents)
{
    __m256i e = _mm256_cvtepu8_epi32(exponents);
    __m256i bits = _mm256_sub_epi32(_mm256_slli_epi32(e, 23), _mm256_set1_epi32(1 << 23));
    __mmask8 subnormal = _mm256_cmplt_epi32_mask(e, _mm256_set1_epi32(2));
    __mmask8 is_nan = _mm256_cmpeq_epi32_mask(e, _mm256_set1_epi32(255));
    bits = _mm256_mask_sllv_epi32(bits, subnormal, _mm256_set1_epi32(0x200000), e);
    return _mm256_castsi256_ps(_mm256_mask_mov_epi32(bits, is_nan, _mm256_set1_epi32(0x7fc00000)));
}

#endif
