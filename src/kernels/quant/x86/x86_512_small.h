/* Eight blocks of 32 weights with AVX-512 (VBMI, VNNI). A weight is a byte of 0..31, in the order of the
 * activations, so sums of eight products fit in 16 bits. A register holds two blocks; every load stays inside
 * the bytes of its group. The including file defines
 *   BLOCK_SIZE    bytes of a block
 *   HAS_MINIMUM   1: weights have a minimum
 *   OFFSET_SHIFT  weights are too large by 2^OFFSET_SHIFT; -1: no offset */
#include "kernels/axpy/axpy_avx512.h"

#include "kernels/quant/row_sums.h"

typedef struct {
    __m512i w[4]; /* blocks 2i and 2i + 1 */
    __m256 d;
#if HAS_MINIMUM
    __m256 m;
#endif
} group;

/* The nibbles of blocks 2i and 2i + 1, at byte `at` of a block. The sixteen bytes of each are used twice, once
 * for their low nibbles and once for the high ones. */
HTH_INLINE __m512i spread(const uint8_t *p, int i, int at)
{
    const __m512i shift = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
    const __m128i sixteen = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    int base = 2 * BLOCK_SIZE * i + 64 <= 8 * BLOCK_SIZE ? 2 * BLOCK_SIZE * i : 8 * BLOCK_SIZE - 64;
    char first = (char)(2 * BLOCK_SIZE * i + at - base);
    __m512i places = _mm512_add_epi8(_mm512_broadcast_i32x4(sixteen), _mm512_set1_epi8(first));
    places = _mm512_mask_add_epi8(places, 0xffffffff00000000u, places, _mm512_set1_epi8(BLOCK_SIZE));
    __m512i halves = _mm512_srlv_epi64(_mm512_permutexvar_epi8(places, load_512(p + base)), shift);
    return _mm512_and_si512(halves, _mm512_set1_epi8(15));
}

/* Adds 16 to weights whose bit is set, of the 32 bits at byte `at` of blocks 2i and 2i + 1. */
HTH_INLINE __m512i add_fifth_bits(__m512i w, const uint8_t *p, int i, int at)
{
    uint64_t first = hth_load_u32(p + 2 * BLOCK_SIZE * i + at);
    uint64_t second = hth_load_u32(p + 2 * BLOCK_SIZE * i + BLOCK_SIZE + at);
    return _mm512_mask_add_epi8(w, first | second << 32, w, _mm512_set1_epi8(16));
}

HTH_INLINE __m256 scales(const uint8_t *p) { return eight_halves(p, 0, BLOCK_SIZE); }

/* Sums of four neighbours in each lane, in 32 bits. */
HTH_INLINE __m512i products(__m512i w, const int8_t *q)
{
    return _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, load_512(q));
}

/* Sums of neighbours, those of a before those of b in each lane. The largest is 8 * 31 * 127 before the second
 * step, so the packed values fit 16 bits. */
HTH_INLINE __m512i fold(__m512i a, __m512i b)
{
    return _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1));
}

HTH_INLINE row_sums add_terms(row_sums s, const group *g, const int8_t *q, const float *d, const int32_t *sum)
{
    __m512i low = fold(products(g->w[0], q), products(g->w[1], q + 64));
    __m512i high = fold(products(g->w[2], q + 128), products(g->w[3], q + 192));
    __m256i isum = sums_in_order(fold(low, high));
    if (OFFSET_SHIFT >= 0) isum = _mm256_sub_epi32(isum, _mm256_slli_epi32(load_256(sum), OFFSET_SHIFT));
#if HAS_MINIMUM
    s.p = add_scaled(s.p, g->d, d, isum);
    s.m = add_scaled(s.m, g->m, d, load_256(sum));
    return s;
#else
    return add_scaled(s, g->d, d, isum);
#endif
}
