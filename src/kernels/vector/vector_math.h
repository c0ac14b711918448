/* Eight floats at a time, and the float functions of the token loop. Written with the compiler's vector types,
 * so that one source compiles for every ISA level. Each operation is one rounded IEEE operation (no
 * contraction, no division), so all levels give the same bits. Included by vector_tmpl.h, training_tmpl.h,
 * attention and float kernels only. */
#ifndef HTH_KERNELS_VECTOR_VECTOR_MATH_H
#define HTH_KERNELS_VECTOR_VECTOR_MATH_H

#include "base/bits.h"
#include "kernels/isa.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__F16C__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* Vectors wider than a register are passed by value between inline functions
 * only, so the ABI note of the compilers does not apply. */
#pragma GCC diagnostic ignored "-Wpsabi"

typedef float hth_v8 __attribute__((vector_size(32)));
typedef int32_t hth_v8i __attribute__((vector_size(32)));
typedef uint32_t hth_v8u __attribute__((vector_size(32)));

HTH_INLINE hth_v8 v8_set(float x) { return (hth_v8){x, x, x, x, x, x, x, x}; }
HTH_INLINE hth_v8i v8_set_i(int32_t x) { return (hth_v8i){x, x, x, x, x, x, x, x}; }

HTH_INLINE hth_v8 v8_load(const float *p)
{
    hth_v8 v;
    memcpy(&v, p, sizeof v);
    return v;
}

HTH_INLINE void v8_store(float *p, hth_v8 v) { memcpy(p, &v, sizeof v); }

/* The first n (below 8) values, padded with zeros. */
HTH_INLINE hth_v8 v8_load_part(const float *p, size_t n)
{
    hth_v8 v = v8_set(0.0f);
    memcpy(&v, p, n * sizeof *p);
    return v;
}

HTH_INLINE void v8_store_part(float *p, hth_v8 v, size_t n) { memcpy(p, &v, n * sizeof *p); }

HTH_INLINE hth_v8i v8_bits(hth_v8 v) { return (hth_v8i)v; }
HTH_INLINE hth_v8 v8_of_bits(hth_v8i v) { return (hth_v8)v; }

/* a - b modulo 2^32, because bits may represent any number. */
HTH_INLINE hth_v8i v8_minus(hth_v8i a, hth_v8i b) { return (hth_v8i)((hth_v8u)a - (hth_v8u)b); }

/* Lanes of mask are all ones or all zeros, as comparisons give them. */
HTH_INLINE hth_v8 v8_select(hth_v8i mask, hth_v8 yes, hth_v8 no)
{
    return (hth_v8)((mask & (hth_v8i)yes) | (~mask & (hth_v8i)no));
}

/* The larger of a and b; b if they are unordered. */
HTH_INLINE hth_v8 v8_max(hth_v8 a, hth_v8 b) { return v8_select(a > b, a, b); }

/* The reduction of every sum over eight partials (arithmetic.md 1). */
HTH_INLINE float v8_sum(hth_v8 p)
{
    return ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
}

/* Eight F16 values, widened exactly. */
HTH_INLINE hth_v8 v8_load_f16(const uint16_t *p)
{
#if defined(__F16C__)
    return (hth_v8)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
#elif defined(__aarch64__)
    float16x8_t h = vreinterpretq_f16_u16(vld1q_u16(p));
    float32x4_t low = vcvt_f32_f16(vget_low_f16(h)), high = vcvt_high_f32_f16(h);
    return (hth_v8){low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]};
#else
    hth_v8 v;
    for (int i = 0; i < 8; i++) v[i] = hth_f16_to_f32(p[i]);
    return v;
#endif
}

/* ---- functions --------------------------------------------------------------- */

/* exp(x): 0 below -87, exp(88) above 88. Reduction by n ln 2 with ln 2 in two parts, then a polynomial of
 * degree 7 (coefficients of Cephes expf). A macro for every width, because attention uses the full register of
 * an ISA level. */
