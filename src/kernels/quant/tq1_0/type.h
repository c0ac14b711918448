/* Rows of TQ1_0 (blocks of 256: 48 bytes of five weights each, four bytes of four weights, F16 scale): the definition,
 * with ref_256.h. A byte b is a fraction b / 256 whose digits to the base 3 are the weights plus 1. */
#define HAS_MINIMUM 0
#define NO_AXPY
enum { BLOCK_SIZE = 54, SCALE_AT = 52 };

#ifdef HTH_LEVEL_REF
#include "kernels/quant/ref_256.h"

static int8_t digit(uint8_t byte, int n) { return (int8_t)(hth_tq1_digit(byte, n) - 1); }

/* Digit n of 32 bytes after digit n - 1 of them all, then the same of sixteen bytes and of four. */
static void read_block(const uint8_t *p, block *k)
{
    k->d = hth_f16_to_f32(hth_load_u16(p + SCALE_AT));
    for (int i = 0; i < N_PART; i++) k->scale[i] = 1;
    for (int i = 0; i < 160; i++) k->w[i] = digit(p[i % 32], i / 32);
    for (int i = 0; i < 80; i++) k->w[160 + i] = digit(p[32 + i % 16], i / 16);
    for (int i = 0; i < 16; i++) k->w[240 + i] = digit(p[48 + i % 4], i / 4);
}
#endif

#ifdef HTH_LEVEL_AVX2 /* with AVX-512 too: wider registers are no faster */
#include "kernels/quant/x86/x86.h"

/* x times 3^n, modulo 256. */
HTH_INLINE __m256i times_power(__m256i x, int n)
{
    for (int i = 0; i < n; i++) x = _mm256_add_epi8(x, _mm256_add_epi8(x, x));
    return x;
}

/* Bytes whose first digits are weights 32i to 32i + 31, plus 1. */
HTH_INLINE __m256i scaled(const uint8_t *p, int i)
{
    if (i < 5) return times_power(load_256(p), i);
    __m256i twice = _mm256_broadcastsi128_si256(load_128(p + 32));
    __m256i low = times_power(twice, 2 * (i - 5)), high = times_power(low, 1);
    if (i == 7) { /* the digits of four bytes */
        __m256i last = _mm256_set1_epi32((int)hth_load_u32(p + 48)), next = times_power(last, 1);
        __m256i both = _mm256_blend_epi32(last, next, 0xa0);
        high = _mm256_blend_epi32(both, times_power(both, 2), 0xc0);
    }
    return _mm256_blend_epi32(low, high, 0xf0);
}

/* The first digit of byte x is 3x / 256 rounded down. x minus a quarter of it rounded up is 3x / 4 rounded down. */
HTH_INLINE __m256i plus_one(const uint8_t *p, int i)
{
    __m256i x = scaled(p, i), none = _mm256_setzero_si256();
    x = _mm256_sub_epi8(x, _mm256_avg_epu8(_mm256_avg_epu8(x, none), none));
    return _mm256_and_si256(_mm256_srli_epi16(x, 6), _mm256_set1_epi8(3));
}

#include "kernels/quant/ternary.h"
#elif defined(HTH_LEVEL_NEON) || defined(HTH_LEVEL_DOTPROD)
#include "kernels/quant/arm_k.h"

/* The first digit of byte x is 3x / 256 rounded down. x minus a quarter of it rounded up is 3x / 4 rounded down. */
HTH_INLINE int8x16_t weights(const block *k, int i)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    const uint32x4_t powers = {0x01010101, 0x03030303, 0x09090909, 0x1b1b1b1b};
    uint8x16_t x = vreinterpretq_u8_u32(vdupq_n_u32(hth_load_u32(k->p + 48)));
    if (i < 10) x = vmulq_u8(vld1q_u8(k->p + 16 * (i % 2)), vdupq_n_u8(power[i / 2]));
    else if (i < 15) x = vmulq_u8(vld1q_u8(k->p + 32), vdupq_n_u8(power[i - 10]));
    else x = vmulq_u8(x, vreinterpretq_u8_u32(powers));
    x = vsubq_u8(x, vrhaddq_u8(vrhaddq_u8(x, vdupq_n_u8(0)), vdupq_n_u8(0)));
    return vsubq_s8(vreinterpretq_s8_u8(vshrq_n_u8(x, 6)), vdupq_n_s8(1));
}

#include "kernels/quant/ternary.h"
#endif

#include "kernels/quant/entry.h"
