/* Rows of IQ4_XS with AVX-512: nibbles are indices into a table of values, made unsigned by adding 128; the
 * sums of the activations subtract it. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 136, SCALE_AT = 0, OFFSET_SHIFT = 7, SUMS_FIT_16 = 0 };

#include "kernels/quant/blocks.h"
#include "kernels/axpy/axpy_avx512.h"
#include "kernels/quant/x86/x86_wide.h"

HTH_INLINE block unpack(const uint8_t *p) { return (block){p, iq4_xs_scales(p)}; }

HTH_INLINE __m512i weights(const block *k, int i)
{
    __m128i table = _mm_xor_si128(load_128(hth_iq4_values), _mm_set1_epi8((char)0x80));
    __m512i bytes = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3),
                                             _mm512_castsi256_si512(load_256(k->p + 8 + 32 * i)));
    __m512i places = _mm512_srlv_epi64(bytes, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), _mm512_and_si512(places, _mm512_set1_epi8(15)));
}

#define OWN_PAIRS
HTH_INLINE void two_rows(const uint8_t *a, const uint8_t *b, int i, __m512i w[4])
{
    value_pairs(a + 8 + 32 * i, b + 8 + 32 * i, hth_iq4_values, w);
    value_pairs(a + 24 + 32 * i, b + 24 + 32 * i, hth_iq4_values, w + 2);
}

#include "kernels/quant/x86/x86_blocks_256.h"
