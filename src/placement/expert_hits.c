/* Expected hits by the number of slots: by playing the policy of slots with a trace, at some numbers and in between
 * linear. All layers are played together, because they share the link. It carries what fits into the seconds that the plan's
 * layers take with so many misses: those of an empty context, without the head, and as if moves did not slow the host. That
 * is fewer seconds than a token takes, so that a plan expects no more moves than there are. */
#include "placement/expert_hits.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "base/random.h"

#include <string.h>

/* Mixtures that were measured repeat more: 45 % of Qwen3-30B-A3B's choices (docs/plan.md). */
#define ASSUMED_STICKY 0.25
/* Numbers of slots that are played: eighths of the experts. Tokens that warm the slots up, and that are counted. */
enum { N_POINT = 8, N_WARM = 256, N_COUNTED = 768 };

/* ---- experts of which nothing is known --------------------------------------------------------------------- */

typedef struct assumed {
    const hth_model *model;
    uint64_t random;
    uint32_t *last; /* [n_layer][width] of each layer's last token */
    uint32_t width;
} assumed;

/* Some of the last token's, and any others: a hth_expert_replay_fn, for tokens in their order. */
static void assume(void *user, uint32_t i_layer, uint64_t i_tok, bool is_guess, uint32_t *chosen)
{
    assumed *a = user;
    const hth_router *r = &a->model->layers[i_layer].experts.router;
    bool is_chosen[HTH_MAX_EXPERT] = {false};
    uint32_t n = 0, *last = a->last + (size_t)i_layer * a->width;
    (void)is_guess;
    for (uint32_t i = 0; i_tok > 0 && i < r->n_used; i++)
        if ((double)hth_random_next(&a->random) * 0x1p-64 < ASSUMED_STICKY) chosen[n++] = last[i], is_chosen[last[i]] = true;
    while (n < r->n_used) {
        uint32_t e = (uint32_t)(hth_random_next(&a->random) % r->n_expert);
        if (!is_chosen[e]) chosen[n++] = e, is_chosen[e] = true;
    }
    memcpy(last, chosen, r->n_used * sizeof *chosen);
}

/* ---- points -------------------------------------------------------------------------------------------- */

/* The share of tokens that miss m experts with n slots, and the share after which as many begin to move. */
typedef struct point {
    uint32_t n;
    double misses[HTH_EXPERT_MISS_BINS], moves[HTH_EXPERT_UPLOAD_BINS], mean;
} point;

/* The layers whose experts are divided, with what is known of them. */
typedef struct layers {
    const hth_model *model;
    const hth_expert_uses *uses;
    const hth_plan_layer *costs;
    const hth_plan_machine *machine;
    float min_gain; /* that a move needs */
    uint32_t n;
    double under_way; /* seconds in which the link carries what may be on the way at once */
    double *seconds;  /* [n][width + 1] of the items */
    hth_expert_replay_layer *items; /* [n] */
    hth_expert_counts *counts;      /* [n] */
    point *before;                  /* [n] the last point that was played */
    assumed drawn;
} layers;

static void close_layers(layers *l)
{
    hth_free(l->items);
    hth_free(l->counts);
    hth_free(l->before);
    hth_free(l->drawn.last);
    hth_free(l->seconds);
}

static void fill_seconds(layers *l, hth_expert_replay_layer *item, double *seconds)
{
    const hth_plan_layer *cost = &l->costs[item->i_layer];
    for (uint32_t m = 0; m <= item->n_used; m++) seconds[m] = hth_plan_slots_seconds(cost, l->machine, m);
    item->seconds = seconds;
    item->upload_seconds = hth_plan_move_seconds(cost, l->machine);
    l->under_way = item->upload_seconds * HTH_EXPERT_UNDER_WAY / (double)cost->cluster_bytes[HTH_PLAN_HOST];
}

static hearth_status open_layers(layers *l, hearth_error *err)
{
    const hth_model *m = l->model;
    uint32_t n_layer = m->hparams.n_layer, width = 1;
    l->items = hth_alloc(n_layer, sizeof *l->items);
    l->counts = hth_alloc(n_layer, sizeof *l->counts);
    l->before = hth_alloc(n_layer, sizeof *l->before);
    for (uint32_t i = 0; l->items && l->before && i < n_layer; i++) {
        const hth_experts *e = &m->layers[i].experts;
        if (!hth_layer_divides_experts(&m->layers[i])) continue;
        uint32_t last = hth_min_u32(e->router.n_used, HTH_EXPERT_MISS_BINS - 1);
        l->before[l->n] = (point){.mean = e->router.n_used, .moves = {1.0}}, l->before[l->n].misses[last] = 1.0;
        l->items[l->n++] = (hth_expert_replay_layer){.i_layer = i, .n_expert = e->router.n_expert, .n_used = e->router.n_used};
        width = hth_max_u32(width, e->router.n_used);
    }
    l->drawn = (assumed){.model = m, .random = 1, .last = hth_alloc((size_t)n_layer * width, sizeof *l->drawn.last), .width = width};
    l->seconds = hth_alloc((size_t)n_layer * (width + 1), sizeof *l->seconds);
    for (uint32_t i = 0; l->seconds && i < l->n; i++) fill_seconds(l, &l->items[i], l->seconds + (size_t)i * (width + 1));
    return l->items && l->counts && l->before && l->drawn.last && l->seconds
               ? HEARTH_OK
               : hth_fail_memory(err, n_layer * (sizeof *l->items + sizeof *l->counts + sizeof *l->before), "slots of experts");
}

