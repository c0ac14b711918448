/* Neurons and clusters. A neuron is one row of gate and up and one column of
 * down; a cluster is a contiguous run of neurons of one layer: the unit that has
 * a home, fires, is fetched, is computed and is counted. */
#ifndef HTH_MODEL_CLUSTER_H
#define HTH_MODEL_CLUSTER_H

#include <stdint.h>

/* Neurons of a cluster; the last one of a layer may be shorter. Sums of parts are
 * cut at multiples of this (docs/arithmetic.md 6), so homes must be too. */
enum { HTH_CLUSTER_NEURONS = 256 };

typedef struct hth_cluster {
    uint32_t i_layer;
    uint32_t first, n_neuron;
} hth_cluster;

#endif
