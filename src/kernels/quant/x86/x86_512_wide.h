/* Blocks of 256 with AVX-512 (VNNI): 64 weights at a time, every 16 with their own scale. The including file
 * defines
 *   block, unpack(p)   scale: sixteen 16-bit integers; minimum: the same, if HAS_MINIMUM
 *   weights(k, i)      weights 64i to 64i + 63 as unsigned bytes; i is a constant
 *   SUMS_FIT_16        1: the sums of four products fit in 16 bits
 *   OFFSET_SHIFT       weights are too large by 2^OFFSET_SHIFT; -1: no offset
 *   SIGNED(k, i, q)    inputs q with the signs of the weights, if these are stored apart
 * This file defines block_sums for rows_256_tmpl.h. */
#include "kernels/quant/rows_loop.h"

#ifndef SIGNED
#define SIGNED(k, i, q) (q)
#endif

/* Scales 4i to 4i + 3 in four 32-bit lanes each. The upper 16 bits are zero if the sums fit in 16 bits, so that
 * a dot product of 16-bit integers multiplies by them. */
HTH_INLINE __m512i four_scales(__m256i scale, int i)
{
    const __m512i quarters = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    __m512i places = _mm512_add_epi32(quarters, _mm512_set1_epi32(4 * i));
    return _mm512_permutexvar_epi32(places, SUMS_FIT_16 ? _mm512_cvtepu16_epi32(scale) : _mm512_cvtepi16_epi32(scale));
}

HTH_INLINE __m512i add_scaled_sums(__m512i isum, __m512i sums, __m512i scale)
{
    if (SUMS_FIT_16) return _mm512_dpwssd_epi32(isum, sums, scale);
    return _mm512_add_epi32(isum, _mm512_mullo_epi32(sums, scale));
}

HTH_INLINE void block_sums(const block *k, const int8_t *q, const int16_t *sum_16, size_t n_col,
                           size_t n_tok, lanes *isum, lanes *msum)
{
    __m512i both[HTH_TILE];
    for (size_t t = 0; t < n_tok; t++) both[t] = _mm512_setzero_si512();
    HTH_UNROLL
    for (int i = 0; i < 4; i++) {
        __m512i w = weights(k, i), scale = four_scales(k->scale, i);
        for (size_t t = 0; t < n_tok; t++) {
            __m512i inputs = SIGNED(k, i, load_512(q + t * n_col + 64 * i));
            __m512i sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, inputs);
            both[t] = add_scaled_sums(both[t], sums, scale);
        }
    }
    for (size_t t = 0; t < n_tok; t++) {
        const int16_t *sums = sum_16 + t * (n_col / HTH_ACT_SUBBLOCK);
        isum[t] = _mm256_add_epi32(_mm512_castsi512_si256(both[t]), _mm512_extracti64x4_epi64(both[t], 1));
        if (OFFSET_SHIFT >= 0)
            isum[t] = _mm256_sub_epi32(isum[t], _mm256_slli_epi32(times_sums(k->scale, sums), OFFSET_SHIFT));
#if HAS_MINIMUM
        msum[t] = times_sums(k->minimum, sums);
#endif
    }
    (void)sum_16, (void)msum;
}
