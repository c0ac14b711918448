/* Batches of hearth.h: a workspace and a thread pool, which evaluate tokens of any sessions of one model. Sessions have
 * one of their own for hearth_session_eval (session.c). */
#include "engine/batch_int.h"

#include "base/bits.h"
#include "base/checked_math.h"
#include "base/fp_state.h"
#include "base/switches.h"
#include "sparse/selector.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

/* ---- batches ------------------------------------------------------------------- */

/* AUTO: the model's selector. */
static hearth_status choose_selector(const hearth_model *model, hearth_selector requested,
                                     hearth_selector *selector, hearth_error *err)
{
    const char *why;
    hearth_selector w = requested == HEARTH_SELECTOR_AUTO ? model->selector : requested;
    hearth_status st = hth_selector_choose(model->model, w, selector, &why, err);
    return st == HEARTH_OK ? hth_engine_check_layout(model, *selector, err) : st;
}

/* Uses the current placement on the device. */
static hearth_status use_gpu(hearth_batch *b, hearth_error *err)
{
    hearth_status st = hth_engine_use_gpu(hth_engine_mutable(b->model), &b->gpu, &b->generation, err);
    if (st != HEARTH_OK) return st;
    if (b->gpu && b->n_tok_max > hth_gpu_max_tokens(b->gpu))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "%s: steps of %u tokens, and the model was opened with gpu.n_batch for %u",
                        hth_gguf_path(b->model->file), b->n_tok_max, hth_gpu_max_tokens(b->gpu));
    hth_step_use_gpu(b->step, b->gpu);
    return HEARTH_OK;
}

hearth_status hth_batch_open_step(hearth_batch *b, uint32_t n_thread, hth_pool **pool, hth_step **step,
                                  hearth_error *err)
{
    const hearth_model *m = b->model;
    *pool = NULL, *step = NULL;
    hearth_status st = hth_pool_open(n_thread, pool, err);
    if (st != HEARTH_OK) return st;
    hth_pool_watch(*pool, m->cancel, &b->cancel);
    st = hth_step_open(m->model, &b->kernels, *pool, b->n_tok_max, b->selector, step, err);
    if (st == HEARTH_OK && m->streamed.reader) st = hth_step_use_store(*step, &m->streamed, err);
    if (st == HEARTH_OK) return HEARTH_OK;
    hth_step_close(*step);
    hth_pool_close(*pool);
    *pool = NULL, *step = NULL;
    return st;
}

hearth_status hth_batch_open_own(const hearth_model *model, uint32_t n_tok, uint32_t n_thread, bool bf16_dot,
                                 hearth_selector requested, hearth_batch **out, hearth_error *err)
{
    hearth_selector selector;
    *out = NULL;
    if (n_tok < 1 || n_tok > HTH_MAX_BATCH)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "n_batch is %u; it must lie in 1 to %d", n_tok,
                        HTH_MAX_BATCH);
    hearth_status st = choose_selector(model, requested, &selector, err);
    if (st != HEARTH_OK) return st;
    hearth_batch *b = hth_alloc(1, sizeof *b);
    if (!b) return hth_fail_memory(err, sizeof *b, "a batch");
    b->model = hth_engine_hold_model(model);
    b->selector = selector;
    b->kernels = model->kernels;
    b->n_tok_max = n_tok;
    if (bf16_dot && !hth_kernels_use_bf16_dot(&b->kernels)) {
        st = hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                      "products of bf16 are wanted: this CPU, or the level %s, has none",
                      hth_cpu_name(b->kernels.level));
        goto fail;
    }
    b->tokens = hth_alloc(n_tok, sizeof *b->tokens);
    b->entries = hth_alloc(n_tok, sizeof *b->entries);
    b->n_active = hth_alloc(model->model->hparams.n_layer, sizeof *b->n_active);
    if (!b->tokens || !b->entries || !b->n_active) {
        st = hth_fail_memory(err, n_tok * sizeof *b->tokens, "a batch");
        goto fail;
    }
    if ((st = hth_switches_check(err)) != HEARTH_OK) goto fail;
    b->n_thread = hth_pool_default_threads(n_thread);
    if ((st = hth_batch_open_step(b, b->n_thread, &b->pool, &b->step, err)) != HEARTH_OK) goto fail;
    hth_pool_pin(b->pool);
    if ((st = use_gpu(b, err)) != HEARTH_OK) goto fail;
    *out = b;
    return HEARTH_OK;
