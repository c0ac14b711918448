/* Sessions and batches. A batch owns a workspace and a thread pool, and evaluates tokens of any sessions of its
 * model. A session owns its cache, its position and its last logits, and usually a batch of its own. */
#include "engine/session_int.h"

#include "base/bits.h"
#include "base/checked_math.h"
#include "base/switches.h"
#include "sparse/selector.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

enum { MAX_BATCH = 1 << 16 };

struct hearth_batch {
    const hearth_model *model;
    hth_kernels kernels; /* the model's, except for approximations */
    hth_pool *pool;
    hth_step *step;
    hearth_selector selector;
    uint64_t size;       /* counted in the limit of the model; 0: with its session */
    hth_gpu *gpu;        /* runs the first layers; NULL: the CPU runs all */
    uint32_t generation; /* placement generation of gpu */
    uint32_t n_new;      /* tokens since the last check of the device's budget */
    uint32_t n_tok_max, n_tok, n_entry;
    hth_batch_token *tokens; /* [n_tok_max] */
    struct batch_entry {
        hearth_session *session;
        uint32_t n_token, n_draft; /* n_draft: the last ones of them */
        bool wants;                /* logits of its last token before a draft, and of that */
        float *rows;               /* where those of the draft go */
        uint8_t *states;           /* where the states before its tokens go; NULL: there are none */
    } * entries;                   /* [n_tok_max] */
    uint64_t n_counted;            /* tokens whose active neurons were counted */
    uint64_t *n_active;            /* [n_layer] */
};

/* The mutable, locked part of a model that its sessions share (gpu_fallback.c). */
hearth_model *hth_engine_mutable(const hearth_model *m) { return (hearth_model *)(uintptr_t)m; }

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
    if (st == HEARTH_OK) hth_step_use_gpu(b->step, b->gpu);
    return st;
}

static hearth_status open_batch(const hearth_model *model, uint32_t n_tok, uint32_t n_thread, bool bf16_dot,
                                hearth_selector requested, hearth_batch **out, hearth_error *err)
{
    hearth_selector selector;
    *out = NULL;
    if (n_tok < 1 || n_tok > MAX_BATCH)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "a batch of %u tokens: 1 to %d are possible", n_tok,
                        MAX_BATCH);
    hearth_status st = choose_selector(model, requested, &selector, err);
    if (st != HEARTH_OK) return st;
    hearth_batch *b = hth_alloc(1, sizeof *b);
    if (!b) return hth_fail_memory(err, sizeof *b, "a batch");
    b->model = model;
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
    if ((st = hth_pool_open(hth_pool_default_threads(n_thread), &b->pool, err)) != HEARTH_OK) goto fail;
    hth_pool_watch(b->pool, model->cancel);
    hth_pool_pin(b->pool);
    if ((st = hth_step_open(model->model, &b->kernels, b->pool, n_tok, selector, &b->step, err)) != HEARTH_OK)
        goto fail;
    if (model->streamed.reader && (st = hth_step_use_store(b->step, &model->streamed, err)) != HEARTH_OK)
        goto fail;
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
    size_t size = hth_batch_size(model, n_tok, n_thread, model->selector, model->streamed.reader != NULL);
    *out = NULL;
    hearth_status st = hth_engine_take_memory(hth_engine_mutable(model), size, err);
    if (st != HEARTH_OK) return st;
    st = open_batch(model, n_tok, n_thread, false, HEARTH_SELECTOR_AUTO, out, err);
    if (st == HEARTH_OK) (*out)->size = size;
    else hth_engine_give_memory(hth_engine_mutable(model), size);
    return st;
}

void hearth_batch_close(hearth_batch *b)
{
    if (!b) return;
    hth_batch_clear(b);
    hth_step_close(b->step);
    hth_pool_close(b->pool);
    hth_free(b->n_active);
    hth_free(b->entries);
    hth_free(b->tokens);
    hth_engine_give_memory(hth_engine_mutable(b->model), b->size);
    hth_free(b);
}

static hearth_status check_tokens(const hearth_session *s, const int32_t *tokens, size_t n, hearth_error *err)
{
    uint32_t n_vocab = s->model->model->hparams.n_vocab;
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= n_vocab)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT, "token %zu is %d: the vocabulary has 0 to %u", i,
                            tokens[i], n_vocab - 1);
    if (n > s->seq.options.n_ctx - s->position)
        return hth_fail(
            err, HEARTH_ERROR_CONTEXT,
            "context full: %zu tokens from position %u on do not fit into a context of %u; raise -c", n,
            s->position, s->seq.options.n_ctx);
    return HEARTH_OK;
}

