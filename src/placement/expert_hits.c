/* Expected hits by the number of slots: by playing the policy of slots with a trace, at some numbers and in between
 * linear; or assumed. */
#include "placement/expert_hits.h"

#include "base/checked_math.h"

/* Mixtures that were measured repeat more: 45 % of Qwen3-30B-A3B's choices (docs/plan.md). */
#define ASSUMED_STICKY 0.25
/* Numbers of slots that are played: eighths of the experts. Tokens that warm the slots up, and that are counted. */
enum { N_POINT = 8, N_WARM = 256, N_COUNTED = 768, UPLOADS = 4, DELAY = 1 };

/* The share of uses that n slots find. */
static double assumed_hits(const hth_router *r, uint32_t n)
{
    double whole = ASSUMED_STICKY + (1.0 - ASSUMED_STICKY) * n / r->n_expert;
    return n < r->n_used ? whole * n / r->n_used : whole;
}

static hearth_status play(const hth_router *r, uint32_t i_layer, const hth_expert_uses *uses, uint32_t n_slot,
                          double *hits, hearth_error *err)
{
    const hth_expert_replay_layer layer = {.i_layer = i_layer, .n_expert = r->n_expert, .n_used = r->n_used, .n_slot = n_slot};
    const hth_expert_replay_options o = {.layers = &layer,
                                         .n_layer = 1,
                                         .trace = uses->trace,
                                         .user = uses->user,
                                         .n_warm_tok = N_WARM,
                                         .n_tok = N_COUNTED,
                                         .n_upload_layer = UPLOADS,
                                         .n_upload = UINT32_MAX,
                                         .n_delay = DELAY,
                                         .min_gain = HTH_EXPERT_MIN_GAIN};
    hth_expert_counts counts = {0};
    hearth_status st = hth_expert_replay(&o, NULL, &counts, err);
    *hits = counts.n_pair > 0 ? (double)counts.n_hit / (double)counts.n_pair : 0.0;
    return st;
}

hearth_status hth_expert_slot_shares(const hth_model *model, uint32_t i_layer, const hth_expert_uses *uses, double *share,
                                     hearth_error *err)
{
    const hth_router *r = &model->layers[i_layer].experts.router;
    double before = 0.0, hits = 0.0;
    hearth_status st = HEARTH_OK;
    for (uint32_t k = 0; !uses->trace && k < r->n_expert; k++, before = hits)
        hits = assumed_hits(r, k + 1), share[k] = (hits - before) * r->n_used;
    for (uint32_t i = 0, from = 0, to; uses->trace && st == HEARTH_OK && i < N_POINT; i++, from = to, before = hits) {
        to = r->n_expert * (i + 1) / N_POINT;
        hits = 1.0;
        if (to < r->n_expert) st = play(r, i_layer, uses, to, &hits, err);
        if (hits < before) hits = before;
        for (uint32_t k = from; k < to; k++) {
            share[k] = (hits - before) * r->n_used / (to - from);
            if (share[k] > 1.0) share[k] = 1.0;
        }
    }
    return st;
}
