/* Rows of IQ3_S (blocks of 256: F16 scale; the low eight bits of 64 indices of entries of four weights; their ninth
 * bits; 32 bytes of signs; eight scales of four bits). */
#define UNIT 1.0f
#define N_INDEX 64
#include "kernels/quant/grid.h"

enum { BLOCK_SIZE = 110, HAS_SIGNS = 1, N_SCALE = 8 };
#define GRID_WIDTH 4
#define GRID hth_iq3_s_grid
#define READ_PARTS hth_iq3_s_parts

#ifdef GRID_X86
#define VALUES 0x0f0d0b0907050301

HTH_INLINE block unpack(const uint8_t *p)
{
    block k;
    k.p = p;
#ifdef HTH_LEVEL_AVX512
    put_codes_of_four(&k, p + 2, hth_load_u64(p + 66), hth_iq3_s_codes[0], 512);
#else
    const __m256i bit = _mm256_setr_epi64x(0x0008000400020001, 0x0080004000200010, 0x0800040002000100,
                                           (int64_t)0x8000400020001000u);
    for (int i = 0; i < 4; i++) {
        __m256i bits = _mm256_and_si256(_mm256_set1_epi16((int16_t)hth_load_u16(p + 66 + 2 * i)), bit);
        __m256i ninth = _mm256_and_si256(_mm256_cmpeq_epi16(bits, bit), _mm256_set1_epi16(256));
        put_indices(&k, i, p + 2 + 16 * i, ninth);
    }
#endif
    store_256(k.high.sign, load_256(p + 74));
    __m128i scale = eight_nibbles(_mm_cvtsi32_si128((int)hth_load_u32(p + 106)));
    k.scale = odd_scales_of_bytes(_mm_unpacklo_epi8(scale, scale));
    return k;
}
#endif

#include "kernels/quant/grid_kernels.h"
