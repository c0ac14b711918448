/* Sessions and batches. A batch owns a workspace and a pool of threads and steps
 * rows of any sessions of its model; a session owns its cache, its position and
 * its last logits, and usually a batch of its own. */
#include "engine/engine.h"

#include "base/checked_math.h"
#include "sparse/selector.h"

#include <stddef.h>
#include <string.h>

enum { DEFAULT_BATCH = 256, MAX_BATCH = 1 << 16 };

struct hearth_batch {
    const hearth_model *model;
    hth_kernels kernels; /* the model's, but for approximations */
    hth_pool *pool;
    hth_step *step;
    hth_gpu *gpu;   /* through which the first layers go; NULL: through none */
    uint32_t age;   /* of the model, since when */
    uint32_t n_new; /* rows since the device was asked for its budget */
    uint32_t n_row_max, n_row, n_entry;
    hth_batch_token *rows; /* [n_tok_max] */
    struct entry {
        hearth_session *session;
        uint32_t n_token;
    } * entries; /* [n_tok_max] */
};

struct hearth_session {
    const hearth_model *model;
    hth_kv kv;
    uint32_t position;
    hearth_batch *waits_in; /* a batch that was not run yet */
    bool has_logits;
    bool on_gpu;         /* it has a slot in the caches of the model's device */
    uint32_t generation; /* of the model, when what lies there and here was evaluated */
    int32_t *tokens;     /* [n_ctx] evaluated so far, where a device might be lost; else NULL */
    float *logits;       /* [n_vocab] */
    hearth_batch *own;
    uint64_t n_counted; /* tokens whose live neurons were counted */
    uint64_t *n_live;   /* [n_layer] */
};

/* What its sessions share of a model besides weights (gpu_fallback.c), which a lock guards. */
static hearth_model *shared(const hearth_model *m) { return (hearth_model *)(uintptr_t)m; }

/* ---- batches ------------------------------------------------------------------- */

/* AUTO: the model's. */
static hearth_status choose_selector(const hearth_model *model, hearth_selector requested,
                                     hearth_selector *selector, hearth_error *err)
{
    const char *why;
    hearth_selector w = requested == HEARTH_SELECTOR_AUTO ? model->selector : requested;
    hearth_status st = hth_selector_choose(model->model, w, selector, &why, err);
    return st == HEARTH_OK ? hth_engine_check_layout(model, *selector, err) : st;
}

/* What lies on the device now is stepped through there. */
static hearth_status use_gpu(hearth_batch *b, hearth_error *err)
{
    hearth_status st = hth_engine_use_gpu(shared(b->model), &b->gpu, &b->age, err);
    if (st == HEARTH_OK) hth_step_use_gpu(b->step, b->gpu);
    return st;
}

static hearth_status open_batch(const hearth_model *model, uint32_t n_row, uint32_t n_thread, bool bf16_dot,
                                hearth_selector requested, hearth_batch **out, hearth_error *err)
{
    hearth_selector selector;
    *out = NULL;
    if (n_row < 1 || n_row > MAX_BATCH)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "a batch of %u rows: 1 to %d are possible", n_row,
                        MAX_BATCH);
    hearth_status st = choose_selector(model, requested, &selector, err);
    if (st != HEARTH_OK) return st;
    hearth_batch *b = hth_alloc(1, sizeof *b);
    if (!b) return hth_fail_memory(err, sizeof *b, "a batch");
    b->model = model;
    b->kernels = model->kernels;
    b->n_row_max = n_row;
    if (bf16_dot && !hth_kernels_use_bf16_dot(&b->kernels)) {
        st = hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                      "products of bf16 are wanted: this CPU, or the level %s, has none",
                      hth_cpu_name(b->kernels.level));
        goto fail;
    }
    b->rows = hth_alloc(n_row, sizeof *b->rows);
    b->entries = hth_alloc(n_row, sizeof *b->entries);
    if (!b->rows || !b->entries) {
        st = hth_fail_memory(err, n_row * sizeof *b->rows, "a batch");
        goto fail;
    }
    if ((st = hth_pool_check_pin(err)) != HEARTH_OK) goto fail;
    if ((st = hth_pool_open(hth_pool_default_threads(n_thread), &b->pool, err)) != HEARTH_OK) goto fail;
    hth_pool_watch(b->pool, model->cancel);
    hth_pool_pin(b->pool);
    if ((st = hth_step_open(model->model, &b->kernels, b->pool, n_row, selector, &b->step, err)) != HEARTH_OK)
        goto fail;
    if ((st = use_gpu(b, err)) != HEARTH_OK) goto fail;
    *out = b;
    return HEARTH_OK;
