/* Rows of Q5_1 with AVX-512: nibbles and fifth bits. The minima have their own partial sums. */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 24, OFFSET_SHIFT = -1, PAIR_SHIFT = -1 };

#include "kernels/quant/x86/x86_512_small.h"

HTH_INLINE group unpack(const uint8_t *p)
{
    group g = {.d = scales(p), .m = eight_halves(p, 2, BLOCK_SIZE)};
    HTH_UNROLL
    for (int i = 0; i < 4; i++) g.w[i] = add_fifth_bits(spread(p, i, 8), p, i, 4);
    return g;
}

HTH_INLINE __m256 block_scales(const uint8_t *p) { return scales(p); }
HTH_INLINE __m256 block_minima(const uint8_t *p) { return eight_halves(p, 2, BLOCK_SIZE); }

HTH_INLINE void two_rows(const uint8_t *a, const uint8_t *b, __m512i w[2])
{
    uint64_t first = hth_load_u32(a + 4), second = hth_load_u32(b + 4);
    __m512i both = two_rows_of_nibbles(a + 8, b + 8);
    unsigned_pairs(_mm512_mask_add_epi8(both, first | second << 32, both, _mm512_set1_epi8(16)), w);
}

#include "kernels/quant/x86/x86_blocks_32.h"
