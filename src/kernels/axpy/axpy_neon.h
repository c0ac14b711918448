/* Helpers of neuron-major down on AArch64: signed 16-bit integers times a 16-bit coefficient are added to
 * 32-bit sums row by row, so neither pairs nor offsets are needed. */
#include "kernels/isa.h"

#include <arm_neon.h>

/* Rows computed together, and the prefetch distance in rows. With Q4_0 and 4096 outputs 18 KiB are in flight, less than
 * the L1 cache holds. */
enum { AXPY_ROWS = 4, AXPY_PREFETCH_DIST = 8 };

typedef struct sixteen_sums {
    int32x4_t v[4];
} sixteen_sums;

HTH_INLINE sixteen_sums load_sums(const int32_t *p)
{
    return (sixteen_sums){{vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)}};
}

HTH_INLINE void store_sums(int32_t *p, sixteen_sums s)
{
    for (int i = 0; i < 4; i++) vst1q_s32(p + 4 * i, s.v[i]);
}

/* s + c * w */
HTH_INLINE sixteen_sums add_weights(sixteen_sums s, int8x16_t w, int16_t c)
{
    int16x8_t low = vmovl_s8(vget_low_s8(w)), high = vmovl_high_s8(w);
    s.v[0] = vmlal_n_s16(s.v[0], vget_low_s16(low), c);
    s.v[1] = vmlal_high_n_s16(s.v[1], low, c);
    s.v[2] = vmlal_n_s16(s.v[2], vget_low_s16(high), c);
    s.v[3] = vmlal_high_n_s16(s.v[3], high, c);
    return s;
}

/* rint(h (x) d), ties to even. */
HTH_INLINE int32x4_t coefficients(float h, float32x4_t d) { return vcvtnq_s32_f32(vmulq_n_f32(d, h)); }
