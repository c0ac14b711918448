/* Blocks of 256 on AArch64: 16 weights at a time, with their own scale. The including file defines
 *   block, unpack(p)   scale: sixteen integers; minimum: the same, if HAS_MINIMUM
 *   weights(k, i)      weights 16i to 16i + 15 as signed bytes; i is a constant
 *   UNIT               a factor of the block's scale, if there is one
 * This file defines the names that rows_256_tmpl.h needs of an ISA level. */
#include "kernels/quant/rows_loop.h"

/* Four parts of the integer sum of one block. */
typedef int32x4_t lanes;

HTH_INLINE lanes no_lanes(void) { return vdupq_n_s32(0); }

/* Adds (h * d) * (sum of s[i]); h: eight F16 values. */
HTH_INLINE partials add_eight(partials p, const uint16_t *h, const float *d, const lanes *s)
{
    float32x4_t low = four_floats(h), high = four_floats(h + 4);
#ifdef UNIT
    low = vmulq_n_f32(low, UNIT), high = vmulq_n_f32(high, UNIT);
#endif
    p.low = add_scaled(p.low, low, d, sums_in_order(s[0], s[1], s[2], s[3]));
    p.high = add_scaled(p.high, high, d + 4, sums_in_order(s[4], s[5], s[6], s[7]));
    return p;
}

#if HAS_MINIMUM
HTH_INLINE lanes times_sums(const int16_t minimum[16], const int16_t *sum_16)
{
    int16x8_t m0 = vld1q_s16(minimum), m1 = vld1q_s16(minimum + 8);
    int16x8_t s0 = vld1q_s16(sum_16), s1 = vld1q_s16(sum_16 + 8);
    int32x4_t sum = vmlal_high_s16(vmull_s16(vget_low_s16(m0), vget_low_s16(s0)), m0, s0);
    return vmlal_high_s16(vmlal_s16(sum, vget_low_s16(m1), vget_low_s16(s1)), m1, s1);
}
#endif

HTH_INLINE void block_sums(const block *k, const int8_t *q, const int16_t *sum_16, size_t n_col,
                           size_t n_tok, lanes *isum, lanes *msum)
{
    for (size_t t = 0; t < n_tok; t++) isum[t] = no_lanes();
    HTH_UNROLL
    for (int i = 0; i < 16; i++) {
        int8x16_t w = weights(k, i);
        for (size_t t = 0; t < n_tok; t++)
            isum[t] = vmlaq_n_s32(isum[t], half_products(w, q + t * n_col + 16 * i), k->scale[i]);
    }
#if HAS_MINIMUM
    for (size_t t = 0; t < n_tok; t++) msum[t] = times_sums(k->minimum, sum_16 + t * (n_col / HTH_ACT_SUBBLOCK));
#else
    (void)sum_16, (void)msum;
#endif
}

#include "kernels/quant/rows_256_tmpl.h"
