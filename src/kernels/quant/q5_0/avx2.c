/* Rows of Q5_0 with AVX2. A register holds one block, one byte per weight in the order of the activations,
 * without the -16; the sums of the activations subtract it. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 22, OFFSET_SHIFT = 4, PAIR_SHIFT = 4 };

#include "kernels/quant/x86/x86_256_small.h"

HTH_INLINE __m256 block_scales(const uint8_t *p) { return scales(p, BLOCK_SIZE); }

/* The 32 weights of the block at p. */
HTH_INLINE __m256i block_bytes(const uint8_t *p)
{
    return _mm256_or_si256(nibbles(p + 6), fifth_bits(p + 2));
}

HTH_INLINE group unpack(const uint8_t *p)
{
    group g = {.d = block_scales(p)};
    for (int i = 0; i < 8; i++, p += BLOCK_SIZE) g.w[i] = block_bytes(p);
    return g;
}

HTH_INLINE void two_rows(const uint8_t *a, const uint8_t *b, __m256i w[4])
{
    unsigned_pairs(block_bytes(a), block_bytes(b), w);
}

#define ROWS_FOR_ONE_TOKEN /* faster than panels */
#include "kernels/quant/x86/x86_blocks_32.h"