hearth_status hearth_batch_add(hearth_batch *b, hearth_session *s, const int32_t *tokens, size_t n,
                               hearth_error *err)
{
    return hth_batch_add(b, s, tokens, n, true, err);
}

hearth_status hth_batch_add(hearth_batch *b, hearth_session *s, const int32_t *tokens, size_t n, bool wants,
                            hearth_error *err)
{
    if (s->model != b->model)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "session and batch belong to different models");
    if (s->pending_in) return hth_fail(err, HEARTH_ERROR_ARGUMENT, "the session is already in a batch");
    if (n == 0) return hth_fail(err, HEARTH_ERROR_ARGUMENT, "no tokens");
    hth_session_settle(s);
    if (n > b->n_tok_max - b->n_tok)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%zu more tokens do not fit into a batch of %u", n,
                        b->n_tok_max);
    hearth_status st = check_tokens(s, tokens, n, err);
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
        hth_sequence_checkpoint(&s->seq, HTH_CHECKPOINT_ASKED); /* callers return here again */
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
static hearth_status run_step(hearth_batch *b, uint32_t n_tok, hth_logits_fn *fn, void *user,
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
        if (st == HEARTH_OK) st = run_prepared(b, b->tokens, n_tok, emit_once, &to, &device_failed, &why);
        if (to.aborted || !device_failed) break;
        if (!may_retry(st, &n_refused))
            hth_engine_gpu_fallback(hth_engine_mutable(b->model), b->generation, why.message);
    }
    if (st == HEARTH_OK && keeps_rows) st = give_rows(b, n_tok, &why);
    if (st != HEARTH_OK && err) *err = why;
    return st;
}

static void store_logits(hearth_session *s, const float *logits)
{
    memcpy(s->logits, logits, s->model->model->hparams.n_vocab * sizeof *s->logits);
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
    if (i_want == 0) store_logits(e->session, logits);
    else memcpy(e->rows + (i_want - 1) * n_vocab, logits, n_vocab * sizeof *logits);
    return HEARTH_OK;
}

/* The position is that before the draft. */
static void end_entry(const struct batch_entry *e)
{
    hearth_session *s = e->session;
    uint32_t n = e->n_token - e->n_draft;
    if (n > 1) hth_sequence_checkpoint(&s->seq, HTH_CHECKPOINT_ASKED);
    s->position += n;
    if (e->n_draft == 0) return;
    s->n_ahead = e->n_draft, s->ahead = e->rows;
    hth_sequence_set_ahead(&s->seq, e->n_draft, e->states);
    hth_speculation_note_step(s, e->n_draft);
}

hearth_status hearth_batch_run(hearth_batch *b, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    if (b->n_tok > 0) st = run_step(b, b->n_tok, store_entry_logits, b, err);
    for (uint32_t i = 0; i < b->n_entry; i++) {
        hearth_session *s = b->entries[i].session;
        s->pending_in = NULL;
        if (st == HEARTH_OK) end_entry(&b->entries[i]);
        if (st != HEARTH_OK || !b->entries[i].wants) s->has_logits = false;
    }
    b->n_entry = b->n_tok = 0;
    return st;
}

void hth_batch_clear(hearth_batch *b)
{
    for (uint32_t i = 0; i < b->n_entry; i++) b->entries[i].session->pending_in = NULL;
    b->n_entry = b->n_tok = 0;
}

/* Removes a session that is being closed from its pending batch. */
static void remove_session(hearth_batch *b, const hearth_session *s)
{
    uint32_t n_tok = 0, n_entry = 0;
    for (uint32_t i = 0; i < b->n_tok; i++)
        if (b->tokens[i].seq != &s->seq) b->tokens[n_tok++] = b->tokens[i];
    for (uint32_t i = 0; i < b->n_entry; i++)
        if (b->entries[i].session != s) b->entries[n_entry++] = b->entries[i];
    b->n_tok = n_tok;
    b->n_entry = n_entry;
}

/* ---- sessions ------------------------------------------------------------------ */

hearth_session_options hearth_session_defaults(void)
{
    return (hearth_session_options){.n_batch = HEARTH_BATCH_AUTO, .kv = HEARTH_KV_F16};
}

