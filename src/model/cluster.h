/* Neurons and clusters. A neuron is one row of gate and up and one column of down. A cluster is a contiguous run
 * of neurons of one layer: the unit of placement, activity, prefetching, computation and counting. */
#ifndef HTH_MODEL_CLUSTER_H
#define HTH_MODEL_CLUSTER_H

#include <stdint.h>

/* Neurons of a cluster; the last one of a layer may be shorter. Partial sums are split at multiples of this
 * (docs/arithmetic.md 6), so placements must be too. */
enum { HTH_CLUSTER_NEURONS = 256 };

typedef struct hth_cluster {
    uint32_t i_layer;
    uint32_t first, n_neuron;
} hth_cluster;

#endif
