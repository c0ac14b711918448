/* Rows of Q3_K with AVX-512: two bits as in Q2_K and a third bit from bytes that hold eight. The sums of the
 * activations subtract the offset 4. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 110, SCALE_AT = 108, OFFSET_SHIFT = 2, SUMS_FIT_16 = 1 };

#include "kernels/axpy/axpy_avx512.h"
#define HIGH_BITS __m512i
#include "kernels/quant/x86/x86_wide.h"

HTH_INLINE block unpack(const uint8_t *p) { return (block){p, twice_256(p), q3_k_scales(p + 94)}; }

HTH_INLINE __m512i weights(const block *k, int i)
{
    int shift = 4 * (i % 2);
    __m512i bits = _mm512_srlv_epi64(twice_256(k->p + 32 + 32 * (i / 2)), by_halves(shift, shift + 2));
    __m512i third = _mm512_rolv_epi64(k->high, by_halves((2 - 2 * i) & 63, (1 - 2 * i) & 63));
    return or_and(_mm512_and_si512(bits, _mm512_set1_epi8(3)), third, _mm512_set1_epi8(4));
}

#include "kernels/quant/x86/x86_blocks_256.h"