fail:
    hearth_batch_close(b);
    return st;
}

hearth_status hearth_batch_open(const hearth_model *model, uint32_t n_row, uint32_t n_thread,
                                hearth_batch **out, hearth_error *err)
{
    return open_batch(model, n_row, n_thread, false, HEARTH_SELECTOR_AUTO, out, err);
}

void hearth_batch_close(hearth_batch *b)
{
    if (!b) return;
    for (uint32_t i = 0; i < b->n_entry; i++) b->entries[i].session->waits_in = NULL;
    hth_step_close(b->step);
    hth_pool_close(b->pool);
    hth_free(b->entries);
    hth_free(b->rows);
    hth_free(b);
}

static hearth_status check_tokens(const hearth_session *s, const int32_t *tokens, size_t n, hearth_error *err)
{
    uint32_t n_vocab = s->model->model->hparams.n_vocab;
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= n_vocab)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT, "token %zu is %d: the vocabulary has 0 to %u", i,
                            tokens[i], n_vocab - 1);
    if (n > s->kv.n_ctx - s->position)
        return hth_fail(
            err, HEARTH_ERROR_CONTEXT,
            "context full: %zu tokens from position %u on do not fit into a context of %u; raise -c", n,
            s->position, s->kv.n_ctx);
    return HEARTH_OK;
}

hearth_status hearth_batch_add(hearth_batch *b, hearth_session *s, const int32_t *tokens, size_t n,
                               hearth_error *err)
{
    if (s->model != b->model)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "session and batch belong to different models");
    if (s->waits_in) return hth_fail(err, HEARTH_ERROR_ARGUMENT, "the session is already in a batch");
    if (n == 0) return hth_fail(err, HEARTH_ERROR_ARGUMENT, "no tokens");
    if (n > b->n_row_max - b->n_row)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%zu more rows do not fit into a batch of %u", n,
                        b->n_row_max);
    hearth_status st = check_tokens(s, tokens, n, err);
    if (st != HEARTH_OK) return st;
    for (size_t i = 0; i < n; i++)
        b->rows[b->n_row++] = (hth_batch_token){&s->kv, tokens[i], s->position + (uint32_t)i, i + 1 == n};
    b->entries[b->n_entry].session = s;
    b->entries[b->n_entry++].n_token = (uint32_t)n;
    s->waits_in = b;
    return HEARTH_OK;
}

/* ---- a step ------------------------------------------------------------------------ */

/* Logits that were given, should the step be done again. */
typedef struct resumed {
    hth_logits_fn *fn;
    void *user;
    uint32_t n_given;
    bool refused; /* by whom they were given to */
} resumed;

static hearth_status emit_once(void *user, uint32_t i_want, const float *logits, hearth_error *err)
{
    resumed *r = user;
    if (i_want < r->n_given) return HEARTH_OK;
    r->n_given = i_want + 1;
    hearth_status st = r->fn(r->user, i_want, logits, err);
    r->refused = st != HEARTH_OK;
    return st;
}

/* Rows know the cache of their session alone. */
static hearth_session *session_of(const hth_batch_token *token)
{
    return (hearth_session *)(void *)((char *)token->kv - offsetof(hearth_session, kv));
}

static void note_tokens(const hearth_batch *b, uint32_t n_row)
{
    for (uint32_t i = 0; i < n_row; i++) {
        hearth_session *s = session_of(&b->rows[i]);
        if (s->tokens) s->tokens[b->rows[i].position] = b->rows[i].token;
    }
}

/* The first n tokens of a session once more, for what they leave in its cache. device_failed: on the device. */
static hearth_status evaluate_again(hearth_batch *b, hearth_session *s, uint32_t n, bool *failed_there,
                                    hearth_error *err)
{
    hth_batch_token *tokens = hth_alloc(b->n_row_max, sizeof *tokens);
    if (!tokens) return hth_fail_memory(err, b->n_row_max * sizeof *tokens, "a batch");
    hearth_status st = HEARTH_OK;
    for (uint32_t first = 0, k; st == HEARTH_OK && first < n; first += k) {
        k = n - first < b->n_row_max ? n - first : b->n_row_max;
        for (uint32_t i = 0; i < k; i++)
            tokens[i] = (hth_batch_token){&s->kv, s->tokens[first + i], first + i, false};
        st = hth_step_run(b->step, tokens, k, NULL, NULL, err);
        *failed_there = hth_step_device_failed(b->step);
    }
    hth_free(tokens);
    return st;
}

