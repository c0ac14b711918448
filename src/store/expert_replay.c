/* Plays the policy of experts' slots over a trace, token by token: counts, lets uploads end, begins others. */
#include "store/expert_replay.h"

#include "base/alloc.h"

/* A layer, and the swap that it would make next. */
typedef struct layer {
    hth_expert_policy policy;
    hth_expert_counts counts;
    hth_expert_swap next;
    bool has_next;
    uint32_t n_upload; /* that began after this token */
    double end;        /* of the last one that began, by the clock */
} layer;

/* An upload; they end in the order in which they began. */
typedef struct upload {
    uint32_t i_layer, slot;
    uint64_t last_tok; /* the last token that does not find the expert */
    double end;        /* by the clock */
} upload;

typedef struct replay {
    const hth_expert_replay_options *o;
    layer *layers;
    hth_reuse reuse;
    uint32_t *chosen; /* [most experts of a token] */
    upload *uploads;  /* ring of all slots: no slot loads twice at once */
    uint64_t n_slot, first, n_loading;
    uint64_t n_complete; /* of n_loading: those that have ended by the clock, the first ones */
    double now, link_end, under_way; /* seconds: until the link has carried all; of uploads that are on the way */
    bool was_full;       /* an upload had to stay in this token */
    float least_gain;
} replay;

static uint32_t count_misses(const replay *r, const layer *l)
{
    uint32_t n_miss = 0;
    for (uint32_t i = 0; i < l->policy.n_used; i++) n_miss += l->policy.slot_of[r->chosen[i]] == HTH_NO_EXPERT;
    return n_miss;
}

static void count_token(layer *l, uint32_t n_miss)
{
    uint32_t n_used = l->policy.n_used;
    hth_expert_counts *c = &l->counts;
    c->n_pair += n_used, c->n_hit += n_used - n_miss;
    c->n_step++;
    c->misses[n_miss < HTH_EXPERT_MISS_BINS ? n_miss : HTH_EXPERT_MISS_BINS - 1]++;
}

/* ---- uploads ------------------------------------------------------------------------------------------- */

/* Uploads that have ended by the clock are no longer on the way. */
static void complete_uploads(replay *r)
{
    for (; r->n_complete < r->n_loading; r->n_complete++) {
        const upload *u = &r->uploads[(r->first + r->n_complete) % r->n_slot];
        if (u->end > r->now) return;
        r->under_way -= r->o->layers[u->i_layer].upload_seconds;
    }
    r->under_way = 0.0;
}

/* Before a token. */
static void end_uploads(replay *r, uint64_t i_tok)
{
    complete_uploads(r);
    for (; r->n_complete > 0; r->n_complete--, r->n_loading--, r->first = (r->first + 1) % r->n_slot) {
        const upload *u = &r->uploads[r->first];
        if (u->last_tok >= i_tok) return;
        hth_expert_policy_end(&r->layers[u->i_layer].policy, u->slot);
    }
}

static void choose_next(const replay *r, layer *l)
{
    l->has_next = l->n_upload < r->o->n_upload_layer && hth_expert_policy_choose(&l->policy, r->least_gain, &l->next);
}

/* The layer whose next swap gains most; of equal ones the first. NULL: none has one. */
static layer *find_best(const replay *r)
{
    layer *best = NULL;
    for (uint32_t i = 0; i < r->o->n_layer; i++) {
        layer *l = &r->layers[i];
        if (l->has_next && (!best || l->next.gain > best->next.gain)) best = l;
    }
    return best;
}

static void begin_next(replay *r, layer *l, uint64_t i_tok)
{
    upload *u = &r->uploads[(r->first + r->n_loading++) % r->n_slot];
    *u = (upload){.i_layer = (uint32_t)(l - r->layers), .slot = l->next.slot, .last_tok = i_tok + r->o->n_delay};
    hth_expert_policy_begin(&l->policy, &l->next);
    l->counts.n_upload += i_tok >= r->o->n_warm_tok;
    l->n_upload++;
    choose_next(r, l);
}

static void begin_best(replay *r, uint64_t i_tok)
{
    layer *l;
    for (uint32_t i = 0; i < r->o->n_layer; i++) choose_next(r, &r->layers[i]);
    for (uint32_t n = 0; n < r->o->n_upload && (l = find_best(r)) != NULL; n++) begin_next(r, l, i_tok);
}

static bool has_room(const replay *r, double seconds)
{
    return r->n_complete == r->n_loading || r->under_way + seconds <= r->o->under_way;
}

/* Behind the token of a layer, by the clock. What a layer begins at once ends at once. */
static void begin_on_clock(replay *r, layer *l, uint64_t i_tok)
{
    const double seconds = r->o->layers[l - r->layers].upload_seconds;
    const uint64_t before = r->n_loading;
    complete_uploads(r);
    if (l->end > r->now) return;
    for (choose_next(r, l); l->has_next && has_room(r, seconds); r->under_way += seconds) begin_next(r, l, i_tok);
    if (l->has_next && !r->was_full) r->was_full = true, r->least_gain *= HTH_EXPERT_GAIN_STEP;
    if (l->n_upload == 0) return;
    if (r->link_end < r->now) r->link_end = r->now;
    l->end = r->link_end += l->n_upload * seconds;
    for (uint64_t i = before; i < r->n_loading; i++) r->uploads[(r->first + i) % r->n_slot].end = l->end;
}

