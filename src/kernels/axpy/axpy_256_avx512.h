/* Neuron-major down for types in blocks of 256 with AVX-512. The including file defines
 *   BLOCK_SIZE, SCALE_AT, HAS_MINIMUM, MINIMUM_AT, OFFSET_SHIFT
 *   block, unpack(p)     scale: sixteen 16-bit integers; minimum: the same, if HAS_MINIMUM
 *   weights(k, i)        weights 64i to 64i + 63 as unsigned bytes; i is a constant
 *   OWN_PAIRS            defined: the file has its own two_rows (below), shorter and without offsets
 *   SCALES_OF_32         defined: scales and minima have the layout of k_scales
 * This file defines down(job). docs/arithmetic.md 6. */
#define HAS_AXPY
#define BLOCK_COL 256
#include "kernels/axpy/axpy_avx512.h"
#include "kernels/axpy/axpy_loop.h"

#ifdef OWN_PAIRS
enum { PAIR_SHIFT = -1 };
#else
enum { PAIR_SHIFT = OFFSET_SHIFT };

/* Outputs 64i + 16j to 64i + 16j + 15 of both rows in w[j]. */
HTH_INLINE void two_rows(const uint8_t *a, const uint8_t *b, int i, __m512i w[4])
{
    block ka = unpack(a), kb = unpack(b);
    __m512i all_a = weights(&ka, i), all_b = weights(&kb, i);
    for (int j = 0; j < 4; j++)
        w[j] = _mm512_maskz_permutex2var_epi8(0x5555555555555555u, all_a, pair_places(j, 64), all_b);
}
#endif

/* rint(h (x) (d * integers)). Products of an F16 value and a small integer are exact. */
HTH_INLINE __m512i rounded_products(float h, __m512 d, __m512i integers)
{
    return _mm512_cvtps_epi32(
        _mm512_mul_ps(_mm512_set1_ps(h), _mm512_mul_ps(d, _mm512_cvtepi32_ps(integers))));
}

/* The coefficients of a row in the order of its outputs. The amounts to subtract are added to `offset`, which
 * sixteen_offsets converts to that order at the end. */
#ifdef SCALES_OF_32

enum { N_COEFFICIENT = 8 }; /* in the lower half; the upper half belongs to the minima */

HTH_INLINE __m512i take_coefficients(const uint8_t *p, float h, __m512i *offset)
{
    const __m512i eight_each = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    __m128 halves = _mm_cvtph_ps(_mm_cvtsi32_si128((int)hth_load_u32(p + SCALE_AT)));
    __m512 d = _mm512_permutexvar_ps(eight_each, _mm512_castps128_ps512(halves));
    __m512i c = rounded_products(h, d, _mm512_cvtepu8_epi32(k_scales(p)));
    *offset = _mm512_add_epi32(*offset, c);
    return c;
}

HTH_INLINE __m512i sixteen_offsets(__m512i offset)
{
    const __m512i upper_twice = _mm512_setr_epi32(8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15);
    return _mm512_permutexvar_epi32(upper_twice, offset);
}

#else

enum { N_COEFFICIENT = 16 };

HTH_INLINE __m512i of_sixteen(const uint8_t *half, float h, __m256i integers)
{
    __m512 d = _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(hth_load_u16(half))));
    return rounded_products(h, d, _mm512_cvtepi16_epi32(integers));
}

HTH_INLINE __m512i take_coefficients(const uint8_t *p, float h, __m512i *offset)
{
    block k = unpack(p);
    __m512i c = of_sixteen(p + SCALE_AT, h, k.scale);
#if HAS_MINIMUM
    *offset = _mm512_add_epi32(*offset, of_sixteen(p + MINIMUM_AT, h, k.minimum));
#else
    *offset = _mm512_add_epi32(*offset, c);
#endif
    return c;
}

HTH_INLINE __m512i sixteen_offsets(__m512i offset)
{
    return HAS_MINIMUM ? offset : shifted(offset, PAIR_SHIFT);
}

#endif

HTH_INLINE void add_outputs(const down_rows *r, size_t at, int32_t *sums, int32_t *offsets)
{
    _Alignas(64) int32_t c[AXPY_ROWS / 2][16];
    __m512i offset = _mm512_setzero_si512();
    HTH_UNROLL
    for (int p = 0; p < AXPY_ROWS / 2; p++) {
        __m512i ca = take_coefficients(r->row[2 * p] + at, r->h[2 * p], &offset);
        __m512i cb = take_coefficients(r->row[2 * p + 1] + at, r->h[2 * p + 1], &offset);
        _mm512_store_si512(c[p], _mm512_mask_blend_epi16(0xaaaaaaaau, ca, _mm512_slli_epi32(cb, 16)));
    }
    if (HAS_MINIMUM || PAIR_SHIFT >= 0)
        _mm512_storeu_si512(offsets, _mm512_add_epi32(load_512(offsets), sixteen_offsets(offset)));
    HTH_UNROLL
    for (int i = 0; i < 4; i++) {
        __m512i s[4], w[4];
        fetch_next(r, AXPY_ROWS, at + (size_t)(BLOCK_SIZE * i / 4), at + (size_t)(BLOCK_SIZE * (i + 1) / 4));
        for (int j = 0; j < 4; j++) s[j] = load_512(sums + 64 * i + 16 * j);
        HTH_UNROLL
        for (int p = 0; p < AXPY_ROWS / 2; p++) {
            two_rows(r->row[2 * p] + at, r->row[2 * p + 1] + at, i, w);
            for (int j = 0; j < 4; j++)
                s[j] = _mm512_dpwssd_epi32(s[j], w[j],
                                           _mm512_set1_epi32(c[p][(4 * i + j) * N_COEFFICIENT / 16]));
        }
        for (int j = 0; j < 4; j++) _mm512_storeu_si512(sums + 64 * i + 16 * j, s[j]);
    }
}
