/* From logits to a token. Called once per generated token by the engine. Opening allocates all memory; sampling
 * and accepting allocate none. Order of operations: bias, penalties, selection of candidates, filters, weights,
 * one draw. */
#include "sample/sampler.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "base/fp_state.h"
#include "base/in_use.h"
#include "base/ref.h"
#include "sample/filters.h"
#include "sample/params.h"
#include "sample/random.h"

#include <float.h>
#include <math.h>
#include <string.h>

struct hearth_sampler {
    hth_in_use in_use;
    hearth_sampler_options params;
    hearth_logit_bias *bias;
    int32_t n_vocab;
    hth_sample_random random;

    float *logit;                              /* [n_vocab], with bias and penalties */
    hth_sample_candidate *candidate, *scratch; /* [n_candidate_max] */
    size_t n_candidate_max;

    uint32_t *count; /* [n_vocab] of the last tokens; NULL: no penalties */
    int32_t *last;   /* ring of repeat_last_n; NULL: all tokens count */
    size_t n_last, i_last;
    hth_arena arena; /* of the arrays */
    hth_ref ref;     /* of the caller, and of sessions that follow it with drafts */
};

/* ---- opening ---------------------------------------------------------------- */

static bool penalises_repeats(const hearth_sampler_options *p)
{
    return p->repeat_penalty != 0.0f && p->repeat_penalty != 1.0f;
}

static bool has_penalties(const hearth_sampler_options *p)
{
    bool neutral = !penalises_repeats(p) && p->presence_penalty == 0.0f && p->frequency_penalty == 0.0f;
    return !neutral;
}

/* Without top-k every token may be a candidate. Greedy sampling needs none. */
static size_t candidates_needed(const hearth_sampler_options *p, int32_t n_vocab)
{
    if (p->temperature == 0.0f) return 0;
    return p->top_k > 0 && p->top_k < n_vocab ? (size_t)p->top_k : (size_t)n_vocab;
}

static hearth_status take_memory(hearth_sampler *s, hearth_error *err)
{
    const hearth_sampler_options *p = &s->params;
    const size_t n_vocab = (size_t)s->n_vocab;
    s->n_candidate_max = candidates_needed(p, s->n_vocab);
    hth_arena *a = &s->arena;
    s->logit = hth_arena_alloc(a, n_vocab, sizeof *s->logit, 64);
    s->candidate = hth_arena_alloc(a, s->n_candidate_max, sizeof *s->candidate, 64);
    s->scratch = hth_arena_alloc(a, s->n_candidate_max, sizeof *s->scratch, 64);
    s->bias = hth_arena_alloc(a, p->n_bias, sizeof *s->bias, 64);
    if (has_penalties(p)) s->count = hth_arena_alloc(a, n_vocab, sizeof *s->count, 64);
    if (has_penalties(p) && p->repeat_last_n > 0)
        s->last = hth_arena_alloc(a, (size_t)p->repeat_last_n, sizeof *s->last, 64);
    if (a->failed) return hth_fail_memory(err, n_vocab * sizeof *s->logit, "the sampler");
    if (p->n_bias > 0) memcpy(s->bias, p->bias, p->n_bias * sizeof *s->bias);
    s->params.bias = s->bias;
    return HEARTH_OK;
}

hearth_status hth_sampler_open(int32_t n_vocab, const hearth_sampler_options *params, hearth_sampler **out,
                               hearth_error *err)
{
    enum { DEFAULT_LAST_N = 64 };
    *out = NULL;
    hearth_status status = hth_sample_check_params(params, n_vocab, err);
    if (status != HEARTH_OK) return status;
    hearth_sampler *s = hth_alloc(1, sizeof *s);
    if (!s) return hth_fail_memory(err, sizeof *s, "the sampler");
    s->params = *params;
    if (s->params.repeat_last_n == 0) s->params.repeat_last_n = DEFAULT_LAST_N;
    s->n_vocab = n_vocab;
    hth_sample_random_seed(&s->random, params->seed);
    status = take_memory(s, err);
    if (status == HEARTH_OK) *out = s;
    else hearth_sampler_close(s);
    return status;
}

hearth_sampler *hth_sampler_hold(const hearth_sampler *sampler)
{
    hearth_sampler *s = (hearth_sampler *)(uintptr_t)sampler;
    if (s) hth_ref_take(&s->ref);
    return s;
}

