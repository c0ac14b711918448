/* Rows of Q4_1 with AVX2. A register holds one block, one byte per weight in the order of the activations. The
 * minima have their own partial sums. */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 20, OFFSET_SHIFT = -1, PAIR_SHIFT = -1 };

#include "kernels/quant/x86/x86_256_small.h"

HTH_INLINE __m256 block_scales(const uint8_t *p) { return scales(p, BLOCK_SIZE); }
HTH_INLINE __m256 block_minima(const uint8_t *p) { return scales(p + 2, BLOCK_SIZE); }

HTH_INLINE group unpack(const uint8_t *p)
{
    group g = {.d = block_scales(p), .m = block_minima(p)};
    for (int i = 0; i < 8; i++) g.w[i] = nibbles(p + i * BLOCK_SIZE + 4);
    return g;
}

HTH_INLINE void two_rows(const uint8_t *a, const uint8_t *b, __m256i w[4]) { nibble_pairs(a + 4, b + 4, w); }

#include "kernels/quant/x86/x86_blocks_32.h"
