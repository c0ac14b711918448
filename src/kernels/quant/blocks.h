/* Data and helpers shared by the blocks of several types, in C: value tables, power-of-two scales, six-bit
 * scales. Layouts follow the block structs of the format (ggml-common.h). */
#ifndef HTH_KERNELS_QUANT_BLOCKS_H
#define HTH_KERNELS_QUANT_BLOCKS_H

#include "base/bits.h"

/* The sixteen values of IQ4_NL and IQ4_XS. */
static const int8_t hth_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

/* Twice the sixteen values of MXFP4 (its sign bit makes 8 a second zero). */
static const int8_t hth_mxfp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* 2^(e - 128), exact; NaN for 255. The two smallest are subnormal floats. */
static inline float hth_mxfp4_scale(uint8_t e)
{
    if (e == 255) return hth_float_of(0x7fc00000u);
    return hth_float_of(e < 2 ? 0x200000u << e : (uint32_t)(e - 1) << 23);
}

/* The scales of NVFP4: half of an unsigned float with four bits of exponent and three of mantissa. The top bit is not
 * used; 127 is 0. */
static inline float hth_nvfp4_scale(uint8_t e)
{
    return e == 127 ? 0.0f : hth_float_of((e & 127u) << 20) * 0x1p119f;
}

/* Digit n to the base 3 of the fraction byte / 256 (TQ1_0). Digits before it are the whole part of a product, which is
 * dropped. */
static inline uint8_t hth_tq1_digit(uint8_t byte, int n)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    return (uint8_t)((uint8_t)(byte * power[n]) * 3 >> 8);
}

/* Rounds to the nearest integer, ties to even, for |x| below 2^22. */
static inline int32_t hth_round_even(float x) { return (int32_t)(hth_bits_of(x + 0x1.8p23f) - 0x4b400000u); }

/* sum + x with wraparound. Coefficients of neuron-major down may be out of bounds; such results are computed
 * but not used. */
static inline int32_t hth_wrapping_sum(int32_t sum, int32_t x)
{
    return (int32_t)((uint32_t)sum + (uint32_t)x);
}

/* The sixteen scales (-32..31) in the twelve bytes of Q3_K. */
static inline void hth_q3_k_scales(const uint8_t s[12], int16_t scale[16])
{
    for (int i = 0; i < 16; i++) {
        int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4, high = s[8 + i % 4] >> 2 * (i / 4) & 3;
        scale[i] = (int16_t)((low | high << 4) - 32);
    }
}

/* The eight scales (-32..31) of IQ4_XS in the first eight bytes of a block, each twice. */
static inline void hth_iq4_xs_scales(const uint8_t p[8], int16_t scale[16])
{
    uint32_t high = hth_load_u16(p + 2), low = hth_load_u32(p + 4);
    for (int i = 0; i < 16; i++) {
        int s = i / 2;
        scale[i] = (int16_t)((int)((low >> 4 * s & 15) | (high >> 2 * s & 3) << 4) - 32);
    }
}

/* The eight scales and eight minima (0..63) in the twelve bytes of Q4_K and Q5_K. */
static inline void hth_k_scales(const uint8_t s[12], uint8_t scale[8], uint8_t minimum[8])
{
    for (int k = 0; k < 4; k++) {
        scale[k] = s[k] & 63;
        minimum[k] = s[k + 4] & 63;
        scale[k + 4] = (uint8_t)((s[k + 8] & 15) | s[k] >> 6 << 4);
        minimum[k + 4] = (uint8_t)(s[k + 8] >> 4 | s[k + 4] >> 6 << 4);
    }
}

#endif
