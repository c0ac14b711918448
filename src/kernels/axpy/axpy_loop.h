/* Neuron-major down at one ISA level: AXPY_ROWS rows are added together, so that sums are loaded and stored once for
 * all of them; the next rows are prefetched in parts meanwhile. The including file defines
 *   AXPY_ROWS         rows of a pass
 *   AXPY_PREFETCH_DIST   rows between prefetch and use, AXPY_ROWS or more
 * and for quantised types, which take 256 outputs at a time,
 *   BLOCK_SIZE, BLOCK_COL   bytes and outputs of a block
 *   add_outputs(r, at, sums, offsets)  adds the products of the AXPY_ROWS rows for the 256 outputs that
 *                           begin `at` bytes into each row
 * This file defines down(job). */
#include "kernels/quant/blocks.h"
#include "kernels/isa.h"

#include <string.h>

enum { DOWN_COL = 256 };

/* The rows of a pass. Coefficients are h for floats, h * 2^k for integers. */
typedef struct down_rows {
    const uint8_t *row[AXPY_ROWS], *next[AXPY_ROWS];
    float h[AXPY_ROWS];
} down_rows;

/* Rows i to i + AXPY_ROWS of the list. Past its end, a row is repeated with h = 0. */
HTH_INLINE down_rows take_rows(const hth_axpy_job *job, size_t i)
{
    down_rows r;
    size_t n_known = job->n + job->n_prefetch;
    for (size_t k = 0; k < AXPY_ROWS; k++) {
        size_t at = i + k < job->n ? i + k : job->n - 1;
        size_t ahead = i + k + AXPY_PREFETCH_DIST < n_known ? i + k + AXPY_PREFETCH_DIST : at;
        r.row[k] = hth_axpy_row(job, at);
        r.next[k] = hth_axpy_row(job, ahead);
        r.h[k] = i + k < job->n ? job->h[at] : 0.0f;
    }
    return r;
}

/* Prefetches the next n rows if bytes `from` to `end` of a row cross into a new cache line. */
HTH_INLINE void fetch_next(const down_rows *r, size_t n, size_t from, size_t end)
{
    if (from / 64 == end / 64) return;
    for (size_t k = 0; k < n; k++) __builtin_prefetch(r->next[k] + from, 0, 3);
}

#ifdef BLOCK_COL

enum { DOWN_SIZE = DOWN_COL / BLOCK_COL * BLOCK_SIZE, DOWN_N_OFFSET = BLOCK_COL == 32 ? 8 : 16 };

HTH_INLINE void add_outputs(const down_rows *r, size_t at, int32_t *sums, int32_t *offsets);

/* The last blocks of a row that do not fill 256 outputs, from copies padded with zero blocks. */
static __attribute__((noinline)) void add_rest(const down_rows *active, size_t at, size_t n_out, int32_t *sums,
                                               int32_t *offsets)
{
    uint8_t padded[AXPY_ROWS][DOWN_SIZE] = {{0}};
    int32_t sum[DOWN_COL] = {0}, offset[DOWN_N_OFFSET] = {0};
    down_rows r = *active;
    for (size_t k = 0; k < AXPY_ROWS; k++) {
        memcpy(padded[k], r.row[k] + at, n_out / BLOCK_COL * BLOCK_SIZE);
        r.row[k] = padded[k], r.next[k] += at;
    }
    add_outputs(&r, 0, sum, offset);
    for (size_t o = 0; o < n_out; o++) sums[o] = hth_wrapping_sum(sums[o], sum[o]);
    for (size_t i = 0; i < n_out / BLOCK_COL; i++) offsets[i] = hth_wrapping_sum(offsets[i], offset[i]);
}

static void down(const hth_axpy_job *job)
{
    size_t n_rest = BLOCK_COL == DOWN_COL ? 0 : job->n_out % DOWN_COL, n_tile = job->n_out / DOWN_COL;
    for (size_t i = 0; i < job->n; i += AXPY_ROWS) {
        down_rows r = take_rows(job, i);
        for (size_t k = 0; k < AXPY_ROWS; k++) r.h[k] *= job->scale;
        for (size_t b = 0; b < n_tile; b++)
            add_outputs(&r, b * DOWN_SIZE, job->sums + b * DOWN_COL, job->offsets + b * DOWN_N_OFFSET);
        if (n_rest > 0)
            add_rest(&r, n_tile * DOWN_SIZE, n_rest, job->sums + n_tile * DOWN_COL,
                     job->offsets + n_tile * DOWN_N_OFFSET);
    }
}

#endif