void hearth_sampler_close(hearth_sampler *s)
{
    if (!s || !hth_ref_drop(&s->ref)) return;
    hth_arena_free(&s->arena);
    hth_free(s);
}

hearth_status hth_sampler_open_like(const hearth_sampler *from, hearth_sampler **out, hearth_error *err)
{
    hearth_sampler_options o = from->params;
    o.fn = NULL;
    return hth_sampler_open(from->n_vocab, &o, out, err);
}

void hth_sampler_follow(hearth_sampler *s, const hearth_sampler *from)
{
    s->random = from->random;
    s->n_last = from->n_last, s->i_last = from->i_last;
    if (s->count) memcpy(s->count, from->count, (size_t)s->n_vocab * sizeof *s->count);
    if (s->last) memcpy(s->last, from->last, (size_t)s->params.repeat_last_n * sizeof *s->last);
}

hearth_status hearth_sampler_clone(const hearth_sampler *from, hearth_sampler **out, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!out) return hth_fail_null(err, "out");
    *out = NULL;
    if (!from) return hth_fail_null(err, "sampler");
    HTH_USE_READING(use, from);
    if (!use) return hth_fail_in_use(err, "sampler");
    hearth_status st = hth_sampler_open(from->n_vocab, &from->params, out, err);
    if (st == HEARTH_OK) hth_sampler_follow(*out, from);
    return st;
}

void hearth_sampler_reseed(hearth_sampler *s, uint64_t seed)
{
    if (!s) return;
    HTH_USE(use, s);
    if (use) hth_sample_random_seed(&s->random, s->params.seed = seed);
}

/* ---- token history ------------------------------------------------------------- */

static void forget(hearth_sampler *s)
{
    if (s->count) memset(s->count, 0, (size_t)s->n_vocab * sizeof *s->count);
    s->n_last = s->i_last = 0;
}

static void accept_token(hearth_sampler *s, int32_t id)
{
    if (!s->count || id < 0 || id >= s->n_vocab) return;
    if (s->last) {
        const size_t capacity = (size_t)s->params.repeat_last_n;
        if (s->n_last == capacity) s->count[s->last[s->i_last]]--;
        else s->n_last++;
        s->last[s->i_last] = id;
        s->i_last = (s->i_last + 1) % capacity;
    }
    if (s->count[id] < UINT32_MAX) s->count[id]++;
}

void hearth_sampler_accept(hearth_sampler *s, int32_t id)
{
    if (!s) return;
    HTH_USE(use, s);
    if (use) accept_token(s, id);
}

void hearth_sampler_forget(hearth_sampler *s)
{
    if (!s) return;
    HTH_USE(use, s);
    if (use) forget(s);
}

hearth_status hth_sampler_set_history(hearth_sampler *s, const int32_t *tokens, size_t n, hearth_error *err)
{
    HTH_USE(use, s);
    if (!use) return hth_fail_in_use(err, "sampler");
    forget(s);
    for (size_t i = 0; i < n; i++) accept_token(s, tokens[i]);
    return HEARTH_OK;
}

int32_t hth_sampler_n_vocab(const hearth_sampler *s) { return s ? s->n_vocab : 0; }

/* ---- logits ------------------------------------------------------------------------ */

/* Keeps finite logits finite: values outside the range of floats saturate. */
static float narrow(double x)
{
    const double limit = (double)FLT_MAX;
    return (float)(x > limit ? limit : x < -limit ? -limit : x);
}

/* whose: of whom messages say that a logit is none. */
static hearth_status check_logits(const float *logits, int32_t n, const char *whose, hearth_error *err)
{
    for (int32_t i = 0; i < n; i++)
        if (!(logits[i] < INFINITY))
            return hth_fail(err, HEARTH_ERROR_NUMERIC, "%sthe logit of token %d is %s", whose, (int)i,
                            logits[i] > 0.0f ? "+infinity" : "not a number");
    return HEARTH_OK;
}

static void add_bias(hearth_sampler *s)
{
    for (size_t i = 0; i < s->params.n_bias; i++) {
        float *logit = &s->logit[s->bias[i].id], bias = s->bias[i].bias;
        if (bias == -INFINITY) *logit = -INFINITY;
        else if (*logit != -INFINITY) *logit = narrow((double)*logit + (double)bias);
    }
}

