/* How many of a token's experts a plan expects in the slots of a device. */
#ifndef HTH_PLACEMENT_EXPERT_HITS_H
#define HTH_PLACEMENT_EXPERT_HITS_H

#include "model/model.h"
#include "planner/plan.h"
#include "store/expert_replay.h"

/* Experts that a plan takes as those of the tokens to come. */
typedef struct hth_expert_uses {
    hth_expert_replay_fn *trace; /* NULL: nothing is known */
    void *user;
    uint32_t n_tok; /* that differ */
} hth_expert_uses;

/* What a layer's slots find, by their number k, as the policy of slots (expert_policy.h) finds it. */
typedef struct hth_expert_slots {
    double *share;  /* [n_expert] of a token's experts, those that slot k adds to the ones in fewer slots */
    double *misses; /* [n_expert + 1][n_used + 1] of tokens, the share that misses m experts */
    double *moves;  /* [n_expert + 1][HTH_EXPERT_UPLOAD_BINS] after which as many begin to move to slots */
} hth_expert_slots;

/* Fills those of out[n_layer] whose layers divide experts, with a trace, else as if a quarter of a token's experts were used
 * by the token before, too, and the others were any. layers[n_layer]: for the seconds in which experts move.
 * min_gain: that a move needs (expert_policy.h). MEMORY. */
hearth_status hth_expert_slots_expect(const hth_model *model, const hth_expert_uses *uses, const hth_plan_layer *layers,
                                      const hth_plan_machine *machine, float min_gain, hth_expert_slots *out,
                                      hearth_error *err);

#endif
