/* Rows of IQ1_M (blocks of 256: the low eight bits of 32 indices; for each of them four bits, the high three and the
 * sign of the shift; four times two bytes of four scales of three bits and four bits of the F16 scale). */
#include "kernels/quant/grid.h"

enum { BLOCK_SIZE = 56, GRID_WIDTH = 8, HAS_SHIFT = 1 };
#define GRID hth_iq1_grid
#define UNIT 0.125f

/* The high four bits of each of the four 16-bit words, the lowest first. */
HTH_INLINE uint16_t block_half(const uint8_t *p)
{
    uint64_t high = hth_load_u64(p + 48) >> 12 & 0x000f000f000f000fu;
    return (uint16_t)(high | high >> 12 | high >> 24 | high >> 36);
}

HTH_INLINE void read_parts(const uint8_t *p, grid_parts *k)
{
    for (int g = 0; g < 32; g++) {
        int four = nibble_at(p + 32, g);
        k->index[g] = (uint16_t)(p[g] | (four & 7) << 8);
        k->shift[g] = four >> 3 ? -1 : 1;
    }
    for (int i = 0; i < 16; i++)
        k->scale[i] = (int16_t)(2 * (hth_load_u16(p + 48 + 2 * (i / 4)) >> 3 * (i % 4) & 7) + 1);
}

#include "kernels/quant/grid_kernels.h"
