/* Implements hearth_generate: what a session has of a prompt is kept, the rest is evaluated, then tokens are sampled,
 * shown and evaluated one by one. Drafts, if the session makes them, are within the evaluation of a token. */
#include "engine/batch_int.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/fp_state.h"
#include "base/thread.h"
#include "engine/generated_text.h"
#include "engine/struct_size.h"
#include "sample/sampler.h"

#include <string.h>

/* Tokens that share a read of the weights nearly as well as 256 do. */
enum { FIRST_PART = 32 };

typedef struct generation {
    hearth_session *session;
    const hearth_generate_options *o;
    hearth_sampler *sampler; /* the sampler of the options, or own */
    hearth_sampler *own;
    float *masked; /* [n_vocab], with a constraint */
    hth_generated_text text;
    hearth_usage usage;
} generation;

const char *hearth_end_name(hearth_end end)
{
    static const char *const names[] = {"none",   "end of text",  "complete",     "stop text",
                                        "length", "context full", "ended by function"};
    return (unsigned)end < sizeof names / sizeof *names ? names[end] : "unknown end";
}

/* ---- the prompt ---------------------------------------------------------------------------- */

/* Truncates the session to the tokens that it shares with the prompt and has in its cache. If that is all of them, it
 * has the logits after the last one. */
static hearth_status keep_common(generation *g, hearth_error *err)
{
    hearth_session *s = g->session;
    const size_t n = g->o->n_token;
    uint32_t same = hth_session_count_same(s, g->o->tokens, n);
    bool complete = same == s->position && hth_session_has_cache(s) && s->has_logits;
    if (same == n && !complete) same--; /* the last one is evaluated for its logits */
    hearth_status st = hth_session_truncate(s, same, err);
    /* Tokens without a cache would be computed again with the next ones, but without progress and as if they were kept. */
    uint32_t n_cached = hearth_session_n_cached(s);
    if (st == HEARTH_OK && n_cached < same) st = hth_session_truncate(s, same = n_cached, err);
    g->usage.n_cached = same;
    return st;
}

/* How many tokens take about a second, by the time of the last part. */
static size_t part_of_a_second(size_t part, uint64_t took_ns, size_t max)
{
    const uint64_t second = 1000000000u;
    while (part < max && took_ns < second / 2) part *= 2, took_ns *= 2;
    while (part > FIRST_PART && took_ns > 2 * second) part /= 2, took_ns /= 2;
    return part < max ? part : max;
}

static bool show_progress(const hearth_generate_options *o, uint64_t n_done, uint64_t n)
{
    HTH_FP_CALLBACK;
    return o->progress(o->progress_user, n_done, n);
}

static hearth_status eval_prompt(generation *g, hearth_error *err)
{
    const hearth_generate_options *o = g->o;
    hearth_status st = keep_common(g, err);
    const size_t first = g->usage.n_cached, n = o->n_token - first, max = g->session->own->n_tok_max;
    size_t part = o->progress && max > FIRST_PART ? FIRST_PART : max, k;
    for (size_t i = 0; st == HEARTH_OK && i < n; i += k) {
        k = n - i < part ? n - i : part;
        uint64_t start = hth_clock_ns();
        st = hth_session_eval(g->session, o->tokens + first + i, k, err);
        if (st != HEARTH_OK || !o->progress) continue;
        if (k == part) part = part_of_a_second(part, hth_clock_ns() - start, max);
        if (!show_progress(o, i + k, n)) st = hth_fail(err, HEARTH_ERROR_CANCELLED, "cancelled by progress");
    }
    g->usage.n_evaluated = g->session->position - g->usage.n_cached;
    return st;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static bool give(const generation *g, const hearth_generated *part)
{
    if (!g->o->fn) return true;
    HTH_FP_CALLBACK;
    return g->o->fn(g->o->user, part);
}

/* Samples a token and shows it. */
static hearth_status next_token(generation *g, hearth_error *err)
{
    const hearth_generate_options *o = g->o;
    hearth_session *s = g->session;
    hearth_generated part = {.logits = hearth_session_logits(s), .text = ""};
    hearth_status st = hth_engine_sample(s->model, g->sampler, o->constraint, part.logits, g->masked, &part.token, err);
    if (st != HEARTH_OK) return st;
    bool ends = (!o->ignore_end || o->constraint) && hearth_token_is_eog(s->model, part.token);
    if (!ends && o->constraint) st = hearth_constraint_accept(o->constraint, part.token, err);
    if (st != HEARTH_OK) return st;
    g->usage.n_generated++;
    hearth_sampler_accept(g->sampler, part.token);
    part.is_end = ends;
    if (!ends) part.n = hth_generated_text_push(&g->text, part.token, &part.text);
    bool goes_on = give(g, &part);
    hearth_end *end = &g->usage.end;
    if (!goes_on) *end = HEARTH_END_FUNCTION;
    else if (ends) *end = HEARTH_END_TOKEN;
    else if (g->text.i_stop < g->text.n_stop) *end = HEARTH_END_STOP_TEXT;
    else if (o->constraint && hearth_constraint_get_end(o->constraint) == HEARTH_CONSTRAINT_COMPLETE)
        *end = HEARTH_END_COMPLETE;
    else if (s->position == hearth_session_n_ctx(s)) *end = HEARTH_END_CONTEXT;
    else if ((st = hth_session_eval(s, &part.token, 1, err)) == HEARTH_OK && g->usage.n_generated == o->max_token)
        *end = HEARTH_END_LENGTH;
    return st;
}

static hearth_status generate_tokens(generation *g, hearth_error *err)
{
    const hearth_generate_options *o = g->o;
    hearth_generated rest = {.token = -1};
    hearth_status st = hth_sampler_set_history(g->sampler, o->tokens, o->n_token, err);
    while (st == HEARTH_OK && g->usage.end == HEARTH_END_NONE) {
        if (hth_is_cancelled(g->session->model->cancel) || hth_batch_take_cancel(g->session->own))
            st = hth_fail_cancelled(err);
        else st = next_token(g, err);
    }
    g->usage.i_stop = g->usage.end == HEARTH_END_STOP_TEXT ? (uint32_t)g->text.i_stop : 0;
    rest.n = hth_generated_text_finish(&g->text, &rest.text);
    if (rest.n > 0 && g->usage.end != HEARTH_END_FUNCTION) (void)give(g, &rest);
    return st;
}

/* ---- the call --------------------------------------------------------------------------------- */

static hearth_status check_options(const hearth_session *s, const hearth_generate_options *o, hearth_error *err)
{
    const uint32_t n_ctx = hearth_session_n_ctx(s);
    if (!o->tokens || o->n_token == 0)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "hearth_generate_options.%s: a text goes on from one token at least",
                        o->tokens ? "n_token is 0" : "tokens is NULL");
    hearth_status st = hth_engine_check_ids(s->model, "hearth_generate_options.tokens", o->tokens, o->n_token, err);
    if (st == HEARTH_OK) st = hth_engine_check_sampler(s->model, "hearth_generate_options.sampler", o->sampler, err);
    if (st == HEARTH_OK)
        st = hth_engine_check_constraint(s->model, "hearth_generate_options.constraint", o->constraint, err);
    if (st != HEARTH_OK) return st;
    if (o->n_token > n_ctx)
        return hth_fail(err, HEARTH_ERROR_CONTEXT,
                        "context full: the prompt has %zu tokens, and the context has %u; raise n_ctx", o->n_token, n_ctx);
    return HEARTH_OK;
}

