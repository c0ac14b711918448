/* Neuron-major matrices on a thread pool: row j holds the weights from neuron j to all outputs, so the rows of
 * inactive neurons are never read. Sums are exact (axpy.h), so no result depends on which thread adds a row, or
 * in which order. */
#ifndef HTH_KERNELS_SPARSE_DOWN_H
#define HTH_KERNELS_SPARSE_DOWN_H

#include "base/pool.h"
#include "kernels/axpy/axpy.h"
#include "kernels/product.h"

/* The transposed down matrix of a layer. */
typedef struct hth_transposed_down {
    hth_matrix rows;  /* whole clusters, d_model columns; n_row 0: absent. Layout ROWS */
    float *scale_max; /* [clusters of rows] D: upper bound of the scales of each */
    size_t n_summed;  /* clusters whose outputs are added up, of which these rows may be a part: bounds the sums */
} hth_transposed_down;

/* The active neurons of one token, ascending, and their outputs. */
typedef struct hth_active_set {
    const int32_t *list;
    const float *h;
    size_t n;
} hth_active_set;

/* State of the sums of one token. */
typedef struct hth_axpy_state {
    float scale;         /* scale of the neurons since the last flush */
    uint32_t n_pending;  /* number of them */
    bool used, overflow; /* overflow: a cluster has no scale, or a chain was out of bounds */
} hth_axpy_state;

/* Adds the rows of d, all of clusters of the same scale d.scale (0: the state overflows), to its sums, and these to acc64
 * when they cannot hold more; hth_axpy_flush_pending adds the rest. Rows of floats are one cluster: a chain. */
void hth_axpy_add_rows(const hth_kernels *k, hth_type type, const hth_axpy_job *d, int64_t *acc64, hth_axpy_state *state);
void hth_axpy_flush_pending(const hth_kernels *k, hth_type type, const hth_axpy_job *d, int64_t *acc64,
                            hth_axpy_state *state);

/* Scratch memory for the sums of n_thread threads. acc64, sums, offsets and chain are zero between products; after a
 * cancelled one hth_axpy_scratch_clear makes them so. */
typedef struct hth_axpy_scratch {
    int64_t *acc64;         /* [n_thread][hth_axpy_width] */
    int32_t *sums;         /* [n_thread][hth_axpy_width] */
    int32_t *offsets;      /* [n_thread][hth_axpy_width / 16] */
    float *chain;          /* [n_thread][hth_axpy_width] */
    hth_axpy_state *state; /* [n_thread] */
    float *scale;          /* [n_tok][n_cluster] 2^k; 0: none */
    size_t n_cluster;      /* clusters of the widest layer */
} hth_axpy_scratch;

/* Outputs that a thread holds at once: all of one token, or a tile of several tokens. */
size_t hth_axpy_width(size_t n_out);

/* Sets the sums of n_thread threads to zero; n_out: outputs of the scratch memory. */
void hth_axpy_scratch_clear(const hth_axpy_scratch *scratch, size_t n_thread, size_t n_out);

/* The scale of a cluster with the hidden values h[n] of all its active neurons of a token. */
float hth_axpy_cluster_scale(const hth_transposed_down *down, size_t i_cluster, const float *h, size_t n);

/* y[n] from 64-bit sums, NaN where they overflowed; then bias is added, and the result is added to add_to, unless
 * these are NULL. */
void hth_axpy_write(const hth_kernels *k, const int64_t *acc64, size_t n, bool overflow, const float *bias, float *y,
                    float *add_to);

/* y[t * n_out + o] = sum over the active neurons of token t of h times row (+ bias). If add_to is not NULL, the
 * result is added to it and y is scratch memory. Queued on the pool, after its earlier jobs; `active` and what
 * it points to must stay until hth_pool_finish. Allocates nothing. */
typedef struct hth_axpy_output {
    const hth_transposed_down *down_t;
    const float *bias;
    float *y, *add_to;
    int64_t *acc64; /* [n_tok][n_out] or NULL: the sums themselves are the result; y, bias and add_to are not used */
    bool adds;      /* with acc64: adds to its contents */
    bool *overflow; /* with acc64: [n_tok], set to true where sums are undefined */
    bool scaled;    /* hth_axpy_scratch.scale is set already: `active` has only some neurons of a cluster */
} hth_axpy_output;
void hth_axpy_add(const hth_kernels *k, hth_pool *pool, const hth_axpy_scratch *scratch, const hth_active_set *active,
                  size_t n_tok, const hth_axpy_output *out);

#endif
