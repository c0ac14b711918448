/* Rows of Q8_0 with AVX-512 (VBMI, VNNI). The dot product wants unsigned weights:
 * 128 is added to them and taken off by the sums of the activations. Every load
 * stays inside the 272 bytes of its group. */
#define HAS_MINIMUM 0
#include "kernels/x86_512.h"

enum { BLOCK_SIZE = 34 };

typedef struct group {
    __m512i w[4]; /* blocks 2i and 2i + 1, weight + 128 */
    __m256 d;
} group;

HTH_INLINE __m512i two_blocks(const uint8_t *p)
{
    __m512i w = _mm512_inserti64x4(_mm512_castsi256_si512(load_256(p + 2)), load_256(p + BLOCK_SIZE + 2), 1);
    return _mm512_xor_si512(w, _mm512_set1_epi8((char)0x80));
}

HTH_INLINE __m256 scales(const uint8_t *p)
{
    __m128i h = _mm_setzero_si128();
    for (int i = 0; i < 4; i++) h = take_scales(h, i, p + 2 * BLOCK_SIZE * i, 0, BLOCK_SIZE);
    return _mm256_cvtph_ps(h);
}

HTH_INLINE group unpack(const uint8_t *p)
{
    return (group){{two_blocks(p), two_blocks(p + 68), two_blocks(p + 136), two_blocks(p + 204)}, scales(p)};
}

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
    __m256i offset = _mm256_slli_epi32(load_256(sum), 7);
    __m256i isum = _mm256_sub_epi32(sums_in_order(fold_64(low, high)), offset);
    return add_scaled(p, g->d, d, isum);
}

#include "kernels/rows_tmpl.h"

enum { OFFSET_SHIFT = 7 };

HTH_INLINE __m256i block_bytes(const uint8_t *p)
{
    return _mm256_xor_si256(load_256(p + 2), _mm256_set1_epi8((char)0x80));
}

#include "kernels/panel_avx512.h"

void hth_kernels_q8_0_avx512(hth_kernels *k) { k->rows[HTH_TYPE_Q8_0] = rows_by_panel; }
