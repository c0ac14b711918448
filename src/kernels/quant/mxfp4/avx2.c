/* Rows of MXFP4 with AVX2. A register holds one block, one byte per weight in the order of the activations.
 * Bytes are table values plus 16; the sums of the activations subtract the 16. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 17, OFFSET_SHIFT = 4, PAIR_SHIFT = -1 };

#include "kernels/quant/blocks.h"
#include "kernels/quant/x86/x86_256_small.h"

HTH_INLINE __m256 block_scales(const uint8_t *p)
{
    uint64_t exponents = 0;
    for (int i = 7; i >= 0; i--) exponents = exponents << 8 | p[i * BLOCK_SIZE];
    return mxfp4_scales(_mm_cvtsi64_si128((long long)exponents));
}

HTH_INLINE group unpack(const uint8_t *p)
{
    const __m256i values =
        _mm256_broadcastsi128_si256(_mm_add_epi8(load_128(hth_mxfp4_values), _mm_set1_epi8(16)));
    group g = {.d = block_scales(p)};
    for (int i = 0; i < 8; i++) g.w[i] = _mm256_shuffle_epi8(values, nibbles(p + i * BLOCK_SIZE + 1));
    return g;
}

HTH_INLINE void two_rows(const uint8_t *a, const uint8_t *b, __m256i w[4])
{
    const __m256i values = _mm256_broadcastsi128_si256(load_128(hth_mxfp4_values));
    signed_pairs(_mm256_shuffle_epi8(values, nibbles(a + 1)), _mm256_shuffle_epi8(values, nibbles(b + 1)), w);
}

#include "kernels/quant/x86/x86_blocks_32.h"
