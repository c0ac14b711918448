/* The loop over rows and tokens, shared by all ISA levels of the row kernels. Rows are processed in runs that
 * stay in a core's L2 cache. Within a run, tiles of four tokens are multiplied by every row, then single tokens
 * are. Grouping of outputs never changes a sum: each output has its own partials. */
#ifndef HTH_KERNELS_QUANT_ROWS_LOOP_H
#define HTH_KERNELS_QUANT_ROWS_LOOP_H

#include "kernels/isa.h"

#include <string.h>

enum {
    HTH_TILE = 4,           /* tokens */
    HTH_GROUP = 8,          /* blocks, one per partial sum */
    HTH_RUN_SIZE = 1 << 17, /* bytes of rows per run */
    /* Prefetch distance in bytes. Q4_0 from memory, one thread, Emerald Rapids, GB/s: none 6.8, 1 KiB 9.9, 2
     * KiB 11.8, 4 KiB 12.3, 8 KiB the same; lines alone 14.2. Zen 5, rows of a list, 10 % of them at random: 4
     * KiB 19.6, 8 KiB 21.9, 12 KiB the same. Not measured on Arm. */
    HTH_PREFETCH_DIST = 8192,
};

/* Prefetch distances in bytes: of a panel, or of each of three that are read side by side; of one panel that goes straight
 * to L1; of the second step, into L1. */
enum { HTH_PREFETCH_FAR = 4096, HTH_PREFETCH_FAR_L1 = 8192, HTH_PREFETCH_NEAR = 2048 };

HTH_INLINE size_t hth_prefetch_far(hth_prefetch_mode how)
{
    return how == HTH_PREFETCH_L1 ? HTH_PREFETCH_FAR_L1 : HTH_PREFETCH_FAR;
}

/* Panels are read without gaps. On Emerald Rapids L2 has more outstanding lines than L1, so lines go to L2
 * first. On Zen 5 lines that go straight to L1 arrive sooner. One thread from memory, in percent of load-only
 * speed, Q4_0, Q8_0 and Q4_K: Emerald Rapids in two steps 90, 91 and 89 (8 KiB ahead 89, 82 and 84), with 8 KiB into L1
 * only Q4_K 66; Zen 5 in two steps 86, 89 and 81, into L1 only 98, 99 and 97 (docs/performance-tried.md). Zen 4's
 * caches have few outstanding lines, and its own prefetcher follows a stream better: Q8_0 18 to 21 GB/s with any
 * of these, 28 without. */
HTH_INLINE void hth_prefetch_panel(const uint8_t *p, size_t ahead, hth_prefetch_mode how)
{
    if (how == HTH_PREFETCH_SPARSE) return;
    if (how == HTH_PREFETCH_L1) {
        __builtin_prefetch(p + ahead, 0, 3);
        return;
    }
    __builtin_prefetch(p + ahead, 0, 2);
    __builtin_prefetch(p + HTH_PREFETCH_NEAR, 0, 3);
}

/* Prefetch in shares: share i of n for the `size` bytes at p. More lines at once than a core can have outstanding make it
 * wait. One thread from memory, Q4_K, a whole block at once and in shares: Emerald Rapids 74 and 86 % of load-only speed,
 * Zen 4 15 and 19 to 23 GB/s. */
HTH_INLINE void hth_prefetch_part(const uint8_t *p, size_t size, size_t i, size_t n, hth_prefetch_mode how)
{
    size_t n_line = (size + 63) / 64;
    for (size_t line = n_line * i / n; line < n_line * (i + 1) / n; line++)
        if (how == HTH_PREFETCH_SPARSE) __builtin_prefetch(p + HTH_PREFETCH_FAR + 64 * line, 0, 3);
        else hth_prefetch_panel(p + 64 * line, hth_prefetch_far(how), how);
    __asm__ volatile("" ::: "memory"); /* keeps compilers from moving all shares before the first product */
}

/* The inputs of one to four tokens. The end of a row that does not fill a group of eight blocks (or sixteen
 * floats) is computed from padded copies. */
typedef struct hth_tile {
    size_t n_whole, n_tail; /* blocks (or floats) in whole groups, and after them */
    size_t n_col, n_block;  /* strides between tokens */
    hth_act act;            /* activations of the first token */
    _Alignas(64) int8_t tail_q[HTH_TILE][HTH_GROUP * HTH_ACT_BLOCK];
    _Alignas(32) float tail_d[HTH_TILE][HTH_GROUP];
    _Alignas(32) int32_t tail_sum[HTH_TILE][HTH_GROUP];
    _Alignas(64) float tail_x[HTH_TILE][16];
} hth_tile;

