/* Finds drafts in earlier text, and decides by what became of earlier ones and by measured times how many tokens of
 * them a step takes. Pure arithmetic on what it is given: tokens, and times. */
#include "draft/draft.h"

/* A new sequence's drafts are taken to be right so often, as if one token had been tried. */
static const double first_shares[HTH_N_DRAFT_SOURCE] = {0.5, 0.6, 0.8, 0.7, 0.7};
/* The weight of what was noted before, with each token. */
#define KEEP 0.85
/* Drafts that are seldomer right are not worth it anywhere; what times say then is noise. */
#define LEAST_SHARE 0.2
/* A token more than any measured step had takes so much of a step of one. */
#define FIRST_PRICE 0.25
/* Other sequences wait so much longer for a step with drafts. */
#define MAX_SLOWER 1.25
/* Drafts that are not evaluated before one is tried again. */
enum { FIRST_PATIENCE = 32, MAX_PATIENCE = 256 };
/* Steps for which a measured time counts. */
enum { LASTING = 256 };

/* ---- where they come from ------------------------------------------------------------------------------ */

/* How many tokens before `end` are those at the end of all n. */
static uint32_t count_alike(const int32_t *tokens, size_t n, size_t end)
{
    uint32_t k = 0;
    while (k < end && k < HTH_DRAFT_MOST && tokens[end - 1 - k] == tokens[n - 1 - k]) k++;
    return k;
}

size_t hth_draft_find(const int32_t *tokens, size_t n, uint32_t *length)
{
    size_t best = n;
    *length = HTH_DRAFT_LEAST - 1;
    if (n < HTH_DRAFT_LEAST + 1) return n;
    const int32_t last = tokens[n - 1];
    for (size_t end = n - 1; end >= HTH_DRAFT_LEAST && *length < HTH_DRAFT_MOST; end--) {
        if (tokens[end - 1] != last) continue;
        uint32_t k = count_alike(tokens, n, end);
        if (k > *length) best = end, *length = k;
    }
    return best;
}

hth_draft_source hth_draft_source_of(uint32_t length)
{
    if (length < HTH_DRAFT_MEDIUM_LEAST) return HTH_DRAFT_SHORT;
    return length < HTH_DRAFT_LONG_LEAST ? HTH_DRAFT_MEDIUM : HTH_DRAFT_LONG;
}

void hth_draft_copy(const int32_t *tokens, size_t n, size_t from, uint32_t n_draft, int32_t *draft)
{
    size_t n_there = n - from;
    for (uint32_t i = 0; i < n_draft; i++) draft[i] = i < n_there ? tokens[from + i] : draft[i - n_there];
}

/* ---- whether they come true ---------------------------------------------------------------------------- */

hth_draft_history hth_draft_history_begin(void)
{
    hth_draft_history h;
    for (int i = 0; i < HTH_N_DRAFT_SOURCE; i++)
        h.records[i] = (hth_draft_record){.n_right = first_shares[i], .n_tried = 1.0, .patience = FIRST_PATIENCE};
    return h;
}

void hth_draft_note(hth_draft_history *h, hth_draft_source source, bool is_right)
{
    hth_draft_record *r = &h->records[source];
    r->n_right = KEEP * r->n_right + (is_right ? 1.0 : 0.0);
    r->n_tried = KEEP * r->n_tried + 1.0;
}

double hth_draft_share(const hth_draft_history *h, hth_draft_source source)
{
    const hth_draft_record *r = &h->records[source];
    return r->n_right / r->n_tried;
}

/* ---- how many are worth it ----------------------------------------------------------------------------- */

/* Other work on the machine makes steps slower, never faster: what is lower counts more. */
static void average(double *mean, double now)
{
    double weight = *mean == 0.0 ? 1.0 : now < *mean ? 0.5 : 0.125;
    *mean += weight * (now - *mean);
}

static bool is_known(const hth_draft_costs *c, uint32_t n_token)
{
    return n_token <= HTH_DRAFT_MAX_TOKENS && c->last[n_token] > 0 && c->n_step - c->last[n_token] < LASTING;
}

void hth_draft_measure(hth_draft_costs *c, uint32_t n_token, double seconds)
{
    c->n_step++;
    if (n_token > HTH_DRAFT_MAX_TOKENS) return;
    if (!is_known(c, n_token)) c->seconds[n_token] = 0.0;
    average(&c->seconds[n_token], seconds);
    c->last[n_token] = c->n_step;
}

