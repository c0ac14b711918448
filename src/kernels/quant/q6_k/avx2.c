/* Rows of Q6_K with AVX2: nibbles and two bits above each. The sums of the activations subtract the offset 32. */
#define HAS_MINIMUM 0
#include "kernels/quant/x86/x86_wide.h"

enum { BLOCK_SIZE = 210, SCALE_AT = 208, OFFSET_SHIFT = 5, SIGNED_WEIGHTS = 0, NIBBLES_AT = 0 };

HTH_INLINE block unpack(const uint8_t *p) { return (block){p, _mm256_cvtepi8_epi16(load_128(p + 192))}; }

HTH_INLINE __m256i weights(const block *k, int i)
{
    int a = i / 4, b = i % 4;
    __m256i bytes = load_256(k->p + 64 * a + 32 * (b % 2)), bits = load_256(k->p + 128 + 32 * a);
    __m256i low = _mm256_and_si256(_mm256_srli_epi16(bytes, 4 * (b / 2)), _mm256_set1_epi8(15));
    bits = b < 2 ? _mm256_slli_epi16(bits, 4 - 2 * b) : _mm256_srli_epi16(bits, 2 * b - 4);
    return _mm256_or_si256(low, _mm256_and_si256(bits, _mm256_set1_epi8(0x30)));
}

HTH_INLINE __m256i products(__m256i w, __m256i q) { return _mm256_maddubs_epi16(w, q); }

#define ROWS_FOR_ONE_TOKEN /* faster than panels */
#include "kernels/quant/x86/x86_blocks_256.h"
