/* Pieces that the AVX-512 levels of the quantised rows share. */
#ifndef HTH_KERNELS_X86_512_H
#define HTH_KERNELS_X86_512_H

#include "kernels/x86.h"

HTH_INLINE __m512i load_512(const void *p) { return _mm512_loadu_si512(p); }

/* Each 128-bit lane of x holds a part of the sums of blocks (b, b + 2, b + 4, b + 6):
 * b = 0 in lanes 0 and 1, b = 1 in lanes 2 and 3. Gives the eight sums in order. */
HTH_INLINE __m256i sums_in_order(__m512i x)
{
    const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    __m512i y = _mm512_permutexvar_epi32(order, x);
    return _mm256_add_epi32(_mm512_castsi512_si256(y), _mm512_extracti64x4_epi64(y, 1));
}

/* Two bytes at `first` and two at `second` of p to places 2i and 2i + 1 of eight
 * halves, the rest from `others`; p must have 64 bytes. */
HTH_INLINE __m128i take_scales(__m128i others, int i, const uint8_t *p, char first, char second)
{
    __m128i places = _mm_set1_epi32(first | (first + 1) << 8 | second << 16 | (second + 1) << 24);
    __m512i taken = _mm512_permutexvar_epi8(_mm512_castsi128_si512(places), load_512(p));
    return _mm_mask_mov_epi32(others, (__mmask8)(1 << i), _mm512_castsi512_si128(taken));
}

#endif
