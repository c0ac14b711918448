/* Rows of Q5_0 with AVX-512: nibbles and fifth bits, without the -16; the sums of the activations subtract it. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 22, OFFSET_SHIFT = 4, PAIR_SHIFT = 4 };

#include "kernels/quant/x86/x86_512_small.h"

HTH_INLINE group unpack(const uint8_t *p)
{
    group g = {.d = scales(p)};
    HTH_UNROLL
    for (int i = 0; i < 4; i++) g.w[i] = add_fifth_bits(spread(p, i, 6), p, i, 2);
    return g;
}

HTH_INLINE __m256 block_scales(const uint8_t *p) { return scales(p); }

HTH_INLINE void two_rows(const uint8_t *a, const uint8_t *b, __m512i w[2])
{
    uint64_t first = hth_load_u32(a + 2), second = hth_load_u32(b + 2);
    __m512i both = two_rows_of_nibbles(a + 6, b + 6);
    unsigned_pairs(_mm512_mask_add_epi8(both, first | second << 32, both, _mm512_set1_epi8(16)), w);
}

#include "kernels/quant/x86/x86_blocks_32.h"