static void change_gain(replay *r)
{
    if (!r->was_full) r->least_gain /= HTH_EXPERT_GAIN_STEP;
    if (r->least_gain < r->o->min_gain) r->least_gain = r->o->min_gain;
    r->was_full = false;
}

static void count_uploads(replay *r, uint64_t i_tok)
{
    const uint32_t last = HTH_EXPERT_UPLOAD_BINS - 1;
    for (uint32_t i = 0; i_tok >= r->o->n_warm_tok && i < r->o->n_layer; i++) {
        const uint32_t n = r->layers[i].n_upload;
        r->layers[i].counts.uploads[n < last ? n : last]++;
    }
}

/* ---- tokens -------------------------------------------------------------------------------------------- */

static void run_token(replay *r, uint64_t i_tok)
{
    const hth_expert_replay_options *o = r->o;
    for (uint32_t i = 0; i < o->n_layer; i++) {
        layer *l = &r->layers[i];
        o->trace(o->user, o->layers[i].i_layer, i_tok, false, r->chosen);
        uint32_t n_miss = count_misses(r, l);
        if (i_tok >= o->n_warm_tok) count_token(l, n_miss);
        hth_expert_policy_step(&l->policy, r->chosen, 1);
        l->n_upload = 0;
        if (o->under_way <= 0.0) continue;
        r->now += o->layers[i].seconds[n_miss];
        begin_on_clock(r, l, i_tok);
    }
    if (o->under_way > 0.0) change_gain(r);
    else begin_best(r, i_tok);
    count_uploads(r, i_tok);
}

static void add_counts(hth_expert_counts *sum, const hth_expert_counts *c)
{
    sum->n_pair += c->n_pair, sum->n_hit += c->n_hit;
    sum->n_step += c->n_step, sum->n_upload += c->n_upload;
    for (int i = 0; i < HTH_EXPERT_MISS_BINS; i++) sum->misses[i] += c->misses[i];
    for (int i = 0; i < HTH_EXPERT_UPLOAD_BINS; i++) sum->uploads[i] += c->uploads[i];
}

static hearth_status open_replay(replay *r, hearth_error *err)
{
    const hth_expert_replay_options *o = r->o;
    uint32_t n_used = 0;
    for (uint32_t i = 0; i < o->n_layer; i++) {
        r->n_slot += o->layers[i].n_slot;
        if (o->layers[i].n_used > n_used) n_used = o->layers[i].n_used;
    }
    r->layers = hth_alloc(o->n_layer, sizeof *r->layers);
    r->chosen = hth_alloc(n_used, sizeof *r->chosen);
    r->uploads = hth_alloc(r->n_slot, sizeof *r->uploads);
    if (!r->layers || !r->chosen || !r->uploads)
        return hth_fail_memory(err, o->n_layer * sizeof *r->layers + r->n_slot * sizeof *r->uploads,
                               "the slots of experts");
    for (uint32_t i = 0; i < o->n_layer; i++) {
        const hth_expert_replay_layer *l = &o->layers[i];
        const hth_expert_policy_options policy = {.n_expert = l->n_expert,
                                                  .n_used = l->n_used,
                                                  .n_slot = l->n_slot,
                                                  .resident = l->resident,
                                                  .n_half_life = o->n_half_life,
                                                  .reuse = &r->reuse};
        hearth_status st = hth_expert_policy_open(&r->layers[i].policy, &policy, err);
        if (st != HEARTH_OK) return st;
    }
    return HEARTH_OK;
}

static void close_replay(replay *r)
{
    for (uint32_t i = 0; r->layers && i < r->o->n_layer; i++) hth_expert_policy_close(&r->layers[i].policy);
    hth_free(r->layers);
    hth_free(r->chosen);
    hth_free(r->uploads);
}

hearth_status hth_expert_replay(const hth_expert_replay_options *o, hth_expert_counts *by_layer,
                                hth_expert_counts *all, hearth_error *err)
{
    replay r = {.o = o, .least_gain = o->min_gain};
    hearth_status st = open_replay(&r, err);
    *all = (hth_expert_counts){0};
    for (uint64_t i = 0; st == HEARTH_OK && i < o->n_warm_tok + o->n_tok; i++) {
        end_uploads(&r, i);
        run_token(&r, i);
    }
    for (uint32_t i = 0; st == HEARTH_OK && i < o->n_layer; i++) {
        if (by_layer) by_layer[i] = r.layers[i].counts;
        add_counts(all, &r.layers[i].counts);
    }
    close_replay(&r);
    return st;
}
