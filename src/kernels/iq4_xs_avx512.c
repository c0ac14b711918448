/* Rows of IQ4_XS with AVX-512: nibbles are places in a table of
 * values, made unsigned; 128 is taken off by the sums of the activations. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 136, SCALE_AT = 0, OFFSET_SHIFT = 7, SUMS_FIT_16 = 0 };

#include "kernels/blocks.h"
#include "kernels/x86_512.h"
#include "kernels/x86_wide.h"

typedef struct block {
    const uint8_t *p;
    __m256i scale;
} block;

HTH_INLINE block unpack(const uint8_t *p) { return (block){p, iq4_xs_scales(p)}; }

HTH_INLINE __m512i weights(const block *k, int i)
{
    __m128i table = _mm_xor_si128(load_128(hth_iq4_values), _mm_set1_epi8((char)0x80));
    __m512i bytes = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3),
                                             _mm512_castsi256_si512(load_256(k->p + 8 + 32 * i)));
    __m512i places = _mm512_srlv_epi64(bytes, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), _mm512_and_si512(places, _mm512_set1_epi8(15)));
}

#include "kernels/x86_512_wide.h"

#include "kernels/rows_256_tmpl.h"

static const hth_type panel_type = HTH_TYPE_IQ4_XS;
enum { N_SCALE = 8, SCALES_SIGNED = 1, SCALES_IN_16 = 0 };

HTH_INLINE void panel_weights(const uint8_t *p, int i, __m512i w[16])
{
    __m128i table = _mm_xor_si128(load_128(hth_iq4_values), _mm_set1_epi8((char)0x80));
    for (int h = 0; h < 2; h++) panel_nibbles(p + 16 * 8 + 64 * (8 * i + 4 * h), w + 8 * h);
    HTH_UNROLL
    for (int g = 0; g < 16; g++) w[g] = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), w[g]);
}

/* Eight times six bits, less 32: the low four of scale k are nibble k of four bytes, the high
 * two bits 2k, 2k + 1 of the two bytes before those. */
HTH_INLINE void panel_scales(const uint8_t *p, __m512i s[2], __m512i m[2])
{
    __m512i low = load_512(p + 16 * 4), high = _mm512_cvtepu16_epi32(load_256(p + 16 * 2));
    (void)m;
    HTH_UNROLL
    for (int k = 0; k < 2; k++) {
        int64_t four_at = 0, two_at = 0;
        for (int b = 7; b >= 0; b--) {
            four_at = four_at << 8 | (32 * (b / 4) + 16 * k + 4 * (b % 4));
            two_at = two_at << 8 | ((32 * (b / 4) + 8 * k + 2 * (b % 4) - 4) & 63);
        }
        __m512i four = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(four_at), low);
        __m512i two = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(two_at), high);
        four = or_and(_mm512_and_si512(four, _mm512_set1_epi8(15)), two, _mm512_set1_epi8(0x30));
        s[k] = _mm512_sub_epi8(four, _mm512_set1_epi8(32));
    }
}

#include "kernels/panel_256_avx512.h"

void hth_kernels_iq4_xs_avx512(hth_kernels *k)
{
    k->rows[HTH_TYPE_IQ4_XS] = rows;
    k->panels[HTH_TYPE_IQ4_XS] = panels;
}
