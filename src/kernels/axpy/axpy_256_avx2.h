/* Neuron-major down for types in blocks of 256 with AVX2. The including file defines
 *   BLOCK_SIZE, SCALE_AT, HAS_MINIMUM, MINIMUM_AT, OFFSET_SHIFT
 *   block, unpack(p)     scale: sixteen 16-bit integers; minimum: the same, if HAS_MINIMUM
 *   weights(k, i)        weights 32i to 32i + 31 as bytes; i is a constant
 *   SIGNED_WEIGHTS       1: bytes are signed
 *   NIBBLES_AT           not 0: offset of weights that are nibbles, 32 low ones before 32 high ones
 *   SCALES_OF_32         defined: scales and minima have the layout of k_scales
 * This file defines down(job). docs/arithmetic.md 6. */
#define HAS_AXPY
#define BLOCK_COL 256
#include "kernels/axpy/axpy_avx2.h"
#include "kernels/axpy/axpy_loop.h"

typedef struct sixteen {
    __m256i low, high;
} sixteen;

/* rint(h (x) (d * integers)). Products of an F16 value and a small integer are exact. */
HTH_INLINE __m256i rounded_products(float h, __m256 d, __m256i integers)
{
    return coefficients(_mm256_set1_ps(h), _mm256_mul_ps(d, _mm256_cvtepi32_ps(integers)));
}

HTH_INLINE __m256 half_in_all(const uint8_t *p)
{
    return _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(hth_load_u16(p))));
}

HTH_INLINE sixteen add_sixteen(sixteen a, sixteen b)
{
    return (sixteen){_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}

/* The coefficients of a row in the order of its outputs. The amounts to subtract are added to `offset`, which
 * sixteen_offsets converts to that order at the end. */
#ifdef SCALES_OF_32

enum { N_COEFFICIENT = 8 }; /* the low 8; the high 8 belong to the minima */

HTH_INLINE sixteen take_coefficients(const uint8_t *p, float h, sixteen *offset)
{
    __m128i both = k_scales(p);
    __m256i scale = _mm256_cvtepu8_epi32(both), minimum = _mm256_cvtepu8_epi32(_mm_srli_si128(both, 8));
    sixteen c = {rounded_products(h, half_in_all(p + SCALE_AT), scale),
                 rounded_products(h, half_in_all(p + MINIMUM_AT), minimum)};
    offset->high = _mm256_add_epi32(offset->high, c.high);
    return c;
}

HTH_INLINE sixteen sixteen_offsets(sixteen offset)
{
    const __m256i first = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3),
                  second = _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7);
    return (sixteen){_mm256_permutevar8x32_epi32(offset.high, first),
                     _mm256_permutevar8x32_epi32(offset.high, second)};
}

#else

enum { N_COEFFICIENT = 16 };

HTH_INLINE sixteen of_sixteen(const uint8_t *half, float h, __m256i integers)
{
    __m256 d = half_in_all(half);
    __m256i low = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(integers));
    __m256i high = _mm256_cvtepi16_epi32(_mm256_extracti128_si256(integers, 1));
    return (sixteen){rounded_products(h, d, low), rounded_products(h, d, high)};
}

HTH_INLINE sixteen take_coefficients(const uint8_t *p, float h, sixteen *offset)
{
    block k = unpack(p);
    sixteen c = of_sixteen(p + SCALE_AT, h, k.scale);
#if HAS_MINIMUM
    *offset = add_sixteen(*offset, of_sixteen(p + MINIMUM_AT, h, k.minimum));
#else
    *offset = add_sixteen(*offset, c);
#endif
    return c;
}

HTH_INLINE sixteen sixteen_offsets(sixteen offset)
{
    if (OFFSET_SHIFT < 0) return offset;
    return (sixteen){_mm256_slli_epi32(offset.low, OFFSET_SHIFT),
                     _mm256_slli_epi32(offset.high, OFFSET_SHIFT)};
}

#endif

/* 32 outputs of both rows as pairs: weights from 32i on, or the low nibbles of sixteen bytes and then the high
 * nibbles. */
HTH_INLINE void two_rows(const uint8_t *a, const uint8_t *b, int i, __m256i w[4])
{
    block ka = unpack(a), kb = unpack(b);
    if (NIBBLES_AT) nibble_pairs(a + NIBBLES_AT + 16 * i, b + NIBBLES_AT + 16 * i, w);
    else if (SIGNED_WEIGHTS) signed_pairs(weights(&ka, i), weights(&kb, i), w);
    else unsigned_pairs(weights(&ka, i), weights(&kb, i), w);
}

HTH_INLINE void add_outputs(const down_rows *r, size_t at, int32_t *sums, int32_t *offsets)
{
    _Alignas(32) int32_t c[AXPY_ROWS / 2][16];
    sixteen offset = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    HTH_UNROLL
    for (int p = 0; p < AXPY_ROWS / 2; p++) {
        sixteen ca = take_coefficients(r->row[2 * p] + at, r->h[2 * p], &offset);
        sixteen cb = take_coefficients(r->row[2 * p + 1] + at, r->h[2 * p + 1], &offset);
        store_256(c[p], in_pairs(ca.low, cb.low)), store_256(c[p] + 8, in_pairs(ca.high, cb.high));
    }
    if (HAS_MINIMUM || OFFSET_SHIFT >= 0) {
        offset = sixteen_offsets(offset);
        store_256(offsets, _mm256_add_epi32(load_256(offsets), offset.low));
        store_256(offsets + 8, _mm256_add_epi32(load_256(offsets + 8), offset.high));
    }
    HTH_UNROLL
    for (int i = 0; i < 8; i++) {
        int first = NIBBLES_AT ? 64 * (i / 2) + 16 * (i % 2) : 32 * i,
            second = first + (NIBBLES_AT ? 32 : 16);
        __m256i s[4], w[4];
        fetch_next(r, AXPY_ROWS, at + (size_t)(BLOCK_SIZE * i / 8), at + (size_t)(BLOCK_SIZE * (i + 1) / 8));
        for (int k = 0; k < 2; k++)
            s[k] = load_256(sums + first + 8 * k), s[2 + k] = load_256(sums + second + 8 * k);
        HTH_UNROLL
        for (int p = 0; p < AXPY_ROWS / 2; p++) {
            __m256i c_first = _mm256_set1_epi32(c[p][first * N_COEFFICIENT / 256]),
                    c_second = _mm256_set1_epi32(c[p][second * N_COEFFICIENT / 256]);
            two_rows(r->row[2 * p] + at, r->row[2 * p + 1] + at, i, w);
            for (int k = 0; k < 2; k++) {
                s[k] = _mm256_add_epi32(s[k], _mm256_madd_epi16(w[k], c_first));
                s[2 + k] = _mm256_add_epi32(s[2 + k], _mm256_madd_epi16(w[2 + k], c_second));
            }
        }
        for (int k = 0; k < 2; k++) {
            store_256(sums + first + 8 * k, s[k]);
            store_256(sums + second + 8 * k, s[2 + k]);
        }
    }
}
