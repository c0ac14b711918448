/* Rows of a type in blocks of 256 at one ISA level: the integer sums of eight blocks, then the float operations
 * of these eight at once, for up to four tokens. The including file defines the type and the instructions:
 *   BLOCK_SIZE, SCALE_AT    bytes of a block, and the offset of its scale
 *   HAS_MINIMUM, MINIMUM_AT 1, and the offset: weights have a minimum, row_sums has two sets of partials
 *   row_sums (row_sums.h)   the eight partial sums of rules R4 and R5
 *   lanes, no_lanes()       parts of the integer sum of one block
 *   block_sums(p, q, sum_16, n_col, n_tok, isum, msum)  the sums of the block at p for tokens
 *                           whose inputs are n_col apart; reads no byte outside the block
 *   add_eight(p, h, d, s)   adds the terms of rule R3 of eight blocks with the scales h
 *   tree(p)                 the sum of the partials
 * This file defines rows(job). */
#define HAS_ROWS
#include "kernels/quant/row_sums.h"
#include "kernels/quant/rows_loop.h"

/* Integer sums and scales of eight blocks of a row. Blocks past the end of the row have scales and sums of
 * zero: their terms are +0, and no partial is -0. */
typedef struct eight_blocks {
    lanes isum[HTH_TILE][HTH_GROUP];
    uint16_t d[HTH_GROUP];
#if HAS_MINIMUM
    lanes msum[HTH_TILE][HTH_GROUP];
    uint16_t m[HTH_GROUP];
#endif
} eight_blocks;

HTH_INLINE void clear_from(eight_blocks *e, size_t n, size_t n_tok)
{
    for (size_t i = n; i < HTH_GROUP; i++) {
        e->d[i] = 0;
        for (size_t t = 0; t < n_tok; t++) e->isum[t][i] = no_lanes();
#if HAS_MINIMUM
        e->m[i] = 0;
        for (size_t t = 0; t < n_tok; t++) e->msum[t][i] = no_lanes();
#endif
    }
}

HTH_INLINE void take_block(eight_blocks *e, size_t i, const uint8_t *p, const hth_tile *tile, size_t b,
                           size_t n_tok)
{
    lanes isum[HTH_TILE], msum[HTH_TILE];
    block_sums(p, tile->act.q + b * HTH_ACT_BLOCK_256,
               tile->act.sum_16 + b * (HTH_ACT_BLOCK_256 / HTH_ACT_SUBBLOCK), tile->n_col, n_tok, isum, msum);
    e->d[i] = hth_load_u16(p + SCALE_AT);
    for (size_t t = 0; t < n_tok; t++) e->isum[t][i] = isum[t];
#if HAS_MINIMUM
    e->m[i] = hth_load_u16(p + MINIMUM_AT);
    for (size_t t = 0; t < n_tok; t++) e->msum[t][i] = msum[t];
#endif
}

HTH_INLINE row_sums add_terms(row_sums s, const eight_blocks *e, size_t t, const float *d)
{
#if HAS_MINIMUM
    s.p = add_eight(s.p, e->d, d, e->isum[t]);
    s.m = add_eight(s.m, e->m, d, e->msum[t]);
    return s;
#else
    return add_eight(s, e->d, d, e->isum[t]);
#endif
}

#if HAS_MINIMUM
HTH_INLINE float row_total(row_sums s) { return tree(s.p) - tree(s.m); }
#else
HTH_INLINE float row_total(row_sums s) { return tree(s); }
#endif

HTH_INLINE void dot(const hth_tile *tile, const uint8_t *row, const uint8_t *next, float *y, size_t y_stride,
                    size_t n_tok)
{
    row_sums s[HTH_TILE];
    size_t row_size = tile->n_block * BLOCK_SIZE;
    for (size_t t = 0; t < n_tok; t++) s[t] = no_row_sums();
    for (size_t first = 0; first < tile->n_block; first += HTH_GROUP) {
        eight_blocks e;
        bool whole = first < tile->n_whole;
        size_t n = whole ? HTH_GROUP : tile->n_tail;
        for (size_t i = 0; i < n; i++) {
            size_t at = (first + i) * BLOCK_SIZE;
            const uint8_t *ahead = hth_prefetch_addr(row, next, at, row_size);
            for (int line = 0; line < BLOCK_SIZE; line += 64) __builtin_prefetch(ahead + line, 0, 3);
            take_block(&e, i, row + at, tile, first + i, n_tok);
        }
        clear_from(&e, n, n_tok);
        for (size_t t = 0; t < n_tok; t++)
            s[t] = add_terms(s[t], &e, t, whole ? tile->act.d + t * tile->n_block + first : tile->tail_d[t]);
    }
    for (size_t t = 0; t < n_tok; t++) y[t * y_stride] = row_total(s[t]);
}

#include "kernels/quant/rows_dots.h"

static void rows(const hth_rows *job) { hth_rows_run(job, hth_tile_of_wide_blocks, run_one, run_four); }