fail:
    hearth_batch_close(b);
    return st;
}

hearth_status hearth_batch_open(const hearth_model *model, uint32_t n_tok, uint32_t n_thread,
                                hearth_batch **out, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!out) return hth_fail_null(err, "out");
    *out = NULL;
    if (!model) return hth_fail_null(err, "model");
    hearth_status st = hth_engine_check_threads("n_thread", n_thread, err);
    if (st == HEARTH_OK && (n_tok < 1 || n_tok > HTH_MAX_BATCH))
        st = hth_fail(err, HEARTH_ERROR_ARGUMENT, "n_tok is %u; it must lie in 1 to %d", n_tok,
                      HTH_MAX_BATCH);
    if (st == HEARTH_OK) st = hth_engine_need_model(model, "a batch", err);
    if (st != HEARTH_OK) return st;
    size_t size = hth_batch_size(model, n_tok, n_thread, model->selector, model->streamed.reader != NULL);
    st = hth_engine_reserve(hth_engine_mutable(model), size, err);
    if (st != HEARTH_OK) return st;
    st = hth_batch_open_own(model, n_tok, n_thread, false, HEARTH_SELECTOR_AUTO, out, err);
    if (st == HEARTH_OK) (*out)->size = size;
    else hth_engine_release(hth_engine_mutable(model), size);
    return st;
}

void hearth_batch_unpin(hearth_batch *b)
{
    if (!b) return;
    b->no_pin = true;
    hth_pool_unpin(b->pool);
}

void hearth_batch_cancel(hearth_batch *b)
{
    if (b) __atomic_store_n(&b->cancel, 1, __ATOMIC_RELAXED);
}

bool hth_batch_take_cancel(hearth_batch *b) { return __atomic_exchange_n(&b->cancel, 0, __ATOMIC_RELAXED) != 0; }

void hearth_batch_close(hearth_batch *b)
{
    HTH_FP_SCOPE;
    if (!b) return;
    hearth_batch_clear(b);
    hth_step_close(b->step);
    hth_pool_close(b->pool);
    hth_free(b->n_active);
    hth_free(b->entries);
    hth_free(b->tokens);
    hth_engine_release(hth_engine_mutable(b->model), b->size);
    hth_engine_release_model(b->model);
    hth_free(b);
}

hearth_status hth_engine_check_ids(const hearth_model *m, const char *name, const int32_t *tokens, size_t n,
                                   hearth_error *err)
{
    uint32_t n_vocab = m->model->hparams.n_vocab;
    if (!tokens && n > 0) return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s is NULL, but there are %zu", name, n);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= n_vocab)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s[%zu] is %d: the vocabulary has 0 to %u", name, i,
                            tokens[i], n_vocab - 1);
    return HEARTH_OK;
}

hearth_status hth_session_check_tokens(const hearth_session *s, const int32_t *tokens, size_t n,
                                       hearth_error *err)
{
    hearth_status st = hth_engine_check_ids(s->model, "tokens", tokens, n, err);
    if (st != HEARTH_OK) return st;
    if (n > s->seq.options.n_ctx - s->position)
        return hth_fail(err, HEARTH_ERROR_CONTEXT,
                        "%zu tokens from position %u on do not fit into a context of %u; raise n_ctx", n,
                        s->position, s->seq.options.n_ctx);
    return HEARTH_OK;
}

hearth_status hearth_batch_add(hearth_batch *b, hearth_session *s, const int32_t *tokens, size_t n,
                               hearth_error *err)
{
    if (!b || !s) return hth_fail_null(err, b ? "session" : "batch");
    HTH_USE(batch_use, b);
    HTH_USE(session_use, s);
    if (!batch_use || !session_use) return hth_fail_in_use(err, batch_use ? "session" : "batch");
    return hth_batch_add(b, s, tokens, n, true, err);
}