/* Learned positions, or an indexer, limit the context. */
static hearth_status check_context(const hearth_model *model, uint32_t n_ctx, hearth_error *err)
{
    uint32_t n_position = model->model->hparams.n_position;
    if (n_position == 0 || n_ctx <= n_position) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                    "a context of %u positions: %s is limited to %u; ask for less with -c", n_ctx,
                    hth_gguf_path(model->file), n_position);
}

/* A session with these options; from: the session that it copies, or NULL. */
static hearth_status open_session(const hearth_model *model, const hearth_session_options *options,
                                  hth_kv_budget *budget, const hearth_session *from, hearth_session **out,
                                  hearth_error *err)
{
    hearth_session_options o = *options;
    *out = NULL;
    hearth_session *s = hth_alloc(1, sizeof *s);
    if (!s) return hth_fail_memory(err, sizeof *s, "a session");
    s->model = model, s->options = o, s->generation = hth_engine_generation(model);
    s->options.n_ctx = hth_session_context(model, &o);
    uint32_t n_ctx = s->options.n_ctx, n_tok = hth_session_batch(model, &o);
    hearth_status st = check_context(model, n_ctx, err);
    hth_kv_pool *pool;
    uint64_t size =
        hth_session_size(model, &o, budget, model->streamed.reader != NULL); /* 0: the sequence is refused */
    if (st == HEARTH_OK) st = hth_engine_take_memory(hth_engine_mutable(model), size, err);
    if (st == HEARTH_OK) s->size = size;
    if (st == HEARTH_OK) st = hth_engine_kv_pool(hth_engine_mutable(model), o.kv, &pool, err);
    const hth_sequence_options sequence = hth_session_sequence_options(&o, budget, n_ctx, n_tok);
    if (st == HEARTH_OK)
        st = from ? hth_sequence_fork(&from->seq, &s->seq, err)
                  : hth_sequence_open(&s->seq, pool, &sequence, err);
    if (st != HEARTH_OK) goto fail;
    s->tokens = hth_alloc(n_ctx, sizeof *s->tokens);
    s->logits = hth_alloc(model->model->hparams.n_vocab, sizeof *s->logits);
    if (!s->tokens || !s->logits) {
        st = hth_fail_memory(err, model->model->hparams.n_vocab * sizeof *s->logits, "a session");
        goto fail;
    }
    if (n_tok > 0) st = open_batch(model, n_tok, o.n_thread, o.bf16_dot, o.selector, &s->own, err);
    if (st != HEARTH_OK) goto fail;
    *out = s;
    return HEARTH_OK;
fail:
    hearth_session_close(s);
    return st;
}

hearth_status hearth_session_open(const hearth_model *model, const hearth_session_options *options,
                                  hearth_session **out, hearth_error *err)
{
    hearth_session_options o = options ? *options : hearth_session_defaults();
    return open_session(model, &o, NULL, NULL, out, err);
}

hearth_status hth_session_open_in(const hearth_model *model, const hearth_session_options *options,
                                  hth_kv_budget *budget, hearth_session **out, hearth_error *err)
{
    return open_session(model, options, budget, NULL, out, err);
}

hearth_status hearth_session_fork(const hearth_session *from, hearth_session **out, hearth_error *err)
{
    *out = NULL;
    if (from->pending_in)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "the session waits in a batch that was not run");
    hearth_status st = open_session(from->model, &from->options, from->seq.options.budget, from, out, err);
    if (st != HEARTH_OK) return st;
    hearth_session *s = *out;
    memcpy(s->tokens, from->tokens, from->position * sizeof *s->tokens);
    if (from->has_logits)
        memcpy(s->logits, from->logits, s->model->model->hparams.n_vocab * sizeof *s->logits);
    s->position = from->position, s->has_logits = from->has_logits, s->generation = from->generation;
    if (from->n_ahead > 0) hth_sequence_truncate(&s->seq, s->position);
    return HEARTH_OK;
}

void hearth_session_close(hearth_session *s)
{
    if (!s) return;
    if (s->pending_in) remove_session(s->pending_in, s);
    hth_speculation_close(s);
    hearth_batch_close(s->own);
    hth_free(s->tokens);
    hth_free(s->logits);
    hth_sequence_close(&s->seq);
    hth_engine_give_memory(hth_engine_mutable(s->model), s->size);
    hth_free(s);
}

static hearth_status check_own_batch(const hearth_session *s, hearth_error *err)
{
    if (!s->own)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "the session was opened with n_batch 0: step it by a batch");
    if (s->pending_in)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "the session waits in a batch that was not run");
    return HEARTH_OK;
}

