/* How many of a token's experts a plan expects in the slots of a device. */
#ifndef HTH_PLACEMENT_EXPERT_HITS_H
#define HTH_PLACEMENT_EXPERT_HITS_H

#include "model/model.h"
#include "store/expert_replay.h"

/* Experts that a plan takes as those of the tokens to come. */
typedef struct hth_expert_uses {
    hth_expert_replay_fn *trace; /* NULL: nothing is known */
    void *user;
    uint32_t n_tok; /* that differ */
} hth_expert_uses;

/* Of the experts that a token uses in layer i, share[k] are in slot k of as many slots as the layer has experts: those in
 * the first n slots together are what n slots find. With a trace as the policy of slots finds them (expert_policy.h), else
 * as if a quarter of a token's experts were used by the token before, too, and the others were any. MEMORY. */
hearth_status hth_expert_slot_shares(const hth_model *model, uint32_t i_layer, const hth_expert_uses *uses, double *share,
                                     hearth_error *err);

#endif
