/* Rows of Q4_K with AVX-512: nibbles, 32 low ones before 32 high ones. */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 144, SCALE_AT = 0, MINIMUM_AT = 2, OFFSET_SHIFT = -1, SUMS_FIT_16 = 1 };

#include "kernels/axpy/axpy_avx512.h"
#include "kernels/quant/x86/x86_wide.h"

HTH_INLINE block unpack(const uint8_t *p)
{
    __m128i both = k_scales(p);
    return (block){p, low_twice(both), high_twice(both)};
}

HTH_INLINE __m512i weights(const block *k, int i)
{
    __m512i halves = _mm512_srlv_epi64(twice_256(k->p + 16 + 32 * i), by_halves(0, 4));
    return _mm512_and_si512(halves, _mm512_set1_epi8(15));
}

#define SCALES_OF_32
#define OWN_PAIRS
HTH_INLINE void two_rows(const uint8_t *a, const uint8_t *b, int i, __m512i w[4])
{
    __m512i first = _mm512_castsi256_si512(load_256(a + 16 + 32 * i));
    unsigned_pairs(_mm512_inserti64x4(first, load_256(b + 16 + 32 * i), 1), w);
    for (int j = 0; j < 2; j++) {
        w[2 + j] = _mm512_srli_epi16(w[j], 4);
        w[j] = _mm512_and_si512(w[j], _mm512_set1_epi16(15));
    }
}

#include "kernels/quant/x86/x86_blocks_256.h"
