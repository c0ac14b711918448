/* Makes drafts for sessions, by their own text, by a small model or by a block of their own model, and evaluates
 * them. */
#include "engine/speculation.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "base/clock.h"
#include "base/fp_state.h"
#include "base/log.h"
#include "base/status.h"
#include "engine/mtp_feed.h"
#include "engine/session_int.h"
#include "engine/struct_size.h"
#include "sample/sampler.h"

#include <string.h>

/* Tokens that the model of drafts evaluates at once, as many as mtp_feed.c gives it. A text of which it lacks more has no
 * draft of it in this step. */
enum { MODEL_BATCH = HTH_DEFAULT_BATCH };
/* States that are kept of the drafts of a step, at most; one of them in any case. */
enum { STATES_SIZE = 256 << 20 };

/* ---- opening ------------------------------------------------------------------------------------------- */

/* Why sessions with these options cannot have drafts; NULL: they can. */
static const char *why_none(const hearth_model *m, const hearth_session_options *o)
{
    hearth_model_info info = {0};
    hearth_model_get_info(m, &info);
    if (o->release_window) return "what is behind the window is not kept";
    if (m->streamed.store) return "weights are read when they are needed, and each draft would need others";
    if (o->bf16_dot) return "products of bf16 would change the text";
    if (info.gpu && !info.gpu_bit_exact) return "the GPU's bits depend on the number of tokens";
    if (info.gpu && !hth_gpu_returns_to_drafts(m->gpu)) return "the GPU keeps no states of their tokens";
    return NULL;
}

static bool is_same_text(hth_str a, hth_str b) { return a.n == b.n && memcmp(a.bytes, b.bytes, a.n) == 0; }

/* Rows of the models that pad their vocabularies may differ. */
static hearth_status check_vocabulary(const hearth_model *target, const hearth_model *model,
                                      hearth_error *err)
{
    const hth_tokenizer *a = target->tokenizer, *b = model->tokenizer;
    const char *path = hth_gguf_path(model->file), *path_target = hth_gguf_path(target->file);
    if (!a || !b)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "%s cannot draft for %s: the vocabulary of %s is not known", path, path_target,
                        a ? path : path_target);
    int32_t n = hth_tokenizer_n_vocab(a), n_model = hth_tokenizer_n_vocab(b);
    if (n != n_model)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "%s cannot draft for %s: it has a vocabulary of %d tokens, not the same one of %d",
                        path, path_target, n_model, n);
    for (int32_t i = 0; i < n; i++) {
        hth_str text = hth_tokenizer_entry(a, i), other = hth_tokenizer_entry(b, i);
        char shown[2][60];
        if (is_same_text(text, other)) continue;
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s cannot draft for %s: token %d is '%s', not '%s'",
                        path, path_target, i, hth_escape(shown[0], sizeof shown[0], other.bytes, other.n),
                        hth_escape(shown[1], sizeof shown[1], text.bytes, text.n));
    }
    return HEARTH_OK;
}

/* The batch and the cache of d->model. */
static hearth_status open_steps(hth_drafter *d, const hearth_session_options *o, uint32_t n_position,
                                hearth_error *err)
{
    hearth_status st = hearth_batch_open(d->model, MODEL_BATCH, o->n_thread, &d->batch, err);
    if (o->no_pin) hearth_batch_unpin(d->batch);
    if (st == HEARTH_OK)
        st = hth_engine_open_pages(d->model, HEARTH_KV_F16, n_position, &d->pages, &d->pages_size, err);
    if (st != HEARTH_OK) return st;
    d->logits = hth_alloc(d->target->model->hparams.n_vocab, sizeof *d->logits);
    return d->logits ? HEARTH_OK
                     : hth_fail_memory(err, d->target->model->hparams.n_vocab * sizeof *d->logits, "drafts");
}

static void close_steps(hth_drafter *d)
{
    hearth_batch_close(d->batch);
    if (d->model) hth_engine_close_pages(d->model, &d->pages, d->pages_size);
    hth_free(d->logits);
    d->batch = NULL, d->logits = NULL, d->model = NULL, d->pages_size = 0;
}