typedef struct eval_output {
    hearth_session *session;
    hearth_logits_fn *fn; /* NULL: only the last logits are wanted */
    void *user;
    size_t first; /* index of the first token of the step */
} eval_output;

static hearth_status store_token_logits(void *user, uint32_t i_want, const float *logits, hearth_error *err)
{
    const eval_output *output = user;
    store_logits(output->session, logits);
    return output->fn ? output->fn(output->user, output->first + i_want, logits, err) : HEARTH_OK;
}

/* The sequence has fewer tokens than the session until the next step completes its cache. */
static void go_back(hearth_session *s, uint32_t position)
{
    if (position < s->seq.n_tok) hth_sequence_truncate(&s->seq, hth_sequence_reachable(&s->seq, position));
    s->position = position, s->n_ahead = 0;
    s->has_logits = false;
}

void hth_session_settle(hearth_session *s)
{
    if (s->n_ahead > 0) hth_sequence_truncate(&s->seq, s->position);
    s->n_ahead = 0;
}

bool hth_session_advance(hearth_session *s, int32_t token)
{
    if (s->n_ahead == 0) return false;
    bool is_right = s->tokens[s->position] == token;
    hth_speculation_note(s, is_right);
    if (!is_right) {
        hth_session_settle(s);
        return false;
    }
    store_logits(s, s->ahead);
    s->ahead += s->model->model->hparams.n_vocab;
    s->position++, s->n_ahead--;
    if (s->n_ahead == 0) hth_sequence_set_ahead(&s->seq, 0, NULL); /* other drafts may take its rows */
    return true;
}

/* Whose logits are computed: for each, a function gets them. */
typedef enum wanted_logits { OF_NONE, OF_LAST, OF_EACH } wanted_logits;

/* Runs steps of up to n_tok_max tokens. */
static hearth_status eval_tokens(hearth_session *s, const int32_t *tokens, size_t n, wanted_logits wanted,
                                 hearth_logits_fn *fn, void *user, hearth_error *err)
{
    hearth_status st = check_own_batch(s, err);
    if (st != HEARTH_OK || n == 0) return st;
    if ((st = check_tokens(s, tokens, n, err)) != HEARTH_OK) return st;
    if (n == 1 && wanted == OF_LAST && s->drafts) return hth_speculation_eval(s, tokens[0], err);
    hth_session_settle(s);
    hearth_batch *b = s->own;
    eval_output output = {s, fn, user, 0};
    uint32_t start = s->position, n_tok;
    bool is_text = n > 1; /* rather than a generated token: callers return to where it begins or ends */
    if (is_text && s->seq.n_tok == start) hth_sequence_checkpoint(&s->seq, HTH_CHECKPOINT_ASKED);
    for (; st == HEARTH_OK && output.first < n; output.first += n_tok) {
        n_tok = n - output.first < b->n_tok_max ? (uint32_t)(n - output.first) : b->n_tok_max;
        for (uint32_t i = 0; i < n_tok; i++)
            b->tokens[i] = (hth_batch_token){.seq = &s->seq,
                                             .token = tokens[output.first + i],
                                             .position = s->position + i,
                                             .want_logits = wanted == OF_EACH ||
                                                            (wanted == OF_LAST && output.first + i + 1 == n)};
        st = run_step(b, n_tok, store_token_logits, &output, err);
        s->position += n_tok;
    }
    if (wanted == OF_NONE) s->has_logits = false;
    if (st != HEARTH_OK) go_back(s, start);
    else if (is_text) hth_sequence_checkpoint(&s->seq, HTH_CHECKPOINT_ASKED);
    return st;
}

hearth_status hearth_session_eval(hearth_session *s, const int32_t *tokens, size_t n, hearth_error *err)
{
    return eval_tokens(s, tokens, n, OF_LAST, NULL, NULL, err);
}

hearth_status hearth_session_eval_each(hearth_session *s, const int32_t *tokens, size_t n,
                                       hearth_logits_fn *fn, void *user, hearth_error *err)
{
    return eval_tokens(s, tokens, n, fn ? OF_EACH : OF_LAST, fn, user, err);
}

typedef struct hidden_output {
    const hearth_session *session;
    hearth_logits_fn *fn;
    void *user;
    uint32_t start; /* position of the first token */
} hidden_output;

