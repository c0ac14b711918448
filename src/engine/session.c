/* Sessions and batches. A batch owns a workspace and a pool of threads and steps
 * rows of any sessions of its model; a session owns its cache, its position and
 * its last logits, and usually a batch of its own. */
#include "engine/engine.h"

#include "base/checked.h"
#include "base/cpu.h"

#include <string.h>

enum { DEFAULT_MAX_CONTEXT = 4096, DEFAULT_BATCH = 256, MAX_BATCH = 1 << 16 };

struct hearth_batch {
    const hearth_model *model;
    hth_pool *pool;
    hth_step *step;
    uint32_t n_row_max, n_row, n_entry;
    hth_row *rows; /* [n_row_max] */
    struct entry {
        hearth_session *session;
        uint32_t n_token;
    } * entries;   /* [n_row_max] */
    float *logits; /* [n_logits][n_vocab], grown by eval_each only */
    size_t n_logits;
};

struct hearth_session {
    const hearth_model *model;
    hth_kv kv;
    uint32_t position;
    bool in_batch;
    bool has_logits;
    float *logits; /* [n_vocab] */
    hearth_batch *own;
    uint64_t n_counted; /* tokens whose live neurons were counted */
    uint64_t *n_live;   /* [n_layer] */
};

static uint32_t threads_or_all(uint32_t n)
{
    if (n == 0) n = hth_cpu_n_core();
    return n;
}

/* ---- batches ------------------------------------------------------------------- */

hearth_status hearth_batch_open(const hearth_model *model, uint32_t n_row, uint32_t n_thread,
                                hearth_batch **out, hearth_error *err)
{
    *out = NULL;
    if (n_row < 1 || n_row > MAX_BATCH)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "a batch of %u rows: 1 to %d are possible", n_row,
                        MAX_BATCH);
    hearth_batch *b = hth_alloc(1, sizeof *b);
    if (!b) return hth_fail_memory(err, sizeof *b, "a batch");
    b->model = model;
    b->n_row_max = n_row;
    hearth_status st = HEARTH_OK;
    b->rows = hth_alloc(n_row, sizeof *b->rows);
    b->entries = hth_alloc(n_row, sizeof *b->entries);
    b->logits = hth_alloc(model->model->hparams.n_vocab, sizeof *b->logits);
    b->n_logits = 1;
    if (!b->rows || !b->entries || !b->logits) {
        st = hth_fail_memory(err, n_row * sizeof *b->rows, "a batch");
        goto fail;
    }
    if ((st = hth_pool_open(threads_or_all(n_thread), &b->pool, err)) != HEARTH_OK) goto fail;
    if ((st = hth_step_open(model->model, &model->kernels, b->pool, n_row, &b->step, err)) != HEARTH_OK)
        goto fail;
    *out = b;
    return HEARTH_OK;
fail:
    hearth_batch_close(b);
    return st;
}

void hearth_batch_close(hearth_batch *b)
{
    if (!b) return;
    for (uint32_t i = 0; i < b->n_entry; i++) b->entries[i].session->in_batch = false;
    hth_step_close(b->step);
    hth_pool_close(b->pool);
    hth_free(b->logits);
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
        return hth_fail(err, HEARTH_ERROR_CONTEXT,
                        "context full: %zu more tokens after %u do not fit into %u positions; raise -c", n,
                        s->position, s->kv.n_ctx);
    return HEARTH_OK;
}

hearth_status hearth_batch_add(hearth_batch *b, hearth_session *s, const int32_t *tokens, size_t n,
                               hearth_error *err)
{
    if (s->model != b->model)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "session and batch belong to different models");
    if (s->in_batch) return hth_fail(err, HEARTH_ERROR_ARGUMENT, "the session is already in a batch");
    if (n == 0) return hth_fail(err, HEARTH_ERROR_ARGUMENT, "no tokens");
    if (n > b->n_row_max - b->n_row)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%zu more rows do not fit into a batch of %u", n,
                        b->n_row_max);
    hearth_status st = check_tokens(s, tokens, n, err);
    if (st != HEARTH_OK) return st;
    for (size_t i = 0; i < n; i++)
        b->rows[b->n_row++] = (hth_row){&s->kv, tokens[i], s->position + (uint32_t)i, i + 1 == n};
    b->entries[b->n_entry].session = s;
    b->entries[b->n_entry++].n_token = (uint32_t)n;
    s->in_batch = true;
    return HEARTH_OK;
}