hearth_status hth_batch_add(hearth_batch *b, hearth_session *s, const int32_t *tokens, size_t n, bool wants,
                            hearth_error *err)
{
    if (s->model != b->model)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "session and batch belong to different models");
    if (s->pending_in) return hth_fail(err, HEARTH_ERROR_ARGUMENT, "the session is already in a batch");
    if (n == 0)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "n is 0; a session has at least one token in a batch");
    hth_session_discard_draft(s);
    if (n > b->n_tok_max - b->n_tok)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%zu more tokens do not fit into a batch of %u", n,
                        b->n_tok_max);
    hearth_status st = hth_session_check_tokens(s, tokens, n, err);
    if (st != HEARTH_OK) return st;
    if (n > hth_sequence_max_step(&s->seq))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "%zu tokens at once: this session with release_window takes %u", n,
                        hth_sequence_max_step(&s->seq));
    for (size_t i = 0; i < n; i++)
        b->tokens[b->n_tok++] = (hth_batch_token){.seq = &s->seq,
                                                  .token = tokens[i],
                                                  .position = s->position + (uint32_t)i,
                                                  .want_logits = wants && i + 1 == n};
    b->entries[b->n_entry++] = (struct batch_entry){.session = s, .n_token = (uint32_t)n, .wants = wants};
    s->pending_in = b;
    return HEARTH_OK;
}

void hth_batch_add_draft(hearth_batch *b, const int32_t *draft, uint32_t n, const hth_drafter *d,
                         uint32_t i_row)
{
    struct batch_entry *e = &b->entries[b->n_entry - 1];
    hearth_session *s = e->session;
    assert(e->wants && n <= b->n_tok_max - b->n_tok && s->position + e->n_token + n <= s->seq.options.n_ctx);
    assert(i_row + n <= d->n_row && (!d->states || e->n_token == 1));
    e->rows = d->rows + (size_t)i_row * s->model->model->hparams.n_vocab;
    e->states = d->states ? d->states + i_row * d->state_size : NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (e->states) b->tokens[b->n_tok - 1].states = e->states + i * d->state_size;
        b->tokens[b->n_tok++] = (hth_batch_token){
            .seq = &s->seq, .token = draft[i], .position = s->position + e->n_token + i, .want_logits = true};
    }
    e->n_token += n, e->n_draft = n;
}

void hth_batch_set_hidden(hearth_batch *b, uint32_t first, uint32_t n, const float *rows)
{
    const struct batch_entry *e = &b->entries[b->n_entry - 1];
    hth_batch_token *tokens = b->tokens + b->n_tok - e->n_token + first;
    size_t d = b->model->model->hparams.d_model;
    assert(first + n <= e->n_token);
    for (uint32_t i = 0; i < n; i++) tokens[i].hidden = rows + i * d;
}

/* ---- a step ------------------------------------------------------------------------ */

/* Logits that were delivered already, in case the step is retried. */
typedef struct delivery {
    hth_logits_fn *fn;
    void *user;
    uint32_t n_delivered;
    bool aborted; /* the callback returned an error */
} delivery;

static hearth_status emit_once(void *user, uint32_t i_want, const float *logits, hearth_error *err)
{
    delivery *r = user;
    if (i_want < r->n_delivered) return HEARTH_OK;
    r->n_delivered = i_want + 1;
    hearth_status st = r->fn(r->user, i_want, logits, err);
    r->aborted = st != HEARTH_OK;
    return st;
}

/* A token of the batch points to the sequence of its session. */
static hearth_session *session_of(const hth_batch_token *token)
{
    return (hearth_session *)(void *)((char *)token->seq - offsetof(hearth_session, seq));
}

/* Calls fn for each sequence of the batch with the number of its tokens, which are adjacent. */
static void for_each_sequence(const hth_batch_token *tokens, uint32_t n,
                              void (*fn)(hth_sequence *, uint32_t n_new))
{
    for (uint32_t i = 0, k; i < n; i += k) {
        for (k = 1; i + k < n && tokens[i + k].seq == tokens[i].seq;) k++;
        fn(tokens[i].seq, k);
    }
}

static hearth_status check_budget(const hth_kv_budget *budget, const uint32_t n_page[HTH_N_KV_CLASS],
                                  hearth_error *err)
{
    if (hth_kv_budget_has(budget, n_page)) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_MEMORY, "the cache of all sequences is full");
}

hearth_status hth_session_check_pages(const hearth_session *s, uint32_t n, hearth_error *err)
{
    uint32_t n_page[HTH_N_KV_CLASS] = {0};
    if (!s->seq.options.budget) return HEARTH_OK;
    hth_sequence_count_missing(&s->seq, n, n_page);
    return check_budget(s->seq.options.budget, n_page, err);
}

