/* Helpers shared by the Arm levels of the quantised rows: partial sums, scales, and the integer sum of one
 * block, with sdot if the file is compiled for it. */
#ifndef HTH_KERNELS_QUANT_ARM_H
#define HTH_KERNELS_QUANT_ARM_H

#include "base/bits.h"
#include "kernels/isa.h"

#include <arm_neon.h>

typedef struct partials {
    float32x4_t low, high;
} partials;

HTH_INLINE partials no_partials(void) { return (partials){vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)}; }

/* p + (d * weight_d) * isum, each operation rounded. */
HTH_INLINE float32x4_t add_scaled(float32x4_t p, float32x4_t weight_d, const float *d, int32x4_t isum)
{
    return vaddq_f32(p, vmulq_f32(vmulq_f32(weight_d, vld1q_f32(d)), vcvtq_f32_s32(isum)));
}

/* Adds neighbours first, as hth_reduce8. */
HTH_INLINE float tree(partials p)
{
    float32x4_t pairs = vpaddq_f32(p.low, p.high), fours = vpaddq_f32(pairs, pairs);
    return vgetq_lane_f32(fours, 0) + vgetq_lane_f32(fours, 1);
}

/* Four consecutive F16 values. */
HTH_INLINE float32x4_t four_floats(const uint16_t *h)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(h)));
}

/* 2^(e - 128): subnormal for 0 and 1, NaN for 255. */
HTH_INLINE float32x4_t powers(uint32x4_t e)
{
    uint32x4_t normal = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    uint32x4_t subnormal = vshlq_u32(vdupq_n_u32(0x200000), vreinterpretq_s32_u32(e));
    uint32x4_t bits = vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), subnormal, normal);
    uint32x4_t not_a_number = vandq_u32(vceqq_u32(e, vdupq_n_u32(255)), vdupq_n_u32(0x7fc00000));
    return vreinterpretq_f32_u32(vorrq_u32(bits, not_a_number));
}

/* The scales of four blocks, each at the start of its block. */
HTH_INLINE float32x4_t four_scales(const uint8_t *p, size_t size)
{
    uint16_t h[4];
    for (size_t i = 0; i < 4; i++) h[i] = hth_load_u16(p + i * size);
    return four_floats(h);
}

/* Four parts of the sum of products of a block. Without sdot, two products are added in 16 bits: 2 * 128 * 127
 * is in range, because activations are never -128. */
HTH_INLINE int32x4_t block_products(int8x16_t w0, int8x16_t w1, const int8_t *q)
{
    int8x16_t q0 = vld1q_s8(q), q1 = vld1q_s8(q + 16);
#if defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(vdotq_s32(vdupq_n_s32(0), w0, q0), w1, q1);
#else
    int16x8_t low = vmlal_s8(vmull_s8(vget_low_s8(w0), vget_low_s8(q0)), vget_low_s8(w1), vget_low_s8(q1));
    int16x8_t high = vmlal_high_s8(vmull_high_s8(w0, q0), w1, q1);
    return vpadalq_s16(vpaddlq_s16(low), high);
#endif
}

/* The same for half a block. */
HTH_INLINE int32x4_t half_products(int8x16_t w, const int8_t *q)
{
    int8x16_t q0 = vld1q_s8(q);
#if defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(vdupq_n_s32(0), w, q0);
#else
    return vpaddlq_s16(vmlal_high_s8(vmull_s8(vget_low_s8(w), vget_low_s8(q0)), w, q0));
#endif
}

/* The n low bits of each of sixteen bytes shifted right by a constant. */
HTH_INLINE uint8x16_t bits_of(const uint8_t *p, int shift, int n)
{
    uint8x16_t bytes = vshlq_u8(vld1q_u8(p), vdupq_n_s8((int8_t)-shift));
    return vandq_u8(bytes, vdupq_n_u8((uint8_t)((1 << n) - 1)));
}

/* Sixteen nibbles: the low nibbles of bytes, and the high ones. */
HTH_INLINE int8x16_t low_nibbles(const uint8_t *p)
{
    return vreinterpretq_s8_u8(vandq_u8(vld1q_u8(p), vdupq_n_u8(15)));
}

HTH_INLINE int8x16_t high_nibbles(const uint8_t *p)
{
    return vreinterpretq_s8_u8(vshrq_n_u8(vld1q_u8(p), 4));
}

/* The table values at sixteen indices. */
HTH_INLINE int8x16_t look_up(const int8_t *table, int8x16_t places)
{
    return vqtbl1q_s8(vld1q_s8(table), vreinterpretq_u8_s8(places));
}

HTH_INLINE int32x4_t sums_in_order(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d)
{
    return vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
}

#endif
