/* How many experts the policy of expert_policy.h finds in the slots of a device: it plays the experts that tokens used,
 * as recorded or drawn, and counts. Plans and measurements call it. Nothing is computed or copied. */
#ifndef HTH_STORE_EXPERT_REPLAY_H
#define HTH_STORE_EXPERT_REPLAY_H

#include "store/expert_policy.h"

/* The n_used experts of a token of a layer: a hth_route_fn (forward/forward.h), which is asked for no guesses. */
typedef void hth_expert_replay_fn(void *user, uint32_t i_layer, uint64_t i_tok, bool is_guess, uint32_t *chosen);

typedef struct hth_expert_replay_layer {
    uint32_t i_layer; /* what the trace calls it */
    uint32_t n_expert, n_used, n_slot;
    const uint32_t *resident; /* hth_expert_policy_options */
    const double *seconds;    /* with a clock: [n_used + 1] of a token in the layer, by how many of its experts are absent */
    double upload_seconds;    /* and of an upload */
} hth_expert_replay_layer;

typedef struct hth_expert_replay_options {
    const hth_expert_replay_layer *layers; /* [n_layer] those with experts */
    uint32_t n_layer;
    hth_expert_replay_fn *trace;
    void *user;
    uint64_t n_warm_tok, n_tok; /* tokens from 0 on: n_warm_tok that are not counted, then n_tok that are */
    /* Uploads that may begin after a token: in a layer, and in all layers together, those with the largest gain first.
     * UINT32_MAX: any number. */
    uint32_t n_upload_layer, n_upload;
    uint32_t n_delay; /* tokens that run before an upload has ended; 0: the next token finds the expert */
    /* Instead of n_upload and n_delay: seconds of uploads that may be on the way at once, or one upload. Layers begin them one
     * after the other, as a device's do: a token finds the experts whose uploads had ended when it began, a layer begins
     * others when its own have ended, and the least gain changes by steps (expert_policy.h). 0: there is no clock. */
    double under_way;
    float min_gain; /* in misses: hth_expert_policy_choose */
    uint32_t n_half_life;
} hth_expert_replay_options;

enum { HTH_EXPERT_MISS_BINS = 33, HTH_EXPERT_UPLOAD_BINS = 5 };

/* Of the tokens that are counted. A pair is a token and one of its experts in a layer. */
typedef struct hth_expert_counts {
    uint64_t n_pair, n_hit; /* pairs, and those whose expert was resident */
    uint64_t n_step;        /* tokens, times layers: the sum of misses */
    uint64_t misses[HTH_EXPERT_MISS_BINS]; /* by how many experts were absent; the last bin: as many, or more */
    uint64_t n_upload;      /* that began */
    uint64_t uploads[HTH_EXPERT_UPLOAD_BINS]; /* tokens, by how many began after them; the last bin: as many, or more */
} hth_expert_counts;

/* by_layer: [n_layer], or NULL. all: the sums. MEMORY. */
hearth_status hth_expert_replay(const hth_expert_replay_options *options, hth_expert_counts *by_layer,
                                hth_expert_counts *all, hearth_error *err);

#endif
