/* Rows of Q2_K with AVX-512: a byte holds four weights of two bits, which are 32 weights apart. */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 84, SCALE_AT = 80, MINIMUM_AT = 82, OFFSET_SHIFT = -1, SUMS_FIT_16 = 1 };

#include "kernels/axpy/axpy_avx512.h"
#include "kernels/quant/x86/x86_wide.h"

HTH_INLINE block unpack(const uint8_t *p)
{
    __m128i both = load_128(p), low = _mm_set1_epi8(15);
    return (block){p, _mm256_cvtepu8_epi16(_mm_and_si128(both, low)),
                   _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(both, 4), low))};
}

HTH_INLINE __m512i weights(const block *k, int i)
{
    int shift = 4 * (i % 2);
    __m512i bits = _mm512_srlv_epi64(twice_256(k->p + 16 + 32 * (i / 2)), by_halves(shift, shift + 2));
    return _mm512_and_si512(bits, _mm512_set1_epi8(3));
}

#include "kernels/quant/x86/x86_blocks_256.h"