/* Address of the weights HTH_PREFETCH_DIST bytes after `at`, in this row or the next. It may be past the last
 * row, so it is for prefetch only, which does not access it. */
HTH_INLINE const uint8_t *hth_prefetch_addr(const uint8_t *row, const uint8_t *next, size_t at, size_t row_size)
{
    size_t ahead = at + HTH_PREFETCH_DIST;
    return ahead < row_size ? row + ahead : next + (ahead - row_size);
}

/* y[t * y_stride] = row . token t, for the tokens of the tile. Row `next` follows. */
typedef void hth_dot_fn(const hth_tile *tile, const uint8_t *row, const uint8_t *next, float *y,
                        size_t y_stride);
/* The same for rows first to end of the job. y: output of row 0 and of the first token. */
typedef void hth_rows_run_fn(const hth_rows *job, size_t first, size_t end, const hth_tile *tile, float *y);
typedef void hth_tile_fn(hth_tile *tile, const hth_rows *job, size_t first, size_t n_tok);

/* A padded block has scale, activations and sum zero. Its term is +0 and a partial of rule R4 is never -0, so
 * adding it changes nothing. */
HTH_INLINE void hth_tile_of_blocks(hth_tile *tile, const hth_rows *job, size_t first, size_t n_tok)
{
    size_t n_block = job->n_col / HTH_ACT_BLOCK, n_tail = n_block % HTH_GROUP;
    size_t n_whole = n_block - n_tail;
    tile->n_whole = n_whole, tile->n_tail = n_tail;
    tile->n_col = job->n_col, tile->n_block = n_block;
    tile->act.q = job->act.q + first * job->n_col;
    tile->act.d = job->act.d + first * n_block;
    tile->act.sum = job->act.sum + first * n_block;
    if (n_tail == 0) return;
    memset(tile->tail_q, 0, sizeof tile->tail_q);
    memset(tile->tail_d, 0, sizeof tile->tail_d);
    memset(tile->tail_sum, 0, sizeof tile->tail_sum);
    for (size_t t = 0; t < n_tok; t++) {
        size_t at = t * n_block + n_whole;
        memcpy(tile->tail_q[t], tile->act.q + at * HTH_ACT_BLOCK, n_tail * HTH_ACT_BLOCK);
        memcpy(tile->tail_d[t], tile->act.d + at, n_tail * sizeof(float));
        memcpy(tile->tail_sum[t], tile->act.sum + at, n_tail * sizeof(int32_t));
    }
}

/* Rows in blocks of 256: only the scales of the last group are padded, because rows_256_tmpl.h computes block
 * by block. */
HTH_INLINE void hth_tile_of_wide_blocks(hth_tile *tile, const hth_rows *job, size_t first, size_t n_tok)
{
    size_t n_block = job->n_col / HTH_ACT_BLOCK_256, n_tail = n_block % HTH_GROUP;
    tile->n_whole = n_block - n_tail, tile->n_tail = n_tail;
    tile->n_col = job->n_col, tile->n_block = n_block;
    tile->act.q = job->act.q + first * job->n_col;
    tile->act.d = job->act.d + first * n_block;
    tile->act.sum_16 = job->act.sum_16 + first * (job->n_col / HTH_ACT_SUBBLOCK);
    if (n_tail == 0) return;
    memset(tile->tail_d, 0, sizeof tile->tail_d);
    for (size_t t = 0; t < n_tok; t++)
        memcpy(tile->tail_d[t], tile->act.d + t * n_block + tile->n_whole, n_tail * sizeof(float));
}

/* Padded floats are +0 and the weights paired with them are -0. Adding the product -0 leaves every partial of
 * rule R9 unchanged, -0 included. */
HTH_INLINE void hth_tile_of_floats(hth_tile *tile, const hth_rows *job, size_t first, size_t n_tok)
{
    tile->n_col = job->n_col;
    tile->n_tail = job->n_col % 16;
    tile->n_whole = job->n_col - tile->n_tail;
    tile->act.x = job->act.x + first * job->n_col;
    if (tile->n_tail == 0) return;
    memset(tile->tail_x, 0, sizeof tile->tail_x);
    for (size_t t = 0; t < n_tok; t++)
        memcpy(tile->tail_x[t], tile->act.x + t * job->n_col + tile->n_whole, tile->n_tail * sizeof(float));
}

/* Address of n blocks (floats: weights) of a partial sum of the panel that begins at row i. Rows stored in
 * panels: from position `place` on. Rows in file order: packed into raw, from block `first` on. */
