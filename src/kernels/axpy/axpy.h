/* Down of neuron-major matrices: row j holds what neuron j gives to every output, and only the
 * rows of neurons that fire are read. Sums do not depend on the order of neurons, nor on how they
 * are divided among calls, threads and devices (docs/arithmetic.md 6).
 *
 * Quantised rows: zero sums and offsets; any number of calls of hth_kernels.down, with an
 * hth_axpy_flush after at most hth_axpy_limit neurons; hth_axpy_finish with the factor 2^-k.
 * Rows of floats: for every group of 256 neurons a chain from +0, the neurons ascending, which
 * hth_kernels.axpy_flush_chain adds to the wide sums; hth_axpy_finish with 2^-32. */
#ifndef HTH_KERNELS_DOWN_H
#define HTH_KERNELS_DOWN_H

#include "file/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* sums (or chain) of n_out outputs += the rows of list[0 .. n) times h. No byte of another row is
 * read. Larger |h| than the scale was made for, and NaN, give sums without a meaning. For columns [a, b) of a matrix: w at block a of row 0, sums + a, offsets + a / part. */
typedef struct hth_axpy_job {
    const uint8_t *w;       /* row 0, at any alignment */
    size_t row_size, n_out; /* bytes from row to row; outputs: whole blocks */
    const int32_t *list;    /* rows; of floats ascending, else in any order */
    const float *h;         /* h[i] belongs to list[i] */
    size_t n, n_prefetch;     /* rows to add; how many more follow in list, which are prefetched only */
    float scale;            /* 2^k (hth_axpy_scale); floats: not used */
    int32_t *sums;          /* [n_out] quantised: too large by the offsets, both are added to */
    int32_t *offsets;       /* [n_out / hth_axpy_sub_block] quantised */
    float *chain;           /* [n_out] floats: continued */
} hth_axpy_job;
typedef void hth_axpy_fn(const hth_axpy_job *job);

/* Outputs that share an offset: 32, or 16 where blocks have 256. 0: floats, which have none. */
size_t hth_axpy_sub_block(hth_type type);

/* Neurons that sums and offsets hold between two flushes. SIZE_MAX: floats. */
size_t hth_axpy_limit(hth_type type);

/* D of one row: the largest |scale| and |minimum| / 16 of its sub-blocks. NaN where one is not
 * finite: such a matrix cannot be computed. Floats: 0. */
float hth_axpy_absmax_scale(hth_type type, const uint8_t *row, size_t n_out);

/* The largest |h|; NaN counts as larger than any. 0 for n = 0. */
float hth_axpy_absmax_h(const float *h, size_t n);

/* 2^k for the largest k with (h_max (x) d_max) 2^k <= 32766, within -100..100 and with
 * h_max 2^k < 2^127. 0: no such k (or a NaN): coefficients would not fit. */
float hth_axpy_scale(float h_max, float d_max);

/* wide[n_out] += sums - offsets; both are zero afterwards. */
void hth_axpy_flush(hth_type type, size_t n_out, int32_t *sums, int32_t *offsets, int64_t *acc64);

/* wide[n_out] += trunc(chain 2^32); the chain is +0 afterwards. False: at least one |chain| was
 * 2^23 or more, or no number, and added nothing. At most 256 calls fill wide. */
typedef bool hth_axpy_flush_chain_fn(size_t n_out, float *chain, int64_t *acc64);
hth_axpy_flush_chain_fn hth_axpy_flush_chain; /* the definition; hth_kernels has the level's */

/* y = float(wide) (x) factor, one rounding each: 2^-k, or 2^-32 for floats. */
void hth_axpy_finish(const int64_t *acc64, size_t n_out, float factor, float *y);

#endif
