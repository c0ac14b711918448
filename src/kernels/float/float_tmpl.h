/* Rows of floats at one ISA level, for up to four tokens (rule R9). The including file defines the
 * instructions:
 *   floats                  sixteen floats in registers; zeros()
 *   load_f32, load_f16, load_bf16(p)  sixteen weights, widened exactly
 *   add_products(p, w, x)   sixteen fused multiply-adds
 *   tree(p)                 the sum of sixteen, as hth_reduce16
 *   ROWS_AT_ONCE            rows whose partial sums for four tokens fit the registers
 * This file defines rows_f32, rows_f16 and rows_bf16. */
#include "base/bits.h"
#include "kernels/quant/rows_loop.h"

#include <stdbool.h>

typedef floats load_fn(const uint8_t *p);

/* The last weights of a row, padded with -0. */
HTH_INLINE floats load_tail(const uint8_t *p, size_t n, size_t size, load_fn *load)
{
    uint8_t padded[64] = {0};
    for (size_t i = n; i < 16; i++) padded[i * size + size - 1] = 0x80;
    memcpy(padded, p, n * size);
    return load(padded);
}

#define UNROLL _Pragma("GCC unroll 4")

/* n_row rows times n_tok tokens; row `next` follows the last. */
HTH_INLINE void dots(const hth_tile *tile, const uint8_t *const row[], const uint8_t *next, float *y,
                     size_t y_stride, size_t n_row, size_t n_tok, size_t size, load_fn *load)
{
    floats p[ROWS_AT_ONCE][HTH_TILE];
    size_t row_size = tile->n_col * size;
    /* Every loop over rows or tokens is unrolled, because sums with a variable index would be in memory. */
    UNROLL for (size_t r = 0; r < n_row; r++) UNROLL for (size_t t = 0; t < n_tok; t++) p[r][t] = zeros();
    for (size_t i = 0; i < tile->n_whole; i += 16) {
        UNROLL for (size_t r = 0; r < n_row; r++)
        {
            __builtin_prefetch(hth_prefetch_addr(row[r], r + 1 < n_row ? row[r + 1] : next, i * size, row_size), 0,
                               3);
            floats w = load(row[r] + i * size);
            UNROLL for (size_t t = 0; t < n_tok; t++) p[r][t] =
                add_products(p[r][t], w, load_f32((const uint8_t *)(tile->act.x + t * tile->n_col + i)));
        }
    }
    if (tile->n_tail > 0) {
        UNROLL for (size_t r = 0; r < n_row; r++)
        {
            floats w = load_tail(row[r] + tile->n_whole * size, tile->n_tail, size, load);
            UNROLL for (size_t t = 0; t < n_tok; t++) p[r][t] =
                add_products(p[r][t], w, load_f32((const uint8_t *)tile->tail_x[t]));
        }
    }
    UNROLL for (size_t r = 0; r < n_row; r++) UNROLL for (size_t t = 0; t < n_tok; t++) y[t * y_stride + r] =
        tree(p[r][t]);
}

/* Whole groups of rows, then single rows. */
HTH_INLINE void run_of_rows(const hth_rows *job, size_t first, size_t end, const hth_tile *tile, float *y,
                            size_t n_tok, size_t size, load_fn *load)
{
    size_t at_once = n_tok == 1 ? 1 : ROWS_AT_ONCE, i = first;
    for (size_t n; i < end; i += n) {
        const uint8_t *row[ROWS_AT_ONCE];
        n = end - i >= at_once ? at_once : 1;
        for (size_t r = 0; r < n; r++) row[r] = hth_row_at(job, i + r);
        bool listed = job->list && i + n < job->end;
        const uint8_t *next = listed ? hth_row_at(job, i + n) : row[n - 1] + job->row_size;
        if (n == ROWS_AT_ONCE) dots(tile, row, next, y + i, job->y_stride, ROWS_AT_ONCE, n_tok, size, load);
        else dots(tile, row, next, y + i, job->y_stride, 1, n_tok, size, load);
    }
}

#define DEFINE_ROWS(TYPE, SIZE)                                                                              \
    HTH_INLINE void one_##TYPE(const hth_rows *job, size_t first, size_t end, const hth_tile *tile,          \
                               float *y)                                                                     \
    {                                                                                                        \
        run_of_rows(job, first, end, tile, y, 1, SIZE, load_##TYPE);                                         \
    }                                                                                                        \
    HTH_INLINE void four_##TYPE(const hth_rows *job, size_t first, size_t end, const hth_tile *tile,         \
                                float *y)                                                                    \
    {                                                                                                        \
        run_of_rows(job, first, end, tile, y, HTH_TILE, SIZE, load_##TYPE);                                  \
    }                                                                                                        \
    static void rows_##TYPE(const hth_rows *job)                                                             \
    {                                                                                                        \
        hth_rows_run(job, hth_tile_of_floats, one_##TYPE, four_##TYPE);                                          \
    }
DEFINE_ROWS(f32, 4)
DEFINE_ROWS(f16, 2)
DEFINE_ROWS(bf16, 2)
