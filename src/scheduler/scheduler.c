/* Requests wait, then run: first their prompts, in parts, then a token a step. Which requests share a step, how
 * prompts are divided and what is kept change when a token comes, never which one. When the pages of the cache run
 * out, kept sequences go, then the youngest request waits again, and is evaluated again later with what it had
 * generated. */
#include "base/alloc.h"
#include "base/checked_math.h"
#include "base/clock.h"
#include "base/fp_state.h"
#include "base/status.h"
#include "base/thread.h"
#include "engine/struct_size.h"
#include "scheduler/requests.h"

#include <string.h>

enum { N_RUNNING = 16, N_KEPT = 64, MAX_RUNNING = 1024, MAX_KEPT = 4096, MIN_PART = 8 };
#define MAX_DELAY 0.15
/* Steps vary, and sampling and answers take time too: parts of prompts are made for less than the delay. */
#define PART_OF_DELAY 0.8

typedef hth_request request;

/* ---- opening ---------------------------------------------------------------------------------- */

hearth_scheduler_options hearth_scheduler_defaults(void)
{
    return (hearth_scheduler_options){.size = sizeof(hearth_scheduler_options)};
}

/* n_there: pages on a device; 0: there is none. */
static uint32_t usual_positions(uint32_t n_ctx, uint32_t n_there)
{
    if (n_there > 0) return n_there * HTH_KV_PAGE;
    return n_ctx <= UINT32_MAX / 4 ? 4 * n_ctx : n_ctx;
}

/* Steps as large as the model chose for its sessions, and no larger than the cache, as memory was planned. */
static uint32_t auto_batch(const hearth_scheduler *s)
{
    const hearth_scheduler_options *o = &s->options;
    uint32_t n_position = o->n_position > 0 ? o->n_position : usual_positions(o->n_ctx, 0),
             most = hth_max_u32(n_position, HTH_DEFAULT_BATCH);
    return hth_min_u32(hth_min_u32(s->model->n_batch, most), s->model->max_tokens);
}

/* Copies the options, with what they leave to be chosen. */
static hearth_status choose(hearth_scheduler *s, const hearth_scheduler_options *options, hearth_error *err)
{
    hearth_scheduler_options *o = &s->options;
    hearth_status st = hth_engine_read_options(&hth_size_of_hearth_scheduler_options, options, o, err);
    if (st == HEARTH_OK) st = hth_engine_check_kv("hearth_scheduler_options.kv", o->kv, err);
    if (st == HEARTH_OK) st = hth_engine_check_threads("hearth_scheduler_options.n_thread", o->n_thread, err);
    if (st != HEARTH_OK) return st;
    o->n_ctx = hth_context_for(&s->model->model->hparams, o->n_ctx);
    if (o->n_batch == HEARTH_BATCH_AUTO) o->n_batch = auto_batch(s);
    if (o->n_running == 0) o->n_running = hth_min_u32(N_RUNNING, o->n_batch);
    if (o->n_kept == 0) o->n_kept = N_KEPT;
    else if (o->n_kept == HEARTH_KEPT_NONE) o->n_kept = 0;
    if (o->max_delay == 0.0) o->max_delay = MAX_DELAY;
    if (o->n_running > MAX_RUNNING || o->n_kept > MAX_KEPT || o->n_running > o->n_batch)
        return hth_fail(
            err, HEARTH_ERROR_ARGUMENT,
            "n_running is %u, with n_batch %u, and n_kept is %u: at most %d requests, a token of each "
            "in a step, and %d kept ones are possible",
            o->n_running, o->n_batch, o->n_kept, MAX_RUNNING, MAX_KEPT);
    if (!(o->max_delay > 0.0))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "max_delay is %g; it must not be less than 0",
                        o->max_delay);
    return HEARTH_OK;
}

hearth_session_options hth_scheduler_session_options(const hearth_scheduler *s)
{
    return (hearth_session_options){.n_ctx = s->options.n_ctx,
                                    .n_batch = HEARTH_BATCH_NONE,
                                    .n_thread = s->options.n_thread,
                                    .no_pin = s->options.no_pin,
                                    .kv = s->options.kv};
}

