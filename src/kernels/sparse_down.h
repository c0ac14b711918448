/* Neuron-major matrices on a pool: row j is what neuron j gives to all outputs, so neurons that
 * did not fire are never read. Sums are exact (axpy.h), so no result depends on which thread
 * adds what, or in which order. */
#ifndef HTH_KERNELS_NEURONS_H
#define HTH_KERNELS_NEURONS_H

#include "base/pool.h"
#include "kernels/axpy/axpy.h"
#include "kernels/product.h"

/* The down matrix of a layer, neuron by neuron. */
typedef struct hth_down_t {
    hth_matrix rows;  /* d_ff rows of d_model; n_tok 0: absent. Layout ROWS */
    float hidden_absmax; /* H: |h| of tokens seldom exceeds it; 0: not known */
    float scale_max;  /* D: no scale in rows is larger */
} hth_down_t;

/* The neurons that fire for one token, ascending, and what each sends on. */
typedef struct hth_active_set {
    const int32_t *list;
    const float *h;
    size_t n;
} hth_active_set;

/* Of one thread, during a product of one token. */
typedef struct hth_axpy_state {
    uint32_t n_unflushed; /* neurons in its sums since they were flushed */
    bool used, overflow; /* lost: a sum was out of bounds */
} hth_axpy_state;

/* Room for the sums of n_thread threads; wide, sums, offsets and chain are zeros between products. */
typedef struct hth_axpy_scratch {
    int64_t *acc64;         /* [n_thread][hth_axpy_width] */
    int32_t *sums;         /* [n_thread][hth_axpy_width] */
    int32_t *offsets;      /* [n_thread][hth_axpy_width / 16] */
    float *chain;          /* [n_thread][hth_axpy_width] */
    hth_axpy_state *state; /* [n_thread] */
    float *scale;          /* [n_tok] 2^k; 0: there is none */
} hth_axpy_scratch;

/* Outputs that a thread holds at once: all of one token, or a stretch of several tokens. */
size_t hth_axpy_width(size_t n_out);

/* y[t * n_out + o] = sum over the firing neurons of token t of h times row (+ bias), added to onto
 * where that is not NULL (y then is room). Queued on the pool, whose jobs before are done; firing and
 * what it points to must stay until hth_pool_finish. Allocates nothing. */
typedef struct hth_axpy_output {
    const hth_down_t *down_t;
    const float *bias;
    float *y, *add_to;
    int64_t *
        acc64; /* [n_tok][n_out] or NULL: the sums themselves are wanted, and neither y nor what stands above */
    bool adds;  /* with wide: they are added to what stands there */
    bool *overflow; /* with wide: becomes true where sums mean nothing */
} hth_axpy_output;
void hth_axpy_add(const hth_kernels *k, hth_pool *pool, const hth_axpy_scratch *scratch, const hth_active_set *active,
                  size_t n_tok, const hth_axpy_output *out);

#endif
