/* Clusters of neurons. A neuron is one row of gate and up and one row of the transposed down. Cluster i of a layer is
 * neurons [256 i, 256 i + 256); the last one may be shorter. It is the unit of sums (docs/arithmetic.md 6), so also of
 * what lies elsewhere than in memory: placements on a device, plans, networks whose weights are fetched. */
#ifndef HTH_KERNELS_CLUSTER_H
#define HTH_KERNELS_CLUSTER_H

#include <stddef.h>

enum { HTH_CLUSTER_NEURONS = 256 };

static inline size_t hth_n_cluster(size_t n_neuron)
{
    return (n_neuron + HTH_CLUSTER_NEURONS - 1) / HTH_CLUSTER_NEURONS;
}

#endif
