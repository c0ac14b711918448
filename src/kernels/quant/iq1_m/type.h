/* Rows of IQ1_M (blocks of 256: the low eight bits of 32 indices; for each of them four bits, the high three and the
 * sign of the shift, which make it an index of hth_iq1_grid; four times two bytes of four scales of three bits and four
 * bits of the F16 scale). */
#define UNIT 0.125f
#define BLOCK_HALF(p) hth_iq1_m_half(p)
#define N_INDEX 32
#include "kernels/quant/grid.h"

enum { BLOCK_SIZE = 56, HAS_SIGNS = 0, N_SCALE = 16 };
#define GRID_WIDTH 8
#define GRID hth_iq1_grid
#define READ_PARTS hth_iq1_m_parts

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
