/* Rows of Q4_K with AVX2: nibbles, 32 low ones before 32 high ones. */
#define HAS_MINIMUM 1
#include "kernels/quant/x86/x86_wide.h"

enum { BLOCK_SIZE = 144, SCALE_AT = 0, MINIMUM_AT = 2, OFFSET_SHIFT = -1, SIGNED_WEIGHTS = 0, NIBBLES_AT = 16 };

HTH_INLINE block unpack(const uint8_t *p)
{
    __m128i both = k_scales(p);
    return (block){p, low_twice(both), high_twice(both)};
}

HTH_INLINE __m256i weights(const block *k, int i)
{
    __m256i bytes = load_256(k->p + 16 + 32 * (i / 2));
    return _mm256_and_si256(_mm256_srli_epi16(bytes, 4 * (i % 2)), _mm256_set1_epi8(15));
}

HTH_INLINE __m256i products(__m256i w, __m256i q) { return _mm256_maddubs_epi16(w, q); }

#define SCALES_OF_32

#include "kernels/quant/x86/x86_blocks_256.h"
