/* Rows of Q5_K with AVX-512: nibbles as in Q4_K, and a fifth bit from bytes that hold eight. */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 176, SCALE_AT = 0, MINIMUM_AT = 2, OFFSET_SHIFT = -1, SUMS_FIT_16 = 1 };

#include "kernels/axpy/axpy_avx512.h"
#define HIGH_BITS __m512i
#include "kernels/quant/x86/x86_wide.h"

HTH_INLINE block unpack(const uint8_t *p)
{
    __m128i both = k_scales(p);
    return (block){p, twice_256(p + 16), low_twice(both), high_twice(both)};
}

HTH_INLINE __m512i weights(const block *k, int i)
{
    __m512i halves = _mm512_srlv_epi64(twice_256(k->p + 48 + 32 * i), by_halves(0, 4));
    __m512i fifth = _mm512_rolv_epi64(k->high, by_halves((4 - 2 * i) & 63, (3 - 2 * i) & 63));
    return or_and(_mm512_and_si512(halves, _mm512_set1_epi8(15)), fifth, _mm512_set1_epi8(16));
}

#define SCALES_OF_32
#include "kernels/quant/x86/x86_blocks_256.h"
