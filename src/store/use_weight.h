/* Weights of uses that grow with time, so that older uses count less, and the value of an item in memory that follows
 * from its uses. The store (store_uses.c) and the policy of experts on a device (expert_policy.c) share them.
 *
 * A sum of weights divided by `all` is a rate: the share of steps in which an item is used. */
#ifndef HTH_STORE_USE_WEIGHT_H
#define HTH_STORE_USE_WEIGHT_H

#include "store/reuse.h"

typedef struct hth_use_weight {
    float now;    /* weight of a use */
    float growth; /* its factor per token */
    float all;    /* sum of the weights of an item that every step used */
} hth_use_weight;

/* A use counts half after n_half_life tokens; 0: 128. */
void hth_use_weight_open(hth_use_weight *w, uint32_t n_half_life);
/* A step of n_tok tokens has passed. The result is the factor by which the caller multiplies its sums of weights;
 * 1: they stay as they are. */
float hth_use_weight_advance(hth_use_weight *w, uint32_t n_tok);

/* In units of w->all: the probability that an item is needed in the next step. uses: its sum of weights. age: of its
 * last use in that step; from hth_reuse_first_age(HTH_REUSE_CLASSES) on, all ages are alike. */
float hth_use_weight_key(const hth_use_weight *w, const hth_reuse *reuse, float uses, uint32_t age);

#endif
