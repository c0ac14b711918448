/* Rows of Q3_K with AVX-512: two bits as in Q2_K and a third from
 * bytes of eight; 4 is taken off by the sums of the activations. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 110, SCALE_AT = 108, OFFSET_SHIFT = 2, SUMS_FIT_16 = 1 };

#include "kernels/x86_512.h"
#include "kernels/x86_wide.h"

typedef struct block {
    const uint8_t *p;
    __m512i high;
    __m256i scale;
} block;

HTH_INLINE block unpack(const uint8_t *p) { return (block){p, twice_256(p), q3_k_scales(p + 94)}; }

HTH_INLINE __m512i weights(const block *k, int i)
{
    int shift = 4 * (i % 2);
    __m512i bits = _mm512_srlv_epi64(twice_256(k->p + 32 + 32 * (i / 2)), by_halves(shift, shift + 2));
    __m512i third = _mm512_rolv_epi64(k->high, by_halves((2 - 2 * i) & 63, (1 - 2 * i) & 63));
    return or_and(_mm512_and_si512(bits, _mm512_set1_epi8(3)), third, _mm512_set1_epi8(4));
}

#include "kernels/x86_512_wide.h"

#include "kernels/rows_256_tmpl.h"

static const hth_type panel_type = HTH_TYPE_Q3_K;
enum { N_SCALE = 16, SCALES_SIGNED = 1, SCALES_IN_16 = 1 };

/* As in Q2_K, and bit 4a + b of byte c of the high ones. */
HTH_INLINE void panel_weights(const uint8_t *p, int i, __m512i w[16])
{
    HTH_UNROLL
    for (int u = 0; u < 8; u++) {
        __m512i bits = load_512(p + 16 * 32 + 64 * (8 * (i / 2) + u)), high = load_512(p + 64 * u);
        for (int h = 0; h < 2; h++) {
            __m512i two = bits_from(bits, 4 * (i % 2) + 2 * h);
            __m512i third = _mm512_rolv_epi64(high, _mm512_set1_epi64((2 - 2 * i - h) & 63));
            w[8 * h + u] = or_and(_mm512_and_si512(two, _mm512_set1_epi8(3)), third, _mm512_set1_epi8(4));
        }
    }
}

/* Sixteen times six bits, less 32: the low four of scale k and of k + 8 in byte k, the high two
 * of scales k, k + 4, k + 8, k + 12 in byte 8 + k. */
HTH_INLINE void panel_scales(const uint8_t *p, __m512i s[4], __m512i m[4])
{
    const uint8_t *at = p + 16 * 96;
    __m512i low = _mm512_set1_epi8(15), high = load_512(at + 128);
    (void)m;
    HTH_UNROLL
    for (int k = 0; k < 4; k++) {
        __m512i four = bits_from(load_512(at + 64 * (k % 2)), 4 * (k / 2));
        __m512i two = _mm512_rolv_epi64(high, _mm512_set1_epi64((4 - 2 * k) & 63));
        four = or_and(_mm512_and_si512(four, low), two, _mm512_set1_epi8(0x30));
        s[k] = _mm512_sub_epi8(four, _mm512_set1_epi8(32));
    }
}

#include "kernels/panel_256_avx512.h"

void hth_kernels_q3_k_avx512(hth_kernels *k)
{
    k->rows[HTH_TYPE_Q3_K] = rows;
    k->panels[HTH_TYPE_Q3_K] = panels;
}