static hearth_status open_pages(hearth_scheduler *s, hearth_error *err)
{
    hearth_model *m = hth_engine_mutable(s->model);
    hth_kv_pool *pool;
    hearth_status st = hth_engine_kv_pool(m, s->options.kv, &pool, err);
    if (st != HEARTH_OK) return st;
    if (s->options.n_position == 0)
        s->options.n_position = usual_positions(s->options.n_ctx, hth_kv_pool_limit(pool));
    return hth_engine_open_pages(m, s->options.kv, s->options.n_position, &s->pages, &s->pages_size, err);
}

hearth_status hearth_scheduler_open(const hearth_model *model, const hearth_scheduler_options *options,
                                    hearth_scheduler **out, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!out) return hth_fail_null(err, "out");
    *out = NULL;
    if (!model) return hth_fail_null(err, "model");
    hearth_status st = hth_engine_need_model(model, "a scheduler", err);
    if (st != HEARTH_OK) return st;
    hearth_scheduler *s = hth_alloc(1, sizeof *s);
    if (!s) return hth_fail_memory(err, sizeof *s, "a scheduler");
    s->model = hth_engine_hold_model(model);
    st = choose(s, options, err);
    if (st == HEARTH_OK) st = open_pages(s, err);
    if (st == HEARTH_OK) st = hth_prefix_cache_open(&s->prefix_cache, s->options.n_kept, err);
    if (st == HEARTH_OK)
        st = hearth_batch_open(model, s->options.n_batch, s->options.n_thread, &s->batch, err);
    if (s->options.no_pin) hearth_batch_unpin(s->batch);
    const hearth_session_options o = hth_scheduler_session_options(s);
    /* A limit of memory has room for the sessions before it has some for drafts. */
    const uint64_t sessions =
        s->options.n_running * (HTH_N_LOGITS * (uint64_t)model->model->hparams.n_vocab * sizeof(float) +
                                (uint64_t)s->options.n_ctx * 2 * sizeof(int32_t) +
                                HTH_N_STATE_COPY * (uint64_t)hth_sequence_state_size(model->model));
    bool has_room =
        st == HEARTH_OK && hth_engine_reserve(hth_engine_mutable(model), sessions, NULL) == HEARTH_OK;
    if (st == HEARTH_OK &&
        (has_room || s->options.draft.model || s->options.draft.n_draft != HEARTH_DRAFT_AUTO))
        st = hth_drafter_open(model, &s->options.draft, &o, s->options.n_position, s->options.n_running,
                              &s->drafter, err);
    if (has_room) hth_engine_release(hth_engine_mutable(model), sessions);
    s->masked = hth_alloc(model->model->hparams.n_vocab, sizeof *s->masked);
    s->places = hth_alloc(s->options.n_running, sizeof *s->places);
    if (st == HEARTH_OK && (!s->masked || !s->places))
        st = hth_fail_memory(err, model->model->hparams.n_vocab * sizeof *s->masked, "a scheduler");
    if (st == HEARTH_OK) *out = s;
    else hearth_scheduler_close(s);
    return st;
}

void hearth_scheduler_close(hearth_scheduler *s)
{
    HTH_FP_SCOPE;
    if (!s) return;
    hth_request_free_all(s->waiting);
    hth_request_free_all(s->running);
    hth_prefix_cache_close(&s->prefix_cache);
    hearth_batch_close(s->batch);
    hth_drafter_close(s->drafter);
    hth_free(s->places);
    hth_free(s->masked);
    hth_engine_close_pages(hth_engine_mutable(s->model), &s->pages, s->pages_size);
    hth_engine_release_model(s->model);
    hth_free(s);
}

hearth_status hearth_scheduler_set_threads(hearth_scheduler *s, uint32_t n_thread, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!s) return hth_fail_null(err, "scheduler");
    HTH_USE(use, s);
    if (!use) return hth_fail_in_use(err, "scheduler");
    hearth_status st = hth_batch_set_threads(s->batch, NULL, s->drafter, n_thread, err);
    if (st == HEARTH_OK) s->options.n_thread = n_thread;
    return st;
}

/* ---- pages ------------------------------------------------------------------------------------ */

/* Whether the pages for n tokens more are there, beside those of the step so far. Kept sequences give theirs. */
static bool has_pages(hearth_scheduler *s, const request *r, uint32_t n,
                      const uint32_t planned[HTH_N_KV_CLASS])
{
    for (;;) {
        uint32_t n_page[HTH_N_KV_CLASS];
        memcpy(n_page, planned, sizeof n_page);
        hth_session_count_missing(r->session, n, n_page);
        if (hth_kv_budget_has(&s->pages, n_page)) return true;
        if (!hth_prefix_cache_drop_oldest(&s->prefix_cache)) return false;
    }
}

