/* Requests of a scheduler: how they are added, what they are told, how they end. */
#include "scheduler/requests.h"

#include "base/alloc.h"
#include "base/fp_state.h"
#include "base/status.h"
#include "constrain/constraint.h"
#include "engine/struct_size.h"

#include <string.h>

typedef hth_request request;

const char *hearth_request_state_name(hearth_request_state state)
{
    static const char *const names[] = {"token",   "end of text", "length",   "stopped by its function",
                                        "cancelled", "failed",    "stop text"};
    return (unsigned)state < sizeof names / sizeof *names ? names[state] : "unknown state";
}

hearth_request hearth_request_defaults(void)
{
    return (hearth_request){.size = sizeof(hearth_request)};
}

/* ---- adding ----------------------------------------------------------------------------------- */

static void free_request(request *r)
{
    hearth_session_close(r->session);
    hearth_sampler_close(r->sampler);
    hearth_constraint_close(r->constraint);
    hth_generated_text_close(&r->text);
    hth_free(r->tokens);
    hth_free(r);
}

void hth_request_free_all(request *r)
{
    for (request *next; r; r = next) {
        next = r->next;
        free_request(r);
    }
}

void hth_request_append(request **list, request *r)
{
    while (*list) list = &(*list)->next;
    r->next = NULL;
    *list = r;
}

void hth_request_unlink(request **list, request *r)
{
    while (*list != r) list = &(*list)->next;
    *list = r->next;
    r->next = NULL;
}

/* Tokens that a request can have: its last one is never evaluated. */
static size_t most_tokens(const hearth_scheduler *s)
{
    uint32_t n = s->options.n_position < s->options.n_ctx ? s->options.n_position : s->options.n_ctx;
    return (size_t)n + 1;
}

/* A constraint follows one text. */
static bool is_constraint_used(const hearth_scheduler *s, const hearth_constraint *c)
{
    const request *const lists[] = {s->waiting, s->running};
    for (int i = 0; c && i < 2; i++)
        for (const request *r = lists[i]; r; r = r->next)
            if (r->constraint == c) return true;
    return false;
}

static hearth_status check_request(const hearth_scheduler *s, const hearth_request *r, hearth_error *err)
{
    if (r->n_token == 0) return hth_fail(err, HEARTH_ERROR_ARGUMENT, "hearth_request.n_token is 0");
    if (!r->tokens || !r->fn)
        return hth_fail_null(err, r->fn ? "hearth_request.tokens" : "hearth_request.fn");
    hearth_status st = hth_engine_check_ids(s->model, "hearth_request.tokens", r->tokens, r->n_token, err);
    if (st == HEARTH_OK) st = hth_engine_check_constraint(s->model, "hearth_request.constraint", r->constraint, err);
    if (st == HEARTH_OK && is_constraint_used(s, r->constraint))
        st = hth_fail(err, HEARTH_ERROR_ARGUMENT,
                      "hearth_request.constraint is that of a request that has not ended: give each a copy");
    if (st != HEARTH_OK) return st;
    if (r->n_token < most_tokens(s)) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_CONTEXT, "a prompt of %zu tokens exceeds the available context size of %zu: give a shorter prompt, or a "
                    "larger context",
                    r->n_token, most_tokens(s) - 1);
}

static hearth_status fill(hearth_scheduler *s, request *r, const hearth_request *from, hearth_error *err)
{
    size_t most = most_tokens(s), n_room = most - from->n_token;
    r->n_max = from->max_token > 0 && from->max_token < n_room ? from->n_token + from->max_token : most;
    if (from->prompt_only) r->n_max = from->n_token;
    r->tokens = hth_alloc(r->n_max, sizeof *r->tokens);
    if (!r->tokens) return hth_fail_memory(err, r->n_max * sizeof *r->tokens, "a request");
    memcpy(r->tokens, from->tokens, from->n_token * sizeof *r->tokens);
    hearth_status st = hearth_sampler_open(s->model, from->sampler, &r->sampler, err);
    for (size_t i = 0; st == HEARTH_OK && i < from->n_token; i++)
        hearth_sampler_accept(r->sampler, from->tokens[i]);
    const hth_generated_text_options text = {.name = "hearth_request.stops",
                                             .stops = from->stops,
                                             .n_stop = from->n_stop,
                                             .prompt = from->tokens,
                                             .n_prompt = from->at_start ? 0 : from->n_token,
                                             .show_special = from->show_special,
                                             .is_constrained = from->constraint != NULL};
    r->has_text = from->with_text || from->n_stop > 0;
    return st == HEARTH_OK && r->has_text ? hth_generated_text_open(&r->text, s->model, &text, err) : st;
}

