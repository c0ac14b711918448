/* Panels of quantised rows: a lane is a row. One token reads a panel as it streams in. Several tokens use
 * N_PANEL panels, whose blocks are unpacked to bytes once for all tokens, one partial sum of rule R4 at a time,
 * so that each output needs one accumulator. The eight partial sums are reduced as they are finished. The
 * including file (panel_32_LEVEL.h, panel_256_LEVEL.h) defines
 *   BLOCK_SIZE              bytes of a row's block
 *   PANEL_COL               weights of a block
 *   PANEL_CHUNK             blocks of a chunk
 *   N_PANEL                 panels at a time
 *   ONE_BY_ONE_TOK          number of tokens up to which one by one is cheaper, at least 1
 *   sums, add_sums(a, b)    partial sums of sixteen outputs: products and, if HAS_MINIMUM, minima
 *   store_sums(y, s)        writes the outputs from their finished reductions
 *   block_of_one(job, p, b, s, prefetch)  adds the terms of block b of the panel, at p, to s; prefetches if
 *                           PREFETCH_IN_BLOCK is defined
 *   chunk, fill(chunk, i, r, p)  unpacked blocks; unpacks the block at p to position i of panel r
 *   FROM_ROWS               defined: fill(chunk, i, r, job, row, b) unpacks block b of the sixteen rows from `row` on;
 *                           there are no panels in memory, and no product of one token
 *   multiply(chunk, n, tiles, at, n_tok, s, next)  adds n blocks of a tile of inputs, which begins
 *                           at `at`, to the sums of n_tok tokens; prefetches a share of `next` per block
 * This file defines panels(job). */
#include "kernels/quant/rows_loop.h"

enum {
    PANEL_TOK = 128, /* tokens that share an unpacked chunk; a multiple of a tile */
    PANEL_BLOCK_SIZE = HTH_PANEL_ROW * BLOCK_SIZE,
};

enum { N_LEVEL = 3 }; /* levels of the reduction of eight partial sums */

/* Unrolling the loop over the partial sums makes eight copies of a block. Blocks of 32 with AVX-512 gain by it. Blocks of
 * 256 compile for up to 20 s per file, and eight copies of Q4_K no longer fit where decoded instructions are kept
 * (docs/performance-tried.md). So the loop is unrolled only if the including file requests it. */
#ifndef ONE_TOKEN_UNROLL
#define ONE_TOKEN_UNROLL
#endif

HTH_INLINE sums no_sums(void)
{
    sums s = {0};
    return s;
}

/* ---- one token ------------------------------------------------------------------------ */

#ifndef FROM_ROWS

HTH_INLINE void one_token(const hth_rows *job, hth_prefetch_mode prefetch)
{
    size_t n_block = job->n_col / PANEL_COL;
    const uint8_t *p = job->w + job->first * job->row_size;
    for (size_t i = job->first; i < job->end; i += HTH_PANEL_ROW) {
        sums half[N_LEVEL + 1]; /* partial reductions; each waits for its other half */
        ONE_TOKEN_UNROLL
        for (size_t j = 0; j < HTH_GROUP; j++) {
            int level = 0;
            sums s = no_sums();
            for (size_t b = j; b < n_block; b += HTH_GROUP, p += PANEL_BLOCK_SIZE) {
#ifndef PREFETCH_IN_BLOCK
                for (int line = 0; line < PANEL_BLOCK_SIZE; line += 64)
                    hth_prefetch_panel(p + line, hth_prefetch_far(prefetch), prefetch);
#endif
                s = block_of_one(job, p, b, s, prefetch);
            }
            for (; j >> level & 1; level++) s = add_sums(half[level], s);
            half[level] = s;
        }
        store_sums(job->y + i, half[N_LEVEL]);
    }
}
#endif

/* ---- several tokens ----------------------------------------------------------------------- */

typedef struct panel_work {
    chunk chunk;
    uint8_t raw[PANEL_CHUNK * PANEL_BLOCK_SIZE]; /* copy of rows that are not stored in panels */
    /* Partial reductions, each of which waits for its other half. The last level holds the partial sum whose
     * chunk is finished, and the result at the end. */
    sums half[N_LEVEL + 1][PANEL_TOK][N_PANEL];
    hth_prefetch_cursor next;
} panel_work;
_Static_assert(sizeof(panel_work) <= HTH_PANEL_WORK, "a panel's work needs more room");

/* Unpacks blocks first, first + 8, ... (n of them) of the panel that begins at row i. `place` is the position
 * of the first one in the panel. */
HTH_INLINE void fill_chunk(panel_work *work, const hth_rows *job, size_t i, int r, size_t first, size_t place,
                           size_t n)
{
#ifdef FROM_ROWS
    (void)place;
    for (size_t k = 0; k < n; k++) fill(&work->chunk, k, r, job, i, first + k * HTH_GROUP);
#else
    const uint8_t *p = hth_panel_blocks(job, KERNEL_TYPE, BLOCK_SIZE, i, place, first, n, work->raw);
    for (size_t k = 0; k < n; k++, p += PANEL_BLOCK_SIZE) fill(&work->chunk, k, r, p);
#endif
}

/* A chunk of partial sum j: n blocks from position `place` on. first, last: whether it is the first or the
 * last. */
typedef struct piece {
    size_t j, place, n;
    bool first, last;
} piece;