static request *youngest(const hearth_scheduler *s)
{
    request *r = s->running;
    while (r && r->next) r = r->next;
    return r;
}

/* The youngest request waits again, as the first one. */
static void preempt(hearth_scheduler *s, request *r)
{
    hth_request_unlink(&s->running, r);
    r->drafted = hth_request_drafts(r);
    hearth_session_close(r->session);
    r->session = NULL;
    r->next = s->waiting;
    s->waiting = r;
    s->stats.n_preempted++;
}

/* Frees pages until r has those for n tokens more; false: r itself had to wait. */
static bool make_room(hearth_scheduler *s, request *r, uint32_t n, const uint32_t planned[HTH_N_KV_CLASS])
{
    while (!has_pages(s, r, n, planned)) {
        request *last = youngest(s);
        preempt(s, last);
        if (last == r) return false;
    }
    return true;
}

/* ---- beginning -------------------------------------------------------------------------------- */

uint32_t hth_request_count(const hth_request *r)
{
    uint32_t n = 0;
    for (; r; r = r->next) n++;
    return n;
}

static uint32_t count_of_owner(const hearth_scheduler *s, uint64_t owner)
{
    uint32_t n = 0;
    for (const request *r = s->running; r; r = r->next) n += r->owner == owner;
    return n;
}

/* The first one of the owner with the fewest running requests. One that ran before keeps its turn. */
static request *next_to_begin(const hearth_scheduler *s)
{
    request *best = s->waiting;
    uint32_t fewest = UINT32_MAX;
    for (request *r = s->waiting; r; r = r->next) {
        if (r->has_begun) return r;
        uint32_t n = count_of_owner(s, r->owner);
        if (n < fewest) best = r, fewest = n;
    }
    return best;
}

/* The session that has the most of a request's first tokens: a kept one, or that of a request that runs. The last
 * token is evaluated again, for its logits. */
static const hearth_session *find_same(hearth_scheduler *s, const request *r, uint32_t *n_same)
{
    const hearth_session *best = hth_prefix_cache_find(&s->prefix_cache, r->owner, r->tokens, r->n_token - 1, n_same);
    for (const request *other = s->running; other; other = other->next) {
        uint32_t n =
            other->owner == r->owner ? hth_prefix_cache_n_same(other->session, r->tokens, r->n_token - 1) : 0;
        if (n > *n_same) best = other->session, *n_same = n;
    }
    return best;
}

static hearth_status open_one(hearth_scheduler *s, request *r, hearth_error *err)
{
    const hearth_session_options o = hth_scheduler_session_options(s);
    uint32_t n_same;
    const hearth_session *from = find_same(s, r, &n_same);
    if (!from) return hth_session_open_in(s->model, &o, &s->pages, &r->session, err);
    hearth_status st = hearth_session_fork(from, &r->session, err);
    if (st != HEARTH_OK) return st;
    st = hearth_session_truncate(r->session, n_same, err);
    if (!r->has_begun) r->n_cached = n_same, s->stats.n_cached += n_same;
    return st;
}

static hearth_status open_session(hearth_scheduler *s, request *r, hearth_error *err)
{
    for (;;) {
        hearth_status st = open_one(s, r, err);
        if (st == HEARTH_OK && s->drafter) st = hth_speculation_open(r->session, s->drafter, r->sampler, err);
        if (st == HEARTH_OK) return st;
        hearth_session_close(r->session);
        r->session = NULL;
        if (st != HEARTH_ERROR_MEMORY || !hth_prefix_cache_drop_oldest(&s->prefix_cache)) return st;
    }
}

static uint32_t n_left(const request *r)
{
    return (uint32_t)r->n_token - hearth_session_position(r->session);
}

/* Whether there are pages for all tokens of a request, and one more. Kept sequences give theirs, its own one last. */
static bool may_begin(hearth_scheduler *s, const request *r)
{
    const hth_model *m = s->model->model;
    do {
        uint32_t n_page[HTH_N_KV_CLASS], n_same, n = (uint32_t)r->n_token;
        (void)find_same(s, r, &n_same);
        for (int c = 0; c < HTH_N_KV_CLASS; c++) {
            bool used = s->pages.n_page[c] > 0;
            n_page[c] = used ? hth_kv_n_class_page(m, (hth_kv_class)c, n) + 1 -
                                   hth_kv_n_entry(m, (hth_kv_class)c, n_same) / HTH_KV_PAGE
                             : 0;
        }
        if (hth_kv_budget_has(&s->pages, n_page)) return true;
    } while (hth_prefix_cache_drop_oldest(&s->prefix_cache));
    return false;
}

