/* base/bits.h: halves and bfloat16 against their definitions and the hardware. */
#include "base/bits.h"
#include "base/system/cpu.h"
#include "support/test.h"

#include <math.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* The definition: sign, five bits of exponent, ten of mantissa. */
static double half_value(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    double magnitude = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 31) magnitude = mantissa ? (double)NAN : (double)INFINITY;
    return h & 0x8000u ? -magnitude : magnitude;
}

TEST(every_half_widens_exactly)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float x = hth_f16_to_f32((uint16_t)h);
        double right = half_value((uint16_t)h);
        if (right != right) CHECK(x != x);
        else CHECK((double)x == right && !signbit(x) == !signbit(right));
    }
}

TEST(every_half_survives_a_round_trip)
{
    for (uint32_t h = 0; h < 65536; h++) {
        if ((h & 0x7fffu) > 0x7c00u) CHECK((hth_f32_to_f16(hth_f16_to_f32((uint16_t)h)) & 0x7fffu) > 0x7c00u);
        else CHECK_INT(hth_f32_to_f16(hth_f16_to_f32((uint16_t)h)), h);
    }
}

/* Around the middle of every two neighbouring halves: below, at (to even) and above. */
TEST(floats_round_to_the_nearest_half_ties_to_even)
{
    for (uint32_t h = 0; h < 0x7c00u; h++) {
        double low = half_value((uint16_t)h), high = h == 0x7bffu ? 65536.0 : half_value((uint16_t)(h + 1));
        float middle = (float)((low + high) / 2); /* exact: one bit more than a half */
        CHECK_INT(hth_f32_to_f16(nextafterf(middle, 0.0f)), h);
        CHECK_INT(hth_f32_to_f16(middle), h + (h & 1u));
        CHECK_INT(hth_f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
        CHECK_INT(hth_f32_to_f16(-middle), 0x8000u | (h + (h & 1u)));
    }
}

#if defined(__x86_64__)
__attribute__((target("f16c"))) static uint16_t hardware_half(float x)
{
    return (uint16_t)_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT), 0);
}
static bool has_hardware(void) { return hth_cpu_detect() >= HTH_CPU_AVX2; }
#elif defined(__aarch64__)
static uint16_t hardware_half(float x)
{
    return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(x))), 0);
}
static bool has_hardware(void) { return true; }
#else
static uint16_t hardware_half(float x) { return hth_f32_to_f16(x); }
static bool has_hardware(void) { return false; }
#endif

/* The nearest half, of two the even one, by arithmetic on doubles, which is exact here. */
static uint16_t half_by_definition(float x)
{
    uint16_t sign = hth_bits_of(x) >> 31 ? 0x8000u : 0;
    double size = x < 0.0f ? -(double)x : (double)x;
    int exponent = -14;
    if (size >= 65520.0) return sign | 0x7c00u;
    while (exponent < 15 && size >= ldexp(1.0, exponent + 1)) exponent++;
    uint32_t units = (uint32_t)nearbyint(ldexp(size, 10 - exponent)); /* 1024 and more where it is normal */
    return (uint16_t)(sign |
                      (units < 1024 && exponent == -14 ? units
                                                       : ((uint32_t)(exponent + 15) << 10) + units - 1024));
}

/* Every 251st float of all 2^32 (every one with HEARTH_LONG). */
TEST(floats_become_the_nearest_halves)
{
    uint64_t step = test_is_long() ? 1 : 251;
    uint16_t (*half_of)(float) = has_hardware() ? hardware_half : half_by_definition;
    for (uint64_t u = 0; u <= UINT32_MAX; u += step) {
        float x = hth_float_of((uint32_t)u);
        if (x != x) CHECK((hth_f32_to_f16(x) & 0x7fffu) > 0x7c00u);
        else if (hth_f32_to_f16(x) != half_of(x)) CHECK_INT(hth_f32_to_f16(x), half_of(x));
    }
    for (uint64_t u = 0; u <= UINT32_MAX; u += 65521) {
        float x = hth_float_of((uint32_t)u);
        if (x == x) CHECK_INT(half_of(x), half_by_definition(x));
    }
}

TEST(bfloat16_is_the_upper_half_rounded_to_even)
{
    for (uint32_t b = 0; b < 65536; b++) {
        float x = hth_bf16_to_f32((uint16_t)b);
        CHECK_INT(hth_bits_of(x), b << 16);
        bool finite = (b & 0x7fffu)<0x7f80u, nan = (b & 0x7fffu)> 0x7f80u;
        if (nan) CHECK((hth_f32_to_bf16(x) & 0x7fffu) > 0x7f80u);
        else CHECK_INT(hth_f32_to_bf16(x), b);
        if (!finite) continue;
        CHECK_INT(hth_f32_to_bf16(hth_float_of(b << 16 | 0x7fffu)), b);
        CHECK_INT(hth_f32_to_bf16(hth_float_of(b << 16 | 0x8000u)), b + (b & 1u));
        CHECK_INT(hth_f32_to_bf16(hth_float_of(b << 16 | 0x8001u)), b + 1);
    }
    /* A NaN whose payload lies in the lower half must not become an infinity. */
    CHECK((hth_f32_to_bf16(hth_float_of(0x7f800001u)) & 0x7fffu) > 0x7f80u);
}

/* By its definition in double: the nearest multiple of 2^-12 times its power of two. */
static float by_13_bits(float x)
{
    int exponent;
    double fraction = frexp((double)x, &exponent); /* 0.5 to 1 */
    return (float)ldexp(nearbyint(ldexp(fraction, 13)), exponent - 13);
}

TEST(thirteen_bits_are_the_nearest_and_their_products_with_halves_are_exact)
{
    const float least = 0x1p-60f, largest = 0x1p60f;
    uint64_t step = test_is_long() ? 1 : 253;
    for (uint64_t u = 0; u <= UINT32_MAX; u += step) {
        float x = hth_float_of((uint32_t)u), y = hth_round_to_13_bits(x), size = x < 0.0f ? -x : x;
        if (!(size <= largest)) CHECK(y != y);
        else if (size < least) CHECK_INT(hth_bits_of(y), 0);
        else if (y != by_13_bits(x)) CHECK_INT(hth_bits_of(y), hth_bits_of(by_13_bits(x)));
        float half = hth_f16_to_f32((uint16_t)(u * 2654435761u >> 16)), product = y * half;
        if (size <= largest && half - half == 0.0f && (double)product != (double)y * (double)half)
            test_fail(__FILE__, __LINE__, "%a times %a is rounded", (double)y, (double)half);
    }
    CHECK(hth_round_to_13_bits(least) == least && hth_round_to_13_bits(largest) == largest);
    CHECK(hth_round_to_13_bits(hth_float_of(0x7fffffffu)) != hth_round_to_13_bits(hth_float_of(0x7fffffffu)));
    CHECK(hth_round_to_13_bits(0x1.0008p0f) == 1.0f && hth_round_to_13_bits(0x1.0018p0f) == 0x1.002p0f); /* ties */
}
