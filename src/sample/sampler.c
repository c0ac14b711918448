/* From logits to a token. Called once per generated token by the engine. Opening allocates all memory; sampling
 * and accepting allocate none. Order of operations: bias, penalties, selection of candidates, filters, weights,
 * one draw. */
#include "sample/sampler.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "base/fp_state.h"
#include "base/in_use.h"
#include "base/ref.h"
#include "sample/dry.h"
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
    hth_dry *dry;    /* NULL: none */
    double mu;       /* mirostat's limit of the surprise of a token, in bits */
    hth_arena arena; /* holds the arrays */
    hth_ref ref;     /* references of the caller, and of sessions that follow it with drafts */
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

/* Without top-k every token may be a candidate. Greedy sampling needs one. */
static size_t candidates_needed(const hearth_sampler_options *p, int32_t n_vocab)
{
    if (p->temperature == 0.0f) return 1;
    bool cuts = p->top_k > 0 && p->top_k < n_vocab && p->mirostat == 0;
    return cuts ? (size_t)p->top_k : (size_t)n_vocab;
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

/* Zero has the default. */
static void set_defaults(hearth_sampler_options *p)
{
    enum { DEFAULT_LAST_N = 64 };
    const float threshold = 0.1f, exponent = 1.0f, tau = 5.0f, eta = 0.1f;
    if (p->repeat_last_n == 0) p->repeat_last_n = DEFAULT_LAST_N;
    if (p->xtc_threshold == 0.0f) p->xtc_threshold = threshold;
    if (p->dynatemp_exponent == 0.0f) p->dynatemp_exponent = exponent;
    if (p->mirostat_tau == 0.0f) p->mirostat_tau = tau;
    if (p->mirostat_eta == 0.0f) p->mirostat_eta = eta;
    p->dry_breakers = NULL, p->n_dry_breaker = 0; /* the caller's, which hth_dry_open was given as tokens */
}

hearth_status hth_sampler_open(int32_t n_vocab, const hearth_sampler_options *params, hearth_sampler **out,
                               hearth_error *err)
{
    *out = NULL;
    hearth_status status = hth_sample_check_params(params, n_vocab, err);
    if (status != HEARTH_OK) return status;
    hearth_sampler *s = hth_alloc(1, sizeof *s);
    if (!s) return hth_fail_memory(err, sizeof *s, "the sampler");
    s->params = *params;
    set_defaults(&s->params);
    s->n_vocab = n_vocab;
    s->mu = 2.0 * (double)s->params.mirostat_tau;
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
    hth_dry_close(s->dry);
    hth_arena_free(&s->arena);
    hth_free(s);
}

hearth_status hth_sampler_use_dry(hearth_sampler *s, size_t capacity, const hth_dry_breaker *breakers, size_t n,
                                  hearth_error *err)
{
    return hth_dry_open(s->n_vocab, &s->params, capacity, breakers, n, &s->dry, err);
}

static hearth_status open_copy(const hearth_sampler *from, const hearth_sampler_options *o, hearth_sampler **out,
                               hearth_error *err)
{
    hearth_status st = hth_sampler_open(from->n_vocab, o, out, err);
    if (st == HEARTH_OK) st = hth_dry_copy(from->dry, &(*out)->dry, err);
    if (st == HEARTH_OK) return st;
    hearth_sampler_close(*out);
    *out = NULL;
    return st;
}

hearth_status hth_sampler_open_like(const hearth_sampler *from, hearth_sampler **out, hearth_error *err)
{
    hearth_sampler_options o = from->params;
    o.fn = NULL;
    return open_copy(from, &o, out, err);
}

void hth_sampler_follow(hearth_sampler *s, const hearth_sampler *from)
{
    s->random = from->random;
    s->mu = from->mu;
    hth_dry_follow(s->dry, from->dry);
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
    hearth_status st = open_copy(from, &from->params, out, err);
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
    s->mu = 2.0 * (double)s->params.mirostat_tau;
    hth_dry_forget(s->dry);
}

static void accept_token(hearth_sampler *s, int32_t id)
{
    if (id < 0 || id >= s->n_vocab) return;
    hth_dry_accept(s->dry, id);
    if (!s->count) return;
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

/* whose: prefix of the error message, which names whose logit is invalid. */
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

/* Drops logits that are too many standard deviations below the largest. */
static void drop_below_sigma(hearth_sampler *s, int32_t best)
{
    if (!(s->params.top_n_sigma > 0.0f) || s->params.mirostat > 0) return;
    const double n = (double)s->params.top_n_sigma;
    const double most = n * n * hth_sample_variance(s->logit, (size_t)s->n_vocab); /* limit of a squared difference */
    for (int32_t i = 0; i < s->n_vocab; i++) {
        const double below = (double)s->logit[best] - (double)s->logit[i];
        if (below * below > most) s->logit[i] = -INFINITY;
    }
}

static double temperature_of(const hearth_sampler *s, hth_sample_candidate *c, size_t n)
{
    const hearth_sampler_options *p = &s->params;
    const double usual = (double)p->temperature, range = (double)p->dynatemp_range;
    if (!(range > 0.0)) return usual;
    /* The lowest temperature is held above 0, by which logits are divided. */
    const double low = usual > range ? usual - range : 1e-6;
    return hth_sample_dynamic_temperature(c, n, low, usual + range, (double)p->dynatemp_exponent);
}

static void list_filtered(hearth_sampler *s, hth_sample_choice *of)
{
    const hearth_sampler_options *p = &s->params;
    of->n = filter(s, of->n);
    if (p->xtc_probability > 0.0f && p->xtc_threshold <= 0.5f && of->n > 1 &&
        hth_sample_random_unit(&s->random) < (double)p->xtc_probability) {
        const size_t n_out = hth_sample_xtc(of->c, of->n, (double)p->xtc_threshold);
        of->c += n_out, of->n -= n_out;
    }
    of->sum = hth_sample_weigh(of->c, of->n, temperature_of(s, of->c, of->n));
}

/* Mirostat leaves out tokens by mu, which holds the surprise of the text near tau. */
static void list_by_surprise(hearth_sampler *s, hth_sample_choice *of)
{
    const hearth_sampler_options *p = &s->params;
    const double temperature = (double)p->temperature;
    const double sum = hth_sample_weigh(of->c, of->n, temperature);
    of->n = p->mirostat == 1 ? hth_sample_mirostat_1(of->c, of->n, s->n_vocab, temperature, s->mu)
                             : hth_sample_mirostat_2(of->c, of->n, sum, s->mu);
    of->sum = hth_sample_weigh(of->c, of->n, temperature);
}

hearth_status hth_sampler_list(hearth_sampler *s, const float *logits, hth_sample_choice *of, hearth_error *err)
{
    hearth_status status = check_logits(logits, s->n_vocab, "", err);
    if (status != HEARTH_OK) return status;
    memcpy(s->logit, logits, (size_t)s->n_vocab * sizeof *s->logit);
    add_bias(s);
    add_penalties(s);
    hth_dry_apply(s->dry, s->logit);
    if ((status = run_stage(s, err)) != HEARTH_OK) return status;
    const int32_t best = find_best(s);
    if (best < 0)
        return hth_fail(err, HEARTH_ERROR_NUMERIC, "all %d tokens are banned", (int)s->n_vocab);
    s->candidate[0] = (hth_sample_candidate){.p = 1.0, .logit = s->logit[best], .id = best};
    *of = (hth_sample_choice){.c = s->candidate, .n = 1, .sum = 1.0};
    if (s->params.temperature == 0.0f) return HEARTH_OK;
    drop_below_sigma(s, best);
    of->n = list_candidates(s);
    if (s->params.mirostat > 0) list_by_surprise(s, of);
    else list_filtered(s, of);
    return HEARTH_OK;
}

int32_t hth_sampler_take(hearth_sampler *s, const hth_sample_choice *of, size_t i)
{
    const hearth_sampler_options *p = &s->params;
    if (p->mirostat > 0)
        s->mu -= (double)p->mirostat_eta * (hth_sample_surprise(of->c[i].p / of->sum) - (double)p->mirostat_tau);
    return of->c[i].id;
}

/* The first candidate at which the cumulative weight exceeds the fraction u of the total. */
static size_t draw_weighed(hearth_sampler *s, const hth_sample_choice *of)
{
    const double target = hth_sample_random_unit(&s->random) * of->sum;
    double reached = 0.0;
    for (size_t i = 0; i < of->n; i++) {
        reached += of->c[i].p;
        if (reached > target) return i;
    }
    return 0; /* unreachable: u < 1, and the sum is the same */
}

hearth_status hearth_sampler_sample(hearth_sampler *s, const float *logits, int32_t *id, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!s || !logits || !id) return hth_fail_null(err, !s ? "sampler" : !logits ? "logits" : "id");
    HTH_USE(use, s);
    if (!use) return hth_fail_in_use(err, "sampler");
    hth_sample_choice of;
    hearth_status status = hth_sampler_list(s, logits, &of, err);
    if (status != HEARTH_OK) return status;
    const size_t i = s->params.temperature == 0.0f ? 0 : draw_weighed(s, &of);
    *id = hth_sampler_take(s, &of, i);
    return HEARTH_OK;
}
