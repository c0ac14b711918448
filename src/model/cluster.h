/* Neurons and clusters. A neuron is one row of gate and up and one column of down. A cluster is a contiguous run
 * of neurons of one layer: the unit of placement, activity, prefetching, computation and counting. */
#ifndef HTH_MODEL_CLUSTER_H
#define HTH_MODEL_CLUSTER_H

#include "kernels/axpy/axpy.h"

typedef struct hth_cluster {
    uint32_t i_layer;
    uint32_t first, n_neuron;
} hth_cluster;

#endif
