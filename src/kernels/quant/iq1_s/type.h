/* Rows of IQ1_S (blocks of 256: F16 scale; the low eight bits of 32 indices; for every 32 weights two bytes: the high
 * three bits of four indices, a scale of three bits, and the sign of their shift, the twelfth bit of an index of
 * hth_iq1_grid). */
#define UNIT 0.125f
#define N_INDEX 32
#include "kernels/quant/grid.h"

enum { BLOCK_SIZE = 50, HAS_SIGNS = 0, N_SCALE = 8 };
#define GRID_WIDTH 8
#define GRID hth_iq1_grid
#define READ_PARTS hth_iq1_s_parts

#ifdef GRID_X86
HTH_INLINE block unpack(const uint8_t *p)
{
    /* Each two bytes four times; bits 0, 3, 6 and 9 (of the upper byte: 1) become the lowest of the upper byte. */
    const __m256i fours = _mm256_setr_epi64x((int64_t)0x8001010001000100u, (int64_t)0x8003030203020302u,
                                             (int64_t)0x8005050405040504u, (int64_t)0x8007070607060706u);
    const __m256i up = _mm256_set1_epi64x(0x0080000400200100);
    const __m256i upper = _mm256_setr_epi64x(0x0180018001800180, 0x0380038003800380, 0x0580058005800580,
                                             0x0780078007800780);
    block k;
    __m128i two = load_128(p + 34), scale = _mm_and_si128(_mm_srli_epi16(two, 12), _mm_set1_epi16(7));
    k.p = p;
    for (int i = 0; i < 2; i++) {
        __m256i high = _mm256_set1_epi64x((int64_t)hth_load_u64(p + 34 + 8 * i));
        __m256i twelfth = _mm256_srli_epi16(_mm256_shuffle_epi8(high, upper), 4);
        high = _mm256_mullo_epi16(_mm256_shuffle_epi8(high, fours), up);
        high = _mm256_and_si256(high, _mm256_set1_epi16(0x700));
        high = _mm256_or_si256(high, _mm256_and_si256(twelfth, _mm256_set1_epi16(0x800)));
        put_indices(&k, i, p + 2 + 16 * i, high);
    }
    k.scale = odd_scales(_mm256_set_m128i(_mm_unpackhi_epi16(scale, scale), _mm_unpacklo_epi16(scale, scale)));
    return k;
}
#endif

#include "kernels/quant/grid_kernels.h"
