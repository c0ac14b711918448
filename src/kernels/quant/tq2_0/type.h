/* Rows of TQ2_0 (blocks of 256: 64 bytes of four weights each, F16 scale): the definition, with ref_256.h. */
#define HAS_MINIMUM 0
#define NO_AXPY
enum { BLOCK_SIZE = 66, SCALE_AT = 64 };

#ifdef HTH_LEVEL_REF
#include "kernels/quant/ref_256.h"

/* Weight 128a + 32b + c is bits 2b, 2b + 1 of byte 32a + c, minus 1. */
static void read_block(const uint8_t *p, block *k)
{
    k->d = hth_f16_to_f32(hth_load_u16(p + SCALE_AT));
    for (int i = 0; i < N_PART; i++) k->scale[i] = 1;
    for (int i = 0; i < HTH_ACT_BLOCK_256; i++)
        k->w[i] = (int8_t)((p[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3) - 1);
}
#endif

#if defined(HTH_LEVEL_AVX2)
#include "kernels/quant/x86/x86_256.h"

HTH_INLINE __m256i plus_one(const uint8_t *p, int i)
{
    return _mm256_and_si256(_mm256_srli_epi16(load_256(p + 32 * (i / 4)), 2 * (i % 4)), _mm256_set1_epi8(3));
}

#include "kernels/quant/ternary.h"
#elif defined(HTH_LEVEL_AVX512)
#include "kernels/quant/x86/x86_512.h"

HTH_INLINE __m512i plus_one(const uint8_t *p, int i)
{
    int shift = 4 * (i % 2);
    __m512i bits = _mm512_srlv_epi64(twice_256(p + 32 * (i / 2)), by_halves(shift, shift + 2));
    return _mm512_and_si512(bits, _mm512_set1_epi8(3));
}

#include "kernels/quant/ternary.h"
#elif defined(HTH_LEVEL_NEON) || defined(HTH_LEVEL_DOTPROD)
#include "kernels/quant/arm_k.h"

HTH_INLINE int8x16_t weights(const block *k, int i)
{
    uint8x16_t two = bits_of(k->p + 32 * (i / 8) + 16 * (i % 2), i % 8 / 2 * 2, 2);
    return vsubq_s8(vreinterpretq_s8_u8(two), vdupq_n_s8(1));
}

#include "kernels/quant/ternary.h"
#endif

#include "kernels/quant/entry.h"
