/* Neuron-major down of types in blocks of 256 with AVX2. The including file gives
 *   BLOCK_SIZE, SCALE_AT, HAS_MINIMUM, MINIMUM_AT, OFFSET_SHIFT
 *   block, unpack(p)     scale: sixteen 16-bit integers; minimum: the same, where HAS_MINIMUM
 *   weights(k, i)        weights 32i to 32i + 31 as bytes, i being a constant
 *   SIGNED_WEIGHTS       1: bytes are signed
 *   NIBBLES_AT           not 0: weights are nibbles that lie there, 32 low ones before 32 high ones
 * and gets down(job). docs/arithmetic.md 6. */
#define BLOCK_COL 256
#include "kernels/down_avx2.h"
#include "kernels/down_walk.h"

typedef struct sixteen {
    __m256i low, high;
} sixteen;

/* rint(h (x) (d * integers)): products of a half and a small integer are exact. */
HTH_INLINE sixteen part_coefficients(__m256 h, const uint8_t *half, __m256i integers)
{
    __m256 d = _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(hth_load_u16(half))));
    __m256 low = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(integers)));
    __m256 high = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm256_extracti128_si256(integers, 1)));
    return (sixteen){coefficients(h, _mm256_mul_ps(d, low)), coefficients(h, _mm256_mul_ps(d, high))};
}

HTH_INLINE sixteen add_sixteen(sixteen a, sixteen b)
{
    return (sixteen){_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}

/* 32 outputs of both rows as pairs: of weights 32i and on; or the low halves of sixteen bytes and
 * then the high ones. */
HTH_INLINE void two_rows(const uint8_t *a, const uint8_t *b, int i, __m256i w[4])
{
    block ka = unpack(a), kb = unpack(b);
    if (NIBBLES_AT) nibble_pairs(a + NIBBLES_AT + 16 * i, b + NIBBLES_AT + 16 * i, w);
    else if (SIGNED_WEIGHTS) signed_pairs(weights(&ka, i), weights(&kb, i), w);
    else unsigned_pairs(weights(&ka, i), weights(&kb, i), w);
}

HTH_INLINE void add_outputs(const down_rows *r, size_t at, int32_t *sums, int32_t *offsets)
{
    _Alignas(32) int32_t c[LIVE / 2][16];
    sixteen c_sum = {_mm256_setzero_si256(), _mm256_setzero_si256()}, m_sum = c_sum;
    HTH_UNROLL
    for (int p = 0; p < LIVE / 2; p++) {
        const uint8_t *a = r->row[2 * p] + at, *b = r->row[2 * p + 1] + at;
        __m256 ha = _mm256_set1_ps(r->h[2 * p]), hb = _mm256_set1_ps(r->h[2 * p + 1]);
        block ka = unpack(a), kb = unpack(b);
        sixteen ca = part_coefficients(ha, a + SCALE_AT, ka.scale);
        sixteen cb = part_coefficients(hb, b + SCALE_AT, kb.scale);
        store_256(c[p], in_pairs(ca.low, cb.low)), store_256(c[p] + 8, in_pairs(ca.high, cb.high));
        c_sum = add_sixteen(c_sum, add_sixteen(ca, cb));
#if HAS_MINIMUM
        m_sum = add_sixteen(m_sum, part_coefficients(ha, a + MINIMUM_AT, ka.minimum));
        m_sum = add_sixteen(m_sum, part_coefficients(hb, b + MINIMUM_AT, kb.minimum));
#endif
    }
    if (OFFSET_SHIFT >= 0) {
        m_sum.low = _mm256_slli_epi32(c_sum.low, OFFSET_SHIFT);
        m_sum.high = _mm256_slli_epi32(c_sum.high, OFFSET_SHIFT);
    }
    if (OFFSET_SHIFT >= 0 || HAS_MINIMUM) {
        store_256(offsets, _mm256_add_epi32(load_256(offsets), m_sum.low));
        store_256(offsets + 8, _mm256_add_epi32(load_256(offsets + 8), m_sum.high));
    }
    HTH_UNROLL
    for (int i = 0; i < 8; i++) {
        int first = NIBBLES_AT ? 64 * (i / 2) + 16 * (i % 2) : 32 * i,
            second = first + (NIBBLES_AT ? 32 : 16);
        __m256i s[4], w[4];
        fetch_next(r, LIVE, at + (size_t)(BLOCK_SIZE * i / 8), at + (size_t)(BLOCK_SIZE * (i + 1) / 8));
        for (int k = 0; k < 2; k++)
            s[k] = load_256(sums + first + 8 * k), s[2 + k] = load_256(sums + second + 8 * k);
        HTH_UNROLL
        for (int p = 0; p < LIVE / 2; p++) {
            __m256i c_first = _mm256_set1_epi32(c[p][first / 16]),
                    c_second = _mm256_set1_epi32(c[p][second / 16]);
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
