/* Statistics of repeated measurements: the median, and the range. */
#ifndef HTH_BASE_SAMPLE_STATS_H
#define HTH_BASE_SAMPLE_STATS_H

#include <stddef.h>

typedef struct hth_sample_stats {
    double median, min, max;
} hth_sample_stats;

/* Statistics of n samples; all 0 for none. The median of an even number is the mean of the middle two. For the
 * samples of a benchmark: n^2 steps. The samples are not reordered. */
hth_sample_stats hth_sample_stats_of(const double *samples, size_t n);
/* The k-th smallest of n samples, counted from 0. n^2 steps. */
double hth_kth_smallest(const double *samples, size_t n, size_t k);

#endif
