/* Rows of IQ2_XS (blocks of 256: F16 scale; for every eight weights an index of nine bits and seven signs in two bytes;
 * sixteen scales of four bits). */
#define UNIT 0.125f
#define N_INDEX 32
#include "kernels/quant/grid.h"

enum { BLOCK_SIZE = 74, HAS_SIGNS = 1, N_SCALE = 16 };
#define GRID_WIDTH 8
#define GRID hth_iq2_xs_grid
#define READ_PARTS hth_iq2_xs_parts

#ifdef GRID_X86
#define VALUES IQ2_VALUES

HTH_INLINE block unpack(const uint8_t *p)
{
    block k;
    __m256i low = load_256(p + 2), high = load_256(p + 34);
    __m256i seven = _mm256_packus_epi16(_mm256_srli_epi16(low, 9), _mm256_srli_epi16(high, 9));
    k.p = p;
#ifdef HTH_LEVEL_AVX512
    const __m512i twice = _mm512_broadcast_i32x4(_mm_set_epi64x(0x0e0e0c0c0a0a0808, 0x0606040402020000));
    __m512i all = load_512(p + 2), above = _mm512_shuffle_epi8(_mm512_srli_epi16(all, 8), twice);
    put_codes_of_eight(&k, _mm512_shuffle_epi8(all, twice), _mm512_test_epi8_mask(above, _mm512_set1_epi8(1)), 0,
                       hth_iq2_xs_codes[0], 512);
#else
    const __m256i nine = _mm256_set1_epi16(511);
    store_256(k.high.index, _mm256_and_si256(low, nine));
    store_256(k.high.index + 16, _mm256_and_si256(high, nine));
#endif
    store_256(k.high.sign, with_eighth_signs(_mm256_permute4x64_epi64(seven, 0xd8)));
    k.scale = odd_scales_of_bytes(eight_nibbles(_mm_loadl_epi64((const __m128i *)(p + 66))));
    return k;
}
#endif

#include "kernels/quant/grid_kernels.h"