/* Begins requests while there are pages for them, and memory. If nothing runs, all pages are free. */
static void begin_requests(hearth_scheduler *s)
{
    hearth_error why;
    while (s->waiting && hth_request_count(s->running) < s->options.n_running) {
        request *r = next_to_begin(s);
        if (!may_begin(s, r) && s->running) return;
        hearth_status st = open_session(s, r, &why);
        if (st == HEARTH_ERROR_MEMORY && s->running) return; /* others will give theirs back */
        if (st != HEARTH_OK) {
            hth_request_end(s, r, (hearth_request_event){.state = HEARTH_REQUEST_FAILED, .error = &why});
            continue;
        }
        hth_request_unlink(&s->waiting, r);
        hth_request_append(&s->running, r);
        r->has_begun = true;
    }
}

/* ---- a step ----------------------------------------------------------------------------------- */

static void plan_part(request *r, uint32_t n, uint32_t planned[HTH_N_KV_CLASS])
{
    r->n_part = n;
    hth_session_count_missing(r->session, n, planned);
}

/* Whether there are pages for n tokens of a draft. Nothing is dropped for them. */
static bool has_draft_pages(const hearth_scheduler *s, const request *r, uint32_t n,
                            uint32_t planned[HTH_N_KV_CLASS])
{
    uint32_t n_page[HTH_N_KV_CLASS] = {0}, n_one[HTH_N_KV_CLASS] = {0};
    hth_session_count_missing(r->session, 1 + n, n_page);
    hth_session_count_missing(r->session, 1, n_one);
    for (int c = 0; c < HTH_N_KV_CLASS; c++) n_page[c] = planned[c] + n_page[c] - n_one[c];
    if (!hth_kv_budget_has(&s->pages, n_page)) return false;
    memcpy(planned, n_page, sizeof n_page);
    return true;
}

/* Adds drafts to the tokens of the requests that generate; returns the number of their tokens. A step with parts of
 * prompts takes as long as its tokens do, so that drafts are not worth it. */
static uint32_t plan_drafts(hearth_scheduler *s, uint32_t n_generating, bool has_prompts,
                            uint32_t planned[HTH_N_KV_CLASS])
{
    uint32_t n_room = s->options.n_batch - n_generating, n_place = 0, n_draft = 0;
    if (!s->drafter || n_generating == 0 || n_room == 0) return 0;
    if (has_prompts && s->options.draft.n_draft == HEARTH_DRAFT_AUTO) return 0;
    for (request *r = s->running; r; r = r->next) {
        if (r->n_part == 0 || r->n_token == r->n_max) continue;
        size_t n_most = r->n_max - r->n_token - 1; /* the last token is not evaluated */
        r->place = &s->places[n_place++];
        *r->place = (hth_draft_place){.session = r->session,
                                      .tokens = r->tokens,
                                      .n_token = r->n_token,
                                      .n_most = n_most < HTH_DRAFT_MAX ? (uint32_t)n_most : HTH_DRAFT_MAX};
    }
    if (n_place == 0) return 0;
    hth_drafter_choose(s->drafter, s->places, n_place, has_prompts ? n_room - 1 : n_room);
    for (request *r = s->running; r; r = r->next)
        while (r->place && r->place->n > 0 && !has_draft_pages(s, r, r->place->n, planned)) r->place->n--;
    hth_drafter_make(s->drafter, s->places, n_place);
    for (uint32_t i = 0; i < n_place; i++) n_draft += s->places[i].n;
    return n_draft;
}

/* Tokens of prompts in a step, beside n others. */
static uint32_t prompt_room(const hearth_scheduler *s, uint32_t n_generating)
{
    uint32_t room = s->options.n_batch - n_generating;
    if (s->part) return s->part(s->part_user, room);
    if (n_generating == 0) return room;
    double n = s->token_seconds > 0.0 ? PART_OF_DELAY * s->options.max_delay / s->token_seconds : 0.0;
    if (n < MIN_PART) n = MIN_PART;
    return n < room ? (uint32_t)n : room;
}

