/* Rows of Q4_0 with AVX2. A register holds one block, a byte per weight in the order
 * of the activations, without the -8: the sums of the activations take it off. */
#include "kernels/x86_256.h"

enum { BLOCK_SIZE = 18 };

typedef struct group {
    __m256i w[8]; /* bytes of 0..15 */
    __m256 d;
} group;

HTH_INLINE group unpack(const uint8_t *p)
{
    const __m256i shift = _mm256_setr_epi64x(0, 0, 4, 4);
    group g = {.d = scales(p, BLOCK_SIZE)};
    for (int i = 0; i < 8; i++) {
        __m256i twice = _mm256_broadcastsi128_si256(load_128(p + i * BLOCK_SIZE + 2));
        g.w[i] = _mm256_and_si256(_mm256_srlv_epi64(twice, shift), _mm256_set1_epi8(15));
    }
    return g;
}

/* Sums of neighbours; 16 bits hold them up to the third time: 8 * 15 * 127. */
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

HTH_INLINE partials add_terms(partials p, const group *g, const int8_t *q, const float *d,
                              const int32_t *sum)
{
    __m256i isum = sums_in_order(four_blocks(g, 0, q), four_blocks(g, 4, q));
    return add_scaled(p, g->d, d, _mm256_sub_epi32(isum, _mm256_slli_epi32(load_256(sum), 3)));
}

#include "kernels/rows_tmpl.h"

void hth_kernels_q4_0_avx2(hth_kernels *k) { k->rows[HTH_TYPE_Q4_0] = rows; }
