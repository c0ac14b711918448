/* Rows of a type in blocks of 256 at one ISA level: the integer sums of eight blocks, then the float operations
 * of these eight at once, for up to four tokens. The including file defines the type and the instructions:
 *   BLOCK_SIZE, SCALE_AT    bytes of a block, and the offset of its scale
 *   BLOCK_HALF(p)           in place of SCALE_AT: the scale of the block at p
 *   HAS_MINIMUM, MINIMUM_AT 1, and the offset: weights have a minimum, row_sums has two sets of partials
 *   row_sums (row_sums.h)   the eight partial sums of rules R4 and R5
 *   lanes, no_lanes()       parts of the integer sum of one block
 *   block, unpack(p)        the block at p; reads no byte outside it
 *   block_sums(k, q, sum_16, n_col, n_tok, isum, msum)  its sums for tokens whose inputs are n_col apart
 *   IN_MEMORY               defined: eight blocks are unpacked to memory before the first one is used
 *   add_eight(p, h, d, s)   adds the terms of rule R3 of eight blocks with the scales h
 *   tree(p)                 the sum of the partials
 * This file defines rows(job). */
#define HAS_ROWS
#include "kernels/quant/row_sums.h"
#include "kernels/quant/rows_loop.h"

#ifndef BLOCK_HALF
#define BLOCK_HALF(p) hth_load_u16((p) + SCALE_AT)
#endif

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

/* Takes block i, which is at p and is block b of the row. */
HTH_INLINE void take_block(eight_blocks *e, size_t i, const block *k, const uint8_t *p, const hth_tile *tile, size_t b,
                           size_t n_tok)
{
    lanes isum[HTH_TILE], msum[HTH_TILE];
    block_sums(k, tile->act.q + b * HTH_ACT_BLOCK_256,
               tile->act.sum_16 + b * (HTH_ACT_BLOCK_256 / HTH_ACT_SUBBLOCK), tile->n_col, n_tok, isum, msum);
    e->d[i] = BLOCK_HALF(p);
    for (size_t t = 0; t < n_tok; t++) e->isum[t][i] = isum[t];
#if HAS_MINIMUM
    e->m[i] = hth_load_u16(p + MINIMUM_AT);
    for (size_t t = 0; t < n_tok; t++) e->msum[t][i] = msum[t];
#endif
}

/* Takes n blocks of a row from block `first` on. */
HTH_INLINE void take_blocks(eight_blocks *e, const uint8_t *row, const uint8_t *next, const hth_tile *tile,
                            size_t first, size_t n, size_t n_tok)
{
    size_t row_size = tile->n_block * BLOCK_SIZE;
#ifdef IN_MEMORY
    block blocks[HTH_GROUP];
    for (size_t i = 0; i < n; i++) blocks[i] = unpack(row + (first + i) * BLOCK_SIZE);
    __asm__ volatile("" : "+m"(blocks)); /* keeps compilers from taking parts out of registers */
#endif
    for (size_t i = 0; i < n; i++) {
        size_t at = (first + i) * BLOCK_SIZE;
        const uint8_t *ahead = hth_prefetch_addr(row, next, at, row_size);
        for (int line = 0; line < BLOCK_SIZE; line += 64) __builtin_prefetch(ahead + line, 0, 3);
#ifdef IN_MEMORY
        take_block(e, i, &blocks[i], row + at, tile, first + i, n_tok);
#else
        block k = unpack(row + at);
        take_block(e, i, &k, row + at, tile, first + i, n_tok);
#endif
    }
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
    for (size_t t = 0; t < n_tok; t++) s[t] = no_row_sums();
    for (size_t first = 0; first < tile->n_block; first += HTH_GROUP) {
        eight_blocks e;
        bool whole = first < tile->n_whole;
        size_t n = whole ? HTH_GROUP : tile->n_tail;
        take_blocks(&e, row, next, tile, first, n, n_tok);
        clear_from(&e, n, n_tok);
        for (size_t t = 0; t < n_tok; t++)
            s[t] = add_terms(s[t], &e, t, whole ? tile->act.d + t * tile->n_block + first : tile->tail_d[t]);
    }
    for (size_t t = 0; t < n_tok; t++) y[t * y_stride] = row_total(s[t]);
}

#include "kernels/quant/rows_dots.h"

static void rows(const hth_rows *job) { hth_rows_run(job, hth_tile_of_wide_blocks, run_one, run_four); }
