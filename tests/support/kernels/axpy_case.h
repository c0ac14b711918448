/* One random neuron-major matrix, a list of active neurons and their coefficients, between guard pages: made once,
 * computed by any table. Used by the proof of down and by the equality of machines. */
#ifndef HEARTH_TESTS_SUPPORT_KERNELS_AXPY_CASE_H
#define HEARTH_TESTS_SUPPORT_KERNELS_AXPY_CASE_H

#include "support/kernels/rows_case.h"

typedef struct down_shape {
    rows_shape rows;   /* type, n_tok neurons, n_col outputs, row_gap, shift, side, kind; the rest 0 */
    proof_kind h_kind; /* of the coefficients; LARGEST: all of one size */
    int list;          /* 1 empty, 2 all rows ascending, 3 some ascending, 4 some in any order */
} down_shape;

typedef struct down_case {
    down_shape shape;
    hth_axpy_job job; /* the whole list; sums, offsets and chain are the guarded ones */
    float d_max;  /* finite */
    guard w, list, h, sums, offsets, chain;
} down_case;

void down_case_open(down_case *c, size_t max_weights, size_t max_out);
void down_case_close(down_case *c);

/* Fills weights (with finite scales), list and coefficients, and sets the scale. Sums, offsets and
 * chain are zero. */
void down_case_make(down_case *c, test_random *r, const down_shape *shape);

/* D and the scale of the job again, after h or w were changed. Kernels take any scale, so it has no bound. */
void down_case_scale(down_case *c);

/* Bytes of n_out outputs of a row. */
size_t down_bytes(hth_type type, size_t n_out);

/* The largest 2^k, k from -100 to max_k, for which coefficients fit, in doubles; 0: none. */
float down_largest_scale(float h_max, float d_max, int max_k);

/* Adds sums and offsets as they are, or the chain, to acc64[n_out] and clears them. False: a chain is out of bounds. */
bool down_flush(const hth_kernels *k, hth_type type, const hth_axpy_job *job, int64_t *acc64);

#endif