/* What lay on the device when the sessions of the rows were evaluated lies elsewhere now: their caches are
 * made anew. */
static hearth_status follow(hearth_batch *b, uint32_t n_row, bool *failed_there, hearth_error *err)
{
    hearth_status st = b->age != hth_engine_generation(b->model) ? use_gpu(b, err) : HEARTH_OK;
    for (uint32_t i = 0; st == HEARTH_OK && i < n_row; i++) {
        hearth_session *s = session_of(&b->rows[i]);
        if (s->generation == b->age) continue;
        st = evaluate_again(b, s, b->rows[i].position, failed_there, err);
        if (st == HEARTH_OK) s->generation = b->age;
    }
    return st;
}

/* Asks for the device's budget now and then. */
static void enforce_budget(hearth_batch *b, uint32_t n_row)
{
    enum { EVERY = 256 };
    b->n_new += n_row;
    if (!b->gpu || b->n_new < EVERY) return;
    b->n_new = 0;
    hth_engine_enforce_vram_budget(shared(b->model));
}

/* What a device refuses it may grant the next time, or the time after that. */
static bool may_try_again(hearth_status st, uint32_t *n_refused)
{
    enum { MAX_REFUSED = 3 };
    return st != HEARTH_ERROR_DEVICE && ++*n_refused < MAX_REFUSED;
}

/* A step over the first n_tok rows; one that read from a broken map does not count. */
static hearth_status run_step(hearth_batch *b, uint32_t n_row, hth_logits_fn *fn, void *user,
                              hearth_error *err)
{
    resumed to = {.fn = fn, .user = user};
    hearth_error broken, why = {0};
    hearth_status st;
    uint32_t n_refused = 0;
    note_tokens(b, n_row);
    enforce_budget(b, n_row);
    for (;;) {
        bool failed_there = false;
        st = follow(b, n_row, &failed_there, &why);
        if (st == HEARTH_OK) {
            st = hth_step_run(b->step, b->rows, n_row, emit_once, &to, &why);
            failed_there = hth_step_device_failed(b->step);
        }
        if (to.refused || !failed_there) break;
        if (!may_try_again(st, &n_refused)) hth_engine_gpu_fallback(shared(b->model), b->age, why.message);
    }
    if (st != HEARTH_OK && err) *err = why;
    if (hth_gguf_check_map(b->model->file, &broken) == HEARTH_OK) return st;
    if (err) *err = broken;
    return broken.status;
}

static void keep_logits(hearth_session *s, const float *logits)
{
    memcpy(s->logits, logits, s->model->model->hparams.n_vocab * sizeof *s->logits);
    s->has_logits = true;
}

/* Each entry of a batch wants the logits of its last row. */
static hearth_status take_entry(void *user, uint32_t i_want, const float *logits, hearth_error *err)
{
    (void)err;
    const hearth_batch *b = user;
    keep_logits(b->entries[i_want].session, logits);
    return HEARTH_OK;
}

hearth_status hearth_batch_run(hearth_batch *b, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    if (b->n_row > 0) st = run_step(b, b->n_row, take_entry, b, err);
    for (uint32_t i = 0; i < b->n_entry; i++) {
        hearth_session *s = b->entries[i].session;
        s->waits_in = NULL;
        if (st == HEARTH_OK) s->position += b->entries[i].n_token;
        else s->has_logits = false;
    }
    b->n_entry = b->n_row = 0;
    return st;
}

/* Takes a session that is being closed out of the batch in which it waits. */
static void forget_session(hearth_batch *b, const hearth_session *s)
{
    uint32_t n_row = 0, n_entry = 0;
    for (uint32_t i = 0; i < b->n_row; i++)
        if (b->rows[i].kv != &s->kv) b->rows[n_row++] = b->rows[i];
    for (uint32_t i = 0; i < b->n_entry; i++)
        if (b->entries[i].session != s) b->entries[n_entry++] = b->entries[i];
    b->n_row = n_row;
    b->n_entry = n_entry;
}

/* ---- sessions ------------------------------------------------------------------ */