hearth_status hearth_scheduler_add(hearth_scheduler *s, const hearth_request *given, uint64_t *id,
                                   hearth_error *err)
{
    HTH_FP_SCOPE;
    hearth_request all, *from = &all;
    if (!id) return hth_fail_null(err, "id");
    *id = 0;
    if (!s) return hth_fail_null(err, "scheduler");
    HTH_USE(use, s);
    if (!use) return hth_fail_in_use(err, "scheduler");
    hearth_status st = hth_engine_read_options(&hth_size_of_hearth_request, given, from, err);
    if (st == HEARTH_OK) st = check_request(s, from, err);
    if (st != HEARTH_OK) return st;
    request *r = hth_alloc(1, sizeof *r);
    if (!r) return hth_fail_memory(err, sizeof *r, "a request");
    *r = (request){.id = s->n_id + 1,
                   .owner = from->owner,
                   .fn = from->fn,
                   .user = from->user,
                   .constraint = hth_constraint_hold(from->constraint),
                   .n_token = from->n_token,
                   .n_prompt = from->n_token,
                   .ignore_end = from->ignore_end};
    if ((st = fill(s, r, from, err)) != HEARTH_OK) {
        free_request(r);
        return st;
    }
    hth_request_append(&s->waiting, r);
    *id = ++s->n_id;
    return HEARTH_OK;
}

hearth_draft_stats hth_request_drafts(const request *r)
{
    hearth_draft_stats all = r->drafted;
    if (!r->session) return all;
    const hearth_draft_stats now = hth_session_draft_stats(r->session);
    all.n_drafted += now.n_drafted, all.n_accepted += now.n_accepted;
    return all;
}

bool hth_request_tell(const request *r, const hearth_request_event *event)
{
    HTH_FP_CALLBACK;
    return r->fn(r->user, event);
}

void hth_request_end(hearth_scheduler *s, request *r, hearth_request_event event)
{
    event.n_cached = r->n_cached;
    event.draft = hth_request_drafts(r);
    event.n_text = 0, event.text = "";
    if (r->has_text && event.state != HEARTH_REQUEST_STOPPED)
        event.n_text = hth_generated_text_finish(&r->text, &event.text);
    hth_request_unlink(r->session ? &s->running : &s->waiting, r);
    (void)hth_request_tell(r, &event);
    if (r->session) {
        hth_speculation_close(r->session);
        hth_prefix_cache_put(&s->prefix_cache, r->owner, r->session);
    }
    r->session = NULL;
    free_request(r);
}

static void cancel(hearth_scheduler *s, uint64_t id)
{
    request *const lists[] = {s->waiting, s->running};
    for (int i = 0; i < 2; i++)
        for (request *r = lists[i]; r; r = r->next)
            if (r->id == id) {
                hth_request_end(s, r, (hearth_request_event){.state = HEARTH_REQUEST_CANCELLED});
                return;
            }
}

void hearth_scheduler_cancel(hearth_scheduler *s, uint64_t id)
{
    HTH_FP_SCOPE;
    if (!s) return;
    HTH_USE(use, s);
    if (use) cancel(s, id);
}

bool hearth_request_cancel(hearth_scheduler *s, uint64_t id)
{
    for (int i = 0; s && id != 0 && i < HTH_N_CANCELLED; i++) {
        uint64_t was = 0;
        if (!atomic_compare_exchange_strong(&s->cancelled[i], &was, id) && was != id) continue;
        hearth_batch_cancel(s->batch);
        return true;
    }
    return false;
}

void hth_request_end_cancelled(hearth_scheduler *s)
{
    for (int i = 0; i < HTH_N_CANCELLED; i++) {
        uint64_t id = atomic_exchange(&s->cancelled[i], 0);
        if (id != 0) cancel(s, id);
    }
}

void hearth_scheduler_pause(hearth_scheduler *s, uint64_t id, bool is_paused)
{
    if (!s) return;
    request *const lists[] = {s->waiting, s->running};
    for (int i = 0; i < 2; i++)
        for (request *r = lists[i]; r; r = r->next)
            if (r->id == id) r->is_paused = is_paused;
}
