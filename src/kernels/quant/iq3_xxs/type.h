/* Rows of IQ3_XXS (blocks of 256: F16 scale; 64 bytes, indices of entries of four weights; for every 32 weights a word
 * of signs and a scale). */
#define UNIT 0.25f
#define N_INDEX 64
#include "kernels/quant/grid.h"

enum { BLOCK_SIZE = 98, HAS_SIGNS = 1, N_SCALE = 8 };
#define GRID_WIDTH 4
#define GRID hth_iq3_xxs_grid
#define READ_PARTS hth_iq3_xxs_parts

#ifdef GRID_X86
#define INDEX(k, g) (k)->p[2 + (g)]
#define VALUES 0x3e342c241c140c04

HTH_INLINE block unpack(const uint8_t *p)
{
    block k;
    k.p = p;
    take_words(&k, load_256(p + 66));
#ifdef HTH_LEVEL_AVX512
    put_codes_of_four(&k, p + 2, 0, hth_iq3_xxs_codes[0], 256);
#endif
    return k;
}
#endif

#include "kernels/quant/grid_kernels.h"