hearth_session_options hearth_session_defaults(void)
{
    return (hearth_session_options){.n_batch = DEFAULT_BATCH, .kv = HEARTH_KV_F16};
}

static uint32_t context_of(const hearth_model *model, const hearth_session_options *o)
{
    return hth_context_for(&model->model->hparams, o->n_ctx);
}

/* Room in the device's caches, where the model has some there. */
static hearth_status reserve_on_gpu(hearth_session *s, hearth_error *err)
{
    if (!hth_engine_has_gpu(s->model)) return HEARTH_OK;
    s->tokens = hth_alloc(s->kv.n_ctx, sizeof *s->tokens);
    if (!s->tokens) return hth_fail_memory(err, s->kv.n_ctx * sizeof *s->tokens, "a session");
    return hth_engine_reserve(shared(s->model), s->kv.type, s->kv.n_ctx, &s->kv.slot, &s->on_gpu,
                              &s->generation, err);
}

/* Learned positions end somewhere. */
static hearth_status check_context(const hearth_model *model, uint32_t n_ctx, hearth_error *err)
{
    uint32_t n_position = model->model->hparams.n_position;
    if (n_position == 0 || n_ctx <= n_position) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                    "a context of %u positions: %s has learned %u; ask for less with -c", n_ctx,
                    hth_gguf_path(model->file), n_position);
}

uint64_t hearth_session_bytes(const hearth_model *model, const hearth_session_options *options)
{
    hearth_session_options o = options ? *options : hearth_session_defaults();
    size_t kv, step = 0, total;
    uint32_t n_ctx = context_of(model, &o), n_row = o.n_batch < n_ctx ? o.n_batch : n_ctx;
    if (!hth_kv_size(model->model, o.kv, n_ctx, &kv)) return 0;
    hearth_selector selector = o.selector == HEARTH_SELECTOR_AUTO ? model->selector : o.selector;
    if (n_row > 0 &&
        !hth_step_size(model->model, n_row, selector, hth_pool_default_threads(o.n_thread), &step))
        return 0;
    size_t logits = (size_t)model->model->hparams.n_vocab * sizeof(float);
    if (n_row > 0) logits += hth_pool_size(hth_pool_default_threads(o.n_thread));
    return hth_add_size(kv, step, &total) && hth_add_size(total, logits, &total) ? total : 0;
}

hearth_status hearth_session_open(const hearth_model *model, const hearth_session_options *options,
                                  hearth_session **out, hearth_error *err)
{
    hearth_session_options o = options ? *options : hearth_session_defaults();
    *out = NULL;
    hearth_session *s = hth_alloc(1, sizeof *s);
    if (!s) return hth_fail_memory(err, sizeof *s, "a session");
    s->model = model;
    uint32_t n_ctx = context_of(model, &o), n_row = o.n_batch < n_ctx ? o.n_batch : n_ctx;
    hearth_status st = check_context(model, n_ctx, err);
    if (st == HEARTH_OK) st = hth_kv_open(&s->kv, model->model, o.kv, n_ctx, err);
    if (st == HEARTH_OK) st = reserve_on_gpu(s, err);
    if (st != HEARTH_OK) goto fail;
    s->logits = hth_alloc(model->model->hparams.n_vocab, sizeof *s->logits);
    s->n_live = hth_alloc(model->model->hparams.n_layer, sizeof *s->n_live);
    if (!s->logits || !s->n_live) {
        st = hth_fail_memory(err, model->model->hparams.n_vocab * sizeof *s->logits, "a session");
        goto fail;
    }
    if (n_row > 0) st = open_batch(model, n_row, o.n_thread, o.bf16_dot, o.selector, &s->own, err);
    if (st != HEARTH_OK) goto fail;
    *out = s;
    return HEARTH_OK;
fail:
    hearth_session_close(s);
    return st;
}

void hearth_session_close(hearth_session *s)
{
    if (!s) return;
    if (s->waits_in) forget_session(s->waits_in, s);
    hearth_batch_close(s->own);
    if (s->on_gpu) hth_engine_release(shared(s->model), s->kv.slot);
    hth_free(s->tokens);
    hth_free(s->n_live);
    hth_free(s->logits);
    hth_kv_close(&s->kv);
    hth_free(s);
}

static hearth_status check_own_batch(const hearth_session *s, hearth_error *err)
{
    if (!s->own)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "the session was opened with n_batch 0: step it by a batch");
    if (s->waits_in)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "the session waits in a batch that was not run");
    return HEARTH_OK;
}

