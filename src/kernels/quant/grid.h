/* Definitions for TYPE/type.h of a type with a grid (grids.h): the parts of a block, and helpers. The file includes
 * this header before it describes its blocks, and grid_kernels.h after that. */
#ifndef HTH_KERNELS_QUANT_GRID_H
#define HTH_KERNELS_QUANT_GRID_H

#include "base/bits.h"
#include "kernels/isa.h"
#include "kernels/quant/grids.h"

#define HAS_MINIMUM 0
#define NO_AXPY
#ifndef BLOCK_HALF
#define BLOCK_HALF(p) hth_load_u16(p)
#endif

/* A block without its scale. */
typedef struct grid_parts {
    uint16_t index[64]; /* indices of entries, in the order of the weights */
    uint8_t sign[32];   /* IQ2, IQ3: bit j of byte i: weight 8i + j is negative */
    int16_t scale[16];  /* 1, 3, 5, ...: the format stores s for 2 s + 1 */
} grid_parts;

/* Only seven signs of eight weights are stored: the number of minus signs is even. */
HTH_INLINE uint8_t even_signs(uint32_t seven)
{
    return (uint8_t)(seven | (uint32_t)__builtin_parity(seven) << 7);
}

/* Part s of eight: four times seven signs in the low 28 bits of a word, and the scale of 32 weights above them. */
HTH_INLINE void read_signs_and_scale(grid_parts *k, int s, uint32_t word)
{
    for (int i = 0; i < 4; i++) k->sign[4 * s + i] = even_signs(word >> 7 * i & 127);
    k->scale[2 * s] = k->scale[2 * s + 1] = (int16_t)(2 * (word >> 28) + 1);
}

/* Number i of four-bit numbers, the low half of a byte first. */
HTH_INLINE int nibble_at(const uint8_t *p, int i) { return p[i / 2] >> 4 * (i % 2) & 15; }

#if defined(HTH_LEVEL_AVX2) || defined(HTH_LEVEL_AVX512)
#define GRID_X86
#include "kernels/quant/x86/grid_x86.h"
#endif

#endif
