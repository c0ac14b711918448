/* Inputs in the order in which panels read them: tiles of a few tokens, with their blocks in the order of a
 * panel's blocks (panel.h), so that a kernel reads one stream. */
#ifndef HTH_KERNELS_ACT_TILES_H
#define HTH_KERNELS_ACT_TILES_H

#include <stddef.h>
#include <stdint.h>

/* Tokens of a tile. With three panels, the sums of a tile fill the registers of AVX-512: quantised inputs take
 * two sums per output, floats take one. */
enum { HTH_TILE_TOK = 4, HTH_TILE_FLOAT_TOK = 8 };

/* The inputs of n_tok tokens. i: tile; p: position among the blocks; t: token of the tile. Unused positions of
 * the last tile are undefined.
 *   q       [i][p][t][32 or 256]
 *   d       [i][p][t] scales
 *   offset  [i][p][t] -128 times the sum of the block (blocks of 32)
 *   sum_16  [i][p][t][16] sums of every 16 (blocks of 256)
 *   x       [i][p][t] unquantised inputs, p: position of a single input (rows of floats); one token alone: [p] */
typedef struct hth_tiles {
    int8_t *q;
    float *d;
    int32_t *offset;
    int16_t *sum_16;
    float *x;
} hth_tiles;

/* Tokens rounded up to whole tiles of either kind. */
static inline size_t hth_n_tiled(size_t n_tok)
{
    return (n_tok + HTH_TILE_FLOAT_TOK - 1) / HTH_TILE_FLOAT_TOK * HTH_TILE_FLOAT_TOK;
}

/* Writes token t, quantised in blocks of 32 (of 256), to its position. */
void hth_tiles_put(const hth_tiles *tiles, size_t t, size_t n_col, const int8_t *q, const float *d,
                   const int32_t *sum);
void hth_tiles_put_256(const hth_tiles *tiles, size_t t, size_t n_col, const int8_t *q, const float *d,
                       const int16_t *sum_16);
/* Writes token t of n_tok. */
void hth_tiles_put_floats(const hth_tiles *tiles, size_t t, size_t n_tok, size_t n_col, const float *x);

#endif
