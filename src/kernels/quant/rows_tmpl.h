/* Rows of a quantised type at one ISA level: eight blocks at a time, unpacked once for up to four tokens. The
 * including file defines the type and the instructions:
 *   BLOCK_SIZE              bytes of a block
 *   HAS_MINIMUM             1: weights have a minimum, row_sums has two sets of partials
 *   group, unpack(p)        the weights and scales of eight blocks
 *   row_sums (row_sums.h)   the eight partial sums of rule R4
 *   add_terms(s, g, q, d, sum)  adds the terms of rule R3 of eight blocks
 *   tree(p)                 the sum of the partials
 * This file defines rows(job). */
#define HAS_ROWS
#include "kernels/quant/row_sums.h"
#include "kernels/quant/rows_loop.h"

enum { GROUP_SIZE = HTH_GROUP * BLOCK_SIZE, GROUP_COL = HTH_GROUP * HTH_ACT_BLOCK };

#if HAS_MINIMUM
HTH_INLINE float row_total(row_sums s) { return tree(s.p) + tree(s.m); }
#else
HTH_INLINE float row_total(row_sums s) { return tree(s); }
#endif

HTH_INLINE void dot(const hth_tile *tile, const uint8_t *row, const uint8_t *next, float *y, size_t y_stride,
                    size_t n_tok)
{
    row_sums p[HTH_TILE];
    size_t row_size = tile->n_block * BLOCK_SIZE;
    for (size_t t = 0; t < n_tok; t++) p[t] = no_row_sums();
    for (size_t b = 0; b < tile->n_whole; b += HTH_GROUP) {
        const uint8_t *ahead = hth_prefetch_addr(row, next, b * BLOCK_SIZE, row_size);
        for (int i = 0; i < GROUP_SIZE; i += 64) __builtin_prefetch(ahead + i, 0, 3);
        group g = unpack(row + b * BLOCK_SIZE);
        for (size_t t = 0; t < n_tok; t++)
            p[t] = add_terms(p[t], &g, tile->act.q + t * tile->n_col + b * HTH_ACT_BLOCK,
                             tile->act.d + t * tile->n_block + b, tile->act.sum + t * tile->n_block + b);
    }
    if (tile->n_tail > 0) {
        uint8_t padded[GROUP_SIZE] = {0};
        memcpy(padded, row + tile->n_whole * BLOCK_SIZE, tile->n_tail * BLOCK_SIZE);
        group g = unpack(padded);
        for (size_t t = 0; t < n_tok; t++)
            p[t] = add_terms(p[t], &g, tile->tail_q[t], tile->tail_d[t], tile->tail_sum[t]);
    }
    for (size_t t = 0; t < n_tok; t++) y[t * y_stride] = row_total(p[t]);
}

#include "kernels/quant/rows_dots.h"

static void rows(const hth_rows *job) { hth_rows_run(job, hth_tile_of_blocks, run_one, run_four); }