static void add_penalties(hearth_sampler *s)
{
    if (!s->count) return;
    const double repeat = penalises_repeats(&s->params) ? (double)s->params.repeat_penalty : 1.0;
    const double presence = (double)s->params.presence_penalty;
    const double frequency = (double)s->params.frequency_penalty;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if (s->count[i] == 0 || s->logit[i] == -INFINITY) continue;
        double x = (double)s->logit[i];
        x = x > 0.0 ? x / repeat : x * repeat;
        s->logit[i] = narrow(x - presence - frequency * (double)s->count[i]);
    }
}

static hearth_status run_stage(hearth_sampler *s, hearth_error *err)
{
    if (!s->params.fn) return HEARTH_OK;
    {
        HTH_FP_CALLBACK;
        s->params.fn(s->params.user, s->logit, (size_t)s->n_vocab);
    }
    return check_logits(s->logit, s->n_vocab, "after hearth_sampler_options.fn, ", err);
}

/* The largest logit, the lowest id among equals, or -1 if all are banned. */
static int32_t find_best(const hearth_sampler *s)
{
    int32_t best = -1;
    for (int32_t i = 0; i < s->n_vocab; i++)
        if (s->logit[i] != -INFINITY && (best < 0 || s->logit[i] > s->logit[best])) best = i;
    return best;
}

/* ---- candidates ------------------------------------------------------------------------ */

/* The best n_candidate_max tokens, best first, the lower id first among equals. */
static size_t list_candidates(hearth_sampler *s)
{
    size_t n_allowed = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) n_allowed += s->logit[i] != -INFINITY;

    /* all keys below the threshold are taken, then equal ones up to the capacity */
    uint32_t threshold = UINT32_MAX; /* no logit has this key */
    size_t n_below = 0, n_equal = 0;
    if (n_allowed > s->n_candidate_max) {
        const size_t last = s->n_candidate_max - 1;
        threshold = hth_sample_select(s->logit, (size_t)s->n_vocab, last, &n_below);
        n_equal = s->n_candidate_max - n_below;
    }
    size_t n = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if (s->logit[i] == -INFINITY) continue;
        uint32_t key = hth_sample_key_of_logit(s->logit[i]);
        if (key > threshold || (key == threshold && n_equal == 0)) continue;
        if (key == threshold) n_equal--;
        s->candidate[n++] = (hth_sample_candidate){.key = key, .logit = s->logit[i], .id = i};
    }
    hth_sample_sort(s->candidate, s->scratch, n, 32);
    return n;
}

static size_t filter(hearth_sampler *s, size_t n)
{
    const hearth_sampler_options *p = &s->params;
    hth_sample_candidate *c = s->candidate;
    if (p->typical_p > 0.0f && p->typical_p < 1.0f)
        n = hth_sample_typical(c, s->scratch, n, (double)p->typical_p);
    if (p->top_p > 0.0f && p->top_p < 1.0f) n = hth_sample_top_p(c, n, (double)p->top_p);
    if (p->min_p > 0.0f) n = hth_sample_min_p(c, n, (double)p->min_p);
    return n;
}

/* The first candidate at which the cumulative weight exceeds the fraction u of the total. */
static int32_t draw(hearth_sampler *s, size_t n)
{
    const double sum = hth_sample_weigh(s->candidate, n, (double)s->params.temperature);
    const double target = hth_sample_random_unit(&s->random) * sum;
    double reached = 0.0;
    for (size_t i = 0; i < n; i++) {
        reached += s->candidate[i].p;
        if (reached > target) return s->candidate[i].id;
    }
    return s->candidate[0].id; /* unreachable: u < 1, and the sum is the same */
}

hearth_status hearth_sampler_sample(hearth_sampler *s, const float *logits, int32_t *id, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!s || !logits || !id) return hth_fail_null(err, !s ? "sampler" : !logits ? "logits" : "id");
    HTH_USE(use, s);
    if (!use) return hth_fail_in_use(err, "sampler");
    hearth_status status = check_logits(logits, s->n_vocab, "", err);
    if (status != HEARTH_OK) return status;
    memcpy(s->logit, logits, (size_t)s->n_vocab * sizeof *s->logit);
    add_bias(s);
    add_penalties(s);
    if ((status = run_stage(s, err)) != HEARTH_OK) return status;
    int32_t best = find_best(s);
    if (best < 0)
        return hth_fail(err, HEARTH_ERROR_NUMERIC, "all %d tokens are banned", (int)s->n_vocab);
    *id = s->params.temperature == 0.0f ? best : draw(s, filter(s, list_candidates(s)));
    return HEARTH_OK;
}