/* Tokens of a step. */
typedef struct step_size {
    uint32_t n_generating, n_draft; /* n_generating: requests with one token each */
    uint32_t n_prompt, n_other;     /* tokens of prompts, and of texts that are evaluated again */
} step_size;

/* Chooses the tokens of the step. Older requests come first, so that one which has to wait was not planned yet.
 * Prompts and others are not counted. */
static step_size plan_step(hearth_scheduler *s)
{
    uint32_t planned[HTH_N_KV_CLASS] = {0}, n_generating = 0;
    bool has_prompts = false;
    for (request *r = s->running; r; r = r->next) r->n_part = 0, r->place = NULL;
    for (request *r = s->running; r; r = r->next) {
        if (n_left(r) != 1 || r->is_paused) continue;
        if (!make_room(s, r, 1, planned)) break; /* nor are any behind it running now */
        plan_part(r, 1, planned);
        n_generating++;
    }
    for (const request *r = s->running; r; r = r->next)
        has_prompts = has_prompts || (r->n_part == 0 && !r->is_paused);
    uint32_t n_draft = plan_drafts(s, n_generating, has_prompts, planned);
    uint32_t room = prompt_room(s, n_generating + n_draft);
    for (request *r = s->running; r && room > 0; r = r->next) {
        uint32_t left = n_left(r), n = left < room ? left : room;
        if (r->n_part > 0 || r->is_paused) continue;
        if (n_generating > 0 && !has_pages(s, r, n, planned)) break; /* it goes on when others have ended */
        if (!make_room(s, r, n, planned)) break;
        plan_part(r, n, planned);
        room -= n;
    }
    return (step_size){.n_generating = n_generating, .n_draft = n_draft};
}

/* Samples the next token of a request. False: it has ended. */
static bool sample(hearth_scheduler *s, request *r)
{
    hearth_request_event event = {.state = HEARTH_REQUEST_TOKEN,
                                  .logits = hearth_session_logits(r->session),
                                  .n_cached = r->n_cached,
                                  .draft = hth_request_drafts(r),
                                  .text = ""};
    hearth_error why;
    hearth_status st =
        hth_engine_sample(s->model, r->sampler, r->constraint, event.logits, s->masked, &event.token, &why);
    bool ends =
        st == HEARTH_OK && (!r->ignore_end || r->constraint) && hearth_token_is_eog(s->model, event.token);
    if (st == HEARTH_OK && !ends && r->constraint)
        st = hearth_constraint_accept(r->constraint, event.token, &why);
    if (st != HEARTH_OK) {
        hth_request_end(s, r, (hearth_request_event){.state = HEARTH_REQUEST_FAILED, .error = &why});
        return false;
    }
    s->stats.n_generated++;
    if (ends) {
        event.state = HEARTH_REQUEST_END;
        hth_request_end(s, r, event);
        return false;
    }
    r->tokens[r->n_token++] = event.token;
    hearth_sampler_accept(r->sampler, event.token);
    bool is_complete = r->constraint && hearth_constraint_get_end(r->constraint) == HEARTH_CONSTRAINT_COMPLETE;
    if (r->has_text) event.n_text = hth_generated_text_push(&r->text, event.token, &event.text);
    if (!hth_request_tell(r, &event)) hth_request_end(s, r, (hearth_request_event){.state = HEARTH_REQUEST_STOPPED});
    else if (r->has_text && r->text.i_stop < r->text.n_stop)
        hth_request_end(s, r, (hearth_request_event){.state = HEARTH_REQUEST_STOP_TEXT, .i_stop = r->text.i_stop});
    else if (is_complete) hth_request_end(s, r, (hearth_request_event){.state = HEARTH_REQUEST_END, .token = -1});
    else if (r->n_token == r->n_max) hth_request_end(s, r, (hearth_request_event){.state = HEARTH_REQUEST_LENGTH});
    else return true;
    return false;
}

/* Fails all requests of the step: what is wrong with one of them is not known. */
static void fail_step(hearth_scheduler *s, const hearth_error *why)
{
    for (request *r = s->running, *next; r; r = next) {
        next = r->next;
        if (r->n_part > 0) hth_request_end(s, r, (hearth_request_event){.state = HEARTH_REQUEST_FAILED, .error = why});
    }
}