static hearth_status open_generation(generation *g, hearth_error *err)
{
    const hearth_generate_options *o = g->o;
    const hearth_model *m = g->session->model;
    const hth_generated_text_options text = {.name = "hearth_generate_options.stops",
                                             .stops = o->stops,
                                             .n_stop = o->n_stop,
                                             .prompt = o->tokens,
                                             .n_prompt = o->at_start ? 0 : o->n_token,
                                             .show_special = o->show_special,
                                             .is_constrained = o->constraint != NULL};
    hearth_status st = hth_generated_text_open(&g->text, m, &text, err);
    const size_t n_vocab = m->model->hparams.n_vocab;
    if (st != HEARTH_OK) return st;
    if (o->constraint && !(g->masked = hth_alloc(n_vocab, sizeof *g->masked)))
        return hth_fail_memory(err, n_vocab * sizeof *g->masked, "the logits that a constraint allows");
    if (!o->sampler) st = hearth_sampler_open(m, NULL, &g->own, err);
    g->sampler = o->sampler ? o->sampler : g->own;
    return st;
}

static void close_generation(generation *g)
{
    hth_generated_text_close(&g->text);
    hearth_sampler_close(g->own);
    hth_free(g->masked);
}

static hearth_status run(generation *g, hearth_error *err)
{
    hearth_status st = g->o->prompt_only ? HEARTH_OK : open_generation(g, err);
    if (st != HEARTH_OK) return st;
    const uint64_t start = hth_clock_ns();
    st = eval_prompt(g, err);
    const uint64_t evaluated = hth_clock_ns();
    g->usage.prompt_seconds = 1e-9 * (double)(evaluated - start);
    if (st != HEARTH_OK) return st;
    if (g->o->prompt_only) g->usage.end = HEARTH_END_LENGTH;
    else st = generate_tokens(g, err);
    g->usage.generate_seconds = 1e-9 * (double)(hth_clock_ns() - evaluated);
    return st;
}

hearth_generate_options hearth_generate_defaults(void)
{
    return (hearth_generate_options){.size = sizeof(hearth_generate_options)};
}

hearth_status hearth_generate(hearth_session *s, const hearth_generate_options *options, hearth_usage *usage,
                              hearth_error *err)
{
    HTH_FP_SCOPE;
    hearth_generate_options o;
    if (usage && !hth_engine_can_write_result(&hth_size_of_hearth_usage, usage))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "hearth_usage.size is %zu; expected 0, or from %zu on", usage->size,
                        hth_size_of_hearth_usage.first_size);
    if (usage) hth_engine_write_result(&hth_size_of_hearth_usage, &(hearth_usage){0}, usage);
    if (!s) return hth_fail_null(err, "session");
    HTH_USE(use, s);
    if (!use) return hth_fail_in_use(err, "session");
    hearth_status st = hth_engine_read_options(&hth_size_of_hearth_generate_options, options, &o, err);
    generation g = {.session = s, .o = &o, .usage.n_prompt = (uint32_t)o.n_token};
    if (st == HEARTH_OK) st = check_options(s, &o, err);
    if (st == HEARTH_OK) st = hth_session_eval(s, NULL, 0, err); /* it has a step of its own */
    if (st == HEARTH_OK) st = run(&g, err);
    close_generation(&g);
    if (s->own) (void)hth_batch_take_cancel(s->own); /* which came too late for this text, and is not meant for another */
    if (usage) hth_engine_write_result(&hth_size_of_hearth_usage, &g.usage, usage);
    return st;
}
