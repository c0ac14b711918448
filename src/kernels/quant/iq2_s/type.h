/* Rows of IQ2_S (blocks of 256: F16 scale; the low eight bits of 32 indices; 32 bytes of signs; the high two bits of
 * the indices; sixteen scales of four bits). */
#include "kernels/quant/grid.h"

enum { BLOCK_SIZE = 82, GRID_WIDTH = 8, HAS_SHIFT = 0 };
#define GRID hth_iq2_s_grid
#define UNIT 0.125f

HTH_INLINE uint16_t block_half(const uint8_t *p) { return hth_load_u16(p); }

HTH_INLINE void read_parts(const uint8_t *p, grid_parts *k)
{
    for (int g = 0; g < 32; g++) {
        k->index[g] = (uint16_t)(p[2 + g] | (p[66 + g / 4] >> 2 * (g % 4) & 3) << 8);
        k->sign[g] = p[34 + g];
    }
    for (int i = 0; i < 16; i++) k->scale[i] = (int16_t)(2 * nibble_at(p + 74, i) + 1);
}

#include "kernels/quant/grid_kernels.h"