static hearth_status open_model(hth_drafter *d, const hearth_session_options *o, uint32_t n_position,
                                hearth_error *err)
{
    hearth_model *m = hth_engine_mutable(d->options.model);
    hearth_status st = hth_engine_need_model(m, "a model that drafts", err);
    if (st == HEARTH_OK) st = check_vocabulary(d->target, m, err);
    if (st == HEARTH_OK && m->streamed.store)
        st = hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s cannot draft: its weights are not in memory",
                      hth_gguf_path(m->file));
    d->model = m, d->source = HTH_DRAFT_MODEL;
    return st == HEARTH_OK ? open_steps(d, o, n_position, err) : st;
}

/* Bytes of all sessions of the block, which are opened later, one for each text. */
static uint64_t follower_bytes(hth_drafter *d, const hearth_session_options *o)
{
    const hearth_session_options of_block = {.n_ctx = o->n_ctx, .n_batch = HEARTH_BATCH_NONE};
    return d->n_sequence * hth_session_size(d->model, &of_block, &d->pages, false);
}

/* Without the block, or room for it and its sessions, drafts are made by the text alone. */
static void open_mtp(hth_drafter *d, const hearth_session_options *o, uint32_t n_position)
{
    hearth_model *target = hth_engine_mutable(d->target);
    const uint64_t rows = d->n_sequence * (uint64_t)hth_mtp_feed_size(d->target->model);
    uint64_t followers = 0;
    hearth_error why;
    if (d->options.no_mtp || !hth_engine_may_have_mtp(target)) return;
    hearth_status st = hth_engine_open_mtp(target, &d->model, &why);
    d->source = HTH_DRAFT_MTP;
    if (st == HEARTH_OK) st = open_steps(d, o, n_position, &why);
    if (st == HEARTH_OK) followers = follower_bytes(d, o);
    if (st == HEARTH_OK) st = hth_engine_reserve(target, rows + followers, &why);
    if (st == HEARTH_OK) {
        hth_engine_release(target, followers); /* each takes its own when it is opened */
        d->size += rows;
        return;
    }
    bool is_open = d->model;
    close_steps(d);
    if (is_open) hth_engine_drop_mtp(target);
    if (st != HEARTH_ERROR_MEMORY || d->options.n_draft != HEARTH_DRAFT_AUTO)
        hth_log(HEARTH_LOG_WARN, "%s: no drafts by its MTP block: %s", hth_gguf_path(target->file),
                why.message);
}

/* Tokens of all drafts of a step. Where states are large, fewer of them are kept: a token's are written as a whole, so
 * that a long draft costs more there, too. */
static uint32_t n_row_of(size_t state_size, uint32_t n_sequence)
{
    uint32_t n = n_sequence > 1 ? HTH_DRAFT_ROWS : HTH_DRAFT_MAX;
    size_t n_kept = state_size > 0 ? STATES_SIZE / state_size : n;
    return n_kept >= n ? n : n_kept > 0 ? (uint32_t)n_kept : 1;
}

static hearth_status open_rows(hth_drafter *d, hearth_error *err)
{
    size_t n_vocab = d->target->model->hparams.n_vocab, n, size, states;
    if (!hth_mul_size(d->n_row, n_vocab, &n) || !hth_mul_size(n, sizeof *d->rows, &size) ||
        !hth_mul_size(d->n_row, d->state_size, &states) ||
        (states > 0 && !hth_add_size(size, hth_pages_size(states), &size)))
        n = states = size = SIZE_MAX;
    hearth_status st = hth_engine_reserve(hth_engine_mutable(d->target), size, err);
    if (st != HEARTH_OK) return st;
    d->size = size;
    d->rows = hth_alloc(n, sizeof *d->rows);
    d->offers = hth_alloc(d->n_sequence, sizeof *d->offers);
    if (states > 0) d->states = hth_pages_alloc(states);
    bool is_there = d->rows && d->offers && (d->states || states == 0);
    return is_there ? HEARTH_OK : hth_fail_memory(err, size, "the logits of drafts");
}

static hearth_status check_options(const hearth_draft_options *o, hearth_error *err)
{
    if (o->n_draft > HTH_DRAFT_MAX && o->n_draft != HEARTH_DRAFT_NONE)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "n_draft is %u; at most %d tokens of a draft are possible", o->n_draft,
                        HTH_DRAFT_MAX);
    return hth_engine_check_reserved("hearth_draft_options", o->reserved, sizeof o->reserved, err);
}

