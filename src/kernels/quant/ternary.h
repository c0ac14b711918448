/* Rows of the types TQ1_0 and TQ2_0, which have no scales inside a block. type.h of the type defines BLOCK_SIZE,
 * SCALE_AT and
 *   plus_one(p, i)   x86: weights 32i to 32i + 31 (with AVX-512: 64i to 64i + 63) of the block at p, plus 1
 *   weights(k, i)    AArch64: weights 16i to 16i + 15 of a block (arm_wide.h) */
#if defined(__aarch64__)
HTH_INLINE block unpack(const uint8_t *p)
{
    block k = {.p = p};
    for (int i = 0; i < 16; i++) k.scale[i] = 1;
    return k;
}

#include "kernels/quant/arm_wide.h"
#else
#ifdef HTH_LEVEL_AVX2
#include "kernels/quant/x86/x86_256.h"
#else
#include "kernels/quant/x86/x86_512.h"
#endif
#include "kernels/quant/rows_loop.h"
#include "kernels/quant/x86/x86_wide.h"

HTH_INLINE block unpack(const uint8_t *p) { return (block){.p = p}; }

/* Sums of 16 products fit in 16 bits. */
HTH_INLINE void block_sums(const block *k, const int8_t *q, const int16_t *sum_16, size_t n_col, size_t n_tok,
                           lanes *isum, lanes *msum)
{
    const __m256i ones = _mm256_set1_epi16(1);
    (void)msum;
#ifdef HTH_LEVEL_AVX2
    for (size_t t = 0; t < n_tok; t++) isum[t] = no_lanes();
    HTH_UNROLL
    for (int i = 0; i < 8; i++) {
        __m256i w = plus_one(k->p, i);
        for (size_t t = 0; t < n_tok; t++)
            isum[t] = _mm256_add_epi16(isum[t], _mm256_maddubs_epi16(w, load_256(q + t * n_col + 32 * i)));
    }
    for (size_t t = 0; t < n_tok; t++) isum[t] = _mm256_madd_epi16(isum[t], ones);
#else
    __m512i both[HTH_TILE];
    for (size_t t = 0; t < n_tok; t++) both[t] = _mm512_setzero_si512();
    HTH_UNROLL
    for (int i = 0; i < 4; i++) {
        __m512i w = plus_one(k->p, i);
        for (size_t t = 0; t < n_tok; t++) both[t] = _mm512_dpbusd_epi32(both[t], w, load_512(q + t * n_col + 64 * i));
    }
    for (size_t t = 0; t < n_tok; t++)
        isum[t] = _mm256_add_epi32(_mm512_castsi512_si256(both[t]), _mm512_extracti64x4_epi64(both[t], 1));
#endif
    for (size_t t = 0; t < n_tok; t++)
        isum[t] = _mm256_sub_epi32(isum[t], times_sums(ones, sum_16 + t * (n_col / HTH_ACT_SUBBLOCK)));
}

#include "kernels/quant/rows_256_tmpl.h"
#endif
