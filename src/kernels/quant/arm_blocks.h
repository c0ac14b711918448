/* Eight blocks of 32 on AArch64 as signed bytes, and the terms of rule R3 for one token. The including file
 * defines HAS_MINIMUM (1: weights have a minimum) and BLOCK_SIZE. arm_32.h unpacks a group. */
#include "kernels/quant/arm.h"
#include "kernels/quant/row_sums.h"

typedef struct {
    int8x16_t w[16];
    float32x4_t d_low, d_high;
#if HAS_MINIMUM
    float32x4_t m_low, m_high;
#endif
} group;

/* 16 in each byte whose bit is set, of the sixteen at p. */
HTH_INLINE int8x16_t fifth_bits(const uint8_t *p)
{
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
    uint8x16_t bytes = vcombine_u8(vdup_n_u8(p[0]), vdup_n_u8(p[1]));
    return vreinterpretq_s8_u8(vandq_u8(vtstq_u8(bytes, bit), vdupq_n_u8(16)));
}

HTH_INLINE int32x4_t four_sums(const int8x16_t *w, const int8_t *q)
{
    return sums_in_order(block_products(w[0], w[1], q), block_products(w[2], w[3], q + 32),
                         block_products(w[4], w[5], q + 64), block_products(w[6], w[7], q + 96));
}

/* Weights are signed, so no offset is subtracted, and only the minima use the sums. */
HTH_INLINE row_sums add_terms(row_sums s, const group *g, const int8_t *q, const float *d, const int32_t *sum)
{
#if HAS_MINIMUM
    partials *p = &s.p;
    s.m.low = add_scaled(s.m.low, g->m_low, d, vld1q_s32(sum));
    s.m.high = add_scaled(s.m.high, g->m_high, d + 4, vld1q_s32(sum + 4));
#else
    partials *p = &s;
    (void)sum;
#endif
    p->low = add_scaled(p->low, g->d_low, d, four_sums(g->w, q));
    p->high = add_scaled(p->high, g->d_high, d + 4, four_sums(g->w + 8, q + 128));
    return s;
}
