/* The order of a layer's neurons in a packed file: hot ones first, and those that are often active together
 * adjacent, so that the rows that a token reads are contiguous. */
#ifndef HTH_SPARSE_NEURON_ORDER_H
#define HTH_SPARSE_NEURON_ORDER_H

#include "file/gguf.h"

#include <stdbool.h>
#include <stdint.h>

/* Statistics of a layer's d_ff neurons. */
typedef struct hth_act_stats {
    uint32_t d_ff;
    const uint32_t *n_fired; /* [d_ff] tokens for which each neuron was active */
    const uint32_t *coact_bits;   /* [d_ff][n_word] one bit per sampled token; NULL: no samples */
    uint32_t n_word;
} hth_act_stats;

/* Sampled tokens for which both neurons are active. */
uint32_t hth_order_coactivation(const hth_act_stats *f, size_t a, size_t b);

/* order[r] is the neuron at position r. Sorted by octaves of n_fired, the hottest first. Within an octave the
 * neurons form a chain: each is followed by the one that is most often active together with it, the lower index
 * among equals. scratch: d_ff numbers. The time is quadratic in the size of an octave. */
void hth_order_neurons(const hth_act_stats *f, int32_t *order, int32_t *scratch);

/* Reads order[d_ff] of a packed layer from its tensor. FORMAT if it does not contain each of 0 to d_ff - 1 once. */
hearth_status hth_order_read(const hth_gguf *file, const hth_gguf_tensor *t, uint32_t d_ff, int32_t *order,
                             hearth_error *err);

/* Mean length of the runs of adjacent active neurons, over the sampled tokens, with the neurons in this order
 * (NULL: as stored). 0 without samples. */
double hth_order_mean_run(const hth_act_stats *f, const int32_t *order);

#endif