hearth_status hth_drafter_open(const hearth_model *target, const hearth_draft_options *options,
                               const hearth_session_options *session, uint32_t n_position,
                               uint32_t n_sequence, hth_drafter **out, hearth_error *err)
{
    bool is_wanted = options->model || options->n_draft != HEARTH_DRAFT_AUTO;
    const char *why = why_none(target, session);
    hearth_error failure = {0};
    *out = NULL;
    hearth_status st = check_options(options, err);
    if (st != HEARTH_OK || options->n_draft == HEARTH_DRAFT_NONE) return st;
    if (why) {
        if (is_wanted) hth_log(HEARTH_LOG_WARN, "%s: no drafts: %s", hth_gguf_path(target->file), why);
        return HEARTH_OK;
    }
    hth_drafter *d = hth_alloc(1, sizeof *d);
    if (!d) return hth_fail_memory(err, sizeof *d, "drafts");
    *d = (hth_drafter){.target = target,
                       .options = *options,
                       .n_sequence = n_sequence,
                       .state_size = hth_kv_state_size(target->model, HTH_STATE_STEP)};
    if (options->model) hth_engine_hold_model(options->model);
    d->n_row = n_row_of(d->state_size, n_sequence);
    st = open_rows(d, &failure);
    if (st == HEARTH_OK && options->model) st = open_model(d, session, n_position, &failure);
    else if (st == HEARTH_OK) open_mtp(d, session, n_position);
    if (st == HEARTH_OK) *out = d;
    else if (st == HEARTH_ERROR_MEMORY && d->size == 0 && !is_wanted)
        st = HEARTH_OK; /* the limit has no room for them */
    if (st != HEARTH_OK || !*out) hth_drafter_close(d);
    if (st != HEARTH_OK && err) *err = failure;
    return st;
}

void hth_drafter_close(hth_drafter *d)
{
    if (!d) return;
    bool has_mtp = d->model && d->source == HTH_DRAFT_MTP;
    close_steps(d);
    if (has_mtp) hth_engine_leave_mtp(hth_engine_mutable(d->target));
    hth_free(d->offers);
    hth_free(d->rows);
    hth_pages_free(d->states, d->n_row * d->state_size);
    hth_engine_release(hth_engine_mutable(d->target), d->size);
    hth_engine_release_model(d->options.model);
    hth_free(d);
}

/* Stops the use of a draft model that failed, with a warning. The text continues without its drafts. */
static void give_up(hth_drafter *d, const hearth_error *why)
{
    if (why->status == HEARTH_ERROR_CANCELLED) return;
    d->has_failed = true;
    hth_log(HEARTH_LOG_WARN, "no more drafts of a model: %s", why->message);
}

/* hth_hidden_fn of a session whose model has a block for drafts. */
static hearth_status note_rows(void *session, uint32_t at, uint32_t n, const float *rows, hearth_error *err)
{
    hearth_session *s = session;
    hth_drafter *d = s->drafts->drafter;
    hearth_error why;
    (void)err;
    if (d->has_failed) return HEARTH_OK;
    if (hth_mtp_feed_note(s->drafts->mtp, d->batch, &d->pages, s->tokens, at, n, rows, &why) != HEARTH_OK)
        give_up(d, &why);
    return HEARTH_OK;
}

static hearth_status open_feed(hearth_session *s, hearth_error *err)
{
    hth_speculation *x = s->drafts;
    hearth_session *block = x->model;
    x->model = NULL;
    x->mtp = hth_alloc(1, sizeof *x->mtp);
    if (!x->mtp) {
        hearth_session_close(block);
        return hth_fail_memory(err, sizeof *x->mtp, "drafts");
    }
    hearth_status st = hth_mtp_feed_open(x->mtp, block, err);
    if (st != HEARTH_OK) return st;
    x->model = block;
    s->hidden_fn = note_rows, s->hidden_user = s;
    return HEARTH_OK;
}

/* The session of the model, and a sampler that follows the text's. */
static hearth_status open_follower(hearth_session *s, hearth_error *err)
{
    hth_speculation *x = s->drafts;
    hth_drafter *d = x->drafter;
    const hearth_session_options o = {.n_ctx = s->options.n_ctx, .n_batch = HEARTH_BATCH_NONE};
    hearth_status st = HEARTH_OK;
    if (x->sampler) st = hth_sampler_open_like(x->sampler, &x->follower, err);
    if (st == HEARTH_OK) st = hth_session_open_in(d->model, &o, &d->pages, &x->model, err);
    return st == HEARTH_OK && d->source == HTH_DRAFT_MTP ? open_feed(s, err) : st;
}

