/* Rows of IQ2_XS (blocks of 256: F16 scale; for every eight weights an index of nine bits and seven signs in two bytes;
 * sixteen scales of four bits). */
#include "kernels/quant/grid.h"

enum { BLOCK_SIZE = 74, GRID_WIDTH = 8, HAS_SHIFT = 0 };
#define GRID hth_iq2_xs_grid
#define UNIT 0.125f

HTH_INLINE uint16_t block_half(const uint8_t *p) { return hth_load_u16(p); }

HTH_INLINE void read_parts(const uint8_t *p, grid_parts *k)
{
    for (int g = 0; g < 32; g++) {
        uint16_t both = hth_load_u16(p + 2 + 2 * g);
        k->index[g] = both & 511;
        k->sign[g] = even_signs(both >> 9);
    }
    for (int i = 0; i < 16; i++) k->scale[i] = (int16_t)(2 * nibble_at(p + 66, i) + 1);
}

#include "kernels/quant/grid_kernels.h"
