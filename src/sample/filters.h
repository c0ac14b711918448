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

/* The variance of logits that are not -infinity. */
double hth_sample_variance(const float *logits, size_t n);
/* How many candidates from the first on XTC leaves out: those of at least threshold, but for the last one. */
size_t hth_sample_xtc(hth_sample_candidate *c, size_t n, double threshold);
/* The temperature between low and high: by the entropy as a share of the largest possible, to the power of exponent. */
double hth_sample_dynamic_temperature(hth_sample_candidate *c, size_t n, double low, double high, double exponent);
/* How many candidates mirostat leaves, from their weights with this sum: version 1 by an estimate of the vocabulary's
 * exponent, version 2 by their surprise. mu: in bits. */
size_t hth_sample_mirostat_1(const hth_sample_candidate *c, size_t n, int32_t n_vocab, double temperature,
                            double mu);
double hth_sample_surprise(double probability); /* in bits */
size_t hth_sample_mirostat_2(const hth_sample_candidate *c, size_t n, double sum, double mu);

#endif