hearth_status hth_speculation_open(hearth_session *s, hth_drafter *d, const hearth_sampler *sampler,
                                   hearth_error *err)
{
    hth_speculation *x = hth_alloc(1, sizeof *x);
    if (!x) return hth_fail_memory(err, sizeof *x, "drafts");
    *x = (hth_speculation){
        .drafter = d, .history = hth_draft_history_begin(), .sampler = hth_sampler_hold(sampler)};
    s->drafts = x;
    hearth_status st = d->batch ? open_follower(s, err) : HEARTH_OK;
    if (st != HEARTH_OK) hth_speculation_close(s);
    return st;
}

void hth_speculation_close(hearth_session *s)
{
    hth_speculation *x = s->drafts;
    if (!x) return;
    hth_session_discard_draft(s);
    s->drafts = NULL;
    if (x->mtp) {
        s->hidden_fn = NULL;
        hth_mtp_feed_close(x->mtp);
        hth_free(x->mtp);
    } else {
        hearth_session_close(x->model);
    }
    hearth_sampler_close(x->follower);
    hearth_sampler_close(x->sampler);
    if (x->owns_drafter) hth_drafter_close(x->drafter);
    hth_free(x);
}

void hth_speculation_forget(hearth_session *s)
{
    if (s->drafts && s->drafts->mtp) hth_mtp_feed_forget(s->drafts->mtp);
}

hearth_draft_options hearth_draft_defaults(void) { return (hearth_draft_options){0}; }

hearth_status hearth_session_use_drafts(hearth_session *s, const hearth_draft_options *options,
                                        const hearth_sampler *sampler, hearth_error *err)
{
    HTH_FP_SCOPE;
    const hearth_draft_options o = options ? *options : (hearth_draft_options){0};
    hth_drafter *d;
    if (!s) return hth_fail_null(err, "session");
    HTH_USE(use, s);
    if (!use) return hth_fail_in_use(err, "session");
    const hearth_draft_stats before = hth_session_draft_stats(s);
    hearth_status st = hth_engine_check_sampler(s->model, "sampler", sampler, err);
    if (st != HEARTH_OK) return st;
    if (hth_session_n_row(s) == 0 || s->pending_in)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "drafts are for sessions with steps of their own");
    hth_speculation_close(s);
    st = hth_drafter_open(s->model, &o, &s->options, s->options.n_ctx, 1, &d, err);
    if (st != HEARTH_OK || !d) return st;
    st = hth_speculation_open(s, d, sampler, err);
    if (st == HEARTH_OK) s->drafts->owns_drafter = true, s->drafts->stats = before;
    else hth_drafter_close(d);
    return st;
}

hearth_draft_stats hth_session_draft_stats(const hearth_session *s)
{
    return s->drafts ? s->drafts->stats : (hearth_draft_stats){0};
}

hearth_status hearth_session_get_draft_stats(const hearth_session *s, hearth_draft_stats *stats)
{
    if (!s || !stats) return HEARTH_ERROR_ARGUMENT;
    *stats = hth_session_draft_stats(s);
    return HEARTH_OK;
}

/* ---- drafts by a model --------------------------------------------------------------------------------- */

static bool are_known(const hearth_session *s, const int32_t *tokens, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((uint32_t)tokens[i] >= s->model->model->hparams.n_vocab) return false;
    return true;
}

/* How many of the last tokens of a text the model evaluates, for the logits after the last one; 0: it cannot. */
static uint32_t count_missing(const hth_draft_place *place)
{
    const hth_speculation *x = place->session->drafts;
    size_t last = place->n_token - 1;
    hearth_error ignored;
    if (x->mtp) return hth_mtp_feed_settle(x->mtp, place->tokens, (uint32_t)last);
    uint32_t same = hth_session_count_same(x->model, place->tokens, last);
    return hearth_session_truncate(x->model, same, &ignored) == HEARTH_OK ? (uint32_t)(place->n_token - same)
                                                                          : 0;
}

