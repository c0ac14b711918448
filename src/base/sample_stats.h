/* Samples of one measurement as people quote them: the median, and how far they lay apart. */
#ifndef HTH_BASE_SPREAD_H
#define HTH_BASE_SPREAD_H

#include <stddef.h>

typedef struct hth_sample_stats {
    double median, min, max;
} hth_sample_stats;

/* Of n samples; all 0 for none. The median of an even number is the mean of the middle
 * two. For the samples of a benchmark: n^2 steps, and the order is kept. */
hth_sample_stats hth_sample_stats_of(const double *samples, size_t n);
/* The k-th smallest of n samples, from 0; in as many steps. */
double hth_kth_smallest(const double *samples, size_t n, size_t k);

#endif
