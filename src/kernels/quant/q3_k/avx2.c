/* Rows of Q3_K with AVX2: two bits as in Q2_K and a third bit from bytes that hold eight. The sums of the
 * activations subtract the offset 4. */
#define HAS_MINIMUM 0
#define HIGH_BITS __m256i
#include "kernels/quant/x86/x86_wide.h"

enum { BLOCK_SIZE = 110, SCALE_AT = 108, OFFSET_SHIFT = 2, SIGNED_WEIGHTS = 0, NIBBLES_AT = 0 };

HTH_INLINE block unpack(const uint8_t *p) { return (block){p, load_256(p), q3_k_scales(p + 94)}; }

HTH_INLINE __m256i weights(const block *k, int i)
{
    __m256i bytes = load_256(k->p + 32 + 32 * (i / 4));
    __m256i low = _mm256_and_si256(_mm256_srli_epi16(bytes, 2 * (i % 4)), _mm256_set1_epi8(3));
    __m256i bit = i < 2 ? _mm256_slli_epi16(k->high, 2 - i) : _mm256_srli_epi16(k->high, i - 2);
    return _mm256_or_si256(low, _mm256_and_si256(bit, _mm256_set1_epi8(4)));
}

HTH_INLINE __m256i products(__m256i w, __m256i q) { return _mm256_maddubs_epi16(w, q); }

#define ROWS_FOR_ONE_TOKEN /* faster than panels */
#include "kernels/quant/x86/x86_blocks_256.h"