static hearth_status give_hidden(void *user, uint32_t at, uint32_t n, const float *rows, hearth_error *err)
{
    const hidden_output *to = user;
    size_t d = to->session->model->model->hparams.d_model;
    hearth_status st = HEARTH_OK;
    if (!hth_all_finite(rows, n * d))
        return hth_fail(err, HEARTH_ERROR_NUMERIC,
                        "%s: an output is not finite: the weights hold NaN or infinity, or a sum overflowed",
                        hth_gguf_path(to->session->model->file));
    for (uint32_t i = 0; st == HEARTH_OK && i < n; i++)
        st = to->fn(to->user, at - to->start + i, rows + i * d, err);
    return st;
}

hearth_status hearth_session_eval_hidden(hearth_session *s, const int32_t *tokens, size_t n,
                                         hearth_logits_fn *fn, void *user, hearth_error *err)
{
    hidden_output to = {s, fn, user, s->position};
    hth_hidden_fn *before = s->hidden_fn;
    void *user_before = s->hidden_user;
    if (hth_engine_has_gpu(s->model))
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                        "with a GPU the output of the last layer is not given");
    s->hidden_fn = give_hidden, s->hidden_user = &to;
    hearth_status st = eval_tokens(s, tokens, n, OF_NONE, NULL, NULL, err);
    s->hidden_fn = before, s->hidden_user = user_before;
    return st;
}

const float *hearth_session_logits(const hearth_session *s) { return s->has_logits ? s->logits : NULL; }
uint32_t hearth_session_position(const hearth_session *s) { return s->position; }
const int32_t *hearth_session_tokens(const hearth_session *s) { return s->tokens; }
uint32_t hearth_session_n_cached(const hearth_session *s)
{
    if (s->generation != hth_engine_generation(s->model)) return 0;
    return s->n_ahead > 0 ? s->position : s->seq.n_tok;
}
uint32_t hearth_session_n_ctx(const hearth_session *s) { return s->seq.options.n_ctx; }
uint32_t hearth_session_n_thread(const hearth_session *s)
{
    return s->own ? hth_pool_n_thread(s->own->pool) : 0;
}

hearth_status hearth_session_truncate(hearth_session *s, uint32_t position, hearth_error *err)
{
    if (position > s->position || s->pending_in)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "cannot go back to position %u of %u%s", position,
                        s->position, s->pending_in ? " while the session waits in a batch" : "");
    if (position < s->position) go_back(s, position);
    return HEARTH_OK;
}

void hth_session_free_logits(hearth_session *s)
{
    hth_free(s->logits);
    s->logits = NULL, s->has_logits = false;
}

uint32_t hth_session_reachable(const hearth_session *s, uint32_t position)
{
    return hearth_session_n_cached(s) > 0 ? hth_sequence_reachable(&s->seq, position) : 0;
}

void hth_session_count_missing(const hearth_session *s, uint32_t n, uint32_t n_page[HTH_N_KV_CLASS])
{
    hth_sequence_count_missing(&s->seq, n, n_page);
}

bool hth_session_has_cache(const hearth_session *s) { return hearth_session_n_cached(s) == s->position; }

void hth_session_reset(hearth_session *s)
{
    go_back(s, 0);
    s->generation = hth_engine_generation(s->model);
}

void hth_session_set(hearth_session *s, uint32_t position, bool has_logits, bool has_cache)
{
    if (!has_cache || hth_engine_has_gpu(s->model)) hth_sequence_truncate(&s->seq, 0);
    s->position = position, s->has_logits = has_logits, s->n_ahead = 0;
    hth_speculation_forget(s);
    s->generation = hth_engine_generation(s->model);
}

hearth_selector hth_session_selector(const hearth_session *s) { return s->own->selector; }

hth_step *hth_session_step(const hearth_session *session) { return session->own ? session->own->step : NULL; }
uint32_t hth_session_n_row(const hearth_session *session)
{
    return session->own ? session->own->n_tok_max : 0;
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
    for (uint32_t i = 0; i < m->hparams.n_layer; i++) {
        double all = (double)b->n_counted * m->layers[i].ffn.d_ff;
        share[i] = all > 0.0 ? (double)b->n_active[i] / all : 0.0;
    }
    return b->n_counted;
}

void hearth_session_enable_sparsity_stats(hearth_session *s, bool on)
{
    if (s->own) hth_batch_count_active(s->own, on);
}

uint64_t hearth_session_sparsity_stats(const hearth_session *s, double *share)
{
    if (s->own) return hth_batch_active_shares(s->own, share);
    memset(share, 0, s->model->model->hparams.n_layer * sizeof *share);
    return 0;
}
