/* Bit patterns of floats: binary32, binary16 and bfloat16, without instructions or library calls that a CPU level
 * may lack. All conversions round to nearest even and keep subnormals. */
#ifndef HTH_BASE_BITS_H
#define HTH_BASE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The bits of a value as another type, and a value at any address. The formats here are little-endian. */
#define HTH_COPY_BITS(NAME, TO, PARAMETER, ADDRESS)                                                          \
    static inline TO NAME(PARAMETER)                                                                         \
    {                                                                                                        \
        TO to;                                                                                               \
        memcpy(&to, ADDRESS, sizeof to);                                                                     \
        return to;                                                                                           \
    }
HTH_COPY_BITS(hth_bits_of, uint32_t, float f, &f)
HTH_COPY_BITS(hth_float_of, float, uint32_t u, &u)
HTH_COPY_BITS(hth_bits_of_d, uint64_t, double f, &f)
HTH_COPY_BITS(hth_double_of, double, uint64_t u, &u)
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "this code is for little-endian machines");
HTH_COPY_BITS(hth_load_u16, uint16_t, const void *p, p)
HTH_COPY_BITS(hth_load_u32, uint32_t, const void *p, p)
HTH_COPY_BITS(hth_load_u64, uint64_t, const void *p, p)
HTH_COPY_BITS(hth_load_f32, float, const void *p, p)
#undef HTH_COPY_BITS

/* Neither NaN nor infinity among n values. */
static inline bool hth_all_finite(const float *x, size_t n)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t magnitude = hth_bits_of(x[i]) & 0x7fffffffu;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest < 0x7f800000u;
}

/* x to 13 significant bits, ties to even: its product with a half is exact in float. Below 2^-60: +0; above 2^60,
 * infinite or NaN: NaN. */
static inline float hth_round_to_13_bits(float x)
{
    uint32_t u = hth_bits_of(x), magnitude = u & 0x7fffffffu;
    if (magnitude < 0x21800000u) return 0.0f;
    if (magnitude > 0x5d800000u) return hth_float_of(0x7fc00000u);
    return hth_float_of((u + 0x3ffu + (u >> 11 & 1u)) & ~0x7ffu);
}

static inline void hth_store_u16(void *p, uint16_t v) { memcpy(p, &v, sizeof v); }
static inline void hth_store_u32(void *p, uint32_t v) { memcpy(p, &v, sizeof v); }
static inline void hth_store_f32(void *p, float v) { memcpy(p, &v, sizeof v); }

/* Exact. The product shifts the exponent, so subnormal halves become normal. */
static inline float hth_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
    uint32_t u = hth_bits_of(hth_float_of(magnitude << 13) * 0x1p112f);
    if (magnitude >= 0x7c00u) u |= 0x7f800000u;
    return hth_float_of(u | sign);
}

static inline uint16_t hth_f32_to_f16(float f)
{
    uint32_t u = hth_bits_of(f), sign = (u >> 16) & 0x8000u, x = u & 0x7fffffffu, h;
    if (x > 0x7f800000u) {
        h = 0x7e00u;
    } else if (x >= 0x47800000u) { /* 65536 or more */
        h = 0x7c00u;
    } else if (x < 0x38800000u) { /* below 2^-14: the ulp of 0.5 is the step of a subnormal half */
        h = hth_bits_of(hth_float_of(x) + 0.5f) - 0x3f000000u;
    } else {
        h = (x - 0x38000000u + 0xfffu + ((x >> 13) & 1u)) >> 13;
    }
    return (uint16_t)(sign | h);
}

static inline float hth_bf16_to_f32(uint16_t b) { return hth_float_of((uint32_t)b << 16); }

static inline uint16_t hth_f32_to_bf16(float f)
{
    uint32_t u = hth_bits_of(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/* Bit i of a bit array, eight bits a byte. */
static inline unsigned hth_bit_at(const uint8_t *row, size_t i) { return (unsigned)row[i / 8] >> i % 8 & 1u; }

/* Number of set bits of x. */
static inline uint32_t hth_count_bits(uint32_t x)
{
    x -= x >> 1 & 0x55555555u;
    x = (x & 0x33333333u) + (x >> 2 & 0x33333333u);
    return ((x + (x >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;
}

#endif
