/* Rows of IQ1_M (blocks of 256: the low eight bits of 32 indices; for each of them four bits, the high three and the
 * sign of the shift, which make it an index of hth_iq1_grid; four times two bytes of four scales of three bits and four
 * bits of the F16 scale). */
#define UNIT 0.125f
#define BLOCK_HALF(p) block_half(p)
#define N_INDEX 32
#include "kernels/quant/grid.h"

enum { BLOCK_SIZE = 56, HAS_SIGNS = 0, N_SCALE = 16 };
#define GRID_WIDTH 8
#define GRID hth_iq1_grid

/* The high four bits of each of the four 16-bit words, the lowest first. */
HTH_INLINE uint16_t block_half(const uint8_t *p)
{
    uint64_t high = hth_load_u64(p + 48) >> 12 & 0x000f000f000f000fu;
    return (uint16_t)(high | high >> 12 | high >> 24 | high >> 36);
}

HTH_INLINE void read_parts(const uint8_t *p, grid_parts *k)
{
    for (int g = 0; g < 32; g++) k->index[g] = (uint16_t)(p[g] | nibble_at(p + 32, g) << 8);
    for (int i = 0; i < 16; i++)
        k->scale[i] = (int16_t)(2 * (hth_load_u16(p + 48 + 2 * (i / 4)) >> 3 * (i % 4) & 7) + 1);
}

#ifdef GRID_X86
HTH_INLINE block unpack(const uint8_t *p)
{
    /* Each two bytes four times; bits 0, 3, 6 and 9 move to bit 13. */
    const __m256i fours = _mm256_setr_epi64x(0x0100010001000100, 0x0302030203020302, 0x0504050405040504,
                                             0x0706070607060706);
    const __m256i up = _mm256_set1_epi64x(0x0010008004002000);
    block k;
    k.p = p;
    for (int i = 0; i < 2; i++) {
        __m128i four = eight_nibbles(_mm_loadl_epi64((const __m128i *)(p + 32 + 8 * i)));
        put_indices(&k, i, p + 16 * i, _mm256_slli_epi16(_mm256_cvtepu8_epi16(four), 8));
    }
    __m256i scales = _mm256_shuffle_epi8(_mm256_set1_epi64x((int64_t)hth_load_u64(p + 48)), fours);
    k.scale = odd_scales(_mm256_srli_epi16(_mm256_mullo_epi16(scales, up), 13));
    return k;
}
#endif

#include "kernels/quant/grid_kernels.h"
