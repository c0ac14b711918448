/* Rows of IQ2_XXS (blocks of 256: F16 scale; for every 32 weights four bytes, indices of entries, and a word of signs
 * and a scale). */
#include "kernels/quant/grid.h"

enum { BLOCK_SIZE = 66, GRID_WIDTH = 8, HAS_SHIFT = 0 };
#define GRID hth_iq2_xxs_grid
#define UNIT 0.125f

HTH_INLINE uint16_t block_half(const uint8_t *p) { return hth_load_u16(p); }

HTH_INLINE void read_parts(const uint8_t *p, grid_parts *k)
{
    for (int g = 0; g < 32; g++) k->index[g] = p[2 + 8 * (g / 4) + g % 4];
    for (int s = 0; s < 8; s++) read_signs_and_scale(k, s, hth_load_u32(p + 6 + 8 * s));
}

#include "kernels/quant/grid_kernels.h"
