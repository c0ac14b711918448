/* Rows of Q4_0 with AVX-512 (VBMI, VNNI). A register holds two blocks, a byte per
 * weight in the order of the activations, without the -8: the sums of the
 * activations take it off. Every load stays inside the 144 bytes of its group. */
#define HAS_MINIMUM 0
#include "kernels/x86_512.h"

enum { BLOCK_SIZE = 18 };

typedef struct group {
    __m512i w[4]; /* blocks 2i and 2i + 1, bytes of 0..15 */
    __m256 d;
} group;

/* Two blocks that begin at byte `first` of p, which has 64 bytes: the sixteen bytes
 * of each are taken twice, once for their low halves and once for the high ones. */
HTH_INLINE __m512i spread(const uint8_t *p, char first)
{
    const __m512i shift = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
    const __m128i bytes = _mm_setr_epi8(2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17);
    __m512i places = _mm512_add_epi8(_mm512_broadcast_i32x4(bytes), _mm512_set1_epi8(first));
    places = _mm512_mask_add_epi8(places, 0xffffffff00000000u, places, _mm512_set1_epi8(BLOCK_SIZE));
    __m512i halves = _mm512_srlv_epi64(_mm512_permutexvar_epi8(places, load_512(p)), shift);
    return _mm512_and_si512(halves, _mm512_set1_epi8(15));
}

HTH_INLINE __m256 scales(const uint8_t *p)
{
    const __m512i places =
        _mm512_castsi128_si512(_mm_setr_epi8(0, 1, 18, 19, 36, 37, 54, 55, 0, 1, 18, 19, 36, 37, 54, 55));
    __m512i low = _mm512_permutexvar_epi8(places, load_512(p));
    __m512i all = _mm512_mask_permutexvar_epi8(low, 0xff00, places, load_512(p + 4 * BLOCK_SIZE));
    return _mm256_cvtph_ps(_mm512_castsi512_si128(all));
}

HTH_INLINE group unpack(const uint8_t *p)
{
    return (group){{spread(p, 0), spread(p + 36, 0), spread(p + 72, 0), spread(p + 80, 28)}, scales(p)};
}

/* Sums of four neighbours in each lane, in 32 bits. */
HTH_INLINE __m512i products(__m512i w, const int8_t *q)
{
    return _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, load_512(q));
}

/* Sums of neighbours, those of a before those of b in each lane. The largest is
 * 8 * 15 * 127 before the second step, so 16 bits hold what is packed. */
HTH_INLINE __m512i fold(__m512i a, __m512i b)
{
    return _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1));
}

HTH_INLINE partials add_terms(partials p, const group *g, const int8_t *q, const float *d, const int32_t *sum)
{
    __m512i low = fold(products(g->w[0], q), products(g->w[1], q + 64));
    __m512i high = fold(products(g->w[2], q + 128), products(g->w[3], q + 192));
    __m256i offset = _mm256_slli_epi32(load_256(sum), 3);
    __m256i isum = _mm256_sub_epi32(sums_in_order(fold(low, high)), offset);
    return add_scaled(p, g->d, d, isum);
}

#include "kernels/rows_tmpl.h"

enum { OFFSET_SHIFT = 3 };

HTH_INLINE __m256i block_bytes(const uint8_t *p)
{
    __m256i twice = _mm256_broadcastsi128_si256(load_128(p + 2));
    __m256i halves = _mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 0, 4, 4));
    return _mm256_and_si256(halves, _mm256_set1_epi8(15));
}

#include "kernels/panel_avx512.h"

void hth_kernels_q4_0_avx512(hth_kernels *k) { k->rows[HTH_TYPE_Q4_0] = rows_by_panel; }
