/* Rows of IQ4_NL with AVX-512: nibbles are indices into a table of values, made unsigned. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 18, PAIR_SHIFT = -1 };

#include "kernels/quant/blocks.h"
#include "kernels/quant/x86/x86_512_large.h"

HTH_INLINE __m128i table(void) { return _mm_xor_si128(load_128(hth_iq4_values), _mm_set1_epi8((char)0x80)); }

/* Blocks 2i and 2i + 1 at p. */
HTH_INLINE __m512i two_blocks(const uint8_t *p)
{
    __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_broadcastsi128_si256(load_128(p + 2))),
                                      _mm256_broadcastsi128_si256(load_128(p + BLOCK_SIZE + 2)), 1);
    __m512i places = _mm512_srlv_epi64(both, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table()),
                               _mm512_and_si512(places, _mm512_set1_epi8(15)));
}

HTH_INLINE group unpack(const uint8_t *p)
{
    return (group){{two_blocks(p), two_blocks(p + 36), two_blocks(p + 72), two_blocks(p + 108)}, scales(p)};
}

HTH_INLINE __m256 block_scales(const uint8_t *p) { return scales(p); }

HTH_INLINE void two_rows(const uint8_t *a, const uint8_t *b, __m512i w[2])
{
    value_pairs(a + 2, b + 2, hth_iq4_values, w);
}

#include "kernels/quant/x86/x86_blocks_32.h"
