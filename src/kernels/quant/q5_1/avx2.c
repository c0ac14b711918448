/* Rows of Q5_1 with AVX2. A register holds one block, one byte per weight in the order of the activations. The
 * minima have their own partial sums. */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 24, OFFSET_SHIFT = -1, PAIR_SHIFT = -1 };

#include "kernels/quant/x86/x86_256_small.h"

HTH_INLINE __m256 block_scales(const uint8_t *p) { return scales(p, BLOCK_SIZE); }
HTH_INLINE __m256 block_minima(const uint8_t *p) { return scales(p + 2, BLOCK_SIZE); }

/* The 32 weights of the block at p. */
HTH_INLINE __m256i block_bytes(const uint8_t *p)
{
    return _mm256_or_si256(nibbles(p + 8), fifth_bits(p + 4));
}

HTH_INLINE group unpack(const uint8_t *p)
{
    group g = {.d = block_scales(p), .m = block_minima(p)};
    for (int i = 0; i < 8; i++, p += BLOCK_SIZE) g.w[i] = block_bytes(p);
    return g;
}

HTH_INLINE void two_rows(const uint8_t *a, const uint8_t *b, __m256i w[4])
{
    unsigned_pairs(block_bytes(a), block_bytes(b), w);
}

#define ROWS_FOR_ONE_TOKEN /* faster than panels */
#include "kernels/quant/x86/x86_blocks_32.h"
