/* Kernels for the training of predictors and for recurrent mixers, in addition to the vector kernels of a token:
 * products of float matrices in any orientation, Adam, the logistic function. One definition for all ISA levels
 * (training_ref.c, training_tmpl.h). */
#ifndef HTH_KERNELS_TRAINING_TRAINING_H
#define HTH_KERNELS_TRAINING_TRAINING_H

#include <stdbool.h>
#include <stddef.h>

/* y(i, j) = sum over k of a(i, k) b(k, j): one chain, k ascending, from +0 or from the contents of y. fused: of
 * multiply-adds, for training; else product and sum are rounded apart, as devices do. b and y are stored by rows. a has
 * two strides, so that it may be a transpose. y overlaps neither. */
typedef struct hth_gemm {
    const float *a, *b;
    float *y;
    size_t a_row, a_col;       /* floats from i to i + 1, and from k to k + 1 */
    size_t b_row, y_row;       /* floats from row to row */
    size_t n_row, n_col, n_in; /* i, j and k; n_col a multiple of 16 */
    bool more;                 /* the chains continue from y */
    bool fused;
} hth_gemm;
typedef void hth_gemm_fn(const hth_gemm *job);

/* A step of Adam (Kingma and Ba 2015) for n parameters, a multiple of 8. m and v are the running means of
 * gradients and of their squares. */
typedef struct hth_adam {
    float keep_m, keep_v;       /* beta_1, beta_2 */
    float correct_m, correct_v; /* 1 / (1 - beta^step) */
    float rate;
} hth_adam;
typedef void hth_adam_fn(const hth_adam *step, const float *gradient, size_t n, float *p, float *m, float *v);

/* y = 1 / (1 + exp(-max(x + bias, -80))); n a multiple of 8. y may be x. */
typedef void hth_logistic_fn(const float *x, float bias, size_t n, float *y);

#endif
