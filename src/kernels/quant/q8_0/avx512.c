/* Rows of Q8_0 with AVX-512. Every load stays inside the 272 bytes of its group. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 34, PAIR_SHIFT = -1 };

#include "kernels/quant/x86/x86_512_large.h"

HTH_INLINE __m512i two_blocks(const uint8_t *p)
{
    __m512i w = _mm512_inserti64x4(_mm512_castsi256_si512(load_256(p + 2)), load_256(p + BLOCK_SIZE + 2), 1);
    return _mm512_xor_si512(w, _mm512_set1_epi8((char)0x80));
}

HTH_INLINE group unpack(const uint8_t *p)
{
    return (group){{two_blocks(p), two_blocks(p + 68), two_blocks(p + 136), two_blocks(p + 204)}, scales(p)};
}

HTH_INLINE __m256 block_scales(const uint8_t *p) { return scales(p); }

HTH_INLINE void two_rows(const uint8_t *a, const uint8_t *b, __m512i w[2])
{
    signed_pairs(_mm512_inserti64x4(_mm512_castsi256_si512(load_256(a + 2)), load_256(b + 2), 1), w);
}

#include "kernels/quant/x86/x86_blocks_32.h"