#define HTH_DEFINE_EXP(NAME, FLOATS, INTS, UINTS)                                                            \
    HTH_INLINE FLOATS NAME(FLOATS x)                                                                         \
    {                                                                                                        \
        const FLOATS zero = {0};                                                                             \
        const FLOATS magic = zero + 0x1.8p23f, top = zero + 88.0f;                                           \
        INTS gone = (INTS)(x < zero - 87.0f), over = (INTS)(x > top);                                        \
        FLOATS a = (FLOATS)((over & (INTS)top) | (~over & (INTS)x));                                         \
        a = (FLOATS)(~gone & (INTS)a);                                                                       \
        FLOATS shifted = a * 1.44269504f + magic;                                                            \
        FLOATS n = shifted - magic;                                                                          \
        FLOATS r = (a - n * 0.693359375f) - n * -2.12194440e-4f;                                             \
        FLOATS p = zero + 1.9875691500e-4f;                                                                  \
        p = p * r + 1.3981999507e-3f;                                                                        \
        p = p * r + 8.3334519073e-3f;                                                                        \
        p = p * r + 4.1665795894e-2f;                                                                        \
        p = p * r + 1.6666665459e-1f;                                                                        \
        p = p * r + 5.0000001201e-1f;                                                                        \
        FLOATS y = (p * (r * r) + r) + 1.0f;                                                                 \
        UINTS n_plus_bias = (UINTS)shifted - (0x4b400000u - 127u);                                           \
        return (FLOATS)(~gone & (INTS)(y * (FLOATS)(n_plus_bias << 23)));                                    \
    }
HTH_DEFINE_EXP(v8_exp, hth_v8, hth_v8i, hth_v8u)

/* 1/x for x in [2^-126, 2^126]: an estimate from the bits, then Newton's method. */
#define HTH_DEFINE_RCP(NAME, FLOATS, UINTS)                                                                  \
    HTH_INLINE FLOATS NAME(FLOATS x)                                                                         \
    {                                                                                                        \
        const FLOATS two = (FLOATS){0} + 2.0f;                                                               \
        FLOATS r = (FLOATS)(0x7ef311c7u - (UINTS)x);                                                         \
        for (int i = 0; i < 4; i++) r = r * (two - x * r);                                                   \
        return r;                                                                                            \
    }
HTH_DEFINE_RCP(v8_rcp, hth_v8, hth_v8u)

/* 1/sqrt(x) for normal x > 0, likewise. */
HTH_INLINE hth_v8 v8_rsqrt(hth_v8 x)
{
    hth_v8 half = v8_set(0.5f) * x;
    hth_v8 r = v8_of_bits(v8_minus(v8_set_i(0x5f375a86), v8_bits(x) >> 1));
    for (int i = 0; i < 4; i++) r = r * (v8_set(1.5f) - half * (r * r));
    return r;
}

/* tanh(x): 1 - 2/(exp(2|x|) + 1) with the sign of x. Below 0.625, where the difference would lose digits, a
 * polynomial in x^2 (coefficients of Cephes tanhf). */
HTH_INLINE hth_v8 v8_tanh(hth_v8 x)
{
    const hth_v8i sign_bit = v8_set_i((int32_t)0x80000000u);
    hth_v8i sign = v8_bits(x) & sign_bit;
    hth_v8 a = v8_of_bits(v8_bits(x) & ~sign_bit);
    hth_v8 held = v8_select(a > v8_set(20.0f), v8_set(20.0f), a);
    hth_v8 large = v8_set(1.0f) - v8_set(2.0f) * v8_rcp(v8_exp(held + held) + v8_set(1.0f));
    hth_v8 s = x * x;
    hth_v8 p = v8_set(-5.70498872745e-3f);
    p = p * s + v8_set(2.06390887954e-2f);
    p = p * s + v8_set(-5.37397155531e-2f);
    p = p * s + v8_set(1.33314422036e-1f);
    p = p * s + v8_set(-3.33332819422e-1f);
    hth_v8 small = (p * s) * x + x;
    return v8_select(a < v8_set(0.625f), small, v8_of_bits(v8_bits(large) | sign));
}

/* The same for one scalar value. */
HTH_INLINE float one_exp(float x) { return v8_exp(v8_set(x))[0]; }
HTH_INLINE float one_rcp(float x) { return v8_rcp(v8_set(x))[0]; }
HTH_INLINE float one_rsqrt(float x) { return v8_rsqrt(v8_set(x))[0]; }

#endif