HTH_INLINE const uint8_t *hth_panel_blocks(const hth_rows *job, hth_type type, size_t block_size, size_t i,
                                           size_t place, size_t first, size_t n, uint8_t *raw)
{
    if (job->layout == HTH_LAYOUT_PANELS)
        return job->w + i * job->row_size + place * HTH_PANEL_ROW * block_size;
    const uint8_t *row[HTH_PANEL_ROW];
    for (size_t k = 0; k < HTH_PANEL_ROW; k++) row[k] = hth_row_at(job, i + k);
    hth_panel_pack_blocks(type, row, first, n, raw);
    return raw;
}

/* Prefetch of the following data of the current panels and of the panels after them, in shares, while tokens
 * are multiplied. This matches the speed of memory; a whole chunk at once would stall. Zen 5, Q4_0 from memory:
 * 26.9 GB/s of weights for 2 tokens, with a whole chunk at once 12.2 (docs/performance-tried.md). */
typedef struct hth_prefetch_cursor {
    const uint8_t *at[3];   /* in each current panel */
    size_t n_line, n_share; /* remaining lines of each panel, and lines of a share */
    hth_prefetch_mode fetch;
} hth_prefetch_cursor;

/* Prefetches n bytes in n_share shares, from byte `place` on of each of n_panel panels. If that is past their
 * ends: of the same number of following panels (a run across the ends prefetches part of the current panels).
 * Rows in file order are read as they are packed: the same part of the following rows is prefetched. */
HTH_INLINE hth_prefetch_cursor hth_prefetch_cursor_of(const hth_rows *job, const size_t *row, size_t n_panel,
                                                      size_t place, size_t n, size_t n_share)
{
    hth_prefetch_cursor c = {.fetch = job->prefetch};
    size_t panel_size = HTH_PANEL_ROW * job->row_size;
    if (job->list) return c;
    if (job->layout == HTH_LAYOUT_ROWS) place = place % panel_size + n_panel * panel_size;
    else if (place >= panel_size) place += (n_panel - 1) * panel_size; /* skips the other current panels */
    for (size_t r = 0; r < n_panel; r++) c.at[r] = job->w + row[r] * job->row_size + place;
    c.n_line = (n + 63) / 64;
    c.n_share = (c.n_line + n_share - 1) / n_share;
    return c;
}

HTH_INLINE void hth_prefetch_share(hth_prefetch_cursor *c, size_t n_panel)
{
    size_t n = c->n_line < c->n_share ? c->n_line : c->n_share;
    c->n_line -= n;
    for (; n > 0; n--)
        for (size_t r = 0; r < n_panel; r++) {
            if (c->fetch == HTH_PREFETCH_L2_L1) __builtin_prefetch(c->at[r], 0, 2);
            else __builtin_prefetch(c->at[r], 0, 3);
            c->at[r] += 64;
        }
}

/* The address that a kernel treats as the row after row i for its prefetch (hth_prefetch_addr). For a list with
 * short rows it is shifted so that the same offset in the row n_ahead entries later is prefetched. */
HTH_INLINE const uint8_t *hth_row_after(const hth_rows *job, size_t i, size_t n_ahead, const uint8_t *row)
{
    size_t last = job->end + job->n_prefetch - 1;
    if (!job->list) return row + job->row_size;
    const uint8_t *then = hth_row_at(job, i + n_ahead < last ? i + n_ahead : last);
    return job->row_size < HTH_PREFETCH_DIST ? then - (HTH_PREFETCH_DIST - job->row_size) : then;
}

/* After the last row the prefetch continues, because the next unit of work follows there. */
HTH_INLINE void hth_rows_loop(const hth_rows *job, size_t first, size_t end, const hth_tile *tile,
                             hth_dot_fn *dot, float *y)
{
    size_t n_ahead = HTH_PREFETCH_DIST / (job->row_size + 1) + 1;
    for (size_t i = first; i < end; i++) {
        const uint8_t *row = hth_row_at(job, i);
        dot(tile, row, hth_row_after(job, i, n_ahead, row), y + i, job->y_stride);
    }
}

HTH_INLINE void hth_rows_run(const hth_rows *job, hth_tile_fn *prepare, hth_rows_run_fn *one, hth_rows_run_fn *four)
{
    size_t run = job->row_size < HTH_RUN_SIZE ? HTH_RUN_SIZE / (job->row_size + 1) + 1 : 1;
    if (job->n_tok == 1) run = job->end;
    hth_tile tile;
    for (size_t first = job->first; first < job->end;) {
        size_t end = job->end - first < run ? job->end : first + run, t = 0;
        for (; t + HTH_TILE <= job->n_tok; t += HTH_TILE) {
            prepare(&tile, job, t, HTH_TILE);
            four(job, first, end, &tile, job->y + t * job->y_stride);
        }
        for (; t < job->n_tok; t++) {
            prepare(&tile, job, t, 1);
            one(job, first, end, &tile, job->y + t * job->y_stride);
        }
        first = end;
    }
}

#endif
