/* Definitions for TYPE/type.h of a type with a grid (grids.h). The file includes this header before it describes its
 * blocks, and grid_kernels.h after that. */
#ifndef HTH_KERNELS_QUANT_GRID_H
#define HTH_KERNELS_QUANT_GRID_H

#include "base/bits.h"
#include "kernels/isa.h"
#include "kernels/quant/grid_parts.h"
#include "kernels/quant/grids.h"

#define HAS_MINIMUM 0
#define NO_AXPY
#ifndef BLOCK_HALF
#define BLOCK_HALF(p) hth_load_u16(p)
#endif

#if defined(HTH_LEVEL_AVX2) || defined(HTH_LEVEL_AVX512)
#define GRID_X86
#include "kernels/quant/x86/grid_x86.h"
#endif

#endif
