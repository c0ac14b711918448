/* Products of bytes for panel_32_avx2.h and panel_256_avx2.h. */
#include "kernels/panel/panel_sums.h"

/* Four bytes (inputs, or two sums of them) in every lane. */
HTH_INLINE __m256i four_bytes(const void *p) { return _mm256_set1_epi32((int)hth_load_u32(p)); }

/* Keeps gcc from adding in another order, for which it would store the products of a whole block on the stack. */
HTH_INLINE __m256i in_order(__m256i x)
{
    __asm__("" : "+x"(x));
    return x;
}

/* Products of a four of weights; pairs of them are summed in 16 bits. Signed weights are multiplied by their
 * absolute value |w|. */
HTH_INLINE __m256i pair_products(__m256i w, __m256i size, __m256i four)
{
    return HAS_SIGN ? _mm256_maddubs_epi16(size, _mm256_sign_epi8(four, w)) : _mm256_maddubs_epi16(w, four);
}
