/* Rows of Q5_K with AVX2: nibbles as in Q4_K, and a fifth bit from bytes that hold eight. */
#define HAS_MINIMUM 1
#define HIGH_BITS __m256i
#include "kernels/quant/x86/x86_wide.h"

enum { BLOCK_SIZE = 176, SCALE_AT = 0, MINIMUM_AT = 2, OFFSET_SHIFT = -1, SIGNED_WEIGHTS = 0, NIBBLES_AT = 0 };

HTH_INLINE block unpack(const uint8_t *p)
{
    __m128i both = k_scales(p);
    return (block){p, load_256(p + 16), low_twice(both), high_twice(both)};
}

HTH_INLINE __m256i weights(const block *k, int i)
{
    __m256i bytes = load_256(k->p + 48 + 32 * (i / 2));
    __m256i low = _mm256_and_si256(_mm256_srli_epi16(bytes, 4 * (i % 2)), _mm256_set1_epi8(15));
    __m256i bit = i < 4 ? _mm256_slli_epi16(k->high, 4 - i) : _mm256_srli_epi16(k->high, i - 4);
    return _mm256_or_si256(low, _mm256_and_si256(bit, _mm256_set1_epi8(16)));
}

HTH_INLINE __m256i products(__m256i w, __m256i q) { return _mm256_maddubs_epi16(w, q); }

#define SCALES_OF_32

#include "kernels/quant/x86/x86_blocks_256.h"
