/* Neuron-major down of types in blocks of 256 with AVX-512. The including file gives
 *   BLOCK_SIZE, SCALE_AT, HAS_MINIMUM, MINIMUM_AT, OFFSET_SHIFT
 *   block, unpack(p)     scale: sixteen 16-bit integers; minimum: the same, where HAS_MINIMUM
 *   weights(k, i)        weights 64i to 64i + 63 as bytes, i being a constant
 *   NIBBLES_AT           not 0: weights are nibbles that lie there, 32 low ones before 32 high ones
 * and gets down(job). docs/arithmetic.md 6. */
#define BLOCK_COL 256
#include "kernels/down_avx512.h"
#include "kernels/down_walk.h"

/* Bytes that are too large by 128 have no room for it in the sums: they are made signed. */
enum { SIGNED_WEIGHTS = OFFSET_SHIFT == 7, PAIR_SHIFT = SIGNED_WEIGHTS ? -1 : OFFSET_SHIFT };

/* rint(h (x) (d * integers)): products of a half and a small integer are exact. */
HTH_INLINE __m512i part_coefficients(float h, const uint8_t *half, __m256i integers)
{
    __m512 d = _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(hth_load_u16(half))));
    d = _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(integers)));
    return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_set1_ps(h), d));
}

/* Outputs 16j to 16j + 15 of both rows, of the 64 bytes of each. */
HTH_INLINE __m512i pairs_of(__m512i a, __m512i b, int j)
{
    if (!SIGNED_WEIGHTS) return _mm512_maskz_permutex2var_epi8(0x5555555555555555u, a, pair_places(j, 64), b);
    __m512i high = _mm512_permutex2var_epi8(a, pair_places(j, 64), b);
    return _mm512_srai_epi16(_mm512_xor_si512(high, _mm512_set1_epi8((char)0x80)), 8);
}

/* Outputs 64i + 16j to 64i + 16j + 15 of both rows in w[j]. */
HTH_INLINE void two_rows(const uint8_t *a, const uint8_t *b, int i, __m512i w[4])
{
    if (NIBBLES_AT) {
        const uint8_t *pa = a + NIBBLES_AT + 32 * i, *pb = b + NIBBLES_AT + 32 * i;
        unsigned_pairs(_mm512_inserti64x4(_mm512_castsi256_si512(load_256(pa)), load_256(pb), 1), w);
        for (int j = 0; j < 2; j++) {
            w[2 + j] = _mm512_srli_epi16(w[j], 4);
            w[j] = _mm512_and_si512(w[j], _mm512_set1_epi16(15));
        }
        return;
    }
    block ka = unpack(a), kb = unpack(b);
    __m512i all_a = weights(&ka, i), all_b = weights(&kb, i);
    for (int j = 0; j < 4; j++) w[j] = pairs_of(all_a, all_b, j);
}

HTH_INLINE void add_outputs(const down_rows *r, size_t at, int32_t *sums, int32_t *offsets)
{
    _Alignas(64) int32_t c[LIVE / 2][16];
    __m512i c_sum = _mm512_setzero_si512(), m_sum = _mm512_setzero_si512();
    HTH_UNROLL
    for (int p = 0; p < LIVE / 2; p++) {
        const uint8_t *a = r->row[2 * p] + at, *b = r->row[2 * p + 1] + at;
        block ka = unpack(a), kb = unpack(b);
        __m512i ca = part_coefficients(r->h[2 * p], a + SCALE_AT, ka.scale);
        __m512i cb = part_coefficients(r->h[2 * p + 1], b + SCALE_AT, kb.scale);
        _mm512_store_si512(c[p], _mm512_mask_blend_epi16(0xaaaaaaaau, ca, _mm512_slli_epi32(cb, 16)));
        c_sum = _mm512_add_epi32(c_sum, _mm512_add_epi32(ca, cb));
#if HAS_MINIMUM
        m_sum = _mm512_add_epi32(m_sum, part_coefficients(r->h[2 * p], a + MINIMUM_AT, ka.minimum));
        m_sum = _mm512_add_epi32(m_sum, part_coefficients(r->h[2 * p + 1], b + MINIMUM_AT, kb.minimum));
#endif
    }
    if (PAIR_SHIFT >= 0) m_sum = shifted(c_sum, PAIR_SHIFT);
    if (PAIR_SHIFT >= 0 || HAS_MINIMUM)
        _mm512_storeu_si512(offsets, _mm512_add_epi32(load_512(offsets), m_sum));
    HTH_UNROLL
    for (int i = 0; i < 4; i++) {
        __m512i s[4], w[4];
        fetch_next(r, LIVE, at + (size_t)(BLOCK_SIZE * i / 4), at + (size_t)(BLOCK_SIZE * (i + 1) / 4));
        for (int j = 0; j < 4; j++) s[j] = load_512(sums + 64 * i + 16 * j);
        HTH_UNROLL
        for (int p = 0; p < LIVE / 2; p++) {
            two_rows(r->row[2 * p] + at, r->row[2 * p + 1] + at, i, w);
            for (int j = 0; j < 4; j++)
                s[j] = _mm512_dpwssd_epi32(s[j], w[j], _mm512_set1_epi32(c[p][4 * i + j]));
        }
        for (int j = 0; j < 4; j++) _mm512_storeu_si512(sums + 64 * i + 16 * j, s[j]);
    }
}
