/* Eight blocks of 32 weights with AVX2. A weight is a byte of 0..31, in the order of the activations, so sums
 * of eight products fit in 16 bits. The including file defines
 *   HAS_MINIMUM   1: weights have a minimum
 *   OFFSET_SHIFT  weights are too large by 2^OFFSET_SHIFT; -1: no offset */
#include "kernels/axpy/axpy_avx2.h"

#include "kernels/quant/row_sums.h"

typedef struct {
    __m256i w[8];
    __m256 d;
#if HAS_MINIMUM
    __m256 m;
#endif
} group;

/* Sixteen bytes as 32 nibbles: the low ones, then the high ones. */
HTH_INLINE __m256i nibbles(const uint8_t *p)
{
    __m256i twice = _mm256_broadcastsi128_si256(load_128(p));
    __m256i halves = _mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 0, 4, 4));
    return _mm256_and_si256(halves, _mm256_set1_epi8(15));
}

/* 16 in each byte whose bit is set, of the 32 bits at p. */
HTH_INLINE __m256i fifth_bits(const uint8_t *p)
{
    const __m256i places = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32((int)hth_load_u32(p)), places);
    __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
    return _mm256_and_si256(set, _mm256_set1_epi8(16));
}

/* Sums of neighbours. 16 bits hold them up to the third addition: 8 * 31 * 127. */
HTH_INLINE __m256i pairs(__m256i a) { return _mm256_madd_epi16(a, _mm256_set1_epi16(1)); }

/* Sums of four neighbours, those of a before those of b in each lane. */
HTH_INLINE __m256i two_blocks(const group *g, int i, const int8_t *q)
{
    __m256i a = _mm256_maddubs_epi16(g->w[i], load_256(q + 32 * i));
    __m256i b = _mm256_maddubs_epi16(g->w[i + 1], load_256(q + 32 * i + 32));
    return _mm256_packs_epi32(pairs(a), pairs(b));
}

HTH_INLINE __m256i four_blocks(const group *g, int i, const int8_t *q)
{
    __m256i a = two_blocks(g, i, q), b = two_blocks(g, i + 2, q);
    return pairs(_mm256_packs_epi32(pairs(a), pairs(b)));
}

HTH_INLINE row_sums add_terms(row_sums s, const group *g, const int8_t *q, const float *d, const int32_t *sum)
{
    __m256i isum = sums_in_order(four_blocks(g, 0, q), four_blocks(g, 4, q));
    if (OFFSET_SHIFT >= 0) isum = _mm256_sub_epi32(isum, _mm256_slli_epi32(load_256(sum), OFFSET_SHIFT));
#if HAS_MINIMUM
    s.p = add_scaled(s.p, g->d, d, isum);
    s.m = add_scaled(s.m, g->m, d, load_256(sum));
    return s;
#else
    return add_scaled(s, g->d, d, isum);
#endif
}
