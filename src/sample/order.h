/* Sorts candidates, in the same order on every machine. */
#ifndef HTH_SAMPLE_ORDER_H
#define HTH_SAMPLE_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct hth_sample_candidate {
    uint64_t key; /* sort key, ascending; see the two functions below */
    double p;     /* weight: proportional to the probability, the best one's is 1 */
    float logit;
    int32_t id;
} hth_sample_candidate;

/* Keys: a larger logit has the smaller key (32 bits); -0 and 0 have the same key. A smaller non-negative double
 * has the smaller key (64 bits). */
uint32_t hth_sample_key_of_logit(float logit);
uint64_t hth_sample_key_of_distance(double distance);

/* Sorts by the low n_bit (32 or 64) of the keys; stable. scratch holds n items. The result is in items. */
void hth_sample_sort(hth_sample_candidate *items, hth_sample_candidate *scratch, size_t n,
                     unsigned n_bit);

/* The k-th smallest (counted from 0, below n) of the logit keys. *n_below counts the smaller ones. Logits of
 * -infinity are skipped and not counted in n. */
uint32_t hth_sample_select(const float *logits, size_t n_vocab, size_t k, size_t *n_below);

#endif
