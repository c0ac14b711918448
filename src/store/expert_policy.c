/* Experts in slots by how often and how recently they were used. Devices and plans call it. All its arrays lie in one
 * block of memory, which is allocated once. */
#include "store/expert_policy.h"

#include "base/alloc.h"

#include <assert.h>

/* Tokens for which an expert stays in the place of another (docs/profile.md): one that is used less often only while it
 * repeats, one that is used more often until the rates have changed, and one that takes no place at all longer. */
#define REPEAT_STAY 2.0f
#define RATE_STAY 16.0f
#define EMPTY_STAY 128.0f

/* Uses after which what is known of reuse counts half. The first tokens say too little of it: while few are counted, the
 * rates of experts that repeat are too large. */
#define REUSE_MAX (1u << 13)

/* ---- opening --------------------------------------------------------------------------------------------- */

static void set_resident(hth_expert_policy *p, const uint32_t *resident)
{
    for (uint32_t e = 0; e < p->n_expert; e++) p->slot_of[e] = HTH_NO_EXPERT;
    for (uint32_t s = 0; s < p->n_slot; s++) {
        uint32_t e = resident ? resident[s] : s < p->n_expert ? s : HTH_NO_EXPERT;
        p->loading[s] = HTH_NO_EXPERT;
        p->expert_of[s] = e;
        if (e == HTH_NO_EXPERT) continue;
        assert(e < p->n_expert && p->slot_of[e] == HTH_NO_EXPERT);
        p->slot_of[e] = s;
    }
}

hearth_status hth_expert_policy_open(hth_expert_policy *p, const hth_expert_policy_options *o, hearth_error *err)
{
    size_t n_expert = o->n_expert, n_slot = o->n_slot,
           size = n_expert * (sizeof *p->used_at + sizeof *p->uses + sizeof *p->slot_of + sizeof *p->recent +
                              sizeof *p->is_loading) +
                  n_slot * (sizeof *p->expert_of + sizeof *p->loading);
    *p = (hth_expert_policy){.n_expert = o->n_expert, .n_used = o->n_used, .n_slot = o->n_slot, .reuse = o->reuse};
    uint8_t *at = p->memory = hth_alloc(size, 1);
    if (!at) return hth_fail_memory(err, size, "the policy of experts");
    p->used_at = (uint64_t *)(void *)at, at += n_expert * sizeof *p->used_at;
    p->uses = (float *)(void *)at, at += n_expert * sizeof *p->uses;
    p->slot_of = (uint32_t *)(void *)at, at += n_expert * sizeof *p->slot_of;
    p->recent = (uint32_t *)(void *)at, at += n_expert * sizeof *p->recent;
    p->expert_of = (uint32_t *)(void *)at, at += n_slot * sizeof *p->expert_of;
    p->loading = (uint32_t *)(void *)at, at += n_slot * sizeof *p->loading;
    p->is_loading = (bool *)(void *)at;
    hth_use_weight_open(&p->weight, o->n_half_life);
    p->reuse->n_max = REUSE_MAX;
    set_resident(p, o->resident);
    return HEARTH_OK;
}

void hth_expert_policy_close(hth_expert_policy *p)
{
    hth_free(p->memory);
    *p = (hth_expert_policy){0};
}

/* ---- uses ------------------------------------------------------------------------------------------------ */

static bool was_used(const hth_expert_policy *p, uint32_t e) { return p->used_at[e] > p->i_step; }

/* Tokens since the last use of an expert, at token i_tok; UINT32_MAX: many, or there was none. */
static uint32_t age_of(const hth_expert_policy *p, uint32_t e, uint64_t i_tok)
{
    uint64_t age = i_tok - p->used_at[e];
    return p->used_at[e] == 0 || age > UINT32_MAX ? UINT32_MAX : (uint32_t)age;
}

static void count_use(hth_expert_policy *p, uint32_t e)
{
    assert(e < p->n_expert);
    float before = p->uses[e];
    if (p->used_at[e] == p->i_tok) return;
    if (!was_used(p, e)) p->recent[p->n_recent++] = e;
    p->uses[e] += p->weight.now;
    hth_reuse_add(p->reuse, p->uses[e] / p->weight.all, age_of(p, e, p->i_tok), before / p->weight.all);
    p->used_at[e] = p->i_tok;
}

void hth_expert_policy_step(hth_expert_policy *p, const uint32_t *chosen, uint32_t n_tok)
{
    p->i_step = p->i_tok;
    p->n_recent = 0;
    for (uint32_t t = 0; t < n_tok; t++) {
        p->i_tok++;
        for (uint32_t i = 0; i < p->n_used; i++) count_use(p, *chosen++);
        float factor = hth_use_weight_advance(&p->weight, 1);
        for (uint32_t e = 0; factor != 1.0f && e < p->n_expert; e++) p->uses[e] *= factor;
    }
    hth_reuse_advance(p->reuse);
}

