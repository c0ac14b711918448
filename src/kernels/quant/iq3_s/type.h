/* Rows of IQ3_S (blocks of 256: F16 scale; the low eight bits of 64 indices of entries of four weights; their ninth
 * bits; 32 bytes of signs; eight scales of four bits). */
#include "kernels/quant/grid.h"

enum { BLOCK_SIZE = 110, GRID_WIDTH = 4, HAS_SHIFT = 0 };
#define GRID hth_iq3_s_grid
#define UNIT 1.0f

HTH_INLINE uint16_t block_half(const uint8_t *p) { return hth_load_u16(p); }

HTH_INLINE void read_parts(const uint8_t *p, grid_parts *k)
{
    for (int g = 0; g < 64; g++) k->index[g] = (uint16_t)(p[2 + g] | (p[66 + g / 8] >> g % 8 & 1) << 8);
    for (int i = 0; i < 32; i++) k->sign[i] = p[74 + i];
    for (int i = 0; i < 16; i++) k->scale[i] = (int16_t)(2 * nibble_at(p + 106, i / 2) + 1);
}

#include "kernels/quant/grid_kernels.h"
