/* Neuron-major down for floats at one ISA level: one chain of fma per output, rows ascending
 * (docs/arithmetic.md 6). The including file defines, in addition to the names that float_tmpl.h needs,
 *   all_of(x)           the number in all lanes
 *   store_floats(y, p)  sixteen floats
 * This file defines down_f32, down_f16 and down_bf16. */
enum { AXPY_ROWS = 4, AXPY_PREFETCH_DIST = 4 };

#include "kernels/axpy/axpy_loop.h"

/* The first n of the AXPY_ROWS rows. Zeros follow the last output; their chains are unused. */
HTH_INLINE void add_rows(const hth_axpy_job *job, const down_rows *r, size_t n, size_t size, load_fn *load)
{
    size_t n_tail = job->n_out % 16, n_whole = job->n_out - n_tail;
    floats h[AXPY_ROWS];
    UNROLL for (size_t k = 0; k < n; k++) h[k] = all_of(r->h[k]);
    for (size_t o = 0; o < n_whole; o += 16) {
        floats c = load_f32((const uint8_t *)(job->chain + o));
        fetch_next(r, n, o * size, (o + 16) * size);
        UNROLL for (size_t k = 0; k < n; k++) c = add_products(c, load(r->row[k] + o * size), h[k]);
        store_floats(job->chain + o, c);
    }
    if (n_tail == 0) return;
    float padded[16] = {0};
    memcpy(padded, job->chain + n_whole, n_tail * sizeof *padded);
    floats c = load_f32((const uint8_t *)padded);
    UNROLL for (size_t k = 0; k < n; k++) c =
        add_products(c, load_tail(r->row[k] + n_whole * size, n_tail, size, load), h[k]);
    store_floats(padded, c);
    memcpy(job->chain + n_whole, padded, n_tail * sizeof *padded);
}

/* A row with h = 0 would change a chain of -0, so the remaining rows are added one by one. */
HTH_INLINE void down_floats(const hth_axpy_job *job, size_t size, load_fn *load)
{
    size_t i = 0;
    for (; i + AXPY_ROWS <= job->n; i += AXPY_ROWS) {
        down_rows r = take_rows(job, i);
        add_rows(job, &r, AXPY_ROWS, size, load);
    }
    for (; i < job->n; i++) {
        down_rows r = take_rows(job, i);
        add_rows(job, &r, 1, size, load);
    }
}

static void down_f32(const hth_axpy_job *job) { down_floats(job, 4, load_f32); }
static void down_f16(const hth_axpy_job *job) { down_floats(job, 2, load_f16); }
static void down_bf16(const hth_axpy_job *job) { down_floats(job, 2, load_bf16); }