/* Whether the budget of the sequences, if they have one, has the pages that the step needs. */
static hearth_status check_pages(const hth_batch_token *tokens, uint32_t n, hearth_error *err)
{
    uint32_t n_page[HTH_N_KV_CLASS] = {0};
    const hth_kv_budget *budget = tokens[0].seq->options.budget;
    if (!budget) return HEARTH_OK;
    for (uint32_t i = 0, k; i < n; i += k) {
        for (k = 1; i + k < n && tokens[i + k].seq == tokens[i].seq;) k++;
        hth_sequence_count_missing(tokens[i].seq, k, n_page);
    }
    return check_budget(budget, n_page, err);
}

/* Results that were read from a broken map are invalid. */
static hearth_status run_prepared(hearth_batch *b, const hth_batch_token *tokens, uint32_t n,
                                  hth_logits_fn *fn, void *user, bool *device_failed, hearth_error *err)
{
    hearth_error broken;
    hearth_status st = check_pages(tokens, n, err);
    if (st != HEARTH_OK) return st;
    for_each_sequence(tokens, n, hth_sequence_prepare);
    st = hth_step_run(b->step, tokens, n, fn, user, err);
    *device_failed = hth_step_device_failed(b->step);
    if (hth_gguf_check_map(b->model->file, &broken) != HEARTH_OK) {
        if (err) *err = broken;
        *device_failed = false;
        st = broken.status;
    }
    if (st == HEARTH_OK) for_each_sequence(tokens, n, hth_sequence_commit);
    return st;
}

static void note_tokens(const hearth_batch *b, uint32_t n_tok)
{
    for (uint32_t i = 0; i < n_tok; i++) {
        hearth_session *s = session_of(&b->tokens[i]);
        s->tokens[b->tokens[i].position] = b->tokens[i].token;
    }
}

/* Runs a prepared step, and compares its time with the plan of the placement if that is for such a step. */
static hearth_status run_checked(hearth_batch *b, uint32_t n_tok, delivery *to, bool *device_failed, hearth_error *err)
{
    hth_speed_check *check = &hth_engine_mutable(b->model)->speed_check;
    bool is_planned = n_tok == 1 && b->generation == 0 && b->n_thread == check->n_thread &&
                      b->selector == b->model->selector && !b->model->streamed.reader;
    hth_speed_step step = hth_speed_begin(check);
    hearth_status st = run_prepared(b, b->tokens, n_tok, emit_once, to, device_failed, err);
    hth_speed_end(check, &step, st == HEARTH_OK && is_planned ? &b->window : NULL, b->tokens[0].position);
    return st;
}

/* Evaluates those of the first n tokens of a session again that its cache lacks. device_failed: the failure was on the
 * device. */
static hearth_status rebuild_cache(hearth_batch *b, hearth_session *s, uint32_t n, bool *device_failed,
                                   hearth_error *err)
{
    hth_batch_token *tokens = hth_alloc(b->n_tok_max, sizeof *tokens);
    if (!tokens) return hth_fail_memory(err, b->n_tok_max * sizeof *tokens, "a batch");
    hearth_status st = HEARTH_OK;
    if (s->generation != b->generation) hth_sequence_truncate(&s->seq, 0);
    for (uint32_t first = s->seq.n_tok, k; st == HEARTH_OK && first < n; first += k) {
        k = hth_min_u32(n - first, hth_min_u32(b->n_tok_max, hth_sequence_max_step(&s->seq)));
        for (uint32_t i = 0; i < k; i++)
            tokens[i] =
                (hth_batch_token){.seq = &s->seq, .token = s->tokens[first + i], .position = first + i};
        st = run_prepared(b, tokens, k, NULL, NULL, device_failed, err);
    }
    if (st == HEARTH_OK)
        hth_sequence_checkpoint(&s->seq, HTH_CHECKPOINT_EXPLICIT); /* callers return here again */
    hth_free(tokens);
    return st;
}

/* Switches to the current placement, and completes the caches of sessions that were evaluated with an older one, or
 * returned to a position whose cache was released. */
