/* Rows, panels and neuron-major down of F32, F16 and BF16 on AArch64: the sixteen partial sums are four registers. */
#include "kernels/isa.h"

#include <arm_neon.h>

typedef struct floats {
    float32x4_t v[4];
} floats;

HTH_INLINE floats zeros(void)
{
    float32x4_t zero = vdupq_n_f32(0.0f);
    return (floats){{zero, zero, zero, zero}};
}

HTH_INLINE floats load_f32(const uint8_t *p)
{
    floats x;
    for (int i = 0; i < 4; i++) x.v[i] = vreinterpretq_f32_u8(vld1q_u8(p + 16 * i));
    return x;
}

HTH_INLINE floats load_f16(const uint8_t *p)
{
    float16x8_t low = vreinterpretq_f16_u8(vld1q_u8(p)), high = vreinterpretq_f16_u8(vld1q_u8(p + 16));
    return (floats){{vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low),
                     vcvt_f32_f16(vget_low_f16(high)), vcvt_high_f32_f16(high)}};
}

HTH_INLINE floats load_bf16(const uint8_t *p)
{
    uint16x8_t low = vreinterpretq_u16_u8(vld1q_u8(p)), high = vreinterpretq_u16_u8(vld1q_u8(p + 16));
    return (floats){{vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(low), 16)),
                     vreinterpretq_f32_u32(vshll_high_n_u16(low, 16)),
                     vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(high), 16)),
                     vreinterpretq_f32_u32(vshll_high_n_u16(high, 16))}};
}

HTH_INLINE floats add_products(floats p, floats w, floats x)
{
    for (int i = 0; i < 4; i++) p.v[i] = vfmaq_f32(p.v[i], w.v[i], x.v[i]);
    return p;
}

/* Adds halves first, as hth_reduce16. */
HTH_INLINE float tree(floats p)
{
    float32x4_t a = vaddq_f32(vaddq_f32(p.v[0], p.v[2]), vaddq_f32(p.v[1], p.v[3]));
    return (vgetq_lane_f32(a, 0) + vgetq_lane_f32(a, 2)) + (vgetq_lane_f32(a, 1) + vgetq_lane_f32(a, 3));
}

enum { ROWS_AT_ONCE = 1 };

#include "kernels/float/float_tmpl.h"

#include "kernels/panel/panel_float_neon.h"

HTH_INLINE floats all_of(float x)
{
    float32x4_t all = vdupq_n_f32(x);
    return (floats){{all, all, all, all}};
}

#include "kernels/axpy/axpy_float_tmpl.h"

static bool flush_chain(size_t n_out, float *chain, int64_t *acc64)
{
    size_t n_whole = n_out - n_out % 4;
    uint32x4_t all_fit = vdupq_n_u32(0xffffffffu);
    for (size_t o = 0; o < n_whole; o += 4) {
        float32x4_t a = vld1q_f32(chain + o);
        uint32x4_t fits = vcltq_f32(vabsq_f32(a), vdupq_n_f32(0x1p23f));
        all_fit = vandq_u32(all_fit, fits);
        a = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(a), fits));
        int64x2_t low = vcvtq_n_s64_f64(vcvt_f64_f32(vget_low_f32(a)), 32);
        int64x2_t high = vcvtq_n_s64_f64(vcvt_high_f64_f32(a), 32);
        vst1q_s64(acc64 + o, vaddq_s64(vld1q_s64(acc64 + o), low));
        vst1q_s64(acc64 + o + 2, vaddq_s64(vld1q_s64(acc64 + o + 2), high));
        vst1q_f32(chain + o, vdupq_n_f32(0.0f));
    }
    bool rest = hth_axpy_flush_chain(n_out - n_whole, chain + n_whole, acc64 + n_whole);
    return rest && vminvq_u32(all_fit) != 0;
}

void hth_kernels_float_neon(hth_kernels *k)
{
    k->axpy[HTH_TYPE_F32] = down_f32;
    k->axpy[HTH_TYPE_F16] = down_f16;
    k->axpy[HTH_TYPE_BF16] = down_bf16;
    k->axpy_flush_chain = flush_chain;
    k->rows[HTH_TYPE_F32] = rows_f32;
    k->panels[HTH_TYPE_F32] = panels_f32;
    k->layout[HTH_TYPE_F32] = HTH_LAYOUT_PANELS;
    k->rows[HTH_TYPE_F16] = rows_f16;
    k->panels[HTH_TYPE_F16] = panels_f16;
    k->layout[HTH_TYPE_F16] = HTH_LAYOUT_PANELS;
    k->rows[HTH_TYPE_BF16] = rows_bf16;
    k->panels[HTH_TYPE_BF16] = panels_bf16;
    k->layout[HTH_TYPE_BF16] = HTH_LAYOUT_PANELS;
}
