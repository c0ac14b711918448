/* Filters over candidates in descending order of probability (ties: lower id). Each filter recomputes the weights
 * p = exp(logit - best logit) of its input, keeps some candidates in that order, at least one, and returns their
 * number. */
#ifndef HTH_SAMPLE_FILTERS_H
#define HTH_SAMPLE_FILTERS_H

#include "sample/order.h"

/* Sets p of n > 0 candidates to exp((logit - best) / temperature) and returns the sum, taken in their order. */
double hth_sample_weigh(hth_sample_candidate *c, size_t n, double temperature);

/* Keeps the candidates whose surprise is nearest to the entropy, until their share reaches typical_p. scratch
 * holds n. */
size_t hth_sample_typical(hth_sample_candidate *c, hth_sample_candidate *scratch, size_t n,
                          double typical_p);
/* Keeps the shortest prefix whose share reaches top_p. */
size_t hth_sample_top_p(hth_sample_candidate *c, size_t n, double top_p);
/* Keeps the candidates with at least min_p of the best one's probability. */
size_t hth_sample_min_p(hth_sample_candidate *c, size_t n, double min_p);

#endif
