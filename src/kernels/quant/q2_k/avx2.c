/* Rows of Q2_K with AVX2: a byte holds four weights of two bits, which are 32 weights apart. */
#define HAS_MINIMUM 1
#include "kernels/quant/x86/x86_wide.h"

enum { BLOCK_SIZE = 84, SCALE_AT = 80, MINIMUM_AT = 82, OFFSET_SHIFT = -1, SIGNED_WEIGHTS = 0, NIBBLES_AT = 0 };

HTH_INLINE block unpack(const uint8_t *p)
{
    __m128i both = load_128(p), low = _mm_set1_epi8(15);
    return (block){p, _mm256_cvtepu8_epi16(_mm_and_si128(both, low)),
                   _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(both, 4), low))};
}

HTH_INLINE __m256i weights(const block *k, int i)
{
    __m256i bytes = load_256(k->p + 16 + 32 * (i / 4));
    return _mm256_and_si256(_mm256_srli_epi16(bytes, 2 * (i % 4)), _mm256_set1_epi8(3));
}

HTH_INLINE __m256i products(__m256i w, __m256i q) { return _mm256_maddubs_epi16(w, q); }

#include "kernels/quant/x86/x86_blocks_256.h"
