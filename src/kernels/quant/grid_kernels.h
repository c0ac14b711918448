/* The kernels of a type with a grid (grids.h) at each level. type.h of the type includes grid.h and defines
 *   BLOCK_SIZE           bytes of a block
 *   GRID, GRID_WIDTH     the grid, and the weights of an entry: 4 or 8
 *   UNIT                 a weight is UNIT * scale of the block * scale * integer: 1, 1/4 or 1/8
 *   HAS_SIGNS            0: IQ1, whose grid has signed weights: its bytes are too large by 16
 *   N_SCALE              scales of a block that may differ: 8 or 16
 *   BLOCK_HALF(p)        the F16 scale of the block at p, where it is not the first field
 *   READ_PARTS(p, k)     the rest of the block (grid_parts.h)
 *   unpack(p)            the same for x86 (grid_x86.h)
 *   INDEX(k, g)          index g of a block of x86, where it is not k->high.index[g]
 *   VALUES               IQ2, IQ3: the values of the grid, from a digit to a byte, to fill eight bytes (AVX-512) */
#ifdef HTH_LEVEL_REF
#include "kernels/quant/ref_256.h"

static void read_block(const uint8_t *p, block *k)
{
    hth_grid_parts parts;
    READ_PARTS(p, &parts);
    k->d = UNIT * hth_f16_to_f32(BLOCK_HALF(p));
    memcpy(k->scale, parts.scale, sizeof k->scale);
    for (int i = 0; i < HTH_ACT_BLOCK_256; i++) {
        int entry = (int)(GRID[parts.index[i / GRID_WIDTH]] >> 8 * (i % GRID_WIDTH) & 255);
        bool minus = parts.sign[i / 8] >> i % 8 & 1;
        k->w[i] = (int8_t)(!HAS_SIGNS ? entry - 16 : minus ? -entry : entry);
    }
}
#endif

#if defined(HTH_LEVEL_AVX2)
#include "kernels/quant/x86/grid_avx2.h"
#elif defined(HTH_LEVEL_AVX512)
#include "kernels/quant/x86/grid_avx512.h"
#elif defined(HTH_LEVEL_NEON) || defined(HTH_LEVEL_DOTPROD)
#include "kernels/quant/grid_neon.h"
#endif

#include "kernels/quant/entry.h"