/* Reduces partial sum j of a tile with the earlier ones. */
HTH_INLINE void join_tile(panel_work *work, size_t j, size_t i_tok, size_t n_tok, sums (*s)[N_PANEL])
{
    int level = 0;
    for (; j >> level & 1; level++)
        for (size_t t = 0; t < n_tok; t++)
            for (int r = 0; r < N_PANEL; r++) s[t][r] = add_sums(work->half[level][i_tok + t][r], s[t][r]);
    for (size_t t = 0; t < n_tok; t++)
        for (int r = 0; r < N_PANEL; r++) work->half[level][i_tok + t][r] = s[t][r];
}

/* One tile, whose inputs begin at `at`. The sums stay in registers until the chunk ends. */
HTH_INLINE void multiply_tile(panel_work *work, const hth_rows *job, const piece *c, size_t at, size_t i_tok,
                              size_t n_tok)
{
    sums s[HTH_TILE_TOK][N_PANEL], (*open)[N_PANEL] = &work->half[N_LEVEL][i_tok];
    for (size_t t = 0; t < n_tok; t++)
        for (int r = 0; r < N_PANEL; r++) s[t][r] = c->first ? no_sums() : open[t][r];
    multiply(&work->chunk, c->n, &job->act.tiles, at, n_tok, s, &work->next);
    if (c->last) {
        join_tile(work, c->j, i_tok, n_tok, s);
        return;
    }
    for (size_t t = 0; t < n_tok; t++)
        for (int r = 0; r < N_PANEL; r++) open[t][r] = s[t][r];
}

static void multiply_piece(panel_work *work, const hth_rows *job, const piece *c, size_t t, size_t n_tok)
{
    size_t n_block = job->n_col / PANEL_COL;
    for (size_t k = 0; k < n_tok; k += HTH_TILE_TOK) {
        size_t at = (t + k) * n_block + c->place * HTH_TILE_TOK;
        if (n_tok - k <= HTH_TILE_TOK / 2) multiply_tile(work, job, c, at, k, HTH_TILE_TOK / 2);
        else multiply_tile(work, job, c, at, k, HTH_TILE_TOK);
    }
}

/* Computes the panels that begin at the given rows. The last one may be repeated. */
static void multiply_panels(panel_work *work, const hth_rows *job, const size_t row[N_PANEL], size_t t,
                            size_t n_tok)
{
    size_t n_block = job->n_col / PANEL_COL, n_tile = (n_tok + HTH_TILE_TOK - 1) / HTH_TILE_TOK;
    piece c = {0};
    for (c.j = 0; c.j < HTH_GROUP; c.j++) {
        size_t left = (n_block + HTH_GROUP - 1 - c.j) / HTH_GROUP;
        c.first = true, c.last = left == 0;
        if (left == 0) multiply_piece(work, job, &c, t, n_tok);
        for (size_t b = c.j; left > 0; b += c.n * HTH_GROUP) {
            c.n = left < PANEL_CHUNK ? left : PANEL_CHUNK;
            left -= c.n, c.last = left == 0;
            work->next = hth_prefetch_cursor_of(job, row, N_PANEL, (c.place + PANEL_CHUNK) * PANEL_BLOCK_SIZE,
                                       c.n * PANEL_BLOCK_SIZE, c.n * n_tile);
            for (int r = 0; r < N_PANEL; r++) fill_chunk(work, job, row[r], r, b, c.place, c.n);
            multiply_piece(work, job, &c, t, n_tok);
            c.place += c.n, c.first = false;
        }
        c.n = 0;
    }
    for (size_t k = 0; k < n_tok; k++)
        for (int r = 0; r < N_PANEL; r++)
            store_sums(job->y + (t + k) * job->y_stride + row[r], work->half[N_LEVEL][k][r]);
}

static void several_tokens(const hth_rows *job)
{
    panel_work *work = job->work;
    for (size_t t = 0; t < job->n_tok; t += PANEL_TOK) {
        size_t n_tok = job->n_tok - t < PANEL_TOK ? job->n_tok - t : PANEL_TOK;
        for (size_t i = job->first; i < job->end; i += N_PANEL * HTH_PANEL_ROW) {
            size_t row[N_PANEL];
            hth_panels_at(i, job->end, N_PANEL, row);
            multiply_panels(work, job, row, t, n_tok);
        }
    }
}

#ifdef FROM_ROWS
static void panels(const hth_rows *job) { several_tokens(job); }
#else
/* Up to ONE_BY_ONE_TOK tokens are cheaper one by one: after the first token, the rows of a unit come from the
 * L2 cache, which holds all but the longest (48 rows of 27000 weights). */
static void panels(const hth_rows *job)
{
    if (job->n_tok > (job->layout == HTH_LAYOUT_PANELS ? ONE_BY_ONE_TOK : 1)) {
        several_tokens(job);
        return;
    }
    hth_rows one = *job;
    for (size_t t = 0; t < job->n_tok; t++, one.y += one.y_stride) {
        switch (job->prefetch) {
        case HTH_PREFETCH_L1: one_token(&one, HTH_PREFETCH_L1); break;
        case HTH_PREFETCH_SPARSE: one_token(&one, HTH_PREFETCH_SPARSE); break;
        default: one_token(&one, HTH_PREFETCH_L2_L1);
        }
        one.act.q += job->n_col, one.act.d += job->n_col / PANEL_COL;
        if ((size_t)PANEL_COL == HTH_ACT_BLOCK_256) one.act.sum_16 += job->n_col / HTH_ACT_SUBBLOCK;
        else one.act.sum += job->n_col / HTH_ACT_BLOCK;
    }
}
#endif
