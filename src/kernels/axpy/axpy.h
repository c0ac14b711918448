/* Down projection with neuron-major matrices: row j holds the weights from neuron j to every output. Only the
 * rows of active neurons are read. Sums do not depend on the order of neurons, nor on their division among
 * calls, threads and devices (docs/arithmetic.md 6).
 *
 * Quantised rows: start with zero sums and offsets; call hth_kernels.axpy for neurons of clusters with the same
 * scale, with an axpy_flush before the scale changes and after at most hth_axpy_limit neurons. Rows of floats: for
 * every cluster one chain from +0, neurons ascending, which axpy_flush_chain adds to the 64-bit sums. Then
 * hth_axpy_finish. */
#ifndef HTH_KERNELS_AXPY_AXPY_H
#define HTH_KERNELS_AXPY_AXPY_H

#include "base/bits.h"
#include "file/types.h"
#include "kernels/cluster.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Adds the rows of list[0 .. n) times h to sums (or chain) of n_out outputs. Reads no byte of another row. An
 * |h| above the maximum that the scale was computed for, or NaN, gives undefined sums. For columns [a, b) of a
 * matrix: skip the bytes before block a; sums + a, offsets + a / part. */
typedef struct hth_axpy_job {
    const uint8_t *w;       /* row 0, at any alignment */
    size_t row_size, n_out; /* bytes from row to row; outputs, whole blocks */
    const int32_t *list;    /* rows; ascending for floats, else in any order */
    const float *h;         /* h[i] belongs to list[i] */
    size_t n, n_prefetch;     /* rows to add; rows that follow in list and are only prefetched */
    float scale;            /* 2^k (hth_axpy_scale); unused for floats */
    int32_t *sums;          /* [n_out], quantised: too large by the offsets; both are accumulated */
    int32_t *offsets;       /* [n_out / hth_axpy_sub_block], quantised */
    float *chain;           /* [n_out], floats: accumulated */
    size_t skip;            /* bytes of each row before the first output */
    hth_row_runs runs;      /* addresses of rows, instead of w */
} hth_axpy_job;
typedef void hth_axpy_fn(const hth_axpy_job *job);

/* The first output's weight of entry i of the list. */
static inline const uint8_t *hth_axpy_row(const hth_axpy_job *job, size_t i)
{
    return hth_row_address(job->w, job->runs, job->row_size, (size_t)job->list[i]) + job->skip;
}

/* Outputs that share an offset: 32, or 16 for blocks of 256. 0: floats, without offsets. */
size_t hth_axpy_sub_block(hth_type type);

/* Neurons that sums and offsets can hold between two flushes. SIZE_MAX: floats. 0: there are no kernels of the type. */
size_t hth_axpy_limit(hth_type type);

/* D of one row: the largest |scale| and |minimum| / 16 of its sub-blocks. NaN: one is not finite, and the
 * matrix cannot be computed. Floats: 0. */
float hth_axpy_absmax_scale(hth_type type, const uint8_t *row, size_t n_out);

/* Raises a maximum of such bounds; a NaN stays. */
static inline void hth_axpy_raise(float *max, float x)
{
    if (!(x <= *max) && *max == *max) *max = x;
}

/* The largest |h|; NaN counts as the largest. 0 for n = 0. */
float hth_axpy_absmax_h(const float *h, size_t n);

/* From this k on, sums of n_cluster clusters fit into 64 bits. */
int hth_axpy_safe_exponent(hth_type type, size_t n_cluster);

/* The scale 2^k of a cluster with the hidden values h[n] and the largest scale d_max: the largest k up to 32 with
 * (h_max (x) d_max) 2^k <= 32766 and h_max 2^k < 2^127, where h_max is the largest |h|. 0: a value is not finite, or
 * k is below the safe exponent and so many coefficients are so large that its sums might not fit. */
float hth_axpy_scale(const float *h, size_t n, float d_max, int safe_exponent);

/* 2^32 / scale as a shift; scale is a power of two up to 2^32. */
static inline int hth_axpy_shift(float scale) { return 32 + 127 - (int)(hth_bits_of(scale) >> 23); }

/* acc64[n_out] += (sums - offsets) 2^32 / scale, then sets both to zero. */
typedef void hth_axpy_flush_fn(hth_type type, size_t n_out, float scale, int32_t *sums, int32_t *offsets,
                               int64_t *acc64);

/* acc64[n_out] += trunc(chain 2^32), then sets the chain to +0. False: at least one |chain| was 2^23 or more,
 * or NaN, and added nothing. acc64 holds at most HTH_MAX_CHAINS calls. */
enum { HTH_MAX_CHAINS = 256 };
typedef bool hth_axpy_flush_chain_fn(size_t n_out, float *chain, int64_t *acc64);
hth_axpy_flush_chain_fn hth_axpy_flush_chain; /* the definition; hth_kernels has the version of the ISA level */

/* y = float(acc64) (x) 2^-32, rounded once. */
void hth_axpy_finish(const int64_t *acc64, size_t n_out, float *y);

#endif
