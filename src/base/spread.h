/* Samples of one measurement as people quote them: the median, and how far they lay apart. */
#ifndef HTH_BASE_SPREAD_H
#define HTH_BASE_SPREAD_H

#include <stddef.h>

typedef struct hth_spread {
    double median, min, max;
} hth_spread;

/* Of n samples; all 0 for none. The median of an even number is the mean of the middle
 * two. For the samples of a benchmark: n^2 steps, and the order is kept. */
hth_spread hth_spread_of(const double *samples, size_t n);
/* The k-th smallest of n samples, from 0; in as many steps. */
double hth_smallest(const double *samples, size_t n, size_t k);

#endif
