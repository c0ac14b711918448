/* Which experts of a layer lie in its slots: a function of the experts that its tokens used, and of nothing else. A
 * device that keeps experts in slots acts on it. A plan replays it (expert_replay.h). Equal calls give equal results on
 * every machine.
 *
 * The score of an expert is its expected uses by the next tokens, for as long as a repeated expert stays. It is the rate
 * of use, in which older tokens count less, for two tokens, and the uses that follow from a use a few tokens ago (reuse.h).
 *
 * An upload is not free: it takes from the host's memory what the host needs to compute missing experts. So the gain of a
 * swap is the misses that it saves over the whole stay of the new expert: the difference of the scores, and if the rate of
 * the new one is larger, what that is worth over a longer stay. Gains of different layers can be compared.
 *
 * No function but hth_expert_policy_open allocates. Policies that share what is known of reuse are called by one thread
 * at a time. */
#ifndef HTH_STORE_EXPERT_POLICY_H
#define HTH_STORE_EXPERT_POLICY_H

#include "base/status.h"
#include "store/use_weight.h"

#include <stdbool.h>

/* No expert, or no slot. */
#define HTH_NO_EXPERT UINT32_MAX

/* A gain that a swap needs at least, if the caller knows no better: the cost of an upload, in misses. It takes about 0.7
 * of the time that the host takes to compute an expert, mostly bytes that both read (docs/profile.md). */
#define HTH_EXPERT_MIN_GAIN 0.7f
/* The same where the host reads experts from the file: what leaves a slot is in no memory then, and the next use of it costs
 * a read (docs/streaming.md has what was measured). */
#define HTH_EXPERT_MIN_GAIN_STREAMED 1.5f
/* The same of an upload that begins over an idle link and ends before the host computes its next experts: it takes nothing
 * from the host. */
#define HTH_EXPERT_FREE_GAIN 0.2f
/* Experts that move to slots of a layer at once, at most. */
enum { HTH_EXPERT_MAX_MOVES = 4 };
/* Bytes on the way at once: what a slow link carries in some milliseconds, or one expert. By how much the least gain rises in
 * a step in which an expert has to stay for that, and falls in one in which none has. */
#define HTH_EXPERT_UNDER_WAY (64u << 20)
#define HTH_EXPERT_GAIN_STEP 1.1f

typedef struct hth_expert_policy_options {
    uint32_t n_expert, n_used; /* of the layer; n_used: by a token */
    uint32_t n_slot;           /* any number; those beyond n_expert stay empty */
    /* [n_slot] The expert of each slot at the beginning, the most valuable first; HTH_NO_EXPERT: none. No expert twice.
     * NULL: the first n_slot experts. */
    const uint32_t *resident;
    uint32_t n_half_life; /* tokens after which a use counts half; 0: 128 (docs/profile.md) */
    hth_reuse *reuse;     /* what is known of reuse, zeroed at first, whose n_max the policy sets; the layers of a model share it; outlives them */
} hth_expert_policy_options;

/* Callers read the fields up to `loading`, and change none. */
typedef struct hth_expert_policy {
    uint32_t n_expert, n_used, n_slot;
    uint32_t *slot_of;   /* [n_expert] where the expert is resident; HTH_NO_EXPERT: it is absent */
    uint32_t *expert_of; /* [n_slot] the resident expert; HTH_NO_EXPERT: the slot is empty or loading */
    uint32_t *loading;   /* [n_slot] the expert that is loading there; HTH_NO_EXPERT: none */
    bool *is_loading;    /* [n_expert] */
    float *uses;         /* [n_expert] sums of weights */
    uint64_t *used_at;   /* [n_expert] the last token that used it, counted from 1; 0: none */
    uint32_t *recent;    /* [n_expert] the n_recent experts that the last step used */
    uint32_t n_recent;
    uint64_t i_tok;      /* tokens so far */
    uint64_t i_step;     /* tokens before the last step */
    hth_use_weight weight;
    hth_reuse *reuse;
    void *memory;
} hth_expert_policy;

typedef struct hth_expert_swap {
    uint32_t expert; /* absent: what the slot is to hold */
    uint32_t slot;
    float gain; /* expected misses that it saves, while the expert stays */
} hth_expert_swap;

/* Allocates all that the policy needs. MEMORY. */
hearth_status hth_expert_policy_open(hth_expert_policy *p, const hth_expert_policy_options *options, hearth_error *err);
void hth_expert_policy_close(hth_expert_policy *p);

/* A step has used the experts chosen[n_tok][n_used]. Its tokens count one after the other, whether they follow one
 * another in a text or belong to several sequences. Experts of one token are different, or count once. */
void hth_expert_policy_step(hth_expert_policy *p, const uint32_t *chosen, uint32_t n_tok);

/* Expected uses of an expert by the next tokens: what keeps it in its slot. */
float hth_expert_policy_score(const hth_expert_policy *p, uint32_t expert);

/* The best swap: of the absent experts that the last step used, the one with the largest score; of the slots whose
 * expert it did not use, the one with the smallest, an empty slot before all. Slots and experts that are loading do not
 * take part. Of equal experts the first, of equal slots the last. False: there is none whose gain is above min_gain. */
bool hth_expert_policy_choose(const hth_expert_policy *p, float min_gain, hth_expert_swap *swap);
/* The expert of the slot becomes absent, and another begins to load there. */
void hth_expert_policy_begin(hth_expert_policy *p, const hth_expert_swap *swap);
/* Empties the slot with the smallest score of those whose expert the last step did not use. False: there is none. */
bool hth_expert_policy_evict(hth_expert_policy *p);
/* What loads in the slot is resident from now on. */
void hth_expert_policy_end(hth_expert_policy *p, uint32_t slot);
/* What loads in the slot has failed, or was given up: the slot is empty. */
void hth_expert_policy_cancel(hth_expert_policy *p, uint32_t slot);

#endif
