/* Rows of IQ3_XXS (blocks of 256: F16 scale; 64 bytes, indices of entries of four weights; for every 32 weights a word
 * of signs and a scale). */
#include "kernels/quant/grid.h"

enum { BLOCK_SIZE = 98, GRID_WIDTH = 4, HAS_SHIFT = 0 };
#define GRID hth_iq3_xxs_grid
#define UNIT 0.25f

HTH_INLINE uint16_t block_half(const uint8_t *p) { return hth_load_u16(p); }

HTH_INLINE void read_parts(const uint8_t *p, grid_parts *k)
{
    for (int g = 0; g < 64; g++) k->index[g] = p[2 + g];
    for (int s = 0; s < 8; s++) read_signs_and_scale(k, s, hth_load_u32(p + 66 + 4 * s));
}

#include "kernels/quant/grid_kernels.h"
