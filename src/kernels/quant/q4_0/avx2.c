/* Rows of Q4_0 with AVX2. A register holds one block, one byte per weight in the order of the activations,
 * without the -8; the sums of the activations subtract it. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 18, OFFSET_SHIFT = 3, PAIR_SHIFT = 3 };

#include "kernels/quant/x86/x86_256_small.h"

HTH_INLINE __m256 block_scales(const uint8_t *p) { return scales(p, BLOCK_SIZE); }

HTH_INLINE group unpack(const uint8_t *p)
{
    group g = {.d = block_scales(p)};
    for (int i = 0; i < 8; i++) g.w[i] = nibbles(p + i * BLOCK_SIZE + 2);
    return g;
}

HTH_INLINE void two_rows(const uint8_t *a, const uint8_t *b, __m256i w[4]) { nibble_pairs(a + 2, b + 2, w); }

#include "kernels/quant/x86/x86_blocks_32.h"
