/* Weights of feed-forward networks that are not all in memory. A step asks a source for the clusters of a layer that
 * may be active, and computes them part by part, in the order in which they arrive: sums do not depend on that order
 * (docs/arithmetic.md 6). A step without a source reads the layers' own matrices. */
#ifndef HTH_FORWARD_FFN_SOURCE_H
#define HTH_FORWARD_FFN_SOURCE_H

#include "forward/forward.h"

/* Neurons of a layer whose rows are in memory: whole clusters, from a multiple of HTH_CLUSTER_NEURONS on. */
typedef struct hth_ffn_part {
    uint32_t first, n_neuron;        /* n_neuron 0: none is left */
    const uint8_t *gate, *up, *down; /* their rows, as in the layer's matrices; gate NULL: the layer has none */
} hth_ffn_part;

typedef struct hth_ffn_source {
    /* Clusters of a layer that the step is going to take, wanted[hth_n_cluster(d_ff)]; NULL: all. Does not wait. */
    void (*request)(void *user, uint32_t i_layer, const uint8_t *wanted);
    /* The next part, in any order; waits until one is there. Every requested cluster comes once. An error ends the
     * step. */
    hearth_status (*take)(void *user, uint32_t i_layer, hth_ffn_part *part, hearth_error *err);
    /* Nothing reads the part any more. */
    void (*release)(void *user, uint32_t i_layer, const hth_ffn_part *part);
    /* The step ends, by an error or because it was cancelled: drops what was requested and not taken. */
    void (*cancel)(void *user);
    void *user;
} hth_ffn_source;

/* From now on the rows of gate, up and down come from a source, which must outlive the step. All else is that of the
 * model: predictors, biases, thresholds, and the largest scale D of each cluster (hth_transposed_down.scale_max),
 * which must be known. Call it once. UNSUPPORTED: down is not transposed. MEMORY. */
hearth_status hth_step_use_source(hth_step *step, const hth_ffn_source *source, hearth_error *err);

/* n neurons from `first` on, whole clusters; their rows follow n_skip rows of the matrices. The outputs, and what
 * concerns them all, are unchanged. */
hth_ffn hth_ffn_slice(const hth_ffn *f, uint32_t first, uint32_t n, uint32_t n_skip);

#endif
