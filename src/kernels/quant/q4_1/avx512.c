/* Rows of Q4_1 with AVX-512: nibbles. The minima have their own partial sums. */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 20, OFFSET_SHIFT = -1, PAIR_SHIFT = -1 };

#include "kernels/quant/x86/x86_512_small.h"

HTH_INLINE group unpack(const uint8_t *p)
{
    group g = {.d = scales(p), .m = eight_halves(p, 2, BLOCK_SIZE)};
    HTH_UNROLL
    for (int i = 0; i < 4; i++) g.w[i] = spread(p, i, 4);
    return g;
}

HTH_INLINE __m256 block_scales(const uint8_t *p) { return scales(p); }
HTH_INLINE __m256 block_minima(const uint8_t *p) { return eight_halves(p, 2, BLOCK_SIZE); }

HTH_INLINE void two_rows(const uint8_t *a, const uint8_t *b, __m512i w[2]) { nibble_pairs(a + 4, b + 4, w); }

#include "kernels/quant/x86/x86_blocks_32.h"
