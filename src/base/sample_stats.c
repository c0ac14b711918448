/* Medians without sorting: the samples stay in order. Called by the commands that measure. */
#include "base/sample_stats.h"

/* The k-th smallest sample: the one for which at most k samples are smaller and more than k are smaller or equal. */
double hth_kth_smallest(const double *x, size_t n, size_t k)
{
    for (size_t i = 0; i < n; i++) {
        size_t below = 0, equal = 0;
        for (size_t j = 0; j < n; j++) {
            below += x[j] < x[i];
            equal += x[j] <= x[i] && x[j] >= x[i];
        }
        if (below <= k && k < below + equal) return x[i];
    }
    return 0.0; /* only NaNs */
}

hth_sample_stats hth_sample_stats_of(const double *samples, size_t n)
{
    if (n == 0) return (hth_sample_stats){0};
    double low = hth_kth_smallest(samples, n, (n - 1) / 2), high = n % 2 ? low : hth_kth_smallest(samples, n, n / 2);
    return (hth_sample_stats){n % 2 ? low : 0.5 * (low + high), hth_kth_smallest(samples, n, 0),
                        hth_kth_smallest(samples, n, n - 1)};
}
