/* Helpers shared by the AVX2 levels of the quantised rows. */
#ifndef HTH_KERNELS_QUANT_X86_256_H
#define HTH_KERNELS_QUANT_X86_256_H

#include "kernels/quant/x86/x86.h"

/* The scales of eight blocks, `size` bytes apart, each at the start of its block. Scale i is loaded into
 * position i (from up to 14 bytes before its block, which is still inside the group) and the eight registers
 * are blended. */
HTH_INLINE __m256 scales(const uint8_t *p, int size)
{
    __m128i s[8];
    for (int i = 0; i < 8; i++) s[i] = load_128(p + i * (size - 2));
    __m128i a = _mm_blend_epi16(s[0], s[1], 0x02), b = _mm_blend_epi16(s[2], s[3], 0x08);
    __m128i c = _mm_blend_epi16(s[4], s[5], 0x20), d = _mm_blend_epi16(s[6], s[7], 0x80);
    __m128i low = _mm_blend_epi32(a, b, 2), high = _mm_blend_epi32(c, d, 8);
    return _mm256_cvtph_ps(_mm_blend_epi32(low, high, 12));
}

/* Scales of eight blocks of MXFP4 from their exponents: 2^(e - 128), where 0 and 1 are
 * subnormal and 255 is NaN. */
HTH_INLINE __m256 mxfp4_scales(__m128i exponents)
{
    __m256i e = _mm256_cvtepu8_epi32(exponents);
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), e);
    __m256i bits = _mm256_blendv_epi8(normal, subnormal, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e));
    __m256i is_nan = _mm256_cmpeq_epi32(e, _mm256_set1_epi32(255));
    return _mm256_castsi256_ps(
        _mm256_or_si256(bits, _mm256_and_si256(is_nan, _mm256_set1_epi32(0x7fc00000))));
}

/* Each lane of low holds a part of the sums of blocks 0 to 3, of high a part of blocks 4 to 7. */
HTH_INLINE __m256i sums_in_order(__m256i low, __m256i high)
{
    return _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20),
                            _mm256_permute2x128_si256(low, high, 0x31));
}

#endif
