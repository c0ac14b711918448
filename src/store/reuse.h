/* How likely an item is needed a few steps after it was used, beyond what its rate of use says. Texts stay with a
 * subject, so experts of the last tokens are chosen again; how often differs from model to model, and is counted here.
 *
 * A rate is the share of steps in which an item is used; an age is the number of steps since its last use. */
#ifndef HTH_STORE_REUSE_H
#define HTH_STORE_REUSE_H

#include <stdint.h>

enum { HTH_REUSE_AGES = 16, HTH_REUSE_CLASSES = 5 };

/* Zeroed: nothing is known. */
typedef struct hth_reuse {
    uint32_t n_max;                                         /* uses after which all that is known counts half; 0: 65,536 */
    double n_use, rate;                                     /* uses, and the sum of their items' rates */
    double n_again[HTH_REUSE_AGES], rate_again[HTH_REUSE_AGES]; /* the same of uses whose next is i + 1 steps later */
    float gain[HTH_REUSE_CLASSES];                          /* hth_reuse_gain */
    float extra[HTH_REUSE_AGES];                            /* hth_reuse_extra, from age 1 on */
} hth_reuse;

/* An item was used, whose rate, that use included, is rate_now. age: since the use before, when its rate was
 * rate_before; UINT32_MAX: there was none. */
void hth_reuse_add(hth_reuse *r, float rate_now, uint32_t age, float rate_before);
/* A step has passed. */
void hth_reuse_advance(hth_reuse *r);

/* The amount that is added to the rate of an item of this age, for the probability that the next step needs it. It
 * changes at the first age of each class. */
float hth_reuse_gain(const hth_reuse *r, uint32_t age);
/* The expected uses from now on, beyond those of its rate, that follow from the last use of an item of this age: it is
 * needed again, at once or later up to HTH_REUSE_AGES, and so on from that use. Items
 * that are used again at once with probability s have s / (1 - s) of them at age 1. At most 16. */
float hth_reuse_extra(const hth_reuse *r, uint32_t age);
/* The first age of a class; i_class HTH_REUSE_CLASSES: the first age without a gain. */
uint32_t hth_reuse_first_age(uint32_t i_class);

#endif
