/* Rows of MXFP4 on AArch64: one text for the levels neon and dotprod. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 17 };

#include "kernels/blocks.h"
#include "kernels/arm_blocks.h"

/* 2^(e - 128): subnormal for 0 and 1, NaN for 255. */
HTH_INLINE float32x4_t powers(const uint32_t *exponents)
{
    uint32x4_t e = vld1q_u32(exponents), normal = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    uint32x4_t subnormal = vshlq_u32(vdupq_n_u32(0x200000), vreinterpretq_s32_u32(e));
    uint32x4_t bits = vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), subnormal, normal);
    uint32x4_t not_a_number = vandq_u32(vceqq_u32(e, vdupq_n_u32(255)), vdupq_n_u32(0x7fc00000));
    return vreinterpretq_f32_u32(vorrq_u32(bits, not_a_number));
}

HTH_INLINE group unpack(const uint8_t *p)
{
    group g;
    uint32_t e[8];
    for (int i = 0; i < 8; i++) e[i] = p[i * BLOCK_SIZE];
    g.d_low = powers(e), g.d_high = powers(e + 4);
    for (int i = 0; i < 8; i++, p += BLOCK_SIZE) {
        g.w[2 * i] = look_up(hth_mxfp4_values, low_nibbles(p + 1));
        g.w[2 * i + 1] = look_up(hth_mxfp4_values, high_nibbles(p + 1));
    }
    return g;
}

#include "kernels/rows_tmpl.h"