static float rate_of(const hth_expert_policy *p, uint32_t e) { return p->uses[e] / p->weight.all; }

float hth_expert_policy_score(const hth_expert_policy *p, uint32_t e)
{
    return rate_of(p, e) * REPEAT_STAY + hth_reuse_extra(p->reuse, age_of(p, e, p->i_tok + 1));
}

/* ---- swaps ----------------------------------------------------------------------------------------------- */

/* The absent expert with the largest score, of equal ones the first. */
static uint32_t find_candidate(const hth_expert_policy *p)
{
    uint32_t best = HTH_NO_EXPERT;
    float most = 0.0f;
    for (uint32_t i = 0; i < p->n_recent; i++) {
        uint32_t e = p->recent[i];
        if (p->slot_of[e] != HTH_NO_EXPERT || p->is_loading[e]) continue;
        float score = hth_expert_policy_score(p, e);
        if (best == HTH_NO_EXPERT || score > most || (score == most && e < best)) best = e, most = score;
    }
    return best;
}

/* An empty slot, if those count, else the one whose expert has the smallest score. */
static uint32_t find_victim(const hth_expert_policy *p, bool or_empty)
{
    uint32_t worst = HTH_NO_EXPERT;
    float least = 0.0f;
    for (uint32_t i = p->n_slot; i-- > 0;) {
        uint32_t e = p->expert_of[i];
        if (p->loading[i] != HTH_NO_EXPERT) continue;
        if (e == HTH_NO_EXPERT && or_empty) return i;
        if (e == HTH_NO_EXPERT || was_used(p, e)) continue;
        float score = hth_expert_policy_score(p, e);
        if (worst == HTH_NO_EXPERT || score < least) worst = i, least = score;
    }
    return worst;
}

bool hth_expert_policy_evict(hth_expert_policy *p)
{
    uint32_t slot = find_victim(p, false);
    if (slot == HTH_NO_EXPERT) return false;
    p->slot_of[p->expert_of[slot]] = HTH_NO_EXPERT;
    p->expert_of[slot] = HTH_NO_EXPERT;
    return true;
}

/* The misses that an expert saves in the place of another; HTH_NO_EXPERT: of none. The scores count a short stay; a
 * larger rate is worth a longer one. */
static float gain_of(const hth_expert_policy *p, uint32_t expert, uint32_t victim)
{
    float gain = hth_expert_policy_score(p, expert), more = rate_of(p, expert);
    if (victim == HTH_NO_EXPERT) return gain + more * (EMPTY_STAY - REPEAT_STAY);
    gain -= hth_expert_policy_score(p, victim), more -= rate_of(p, victim);
    return more > 0.0f ? gain + more * (RATE_STAY - REPEAT_STAY) : gain;
}

bool hth_expert_policy_choose(const hth_expert_policy *p, float min_gain, hth_expert_swap *swap)
{
    *swap = (hth_expert_swap){find_candidate(p), HTH_NO_EXPERT, 0.0f};
    if (swap->expert == HTH_NO_EXPERT) return false;
    swap->slot = find_victim(p, true);
    if (swap->slot == HTH_NO_EXPERT) return false;
    swap->gain = gain_of(p, swap->expert, p->expert_of[swap->slot]);
    return swap->gain > min_gain;
}

void hth_expert_policy_begin(hth_expert_policy *p, const hth_expert_swap *swap)
{
    uint32_t *victim = &p->expert_of[swap->slot];
    assert(p->slot_of[swap->expert] == HTH_NO_EXPERT && !p->is_loading[swap->expert]);
    assert(p->loading[swap->slot] == HTH_NO_EXPERT);
    if (*victim != HTH_NO_EXPERT) p->slot_of[*victim] = HTH_NO_EXPERT;
    *victim = HTH_NO_EXPERT;
    p->loading[swap->slot] = swap->expert;
    p->is_loading[swap->expert] = true;
}

static uint32_t stop_loading(hth_expert_policy *p, uint32_t slot)
{
    uint32_t expert = p->loading[slot];
    assert(expert != HTH_NO_EXPERT);
    p->loading[slot] = HTH_NO_EXPERT;
    p->is_loading[expert] = false;
    return expert;
}

void hth_expert_policy_end(hth_expert_policy *p, uint32_t slot)
{
    uint32_t expert = stop_loading(p, slot);
    p->expert_of[slot] = expert;
    p->slot_of[expert] = slot;
}

void hth_expert_policy_cancel(hth_expert_policy *p, uint32_t slot) { stop_loading(p, slot); }