/* Logits of more than one row of a step at once. */
static hearth_status reserve_logits(hearth_batch *b, size_t n, hearth_error *err)
{
    if (n <= b->n_logits) return HEARTH_OK;
    size_t row = (size_t)b->model->model->hparams.n_vocab * sizeof *b->logits;
    float *more = hth_realloc(b->logits, n, row);
    if (!more) return hth_fail_memory(err, n * row, "logits");
    b->logits = more;
    b->n_logits = n;
    return HEARTH_OK;
}

hearth_status hearth_batch_run(hearth_batch *b, hearth_error *err)
{
    uint32_t n_entry = b->n_entry, n_row = b->n_row;
    size_t n_vocab = b->model->model->hparams.n_vocab;
    for (uint32_t i = 0; i < n_entry; i++) b->entries[i].session->in_batch = false;
    b->n_entry = b->n_row = 0;
    if (n_row == 0) return HEARTH_OK;
    hearth_status st = reserve_logits(b, n_entry, err);
    if (st == HEARTH_OK) st = hth_step_run(b->step, b->rows, n_row, b->logits, err);
    if (st != HEARTH_OK) return st;
    for (uint32_t i = 0; i < n_entry; i++) {
        hearth_session *s = b->entries[i].session;
        memcpy(s->logits, b->logits + i * n_vocab, n_vocab * sizeof *s->logits);
        s->has_logits = true;
        s->position += b->entries[i].n_token;
    }
    return HEARTH_OK;
}

/* ---- sessions ------------------------------------------------------------------ */

hearth_session_options hearth_session_defaults(void)
{
    return (hearth_session_options){.n_batch = DEFAULT_BATCH, .kv = HEARTH_KV_F16};
}

static uint32_t context_of(const hearth_model *model, const hearth_session_options *o)
{
    uint32_t trained = model->model->hparams.n_ctx_train;
    return o->n_ctx ? o->n_ctx : trained < DEFAULT_MAX_CONTEXT ? trained : DEFAULT_MAX_CONTEXT;
}

uint64_t hearth_session_bytes(const hearth_model *model, const hearth_session_options *options)
{
    hearth_session_options o = options ? *options : hearth_session_defaults();
    size_t kv, step = 0, total;
    uint32_t n_ctx = context_of(model, &o), n_row = o.n_batch < n_ctx ? o.n_batch : n_ctx;
    if (!hth_kv_size(model->model, o.kv, n_ctx, &kv)) return 0;
    if (n_row > 0 && !hth_step_size(model->model, n_row, threads_or_all(o.n_thread), &step)) return 0;
    size_t logits = (size_t)model->model->hparams.n_vocab * 2 * sizeof(float);
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
    hearth_status st = hth_kv_open(&s->kv, model->model, o.kv, n_ctx, err);
    if (st != HEARTH_OK) goto fail;
    s->logits = hth_alloc(model->model->hparams.n_vocab, sizeof *s->logits);
    s->n_live = hth_alloc(model->model->hparams.n_layer, sizeof *s->n_live);
    if (!s->logits || !s->n_live) {
        st = hth_fail_memory(err, model->model->hparams.n_vocab * sizeof *s->logits, "a session");
        goto fail;
    }
    if (n_row > 0 && (st = hearth_batch_open(model, n_row, o.n_thread, &s->own, err)) != HEARTH_OK) goto fail;
    *out = s;
    return HEARTH_OK;
fail:
    hearth_session_close(s);
    return st;
}

void hearth_session_close(hearth_session *s)
{
    if (!s) return;
    hearth_batch_close(s->own);
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
    if (s->in_batch)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "the session waits in a batch that was not run");
    return HEARTH_OK;
}

