/* Attention (attn_tmpl.h) on AArch64: a group of positions is four registers, and a pass computes one of the
 * eight partial sums of four queries. */
#include "kernels/isa.h"
#include "kernels/vector/vector_math.h"

#include <arm_neon.h>

typedef float32x4_t vec;
typedef int32x4_t ints;
typedef int32_t vec_i __attribute__((vector_size(16)));
typedef uint32_t vec_u __attribute__((vector_size(16)));
enum { LANES = 4, N_PASS = 1, N_OUT = 4 };

HTH_INLINE vec vec_set(float x) { return vdupq_n_f32(x); }
HTH_INLINE vec vec_load(const float *p) { return vld1q_f32(p); }
HTH_INLINE void vec_store(float *p, vec v) { vst1q_f32(p, v); }
HTH_INLINE vec vec_fma(vec a, vec b, vec c) { return vfmaq_f32(c, a, b); }
HTH_INLINE vec vec_max(vec a, vec b) { return vmaxq_f32(a, b); }
HTH_INLINE float vec_largest(vec v) { return vmaxvq_f32(v); }

HTH_INLINE vec vec_of_f16(const uint8_t *p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
HTH_INLINE vec vec_of_bf16(const uint8_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
}
HTH_INLINE vec vec_of_i8(const uint8_t *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    int16x8_t wide = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
}
HTH_INLINE vec vec_of_ints(ints v) { return vcvtq_f32_s32(v); }

/* Four values of each of four positions. */
HTH_INLINE ints keys_load(const uint8_t *p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
HTH_INLINE ints ints_start(int32_t q_sum)
{
    (void)q_sum;
    return vdupq_n_s32(0);
}
HTH_INLINE ints dot_4(ints sum, ints keys, const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    int8x8_t query = vreinterpret_s8_s32(vdup_n_s32(four));
    int8x16_t bytes = vreinterpretq_s8_s32(keys);
    int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(bytes), query));
    int32x4_t high = vpaddlq_s16(vmull_s8(vget_high_s8(bytes), query));
    return vaddq_s32(sum, vpaddq_s32(low, high));
}

#include "kernels/attn/attn_tmpl.h"

void hth_kernels_attn_neon(hth_kernels *k) { fill_table(k); }
