/* The order of a layer's neurons in a packed file: hot ones first, and those that fire together
 * side by side, so that what a token reads lies in runs. */
#ifndef HTH_SPARSE_ORDER_H
#define HTH_SPARSE_ORDER_H

#include "file/gguf.h"

#include <stdbool.h>
#include <stdint.h>

/* What is known of a layer's d_ff neurons. */
typedef struct hth_act_stats {
    uint32_t d_ff;
    const uint32_t *n_fired; /* [d_ff] tokens for which each fired */
    const uint32_t *coact_bits;   /* [d_ff][n_word] a bit for each sampled token; NULL: no samples */
    uint32_t n_word;
} hth_act_stats;

/* Sampled tokens for which both neurons fire. */
uint32_t hth_order_coactivation(const hth_act_stats *f, size_t a, size_t b);

/* order[r] is the neuron that comes r-th. By octaves of n_active, the hottest first; within one a
 * chain, each neuron followed by the one that fires together with it most often, the lower number among
 * equals. room: d_ff numbers. Takes time in the square of an octave. */
void hth_order_neurons(const hth_act_stats *f, int32_t *order, int32_t *room);

/* order[d_ff] of a packed layer, from its tensor. FORMAT where it does not hold 0 to d_ff - 1, once each. */
hearth_status hth_order_read(const hth_gguf *file, const hth_gguf_tensor *t, uint32_t d_ff, int32_t *order,
                             hearth_error *err);

/* Mean length of the runs of neighbours that fire together, over the sampled tokens, with the neurons
 * in this order (NULL: as they are). 0 where nothing was sampled. */
double hth_order_mean_run(const hth_act_stats *f, const int32_t *order);

#endif
