/* Rows of MXFP4 with AVX-512: nibbles are indices into a table of values plus 16; the sums of the activations
 * subtract the 16. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 17, OFFSET_SHIFT = 4, PAIR_SHIFT = -1 };

#include "kernels/quant/blocks.h"
#include "kernels/quant/x86/x86_512_small.h"

HTH_INLINE __m128i table(void) { return _mm_add_epi8(load_128(hth_mxfp4_values), _mm_set1_epi8(16)); }

HTH_INLINE __m256 block_scales(const uint8_t *p)
{
    const __m512i places =
        _mm512_castsi128_si512(_mm_setr_epi8(0, 17, 34, 51, 0, 17, 34, 51, 0, 0, 0, 0, 0, 0, 0, 0));
    __m512i e = _mm512_permutexvar_epi8(places, load_512(p));
    e = _mm512_mask_permutexvar_epi8(e, 0xf0, places, load_512(p + 4 * BLOCK_SIZE));
    return mxfp4_scales(_mm512_castsi512_si128(e));
}

HTH_INLINE group unpack(const uint8_t *p)
{
    group g = {.d = block_scales(p)};
    HTH_UNROLL
    for (int i = 0; i < 4; i++)
        g.w[i] = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table()), spread(p, i, 1));
    return g;
}

HTH_INLINE void two_rows(const uint8_t *a, const uint8_t *b, __m512i w[2])
{
    value_pairs(a + 1, b + 1, hth_mxfp4_values, w);
}

#include "kernels/quant/x86/x86_blocks_32.h"
