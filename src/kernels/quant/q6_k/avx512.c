/* Rows of Q6_K with AVX-512: nibbles and two bits above each. The sums of the activations subtract the offset
 * 32. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 210, SCALE_AT = 208, OFFSET_SHIFT = 5, SUMS_FIT_16 = 1 };

#include "kernels/axpy/axpy_avx512.h"
#include "kernels/quant/x86/x86_wide.h"

HTH_INLINE block unpack(const uint8_t *p) { return (block){p, _mm256_cvtepi8_epi16(load_128(p + 192))}; }

HTH_INLINE __m512i weights(const block *k, int i)
{
    __m512i bytes = load_512(k->p + 64 * (i / 2)), bits = twice_256(k->p + 128 + 32 * (i / 2));
    __m512i low = _mm512_and_si512(i % 2 ? _mm512_srli_epi16(bytes, 4) : bytes, _mm512_set1_epi8(15));
    bits = _mm512_rolv_epi64(bits, i % 2 ? by_halves(0, 62) : by_halves(4, 2));
    return or_and(low, bits, _mm512_set1_epi8(0x30));
}

#include "kernels/quant/x86/x86_blocks_256.h"
