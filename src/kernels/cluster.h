/* Clusters of neurons. A neuron is one row of gate and up and one row of the transposed down. Cluster i of a layer is
 * neurons [256 i, 256 i + 256); the last one may be shorter. It is the unit of sums (docs/arithmetic.md 6), so also of
 * what lies elsewhere than in memory: placements on a device, plans, networks whose weights are fetched. */
#ifndef HTH_KERNELS_CLUSTER_H
#define HTH_KERNELS_CLUSTER_H

#include <stddef.h>
#include <stdint.h>

enum { HTH_CLUSTER_SHIFT = 8, HTH_CLUSTER_NEURONS = 1 << HTH_CLUSTER_SHIFT };

static inline size_t hth_n_cluster(size_t n_neuron)
{
    return (n_neuron + HTH_CLUSTER_NEURONS - 1) / HTH_CLUSTER_NEURONS;
}

/* Rows that do not lie one behind the other, but in runs of 2^shift: at[i] is where row i << shift begins. Runs of which
 * no row is used need no address. at NULL: all rows lie one behind the other. */
typedef struct hth_row_runs {
    const uint8_t *const *at;
    uint32_t shift;
} hth_row_runs;

/* Row i, of rows that begin at w unless they lie in runs. */
static inline const uint8_t *hth_row_address(const uint8_t *w, hth_row_runs runs, size_t row_size, size_t i)
{
    if (!runs.at) return w + i * row_size;
    return runs.at[i >> runs.shift] + (i & (((size_t)1 << runs.shift) - 1)) * row_size;
}

#endif
