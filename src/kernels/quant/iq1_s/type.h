/* Rows of IQ1_S (blocks of 256: F16 scale; the low eight bits of 32 indices; for every 32 weights two bytes: the high
 * three bits of four indices, a scale of three bits, and the sign of the shift). */
#define UNIT 0.125f
#define N_INDEX 32
#include "kernels/quant/grid.h"

enum { BLOCK_SIZE = 50, HAS_SHIFT = 1, N_SCALE = 8 };
#define GRID_WIDTH 8
#define GRID hth_iq1_grid

HTH_INLINE void read_parts(const uint8_t *p, grid_parts *k)
{
    for (int g = 0; g < 32; g++) {
        uint16_t high = hth_load_u16(p + 34 + 2 * (g / 4));
        k->index[g] = (uint16_t)(p[2 + g] | (high >> 3 * (g % 4) & 7) << 8);
        k->shift[g] = high >> 15 ? -1 : 1;
        k->scale[g / 2] = (int16_t)(2 * (high >> 12 & 7) + 1);
    }
}

#ifdef GRID_X86
HTH_INLINE block unpack(const uint8_t *p)
{
    /* Each two bytes four times; bits 0, 3, 6 and 9 (of the upper byte: 1) become the lowest of the upper byte. */
    const __m256i fours = _mm256_setr_epi64x((int64_t)0x8001010001000100u, (int64_t)0x8003030203020302u,
                                             (int64_t)0x8005050405040504u, (int64_t)0x8007070607060706u);
    const __m256i up = _mm256_set1_epi64x(0x0080000400200100);
    const __m256i each = _mm256_setr_epi64x(0x0202020200000000, 0x0606060604040404, 0x0a0a0a0a08080808,
                                            0x0e0e0e0e0c0c0c0c);
    block k;
    __m128i two = load_128(p + 34), scale = _mm_and_si128(_mm_srli_epi16(two, 12), _mm_set1_epi16(7));
    k.p = p;
    for (int i = 0; i < 2; i++) {
        __m256i high = _mm256_shuffle_epi8(_mm256_set1_epi64x((int64_t)hth_load_u64(p + 34 + 8 * i)), fours);
        put_indices(&k, i, p + 2 + 16 * i, _mm256_and_si256(_mm256_mullo_epi16(high, up), _mm256_set1_epi16(0x700)));
    }
    __m128i shift = _mm_andnot_si128(_mm_srai_epi16(two, 15), _mm_set1_epi16(2));
    store_256(k.high.sign, _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(shift), each));
    k.scale = odd_scales(_mm256_set_m128i(_mm_unpackhi_epi16(scale, scale), _mm_unpacklo_epi16(scale, scale)));
    return k;
}
#endif

#include "kernels/quant/grid_kernels.h"
