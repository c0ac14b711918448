/* Eight blocks of 32 weights with AVX-512 (VBMI, VNNI). A weight is any byte. The dot product needs unsigned
 * weights: 128 is added to them and subtracted by the sums of the activations. A register holds two blocks. */
#include "kernels/axpy/axpy_avx512.h"

typedef struct {
    __m512i w[4]; /* blocks 2i and 2i + 1, weight + 128 */
    __m256 d;
} group;

enum { OFFSET_SHIFT = 7 };

HTH_INLINE __m256 scales(const uint8_t *p) { return eight_halves(p, 0, BLOCK_SIZE); }

/* Sums of four neighbours in each lane, in 32 bits. */
HTH_INLINE __m512i products(__m512i w, const int8_t *q)
{
    return _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, load_512(q));
}

HTH_INLINE __m512i fold_32(__m512i a, __m512i b)
{
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}

HTH_INLINE __m512i fold_64(__m512i a, __m512i b)
{
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

HTH_INLINE partials add_terms(partials p, const group *g, const int8_t *q, const float *d, const int32_t *sum)
{
    __m512i low = fold_32(products(g->w[0], q), products(g->w[1], q + 64));
    __m512i high = fold_32(products(g->w[2], q + 128), products(g->w[3], q + 192));
    __m256i offset = _mm256_slli_epi32(load_256(sum), OFFSET_SHIFT);
    __m256i isum = _mm256_sub_epi32(sums_in_order(fold_64(low, high)), offset);
    return add_scaled(p, g->d, d, isum);
}