static hearth_status sync_placement(hearth_batch *b, uint32_t n_tok, bool *device_failed, hearth_error *err)
{
    hearth_status st = b->generation != hth_engine_generation(b->model) ? use_gpu(b, err) : HEARTH_OK;
    for (uint32_t i = 0; st == HEARTH_OK && i < n_tok; i++) {
        hearth_session *s = session_of(&b->tokens[i]);
        if (i > 0 && b->tokens[i - 1].seq == &s->seq) continue;
        if (s->generation == b->generation && s->seq.n_tok == b->tokens[i].position) continue;
        st = rebuild_cache(b, s, b->tokens[i].position, device_failed, err);
        if (st == HEARTH_OK) s->generation = b->generation;
    }
    return st;
}

/* Checks the device's budget from time to time. */
static void enforce_budget(hearth_batch *b, uint32_t n_tok)
{
    enum { EVERY = 256, AGAIN = 32 };
    b->n_new += n_tok;
    if (!b->gpu || b->n_new < EVERY) return;
    b->n_new = hth_engine_enforce_vram_budget(hth_engine_mutable(b->model)) ? EVERY - AGAIN : 0;
}

/* A request that a device refuses may succeed in one of the next two retries. */
static bool may_retry(hearth_status st, uint32_t *n_refused)
{
    enum { MAX_REFUSED = 3 };
    return st != HEARTH_ERROR_DEVICE && ++*n_refused < MAX_REFUSED;
}

static bool wants_rows(const hearth_batch *b, uint32_t n_tok)
{
    for (uint32_t i = 0; i < n_tok; i++)
        if (session_of(&b->tokens[i])->hidden_fn) return true;
    return false;
}

/* Rows of the last step, to the sessions that get them. */
static hearth_status give_rows(const hearth_batch *b, uint32_t n_tok, hearth_error *err)
{
    const float *rows = hth_step_hidden(b->step);
    hearth_status st = HEARTH_OK;
    for (uint32_t i = 0, k; st == HEARTH_OK && i < n_tok; i += k) {
        const hearth_session *s = session_of(&b->tokens[i]);
        for (k = 1; i + k < n_tok && b->tokens[i + k].seq == &s->seq;) k++;
        if (s->hidden_fn)
            st = s->hidden_fn(s->hidden_user, b->tokens[i].position, k,
                              rows + i * (size_t)b->model->model->hparams.d_model, err);
    }
    return st;
}

/* Runs a step over the first n_tok tokens of the batch. */
hearth_status hth_batch_step(hearth_batch *b, uint32_t n_tok, hth_logits_fn *fn, void *user,
                             hearth_error *err)
{
    delivery to = {.fn = fn, .user = user};
    hearth_error why = {0};
    hearth_status st;
    uint32_t n_refused = 0;
    bool keeps_rows = wants_rows(b, n_tok);
    hth_step_keep_hidden(b->step, keeps_rows);
    note_tokens(b, n_tok);
    enforce_budget(b, n_tok);
    for (;;) {
        bool device_failed = false;
        st = sync_placement(b, n_tok, &device_failed, &why);
        if (st == HEARTH_OK) st = run_checked(b, n_tok, &to, &device_failed, &why);
        if (to.aborted || !device_failed) break;
        if (!may_retry(st, &n_refused))
            hth_engine_gpu_fallback(hth_engine_mutable(b->model), b->generation, why.message);
    }
    if (st == HEARTH_OK && keeps_rows) st = give_rows(b, n_tok, &why);
    if (st == HEARTH_ERROR_CANCELLED) __atomic_store_n(&b->cancel, 0, __ATOMIC_RELAXED);
    if (st != HEARTH_OK && err) *err = why;
    return st;
}

void hth_session_store_logits(hearth_session *s, const float *logits)
{
    size_t n_vocab = s->model->model->hparams.n_vocab;
    memcpy(s->logits + (1 - s->i_logits) * n_vocab, logits, n_vocab * sizeof *logits);
}

void hth_session_take_logits(hearth_session *s)
{
    s->i_logits = 1 - s->i_logits;
    s->has_logits = true;
}