static void end_step(hearth_scheduler *s)
{
    for (request *r = s->running, *next; r; r = next) {
        next = r->next;
        if (r->n_part == 0 || n_left(r) > 0) continue;
        if (r->n_token == r->n_max) { /* its prompt alone is wanted */
            hth_request_end(s, r, (hearth_request_event){.state = HEARTH_REQUEST_LENGTH});
            continue;
        }
        while (sample(s, r) && hth_session_advance(r->session, r->tokens[r->n_token - 1])) {
        }
    }
}

/* Whether the step has a token; else all requests are paused. */
static bool is_planned(const hearth_scheduler *s)
{
    for (const request *r = s->running; r; r = r->next)
        if (r->n_part > 0) return true;
    return false;
}

static hearth_status run_step(hearth_scheduler *s, step_size *size, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    uint32_t n_row = 0;
    for (request *r = s->running; r && st == HEARTH_OK; r = r->next) {
        uint32_t n_left_now = n_left(r), at = hearth_session_position(r->session);
        if (r->n_part == 0) continue;
        st = hth_batch_add(s->batch, r->session, r->tokens + at, r->n_part, r->n_part == n_left_now, err);
        if (st == HEARTH_OK && r->place)
            hth_batch_add_draft(s->batch, r->place->draft, r->place->n, s->drafter, n_row);
        if (r->place) n_row += r->place->n;
        if (at < r->n_prompt) size->n_prompt += r->n_part;
        else if (n_left_now > 1) size->n_other += r->n_part;
    }
    if (st == HEARTH_OK) st = hth_batch_run(s->batch, err);
    if (st != HEARTH_OK) hearth_batch_clear(s->batch);
    return st;
}

static void average(double *mean, double now) { *mean = *mean == 0.0 ? now : 0.75 * *mean + 0.25 * now; }

/* Updates the time that prompt tokens add to a step, and the time of a step without them. */
static void measure(hearth_scheduler *s, double seconds, const step_size *size)
{
    double more = size->n_generating > 0 ? seconds - s->step_seconds : seconds;
    if (size->n_prompt == 0 && size->n_draft == 0) average(&s->step_seconds, seconds);
    else if (size->n_prompt >= MIN_PART && more > 0.0) {
        /* Tokens get slower along a prompt: the time of the last ones counts at once, so that others do not wait longer. Those
         * of longer steps may be faster than those of parts, as experts pass through a device once for a step. */
        double now = more / size->n_prompt;
        if (now > s->token_seconds) s->token_seconds = now;
        else if (size->n_prompt <= HTH_DEFAULT_BATCH) average(&s->token_seconds, now);
    }
    if (s->drafter && size->n_prompt == 0 && size->n_other == 0)
        hth_drafter_measure(s->drafter, size->n_generating + size->n_draft, seconds);
}

static bool has_work(const hearth_scheduler *s)
{
    for (const request *r = s->running; r; r = r->next)
        if (!r->is_paused) return true;
    return s->waiting != NULL;
}

/* Whether a further step can have something to do. */
static bool step(hearth_scheduler *s)
{
    hearth_error why = {0};
    begin_requests(s);
    if (!s->running) return s->waiting != NULL;
    step_size size = plan_step(s);
    if (!is_planned(s)) return false;
    uint64_t start = hth_clock_ns();
    hearth_status st = run_step(s, &size, &why);
    if (st == HEARTH_OK) {
        measure(s, hth_clock_since(start), &size);
        s->stats.n_prompt += size.n_prompt;
        end_step(s);
    } else if (st != HEARTH_ERROR_CANCELLED) {
        fail_step(s, &why);
    }
    return s->waiting || s->running;
}

hearth_status hearth_scheduler_step(hearth_scheduler *s, bool *more, hearth_error *err)
{
    HTH_FP_SCOPE;
    bool ignored;
    if (!more) more = &ignored;
    *more = false;
    if (!s) return hth_fail_null(err, "scheduler");
    HTH_USE(use, s);
    if (!use) return hth_fail_in_use(err, "scheduler");
    hth_request_end_cancelled(s);
    *more = has_work(s);
    if (!hth_is_cancelled(s->model->cancel)) *more = step(s);
    hth_request_end_cancelled(s);
    if (hth_is_cancelled(s->model->cancel)) return hth_fail_cancelled(err);
    return HEARTH_OK;
}

void hth_scheduler_set_part(hearth_scheduler *s, hth_scheduler_part_fn *fn, void *user)
{
    s->part = fn, s->part_user = user;
}
