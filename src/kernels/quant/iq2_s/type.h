/* Rows of IQ2_S (blocks of 256: F16 scale; the low eight bits of 32 indices; 32 bytes of signs; the high two bits of
 * the indices; sixteen scales of four bits). */
#define UNIT 0.125f
#define N_INDEX 32
#include "kernels/quant/grid.h"

enum { BLOCK_SIZE = 82, HAS_SIGNS = 1, N_SCALE = 16 };
#define GRID_WIDTH 8
#define GRID hth_iq2_s_grid
#define READ_PARTS hth_iq2_s_parts

#ifdef GRID_X86
#define VALUES IQ2_VALUES

HTH_INLINE block unpack(const uint8_t *p)
{
    block k;
    k.p = p;
#ifdef HTH_LEVEL_AVX512
    __m512i index = _mm512_cvtepu8_epi16(load_256(p + 2));
    uint64_t above = hth_load_u64(p + 66), ninth = above & 0x5555555555555555u, tenth = above - ninth;
    put_codes_of_eight(&k, _mm512_or_si512(index, _mm512_slli_epi16(index, 8)), 3 * ninth, tenth | tenth >> 1,
                       hth_iq2_s_codes[0], 1024);
#else
    /* Byte j of every four lanes, which its multiplication moves to the two bits above a byte. */
    const __m256i fours = _mm256_setr_epi64x((int64_t)0x8000800080008000u, (int64_t)0x8001800180018001u,
                                             (int64_t)0x8002800280028002u, (int64_t)0x8003800380038003u);
    const __m256i up = _mm256_set1_epi64x(0x0004001000400100);
    for (int i = 0; i < 2; i++) {
        __m256i high = _mm256_shuffle_epi8(_mm256_set1_epi32((int)hth_load_u32(p + 66 + 4 * i)), fours);
        put_indices(&k, i, p + 2 + 16 * i, _mm256_and_si256(_mm256_mullo_epi16(high, up), _mm256_set1_epi16(0x300)));
    }
#endif
    store_256(k.high.sign, load_256(p + 34));
    k.scale = odd_scales_of_bytes(eight_nibbles(_mm_loadl_epi64((const __m128i *)(p + 74))));
    return k;
}
#endif

#include "kernels/quant/grid_kernels.h"