/* Adds what the model lacks of a text to its batch. False: it has no logits after that, or there is no room. */
static bool catch_up(hth_drafter *d, hth_draft_place *place, uint32_t planned[HTH_N_KV_CLASS],
                     uint32_t *n_room, hearth_error *err)
{
    hth_speculation *x = place->session->drafts;
    uint32_t n_left = count_missing(place), n = n_left < *n_room ? n_left : *n_room;
    const int32_t *tokens = place->tokens + place->n_token - n_left;
    bool is_all = n == n_left;
    if (n == 0 || (x->mtp && !is_all)) return false;
    hth_session_count_missing(x->model, n, planned);
    if (!hth_kv_budget_has(&d->pages, planned) || !are_known(x->model, tokens, n)) return false;
    if (hth_batch_add(d->batch, x->model, tokens, n, is_all, err) != HEARTH_OK) return false;
    if (x->mtp) hth_mtp_feed_add_rows(x->mtp, d->batch, n);
    *n_room -= n;
    return is_all;
}

static bool is_by_model(const hth_draft_place *place)
{
    return place->n > 0 && hth_draft_is_by_model(place->session->drafts->source);
}

/* The model may have fewer rows than the target, or more. */
static hearth_status draft_token(hth_drafter *d, const hth_speculation *x, int32_t *token, hearth_error *err)
{
    uint32_t n = d->target->model->hparams.n_vocab, n_model = d->model->model->hparams.n_vocab;
    const float *logits = hearth_session_logits(x->model);
    for (uint32_t i = 0; i < n; i++) d->logits[i] = i < n_model ? logits[i] : -__builtin_inff();
    if (!x->follower) {
        *token = 0;
        for (uint32_t i = 1; i < n; i++)
            if (d->logits[i] > d->logits[*token]) *token = (int32_t)i;
        return HEARTH_OK;
    }
    hearth_status st = hearth_sampler_sample(x->follower, d->logits, token, err);
    if (st == HEARTH_OK) hearth_sampler_accept(x->follower, *token);
    return st;
}

/* Draws token i of each draft that has one, and adds those that have another one behind it to the next step. */
static hearth_status draw_all(hth_drafter *d, hth_draft_place *places, uint32_t n_place, uint32_t i,
                              bool *goes_on, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    *goes_on = false;
    for (uint32_t k = 0; st == HEARTH_OK && k < n_place; k++) {
        hth_draft_place *p = &places[k];
        if (!is_by_model(p) || i >= p->n) continue;
        st = draft_token(d, p->session->drafts, &p->draft[i], err);
        if (st != HEARTH_OK || i + 1 == p->n) continue;
        uint32_t n_page[HTH_N_KV_CLASS] = {0};
        hearth_session *s = p->session->drafts->model;
        hth_session_count_missing(s, 1, n_page);
        for (int c = 0; c < HTH_N_KV_CLASS; c++) n_page[c] *= d->n_sequence; /* others need as many */
        bool fits = hth_kv_budget_has(&d->pages, n_page) && are_known(s, &p->draft[i], 1) &&
                    hearth_session_position(s) < hearth_session_n_ctx(s);
        if (!fits) p->n = i + 1;
        else st = hth_batch_add(d->batch, s, &p->draft[i], 1, true, err);
        const hth_mtp_feed *mtp = p->session->drafts->mtp;
        if (fits && st == HEARTH_OK && mtp) hth_batch_set_hidden(d->batch, 0, 1, mtp->own);
        *goes_on = *goes_on || fits;
    }
    return st;
}

static void make_by_model(hth_drafter *d, hth_draft_place *places, uint32_t n_place)
{
    uint32_t planned[HTH_N_KV_CLASS] = {0}, n_room = MODEL_BATCH, n_round = 0, n_draft = 0;
    hearth_error why = {0};
    hearth_status st = HEARTH_OK;
    bool goes_on = false;
    uint64_t start = hth_clock_ns();
    for (uint32_t i = 0; i < n_place; i++) {
        if (!is_by_model(&places[i])) continue;
        const hth_speculation *x = places[i].session->drafts;
        goes_on = true;
        if (!catch_up(d, &places[i], planned, &n_room, &why)) places[i].n = 0;
        else if (x->follower) hth_sampler_follow(x->follower, x->sampler);
        n_draft += places[i].n;
    }
    for (; st == HEARTH_OK && goes_on; n_round++) {
        st = hth_batch_run(d->batch, &why);
        if (st == HEARTH_OK) st = draw_all(d, places, n_place, n_round, &goes_on, &why);
    }
    if (st == HEARTH_OK && n_draft > 0 && n_room > MODEL_BATCH - HTH_DRAFT_ROWS - d->n_sequence)
        hth_draft_measure_model(&d->costs, hth_clock_since(start) / n_round);
    if (st == HEARTH_OK) return;
    hearth_batch_clear(d->batch);
    give_up(d, &why);
    for (uint32_t i = 0; i < n_place; i++)
        if (is_by_model(&places[i])) places[i].n = 0;
}

