/* Rows of Q4_0 with AVX-512: nibbles without the -8; the sums of the activations subtract it. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 18, OFFSET_SHIFT = 3, PAIR_SHIFT = 3 };

#include "kernels/quant/x86/x86_512_small.h"

HTH_INLINE group unpack(const uint8_t *p)
{
    group g = {.d = scales(p)};
    HTH_UNROLL
    for (int i = 0; i < 4; i++) g.w[i] = spread(p, i, 2);
    return g;
}

HTH_INLINE __m256 block_scales(const uint8_t *p) { return scales(p); }

HTH_INLINE void two_rows(const uint8_t *a, const uint8_t *b, __m512i w[2]) { nibble_pairs(a + 2, b + 2, w); }

#include "kernels/quant/x86/x86_blocks_32.h"
