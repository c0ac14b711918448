/* Helpers of neuron-major down with AVX-512: integers of two rows are paired in 16 bits, so that one
 * instruction (VNNI) multiplies both by their coefficients and adds them to 32-bit sums. */
#ifndef HTH_KERNELS_AXPY_AXPY_AVX512_H
#define HTH_KERNELS_AXPY_AXPY_AVX512_H

#include "kernels/axpy/axpy_x86.h"
#include "kernels/quant/x86/x86_512.h"

/* Rows computed together, and the prefetch distance in rows. With Q4_0 and 4096 outputs 18 KiB are in flight, less than
 * the L1 cache holds. */
enum { AXPY_ROWS = 8, AXPY_PREFETCH_DIST = 8 };

/* Byte indices 16i + j of the first row and of the second, twice each, in 32 bits. */
HTH_INLINE __m512i pair_places(int i, int second)
{
    const __m512i j = _mm512_setr_epi32(
        0x00000000, 0x01010101, 0x02020202, 0x03030303, 0x04040404, 0x05050505, 0x06060606, 0x07070707,
        0x08080808, 0x09090909, 0x0a0a0a0a, 0x0b0b0b0b, 0x0c0c0c0c, 0x0d0d0d0d, 0x0e0e0e0e, 0x0f0f0f0f);
    return _mm512_add_epi8(j, _mm512_set1_epi32(i * 0x10101010 + second * 0x01010000));
}

/* 32 bytes of each row in one register: outputs 16i to 16i + 15 of both in w[i]. */
HTH_INLINE void unsigned_pairs(__m512i both, __m512i w[2])
{
    for (int i = 0; i < 2; i++)
        w[i] = _mm512_maskz_permutexvar_epi8(0x5555555555555555u, pair_places(i, 32), both);
}

HTH_INLINE void signed_pairs(__m512i both, __m512i w[2])
{
    for (int i = 0; i < 2; i++)
        w[i] = _mm512_srai_epi16(_mm512_permutexvar_epi8(pair_places(i, 32), both), 8);
}

/* Sixteen bytes of each row as 16-bit pairs. */
HTH_INLINE __m512i byte_pairs(const uint8_t *a, const uint8_t *b)
{
    __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(load_128(a)), load_128(b), 1);
    return _mm512_maskz_permutexvar_epi8(0x5555555555555555u, pair_places(0, 16),
                                         _mm512_castsi256_si512(both));
}

/* First the low nibbles, then the high ones. */
HTH_INLINE void nibble_pairs(const uint8_t *a, const uint8_t *b, __m512i w[2])
{
    __m512i bytes = byte_pairs(a, b);
    w[0] = _mm512_and_si512(bytes, _mm512_set1_epi16(15));
    w[1] = _mm512_srli_epi16(bytes, 4);
}

/* The same, as indices into a table. The lookup uses five index bits, so the table is stored twice. */
HTH_INLINE void value_pairs(const uint8_t *a, const uint8_t *b, const int8_t table[16], __m512i w[2])
{
    const __m512i values = _mm512_broadcast_i64x4(_mm256_cvtepi8_epi16(load_128(table)));
    __m512i bytes = byte_pairs(a, b);
    w[0] = _mm512_permutexvar_epi16(bytes, values);
    w[1] = _mm512_permutexvar_epi16(_mm512_srli_epi16(bytes, 4), values);
}

/* Sixteen bytes of each row as 32 nibbles of each, in the order of the outputs. */
HTH_INLINE __m512i two_rows_of_nibbles(const uint8_t *a, const uint8_t *b)
{
    const __m512i shift = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
    __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_broadcastsi128_si256(load_128(a))),
                                      _mm256_broadcastsi128_si256(load_128(b)), 1);
    return _mm512_and_si512(_mm512_srlv_epi64(both, shift), _mm512_set1_epi8(15));
}

#endif