hearth_status hearth_session_eval(hearth_session *s, const int32_t *tokens, size_t n, hearth_error *err)
{
    hearth_status st = check_own_batch(s, err);
    if (st != HEARTH_OK || n == 0) return st;
    if ((st = check_tokens(s, tokens, n, err)) != HEARTH_OK) return st;
    hearth_batch *b = s->own;
    uint32_t start = s->position;
    for (size_t done = 0; done < n;) {
        uint32_t n_row = n - done < b->n_row_max ? (uint32_t)(n - done) : b->n_row_max;
        for (uint32_t i = 0; i < n_row; i++)
            b->rows[i] = (hth_row){&s->kv, tokens[done + i], s->position + i, done + i + 1 == n};
        if ((st = hth_step_run(b->step, b->rows, n_row, s->logits, err)) != HEARTH_OK) {
            s->position = start;
            s->has_logits = false;
            return st;
        }
        s->position += n_row;
        done += n_row;
    }
    s->has_logits = true;
    return HEARTH_OK;
}

/* Logits held at once by eval_each: enough rows to keep the head's product wide. */
enum { EACH_ROWS = 32 };

hearth_status hearth_session_eval_each(hearth_session *s, const int32_t *tokens, size_t n,
                                       hearth_logits_fn *fn, void *user, hearth_error *err)
{
    hearth_status st = check_own_batch(s, err);
    if (st != HEARTH_OK || n == 0) return st;
    if ((st = check_tokens(s, tokens, n, err)) != HEARTH_OK) return st;
    hearth_batch *b = s->own;
    uint32_t n_row_max = b->n_row_max < EACH_ROWS ? b->n_row_max : EACH_ROWS, start = s->position;
    size_t n_vocab = s->model->model->hparams.n_vocab;
    if ((st = reserve_logits(b, n_row_max, err)) != HEARTH_OK) return st;
    for (size_t done = 0; done < n;) {
        uint32_t n_row = n - done < n_row_max ? (uint32_t)(n - done) : n_row_max;
        for (uint32_t i = 0; i < n_row; i++)
            b->rows[i] = (hth_row){&s->kv, tokens[done + i], s->position + i, true};
        st = hth_step_run(b->step, b->rows, n_row, b->logits, err);
        for (uint32_t i = 0; st == HEARTH_OK && i < n_row; i++)
            st = fn(user, done + i, b->logits + i * n_vocab, err);
        if (st != HEARTH_OK) {
            s->position = start;
            s->has_logits = false;
            return st;
        }
        memcpy(s->logits, b->logits + (n_row - 1) * n_vocab, n_vocab * sizeof *s->logits);
        s->position += n_row;
        done += n_row;
    }
    s->has_logits = true;
    return HEARTH_OK;
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
    if (position > s->position || s->in_batch)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "cannot go back to position %u of %u%s", position,
                        s->position, s->in_batch ? " while the session waits in a batch" : "");
    if (position < s->position) s->has_logits = false;
    s->position = position;
    return HEARTH_OK;
}

/* ---- live neurons ------------------------------------------------------------------ */

static void count_live(void *user, const hth_observation *seen)
{
    hearth_session *s = user;
    uint64_t n = 0;
    for (size_t i = 0; i < seen->n_tok * seen->d_ff; i++) n += seen->hidden[i] != 0.0f;
    s->n_live[seen->i_layer] += n;
    if (seen->i_layer == 0) s->n_counted += seen->n_tok;
}

void hearth_session_count_live(hearth_session *s, bool on)
{
    if (s->own) hth_step_observe(s->own->step, on ? count_live : NULL, s);
}

uint64_t hearth_session_live(const hearth_session *s, double *share)
{
    const hth_model *m = s->model->model;
    for (uint32_t i = 0; i < m->hparams.n_layer; i++) {
        double all = (double)s->n_counted * m->layers[i].d_ff;
        share[i] = all > 0.0 ? (double)s->n_live[i] / all : 0.0;
    }
    return s->n_counted;
}