typedef struct eval_sink {
    hearth_session *session;
    hearth_logits_fn *fn; /* NULL: only the last logits are wanted */
    void *user;
    size_t first; /* index of the first token of the step */
} eval_sink;

static hearth_status take_token(void *user, uint32_t i_want, const float *logits, hearth_error *err)
{
    const eval_sink *sink = user;
    keep_logits(sink->session, logits);
    return sink->fn ? sink->fn(sink->user, sink->first + i_want, logits, err) : HEARTH_OK;
}

/* Steps of up to a batch; either every token wants its logits, or the last one. */
static hearth_status eval_tokens(hearth_session *s, const int32_t *tokens, size_t n, hearth_logits_fn *fn,
                                 void *user, hearth_error *err)
{
    hearth_status st = check_own_batch(s, err);
    if (st != HEARTH_OK || n == 0) return st;
    if ((st = check_tokens(s, tokens, n, err)) != HEARTH_OK) return st;
    hearth_batch *b = s->own;
    eval_sink sink = {s, fn, user, 0};
    uint32_t start = s->position, n_row;
    for (; st == HEARTH_OK && sink.first < n; sink.first += n_row) {
        n_row = n - sink.first < b->n_row_max ? (uint32_t)(n - sink.first) : b->n_row_max;
        for (uint32_t i = 0; i < n_row; i++)
            b->rows[i] = (hth_batch_token){&s->kv, tokens[sink.first + i], s->position + i,
                                           fn || sink.first + i + 1 == n};
        st = run_step(b, n_row, take_token, &sink, err);
        s->position += n_row;
    }
    if (st != HEARTH_OK) {
        s->position = start;
        s->has_logits = false;
    }
    return st;
}

hearth_status hearth_session_eval(hearth_session *s, const int32_t *tokens, size_t n, hearth_error *err)
{
    return eval_tokens(s, tokens, n, NULL, NULL, err);
}

hearth_status hearth_session_eval_each(hearth_session *s, const int32_t *tokens, size_t n,
                                       hearth_logits_fn *fn, void *user, hearth_error *err)
{
    return eval_tokens(s, tokens, n, fn, user, err);
}

const float *hearth_session_logits(const hearth_session *s) { return s->has_logits ? s->logits : NULL; }
uint32_t hearth_session_position(const hearth_session *s) { return s->position; }
uint32_t hearth_session_n_ctx(const hearth_session *s) { return s->kv.n_ctx; }
uint32_t hearth_session_n_thread(const hearth_session *s)
{
    return s->own ? hth_pool_n_thread(s->own->pool) : 0;
}

hearth_status hearth_session_truncate(hearth_session *s, uint32_t position, hearth_error *err)
{
    if (position > s->position || s->waits_in)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "cannot go back to position %u of %u%s", position,
                        s->position, s->waits_in ? " while the session waits in a batch" : "");
    if (position < s->position) s->has_logits = false;
    s->position = position;
    return HEARTH_OK;
}

hth_step *hth_session_step(const hearth_session *session) { return session->own ? session->own->step : NULL; }
uint32_t hth_session_n_row(const hearth_session *session)
{
    return session->own ? session->own->n_row_max : 0;
}

/* ---- live neurons ------------------------------------------------------------------ */

static void count_live(void *user, const hth_ffn_probe *seen)
{
    hearth_session *s = user;
    uint64_t n = 0;
    for (size_t i = 0; i < seen->n_tok * seen->d_ff; i++) n += seen->hidden[i] != 0.0f;
    s->n_live[seen->i_layer] += n;
    if (seen->i_layer == 0) s->n_counted += seen->n_tok;
}

void hearth_session_enable_sparsity_stats(hearth_session *s, bool on)
{
    s->n_counted = 0;
    memset(s->n_live, 0, s->model->model->hparams.n_layer * sizeof *s->n_live);
    if (s->own && !hth_engine_has_gpu(s->model)) hth_step_set_probe(s->own->step, on ? count_live : NULL, s);
}

uint64_t hearth_session_sparsity_stats(const hearth_session *s, double *share)
{
    const hth_model *m = s->model->model;
    for (uint32_t i = 0; i < m->hparams.n_layer; i++) {
        double all = (double)s->n_counted * m->layers[i].d_ff;
        share[i] = all > 0.0 ? (double)s->n_live[i] / all : 0.0;
    }
    return s->n_counted;
}
