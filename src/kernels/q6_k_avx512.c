/* Rows of Q6_K with AVX-512: nibbles and two bits above each; 32 is
 * taken off by the sums of the activations. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 210, SCALE_AT = 208, OFFSET_SHIFT = 5, SUMS_FIT_16 = 1 };

#include "kernels/x86_512.h"
#include "kernels/x86_wide.h"

typedef struct block {
    const uint8_t *p;
    __m256i scale;
} block;

HTH_INLINE block unpack(const uint8_t *p) { return (block){p, _mm256_cvtepi8_epi16(load_128(p + 192))}; }

HTH_INLINE __m512i weights(const block *k, int i)
{
    __m512i bytes = load_512(k->p + 64 * (i / 2)), bits = twice_256(k->p + 128 + 32 * (i / 2));
    __m512i low = _mm512_and_si512(i % 2 ? _mm512_srli_epi16(bytes, 4) : bytes, _mm512_set1_epi8(15));
    bits = _mm512_rolv_epi64(bits, i % 2 ? by_halves(0, 62) : by_halves(4, 2));
    return or_and(low, bits, _mm512_set1_epi8(0x30));
}

#include "kernels/x86_512_wide.h"

#include "kernels/rows_256_tmpl.h"

static const hth_type panel_type = HTH_TYPE_Q6_K;
enum { N_SCALE = 16, SCALES_SIGNED = 1, SCALES_IN_16 = 0 };

/* Weight 128a + 32b + c is half b / 2 of byte 64a + 32 (b mod 2) + c of the low ones, with
 * bits 2b, 2b + 1 of byte 32a + c of the high ones above it. */
HTH_INLINE void panel_weights(const uint8_t *p, int i, __m512i w[16])
{
    HTH_UNROLL
    for (int u = 0; u < 8; u++) {
        __m512i bits = load_512(p + 16 * 128 + 64 * (8 * (i / 2) + u));
        for (int h = 0; h < 2; h++) {
            __m512i bytes = load_512(p + 64 * (16 * (i / 2) + 8 * h + u));
            __m512i four =
                _mm512_and_si512(i % 2 ? _mm512_srli_epi16(bytes, 4) : bytes, _mm512_set1_epi8(15));
            __m512i two = _mm512_rolv_epi64(bits, _mm512_set1_epi64((4 - 4 * (i % 2) - 2 * h) & 63));
            w[8 * h + u] = or_and(four, two, _mm512_set1_epi8(0x30));
        }
    }
}

HTH_INLINE void panel_scales(const uint8_t *p, __m512i s[4], __m512i m[4])
{
    (void)m;
    for (int k = 0; k < 4; k++) s[k] = load_512(p + 16 * 192 + 64 * k);
}

#include "kernels/panel_256_avx512.h"

void hth_kernels_q6_k_avx512(hth_kernels *k)
{
    k->rows[HTH_TYPE_Q6_K] = rows;
    k->panels[HTH_TYPE_Q6_K] = panels;
}
