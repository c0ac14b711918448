/* Rows of IQ1_S (blocks of 256: F16 scale; the low eight bits of 32 indices; for every 32 weights two bytes: the high
 * three bits of four indices, a scale of three bits, and the sign of the shift). */
#include "kernels/quant/grid.h"

enum { BLOCK_SIZE = 50, GRID_WIDTH = 8, HAS_SHIFT = 1 };
#define GRID hth_iq1_grid
#define UNIT 0.125f

HTH_INLINE uint16_t block_half(const uint8_t *p) { return hth_load_u16(p); }

HTH_INLINE void read_parts(const uint8_t *p, grid_parts *k)
{
    for (int g = 0; g < 32; g++) {
        uint16_t high = hth_load_u16(p + 34 + 2 * (g / 4));
        k->index[g] = (uint16_t)(p[2 + g] | (high >> 3 * (g % 4) & 7) << 8);
        k->shift[g] = high >> 15 ? -1 : 1;
        k->scale[g / 2] = (int16_t)(2 * (high >> 12 & 7) + 1);
    }
}

#include "kernels/quant/grid_kernels.h"