void hth_draft_measure_model(hth_draft_costs *c, double seconds) { average(&c->model_seconds, seconds); }

double hth_draft_seconds(const hth_draft_costs *c, uint32_t n)
{
    uint32_t below = n < HTH_DRAFT_MAX_TOKENS ? n : HTH_DRAFT_MAX_TOKENS, above = n + 1, first = 1;
    while (below > 0 && !is_known(c, below)) below--;
    if (below == 0) return 0.0;
    double low = c->seconds[below];
    if (below == n) return low;
    while (above <= HTH_DRAFT_MAX_TOKENS && !is_known(c, above)) above++;
    if (above <= HTH_DRAFT_MAX_TOKENS) return low + (c->seconds[above] - low) * (n - below) / (above - below);
    while (!is_known(c, first)) first++;
    double each = first < below ? (low - c->seconds[first]) / (below - first) : FIRST_PRICE * low / below;
    return low + (each > 0.0 ? each : 0.0) * (n - below);
}

/* The offer whose next token is the most likely one to be right, and how likely it is; NULL: no offer has one more. */
static hth_draft_offer *next_best(hth_draft_offer *offers, uint32_t n_offer, double *chance)
{
    hth_draft_offer *best = NULL;
    *chance = 0.0;
    for (uint32_t i = 0; i < n_offer; i++) {
        hth_draft_offer *o = &offers[i];
        if (o->n == o->n_most) continue;
        double share = hth_draft_share(o->history, o->source), all = share;
        if (share < LEAST_SHARE) continue;
        for (uint32_t k = 0; k < o->n; k++) all *= share;
        if (all > *chance) *chance = all, best = o;
    }
    return best;
}

/* Adds the likeliest tokens of all offers, at most n_room, as long as a step of the first so many is the best one. */
static void add_best(const hth_draft_costs *c, hth_draft_offer *offers, uint32_t n_offer, uint32_t n_base,
                     uint32_t n_room)
{
    double base = hth_draft_seconds(c, n_base), expected = n_base, best = n_base / base, chance;
    uint32_t n = 0, n_best = 0, n_long = 0;
    hth_draft_offer *order[HTH_DRAFT_ROWS];
    while (n < n_room && n < HTH_DRAFT_ROWS) {
        hth_draft_offer *o = next_best(offers, n_offer, &chance);
        if (!o) break;
        order[n++] = o, o->n++;
        if (hth_draft_is_by_model(o->source) && o->n > n_long)
            n_long = o->n; /* sequences share the steps of a model */
        expected += chance;
        double seconds = hth_draft_seconds(c, n_base + n) + n_long * c->model_seconds;
        bool is_slow = n_base > 1 && seconds > MAX_SLOWER * base;
        if (!is_slow && expected / seconds > best) best = expected / seconds, n_best = n;
    }
    while (n > n_best) order[--n]->n--;
}

/* A source that was not worth it is tried again, with one token, after more and more drafts. */
static void try_again(hth_draft_offer *o)
{
    hth_draft_record *r = &o->history->records[o->source];
    if (o->n > 0) {
        r->n_refused = 0, r->patience = FIRST_PATIENCE;
        return;
    }
    if (++r->n_refused < r->patience) return;
    r->n_refused = 0;
    if (r->patience < MAX_PATIENCE) r->patience *= 2;
    o->n = 1;
}

void hth_draft_choose(const hth_draft_costs *c, hth_draft_offer *offers, uint32_t n_offer, uint32_t n_base,
                      uint32_t n_room)
{
    uint32_t n_used = 0;
    for (uint32_t i = 0; i < n_offer; i++) offers[i].n = 0;
    if (!is_known(c, n_base)) return; /* nothing to compare with */
    add_best(c, offers, n_offer, n_base, n_room);
    for (uint32_t i = 0; i < n_offer; i++) n_used += offers[i].n;
    for (uint32_t i = 0; i < n_offer; i++) {
        if (offers[i].n_most == 0 || (offers[i].n == 0 && n_used == n_room)) continue;
        n_used -= offers[i].n;
        try_again(&offers[i]);
        n_used += offers[i].n;
    }
}

void hth_draft_take_all(hth_draft_offer *offers, uint32_t n_offer, uint32_t n_wanted, uint32_t n_room)
{
    for (uint32_t i = 0; i < n_offer; i++) {
        hth_draft_offer *o = &offers[i];
        o->n = n_wanted < o->n_most ? n_wanted : o->n_most;
        if (o->n > n_room) o->n = n_room;
        n_room -= o->n;
    }
}
