/* Blocks of 256 with AVX2: 32 weights at a time, every 16 with their own scale. The including file defines
 *   block, unpack(p)   scale: sixteen 16-bit integers; minimum: the same, if HAS_MINIMUM
 *   weights(k, i)      weights 32i to 32i + 31 as bytes; i is a constant
 *   products(w, q)     the sums of two neighbours' products in 16 bits
 *   OFFSET_SHIFT       weights are too large by 2^OFFSET_SHIFT; -1: no offset
 *   SIGNED(k, i, q)    inputs q with the signs of the weights, if these are stored apart
 * This file defines block_sums for rows_256_tmpl.h. */
#include "kernels/quant/rows_loop.h"

#ifndef SIGNED
#define SIGNED(k, i, q) (q)
#endif

/* Scales 2i and 2i + 1, each in eight lanes. Scale 2i is in both 128-bit lanes of half. */
HTH_INLINE __m256i two_scales(__m256i half, int i)
{
    int at = 4 * (i % 4), first = at | (at + 1) << 8, second = (at + 2) | (at + 3) << 8;
    return _mm256_shuffle_epi8(half,
                               _mm256_set_m128i(_mm_set1_epi16((short)second), _mm_set1_epi16((short)first)));
}

HTH_INLINE void block_sums(const block *k, const int8_t *q, const int16_t *sum_16, size_t n_col,
                           size_t n_tok, lanes *isum, lanes *msum)
{
    __m256i low = _mm256_permute4x64_epi64(k->scale, 0x44), high = _mm256_permute4x64_epi64(k->scale, 0xee);
    for (size_t t = 0; t < n_tok; t++) isum[t] = no_lanes();
    HTH_UNROLL
    for (int i = 0; i < 8; i++) {
        __m256i w = weights(k, i), scale = two_scales(i < 4 ? low : high, i);
        for (size_t t = 0; t < n_tok; t++) {
            __m256i sums = products(w, SIGNED(k, i, load_256(q + t * n_col + 32 * i)));
            isum[t] = _mm256_add_epi32(isum[t], _mm256_madd_epi16(sums, scale));
        }
    }
    for (size_t t = 0; t < n_tok; t++) {
        const int16_t *sums = sum_16 + t * (n_col / HTH_ACT_SUBBLOCK);
        if (OFFSET_SHIFT >= 0)
            isum[t] = _mm256_sub_epi32(isum[t], _mm256_slli_epi32(times_sums(k->scale, sums), OFFSET_SHIFT));
#if HAS_MINIMUM
        msum[t] = times_sums(k->minimum, sums);
#endif
    }
    (void)sum_16, (void)msum;
}