/* Plays all layers with a share of slots, in N_POINT-ths. */
static hearth_status play(layers *l, uint32_t share, hearth_error *err)
{
    const hth_expert_replay_options o = {.layers = l->items,
                                         .n_layer = l->n,
                                         .trace = l->uses->trace ? l->uses->trace : assume,
                                         .user = l->uses->trace ? l->uses->user : &l->drawn,
                                         .n_warm_tok = N_WARM,
                                         .n_tok = N_COUNTED,
                                         .n_upload_layer = HTH_EXPERT_MAX_MOVES,
                                         .under_way = l->under_way,
                                         .min_gain = l->min_gain};
    hth_expert_counts all;
    for (uint32_t i = 0; i < l->n; i++) l->items[i].n_slot = l->items[i].n_expert * share / N_POINT;
    return hth_expert_replay(&o, l->counts, &all, err);
}

static point point_of(const hth_expert_counts *c, uint32_t n)
{
    point p = {.n = n, .mean = (double)(c->n_pair - c->n_hit) / N_COUNTED};
    for (int m = 0; m < HTH_EXPERT_MISS_BINS; m++) p.misses[m] = (double)c->misses[m] / N_COUNTED;
    for (int k = 0; k < HTH_EXPERT_UPLOAD_BINS; k++) p.moves[k] = (double)c->uploads[k] / N_COUNTED;
    return p;
}

/* Beyond what is counted one by one a token is taken to miss all of its experts. */
static double misses_of(const hth_router *r, const point *p, uint32_t m)
{
    const uint32_t last = HTH_EXPERT_MISS_BINS - 1;
    return m < last ? p->misses[m] : m == r->n_used ? p->misses[last] : 0.0;
}

static double between(double a, double b, double share) { return a + (b - a) * share; }

/* Fills in what slots of two played points, and of all counts between them, are expected to find. */
static void fill(const hth_router *r, const point *from, const point *to, hth_expert_slots *out)
{
    for (uint32_t k = from->n; k <= to->n; k++) {
        double part = to->n > from->n ? (double)(k - from->n) / (to->n - from->n) : 0.0;
        double share = to->n > from->n ? (from->mean - to->mean) / (to->n - from->n) : 0.0;
        if (k < to->n) out->share[k] = share < 1.0 ? share : 1.0;
        for (uint32_t n = 0; n < HTH_EXPERT_UPLOAD_BINS; n++)
            out->moves[(size_t)k * HTH_EXPERT_UPLOAD_BINS + n] = between(from->moves[n], to->moves[n], part);
        for (uint32_t m = 0; m <= r->n_used; m++)
            out->misses[(size_t)k * (r->n_used + 1) + m] = between(misses_of(r, from, m), misses_of(r, to, m), part);
    }
}

hearth_status hth_expert_slots_expect(const hth_model *model, const hth_expert_uses *uses, const hth_plan_layer *costs,
                                      const hth_plan_machine *machine, float min_gain, hth_expert_slots *out,
                                      hearth_error *err)
{
    layers l = {.model = model, .uses = uses, .costs = costs, .machine = machine, .min_gain = min_gain};
    hearth_status st = open_layers(&l, err);
    for (uint32_t share = 1; st == HEARTH_OK && l.n > 0 && share <= N_POINT; share++) {
        if (share < N_POINT) st = play(&l, share, err);
        for (uint32_t i = 0; st == HEARTH_OK && i < l.n; i++) {
            const hth_expert_replay_layer *layer = &l.items[i];
            point to = {.n = layer->n_expert, .misses = {1.0}, .moves = {1.0}};
            if (share < N_POINT) to = point_of(&l.counts[i], layer->n_slot);
            if (to.mean > l.before[i].mean) {
                const uint32_t n = to.n;
                to = l.before[i], to.n = n;
            }
            fill(&model->layers[layer->i_layer].experts.router, &l.before[i], &to, &out[layer->i_layer]);
            l.before[i] = to;
        }
    }
    close_layers(&l);
    return st;
}