/* ---- drafts -------------------------------------------------------------------------------------------- */

static hth_draft_offer offer(const hth_drafter *d, hth_draft_place *p)
{
    hth_speculation *x = p->session->drafts;
    uint32_t length;
    p->n = 0;
    if (!x || p->n_most == 0) return (hth_draft_offer){0};
    p->from = hth_draft_find(p->tokens, p->n_token, &length);
    bool has_text = p->from < p->n_token, has_model = x->model && !d->has_failed;
    if (x->mtp) has_model = has_model && hth_mtp_feed_is_ready(x->mtp, (uint32_t)p->n_token - 1);
    x->source = hth_draft_source_of(length);
    if (has_model &&
        (!has_text || hth_draft_share(&x->history, d->source) > hth_draft_share(&x->history, x->source)))
        x->source = d->source;
    return (hth_draft_offer){.source = x->source,
                             .n_most = !has_text && !has_model     ? 0
                                       : p->n_most < HTH_DRAFT_MAX ? p->n_most
                                                                   : HTH_DRAFT_MAX,
                             .history = &x->history};
}

void hth_drafter_choose(hth_drafter *d, hth_draft_place *places, uint32_t n_place, uint32_t n_room)
{
    if (n_room > d->n_row) n_room = d->n_row;
    for (uint32_t i = 0; i < n_place; i++) d->offers[i] = offer(d, &places[i]);
    if (d->options.n_draft == HEARTH_DRAFT_AUTO)
        hth_draft_choose(&d->costs, d->offers, n_place, n_place, n_room);
    else hth_draft_take_all(d->offers, n_place, d->options.n_draft, n_room);
    for (uint32_t i = 0; i < n_place; i++) places[i].n = d->offers[i].n;
}

void hth_drafter_make(hth_drafter *d, hth_draft_place *places, uint32_t n_place)
{
    if (d->batch && !d->has_failed) make_by_model(d, places, n_place);
    for (uint32_t i = 0; i < n_place; i++) {
        hth_draft_place *p = &places[i];
        if (p->n > 0 && !is_by_model(p)) hth_draft_copy(p->tokens, p->n_token, p->from, p->n, p->draft);
    }
}

void hth_drafter_measure(hth_drafter *d, uint32_t n_token, double seconds)
{
    hth_draft_measure(&d->costs, n_token, seconds);
}

/* ---- evaluation ---------------------------------------------------------------------------------------- */

hearth_status hth_speculation_eval(hearth_session *s, int32_t token, hearth_error *err)
{
    hth_drafter *d = s->drafts->drafter;
    if (hth_session_advance(s, token)) return HEARTH_OK;
    hearth_status st = hth_batch_add(s->own, s, &token, 1, true, err);
    if (st != HEARTH_OK) return st;
    s->tokens[s->position] = token;
    uint32_t n_behind = s->options.n_ctx - s->position - 1, n_row = hth_session_n_row(s) - 1;
    hth_draft_place place = {.session = s,
                             .tokens = s->tokens,
                             .n_token = s->position + 1,
                             .n_most = n_behind < n_row ? n_behind : n_row};
    hth_drafter_choose(d, &place, 1, n_row);
    hth_drafter_make(d, &place, 1);
    hth_batch_add_draft(s->own, place.draft, place.n, d, 0);
    uint64_t start = hth_clock_ns();
    st = hth_batch_run(s->own, err);
    if (st == HEARTH_OK) hth_drafter_measure(d, 1 + place.n, hth_clock_since(start));
    else hearth_batch_clear(s->own);
    return st;
}

void hth_speculation_note_step(hearth_session *s, uint32_t n)
{
    s->drafts->stats.n_drafted += n;
    s->drafts->drafter->stats.n_drafted += n;
}

void hth_speculation_note(hearth_session *s, bool is_right)
{
    hth_speculation *x = s->drafts;
    hth_draft_note(&x->history, x->source, is_right);
    x->stats.n_accepted += is_right;
    x->drafter->stats.n_accepted += is_right;
}
