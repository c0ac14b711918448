/* Copies inputs into tiles. product.c calls it for each token after the token is quantised. */
#include "kernels/act_tiles.h"

#include "kernels/kernels.h"

#include <string.h>

enum { N_PART = HTH_ACT_BLOCK_256 / HTH_ACT_SUBBLOCK };

void hth_tiles_put(const hth_tiles *tiles, size_t t, size_t n_col, const int8_t *q, const float *d,
                   const int32_t *sum)
{
    size_t n_block = n_col / HTH_ACT_BLOCK, n_pass = hth_panel_n_sum(true);
    size_t at = t / HTH_TILE_TOK * HTH_TILE_TOK * n_block + t % HTH_TILE_TOK;
    for (size_t j = 0; j < n_pass; j++)
        for (size_t b = hth_panel_sum_order(true, j); b < n_block; b += n_pass, at += HTH_TILE_TOK) {
            memcpy(tiles->q + at * HTH_ACT_BLOCK, q + b * HTH_ACT_BLOCK, HTH_ACT_BLOCK);
            tiles->d[at] = d[b];
            tiles->offset[at] = -128 * sum[b];
        }
}

void hth_tiles_put_256(const hth_tiles *tiles, size_t t, size_t n_col, const int8_t *q, const float *d,
                       const int16_t *sum_16)
{
    size_t n_block = n_col / HTH_ACT_BLOCK_256, n_pass = hth_panel_n_sum(true);
    size_t at = t / HTH_TILE_TOK * HTH_TILE_TOK * n_block + t % HTH_TILE_TOK;
    for (size_t j = 0; j < n_pass; j++)
        for (size_t b = hth_panel_sum_order(true, j); b < n_block; b += n_pass, at += HTH_TILE_TOK) {
            memcpy(tiles->q + at * HTH_ACT_BLOCK_256, q + b * HTH_ACT_BLOCK_256, HTH_ACT_BLOCK_256);
            memcpy(tiles->sum_16 + at * N_PART, sum_16 + b * N_PART, N_PART * sizeof *sum_16);
            tiles->d[at] = d[b];
        }
}

void hth_tiles_put_floats(const hth_tiles *tiles, size_t t, size_t n_tok, size_t n_col, const float *x)
{
    size_t n_pass = hth_panel_n_sum(false), step = n_tok == 1 ? 1 : HTH_TILE_FLOAT_TOK;
    float *to = tiles->x + t / HTH_TILE_FLOAT_TOK * HTH_TILE_FLOAT_TOK * n_col + t % HTH_TILE_FLOAT_TOK;
    for (size_t j = 0; j < n_pass; j++)
        for (size_t k = hth_panel_sum_order(false, j); k < n_col; k += n_pass, to += step) *to = x[k];
}
