/* Rows of IQ2_XXS (blocks of 256: F16 scale; for every 32 weights four bytes, indices of entries, and a word of signs
 * and a scale). */
#define UNIT 0.125f
#define N_INDEX 32
#include "kernels/quant/grid.h"

enum { BLOCK_SIZE = 66, HAS_SIGNS = 1, N_SCALE = 8 };
#define GRID_WIDTH 8
#define GRID hth_iq2_xxs_grid
#define READ_PARTS hth_iq2_xxs_parts

#ifdef GRID_X86
#define INDEX(k, g) (k)->p[2 + 8 * ((g) / 4) + (g) % 4]
#define VALUES IQ2_VALUES

HTH_INLINE block unpack(const uint8_t *p)
{
    block k;
    __m256 low = _mm256_castsi256_ps(load_256(p + 2)), high = _mm256_castsi256_ps(load_256(p + 34));
    k.p = p;
    take_words(&k, _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(low, high, 0xdd)), 0xd8));
#ifdef HTH_LEVEL_AVX512
    const __m512i twice = _mm512_broadcast_i32x4(_mm_set_epi64x(0x0b0b0a0a09090808, 0x0303020201010000));
    put_codes_of_eight(&k, _mm512_shuffle_epi8(load_512(p + 2), twice), 0, 0, hth_iq2_xxs_codes[0], 256);
#endif
    return k;
}
#endif

#include "kernels/quant/grid_kernels.h"