/* Each entry of a batch that wants them gets the logits of its last token, and of its draft. */
static hearth_status store_entry_logits(void *user, uint32_t i_want, const float *logits, hearth_error *err)
{
    (void)err;
    const hearth_batch *b = user;
    const struct batch_entry *e = b->entries;
    for (uint32_t n; (n = e->wants ? 1 + e->n_draft : 0) <= i_want; e++) i_want -= n;
    size_t n_vocab = b->model->model->hparams.n_vocab;
    if (i_want == 0) hth_session_store_logits(e->session, logits);
    else memcpy(e->rows + (i_want - 1) * n_vocab, logits, n_vocab * sizeof *logits);
    return HEARTH_OK;
}

/* The position is that before the draft. */
static void end_entry(const struct batch_entry *e)
{
    hearth_session *s = e->session;
    uint32_t n = e->n_token - e->n_draft;
    if (n > 1) hth_sequence_checkpoint(&s->seq, HTH_CHECKPOINT_EXPLICIT);
    s->position += n;
    if (e->wants) hth_session_take_logits(s);
    else s->has_logits = false;
    if (e->n_draft == 0) return;
    s->n_draft_pending = e->n_draft, s->ahead = e->rows;
    hth_sequence_set_ahead(&s->seq, e->n_draft, e->states);
    hth_speculation_note_step(s, e->n_draft);
}

static void clear(hearth_batch *b)
{
    for (uint32_t i = 0; i < b->n_entry; i++) b->entries[i].session->pending_in = NULL;
    b->n_entry = b->n_tok = 0;
}

hearth_status hth_batch_run(hearth_batch *b, hearth_error *err)
{
    hearth_status st = b->n_tok > 0 ? hth_batch_step(b, b->n_tok, store_entry_logits, b, err) : HEARTH_OK;
    if (st != HEARTH_OK) return st;
    for (uint32_t i = 0; i < b->n_entry; i++) end_entry(&b->entries[i]);
    clear(b);
    return HEARTH_OK;
}

hearth_status hearth_batch_run(hearth_batch *b, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!b) return hth_fail_null(err, "batch");
    HTH_USE(use, b);
    if (!use) return hth_fail_in_use(err, "batch");
    const uint32_t n = b->n_entry;
    uint32_t n_used = 0;
    while (n_used < n && (b->entries[n_used].use = hth_use_begin(&b->entries[n_used].session->in_use))) n_used++;
    hearth_status st = n_used == n ? hth_batch_run(b, err) : hth_fail_in_use(err, "a session of the batch");
    for (uint32_t i = 0; i < n_used; i++) hth_use_end(&b->entries[i].use);
    return st;
}

void hearth_batch_clear(hearth_batch *b)
{
    if (!b) return;
    HTH_USE(use, b);
    if (use) clear(b);
}

/* Removes a session that is being closed from its pending batch. */
void hth_batch_remove(hearth_batch *b, const hearth_session *s)
{
    uint32_t n_tok = 0, n_entry = 0;
    for (uint32_t i = 0; i < b->n_tok; i++)
        if (b->tokens[i].seq != &s->seq) b->tokens[n_tok++] = b->tokens[i];
    for (uint32_t i = 0; i < b->n_entry; i++)
        if (b->entries[i].session != s) b->entries[n_entry++] = b->entries[i];
    b->n_tok = n_tok;
    b->n_entry = n_entry;
}

/* ---- active neurons ---------------------------------------------------------------- */

static void count_active(void *user, const hth_ffn_probe *seen)
{
    hearth_batch *b = user;
    uint64_t n = 0;
    for (size_t i = 0; i < seen->n_tok * seen->d_ff; i++) n += seen->hidden[i] != 0.0f;
    b->n_active[seen->i_layer] += n;
    if (seen->i_layer == 0) b->n_counted += seen->n_tok;
}

void hth_batch_count_active(hearth_batch *b, bool on)
{
    bool is_possible = !hth_engine_has_gpu(b->model) && !b->model->streamed.reader;
    b->n_counted = 0;
    memset(b->n_active, 0, b->model->model->hparams.n_layer * sizeof *b->n_active);
    hth_step_set_probe(b->step, on && is_possible ? count_active : NULL, b);
}

uint64_t hth_batch_active_shares(const hearth_batch *b, double *share)
{
    const hth_model *m = b->model->model;
    for (uint32_t i = 0; share && i < m->hparams.n_layer; i++) {
        double all = (double)b->n_counted * m->layers[i].ffn.d_ff;
        share[i] = all > 0.0 ? (double)b->n_active[i] / all : 0.0;
    }
    return b->n_counted;
}
