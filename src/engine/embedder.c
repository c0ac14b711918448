/* Vectors of texts (embed.h): a batch that hands out what the last layer makes of each token, instead of logits. A step
 * goes on with the text that the step before has cut, then begins others, as far as rows and pages are free; so one text
 * at most is cut at any time, and it is in the first slot. */
#include "base/alloc.h"
#include "base/bits.h"
#include "base/fp_state.h"
#include "engine/batch_int.h"
#include "engine/struct_size.h"
#include "kernels/vector/math.h"

#include <stdio.h>
#include <string.h>

enum { N_TEXT = 32 };

/* A sequence for one text after the other. */
typedef struct slot {
    hearth_session *session;
    hearth_pooling pooling;
    size_t n_token;
    uint32_t n_summed; /* tokens whose rows were seen: those of a failed step come again */
    double sum[];      /* [d_model] of the rows that count */
} slot;

struct hearth_embedder {
    const hearth_model *model;
    hth_in_use in_use;
    hearth_embedder_options options; /* as chosen */
    hearth_batch *batch;
    hth_kv_budget pages; /* KV pages of all sessions */
    uint64_t pages_size; /* counted in the limit of the model */
    double *classes;     /* [n_class] logits of the text that is finished; NULL: pooling is not RANK */
    slot **slots;        /* [n_text]; those from n_slot on are not open yet */
    uint32_t n_slot;
    bool is_cut;     /* the first slot has the beginning of text n_done */
    int32_t *tokens; /* tokens of all texts */
    size_t *ends;    /* [n] index in tokens at which each text ends */
    size_t n, n_done;
    float *vectors; /* [n][n_dim] of the caller */
    uint64_t n_evaluated;
};

/* ---- opening ------------------------------------------------------------------------------------------------ */

hearth_embedder_options hearth_embedder_defaults(void)
{
    return (hearth_embedder_options){.size = sizeof(hearth_embedder_options)};
}

/* Chooses the pooling of the options, or else the file's. */
static hearth_status choose_pooling(const hearth_model *m, hearth_pooling *pooling, hearth_error *err)
{
    char key[160] = "hearth_embedder_options.pooling";
    uint64_t kind = 0;
    hearth_status st = HEARTH_OK;
    if (*pooling == HEARTH_POOLING_AUTO) {
        snprintf(key, sizeof key, "%s.pooling_type", m->model->hparams.architecture);
        st = hth_gguf_get_uint(m->file, key, 0, HEARTH_POOLING_RANK, &kind, NULL, err);
        *pooling = kind > 0 ? (hearth_pooling)kind : HEARTH_POOLING_LAST;
    }
    if (st != HEARTH_OK || *pooling != HEARTH_POOLING_RANK || m->model->n_class > 0) return st;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                    "%s: %s is 4 (rank), but the file has no head for scores of pairs of texts, which is cls.output.weight of "
                    "qwen3 and qwen3vl; 1 (mean), 2 (cls) or 3 (last) is expected, or another hearth_embedder_options.pooling",
                    hth_gguf_path(m->file), key);
}

/* Numbers that a vector can have. */
static uint32_t n_number(const hearth_embedder *e)
{
    const hth_model *m = e->model->model;
    return e->options.pooling == HEARTH_POOLING_RANK ? m->n_class : m->hparams.d_model;
}

/* Copies the options, with what they leave to be chosen. */
static hearth_status choose(hearth_embedder *e, const hearth_embedder_options *options, hearth_error *err)
{
    hearth_embedder_options *o = &e->options;
    hearth_status st = hth_engine_read_options(&hth_size_of_hearth_embedder_options, options, o, err);
    if (st == HEARTH_OK) st = hth_engine_need_model(e->model, "an embedder", err);
    if (st == HEARTH_OK) st = hth_engine_check_kv("hearth_embedder_options.kv", o->kv, err);
    if (st == HEARTH_OK) st = hth_engine_check_threads("hearth_embedder_options.n_thread", o->n_thread, err);
    if (st != HEARTH_OK) return st;
    const hth_hparams *h = &e->model->model->hparams;
    if ((unsigned)o->pooling > HEARTH_POOLING_RANK)
        return hth_fail_enum(err, "hearth_embedder_options.pooling", (int)o->pooling,
                             HEARTH_POOLING_RANK + 1);
    if (o->n_batch > HTH_MAX_BATCH)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "hearth_embedder_options.n_batch is %u; at most %d tokens are possible", o->n_batch,
                        HTH_MAX_BATCH);
    if ((st = choose_pooling(e->model, &o->pooling, err)) != HEARTH_OK) return st;
    if (o->n_dim > n_number(e))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "hearth_embedder_options.n_dim is %u; the model's vectors have %u numbers", o->n_dim,
                        n_number(e));
    o->n_ctx = hth_context_for(h, o->n_ctx);
    if (o->n_batch == 0) o->n_batch = HTH_DEFAULT_BATCH;
    if (o->n_text == 0) o->n_text = N_TEXT;
    if (o->n_text > o->n_batch) o->n_text = o->n_batch;
    if (o->n_dim == 0) o->n_dim = n_number(e);
    return HEARTH_OK;
}

/* Its pages are free for others, also those that a failed step took. */
static void empty_slot(slot *t)
{
    hth_session_reset(t->session);
    hth_sequence_truncate(&t->session->seq, 0);
}

static void close_slot(slot *t)
{
    hearth_session_close(t->session);
    hth_free(t);
}

static hearth_status add_rows(void *user, uint32_t at, uint32_t n, const float *rows, hearth_error *err);

static hearth_status open_slot(hearth_embedder *e, hearth_error *err)
{
    size_t size = sizeof(slot) + e->model->model->hparams.d_model * sizeof(double);
    slot *t = hth_alloc(1, size);
    if (!t) return hth_fail_memory(err, size, "a vector");
    const hearth_session_options o = {
        .n_ctx = e->options.n_ctx, .n_batch = HEARTH_BATCH_NONE, .kv = e->options.kv};
    hearth_status st = hth_session_open_in(e->model, &o, &e->pages, &t->session, err);
    if (st != HEARTH_OK) {
        close_slot(t);
        return st;
    }
    hth_session_free_logits(t->session);
    t->session->hidden_fn = add_rows, t->session->hidden_user = t;
    t->pooling = e->options.pooling;
    e->slots[e->n_slot++] = t;
    return HEARTH_OK;
}

static hearth_status open_all(hearth_embedder *e, hearth_error *err)
{
    const hearth_embedder_options *o = &e->options;
    uint32_t n_position = o->n_ctx <= UINT32_MAX - o->n_batch ? o->n_ctx + o->n_batch : o->n_ctx;
    hearth_status st = hth_engine_open_pages(hth_engine_mutable(e->model), o->kv, n_position, &e->pages,
                                             &e->pages_size, err);
    if (st == HEARTH_OK) st = hearth_batch_open(e->model, o->n_batch, o->n_thread, &e->batch, err);
    if (st != HEARTH_OK) return st;
    if (o->no_pin) hearth_batch_unpin(e->batch);
    e->slots = hth_alloc(o->n_text, sizeof *e->slots);
    if (o->pooling == HEARTH_POOLING_RANK) e->classes = hth_alloc(n_number(e), sizeof *e->classes);
    if (!e->slots || (o->pooling == HEARTH_POOLING_RANK && !e->classes))
        return hth_fail_memory(err, o->n_text * sizeof *e->slots, "an embedder");
    return open_slot(e, err);
}

hearth_status hearth_embedder_open(const hearth_model *model, const hearth_embedder_options *options,
                                   hearth_embedder **out, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!out) return hth_fail_null(err, "out");
    *out = NULL;
    if (!model) return hth_fail_null(err, "model");
    hearth_embedder *e = hth_alloc(1, sizeof *e);
    if (!e) return hth_fail_memory(err, sizeof *e, "an embedder");
    e->model = hth_engine_hold_model(model);
    hearth_status st = choose(e, options, err);
    if (st == HEARTH_OK) st = hth_engine_need_hidden(model, err);
    if (st == HEARTH_OK) st = open_all(e, err);
    if (st == HEARTH_OK) *out = e;
    else hearth_embedder_close(e);
    return st;
}

static void drop_texts(hearth_embedder *e)
{
    if (e->is_cut) empty_slot(e->slots[0]);
    hth_free(e->tokens);
    hth_free(e->ends);
    e->tokens = NULL, e->ends = NULL, e->vectors = NULL, e->n = e->n_done = 0, e->is_cut = false;
}

void hearth_embedder_close(hearth_embedder *e)
{
    HTH_FP_SCOPE;
    if (!e) return;
    drop_texts(e);
    for (uint32_t i = 0; i < e->n_slot; i++) close_slot(e->slots[i]);
    hth_free(e->slots);
    hth_free(e->classes);
    hearth_batch_close(e->batch);
    hth_engine_close_pages(hth_engine_mutable(e->model), &e->pages, e->pages_size);
    hth_engine_release_model(e->model);
    hth_free(e);
}

hearth_pooling hearth_embedder_pooling(const hearth_embedder *e)
{
    return e ? e->options.pooling : HEARTH_POOLING_AUTO;
}
uint32_t hearth_embedder_n_ctx(const hearth_embedder *e) { return e ? e->options.n_ctx : 0; }
uint32_t hearth_embedder_n_dim(const hearth_embedder *e) { return e ? e->options.n_dim : 0; }
uint64_t hearth_embedder_n_evaluated(const hearth_embedder *e) { return e ? e->n_evaluated : 0; }

hearth_status hearth_embedder_set_threads(hearth_embedder *e, uint32_t n_thread, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!e) return hth_fail_null(err, "embedder");
    HTH_USE(use, e);
    if (!use) return hth_fail_in_use(err, "embedder");
    return hth_batch_set_threads(e->batch, NULL, NULL, n_thread, err);
}

void hearth_embedder_cancel(hearth_embedder *e)
{
    if (e) hearth_batch_cancel(e->batch);
}

/* ---- texts -------------------------------------------------------------------------------------------------- */

static hearth_status check_text(const hearth_embedder *e, const hearth_embed_text *t, size_t i,
                                hearth_error *err)
{
    char name[40], tokens[60];
    snprintf(name, sizeof name, "texts[%zu]", i);
    hearth_status st = hth_engine_check_reserved(name, t->reserved, sizeof t->reserved, err);
    if (st != HEARTH_OK) return st;
    if (t->n_token == 0) return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s.n_token is 0", name);
    if (!t->tokens) return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s.tokens is NULL", name);
    if (t->n_token > e->options.n_ctx)
        return hth_fail(err, HEARTH_ERROR_CONTEXT,
                        "%s has %zu tokens: a text can have %u; raise hearth_embedder_options.n_ctx", name,
                        t->n_token, e->options.n_ctx);
    snprintf(tokens, sizeof tokens, "%s.tokens", name);
    return hth_engine_check_ids(e->model, tokens, t->tokens, t->n_token, err);
}

static hearth_status begin_texts(hearth_embedder *e, const hearth_embed_text *texts, size_t n, float *vectors,
                                 hearth_error *err)
{
    size_t n_token = 0;
    hearth_status st = HEARTH_OK;
    drop_texts(e);
    e->n_evaluated = 0;
    if (n > 0 && (!texts || !vectors)) return hth_fail_null(err, texts ? "vectors" : "texts");
    for (size_t i = 0; st == HEARTH_OK && i < n; i++) {
        st = check_text(e, &texts[i], i, err);
        n_token += texts[i].n_token;
    }
    if (st != HEARTH_OK) return st;
    e->tokens = hth_alloc(n_token, sizeof *e->tokens);
    e->ends = hth_alloc(n, sizeof *e->ends);
    if (!e->tokens || !e->ends) {
        drop_texts(e);
        return hth_fail_memory(err, n_token * sizeof *e->tokens, "the tokens of texts");
    }
    for (size_t i = 0, at = 0; i < n; i++) {
        memcpy(e->tokens + at, texts[i].tokens, texts[i].n_token * sizeof *e->tokens);
        at += texts[i].n_token;
        e->ends[i] = at;
    }
    e->n = n, e->vectors = vectors;
    return HEARTH_OK;
}

/* ---- steps -------------------------------------------------------------------------------------------------- */

/* hth_hidden_fn of the session of a slot. */
static hearth_status add_rows(void *user, uint32_t at, uint32_t n, const float *rows, hearth_error *err)
{
    slot *t = user;
    const hearth_model *m = t->session->model;
    size_t d = m->model->hparams.d_model;
    hearth_status st = hth_engine_check_hidden(m, rows, n, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < n; i++) {
        if (at + i < t->n_summed) continue;
        bool counts = t->pooling == HEARTH_POOLING_MEAN ||
                      at + i == (t->pooling == HEARTH_POOLING_FIRST ? 0 : t->n_token - 1);
        for (size_t k = 0; counts && k < d; k++) t->sum[k] += (double)rows[i * d + k];
        t->n_summed = at + i + 1;
    }
    return st;
}

/* Writes the softmax of the classes' logits. */
static void finish_classes(const hearth_embedder *e, const slot *t, float *v)
{
    const hth_model *m = e->model->model;
    double largest = 0.0, all = 0.0;
    for (uint32_t i = 0; i < m->n_class; i++) {
        const float *row = m->rank_head + i * (size_t)m->hparams.d_model;
        e->classes[i] = 0.0;
        for (uint32_t k = 0; k < m->hparams.d_model; k++) e->classes[i] += t->sum[k] * (double)row[k];
        if (i == 0 || e->classes[i] > largest) largest = e->classes[i];
    }
    for (uint32_t i = 0; i < m->n_class; i++) all += e->classes[i] = hth_exp_d(e->classes[i] - largest);
    for (uint32_t i = 0; i < e->options.n_dim; i++) v[i] = (float)(e->classes[i] / all);
}

/* Writes a vector. Length 1 needs no mean. */
static void finish(const hearth_embedder *e, const slot *t, float *v)
{
    if (e->classes) {
        finish_classes(e, t, v);
        return;
    }
    uint32_t n_dim = e->options.n_dim;
    double square = 0.0, n = t->pooling == HEARTH_POOLING_MEAN ? (double)t->n_token : 1.0;
    for (uint32_t k = 0; k < n_dim; k++) square += t->sum[k] * t->sum[k];
    double factor = square > 0.0 ? 1.0 / hth_sqrt_d(square) : 0.0;
    for (uint32_t k = 0; k < n_dim; k++)
        v[k] = (float)(e->options.no_normalize ? t->sum[k] / n : t->sum[k] * factor);
}

static const int32_t *text_at(const hearth_embedder *e, size_t i, size_t *n)
{
    size_t first = i > 0 ? e->ends[i - 1] : 0;
    *n = e->ends[i] - first;
    return e->tokens + first;
}

/* An empty slot for the i-th text of a step. NULL: no memory for so many at once. */
static hearth_status take_slot(hearth_embedder *e, uint32_t i, size_t n_token, slot **out, hearth_error *err)
{
    hearth_error full = {0};
    *out = NULL;
    hearth_status st = i < e->n_slot ? HEARTH_OK : open_slot(e, &full);
    if (st == HEARTH_ERROR_MEMORY && i > 0) return HEARTH_OK;
    if (st != HEARTH_OK && err) *err = full;
    if (st != HEARTH_OK) return st;
    slot *t = *out = e->slots[i];
    t->n_token = n_token, t->n_summed = 0;
    memset(t->sum, 0, e->model->model->hparams.d_model * sizeof *t->sum);
    return HEARTH_OK;
}

/* Adds tokens of texts to the batch: *n_text texts, the last of which may be cut. */
static hearth_status plan(hearth_embedder *e, uint32_t *n_text, hearth_error *err)
{
    uint32_t n_page[HTH_N_KV_CLASS] = {0}, room = e->options.n_batch;
    hearth_status st = HEARTH_OK;
    for (*n_text = 0; room > 0 && *n_text < e->options.n_text && e->n_done + *n_text < e->n; ++*n_text) {
        size_t n;
        const int32_t *tokens = text_at(e, e->n_done + *n_text, &n);
        slot *t = e->slots[0];
        if (*n_text > 0 || !e->is_cut) st = take_slot(e, *n_text, n, &t, err);
        if (st != HEARTH_OK || !t) return st;
        uint32_t at = t->session->position, k = n - at < room ? (uint32_t)(n - at) : room;
        hth_session_count_missing(t->session, k, n_page);
        if (*n_text > 0 && !hth_kv_budget_has(&e->pages, n_page)) return HEARTH_OK;
        if ((st = hth_batch_add(e->batch, t->session, tokens + at, k, false, err)) != HEARTH_OK) return st;
        room -= k;
    }
    return HEARTH_OK;
}

/* After a step with n_text texts. */
static void end_step(hearth_embedder *e, uint32_t n_text)
{
    uint32_t i = 0;
    for (; i < n_text && e->slots[i]->n_summed == e->slots[i]->n_token; i++) {
        finish(e, e->slots[i], e->vectors + e->n_done * e->options.n_dim);
        empty_slot(e->slots[i]);
        e->n_done++;
    }
    e->is_cut = i < n_text;
    if (!e->is_cut) return;
    slot *cut = e->slots[i];
    e->slots[i] = e->slots[0], e->slots[0] = cut;
}

static hearth_status step(hearth_embedder *e, hearth_error *err)
{
    uint32_t n_text;
    hearth_status st = plan(e, &n_text, err);
    uint32_t n_tok = e->batch->n_tok;
    if (st == HEARTH_OK) st = hth_batch_run(e->batch, err);
    if (st != HEARTH_OK) {
        hearth_batch_clear(e->batch);
        for (uint32_t i = e->is_cut; i < e->n_slot; i++) empty_slot(e->slots[i]);
        return st;
    }
    e->n_evaluated += n_tok;
    end_step(e, n_text);
    return HEARTH_OK;
}

hearth_status hearth_embed_begin(hearth_embedder *e, const hearth_embed_text *texts, size_t n, float *vectors,
                                 hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!e) return hth_fail_null(err, "embedder");
    HTH_USE(use, e);
    return use ? begin_texts(e, texts, n, vectors, err) : hth_fail_in_use(err, "embedder");
}

hearth_status hearth_embed_step(hearth_embedder *e, bool *more, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (more) *more = false;
    if (!e) return hth_fail_null(err, "embedder");
    HTH_USE(use, e);
    if (!use) return hth_fail_in_use(err, "embedder");
    hearth_status st = e->n_done < e->n ? step(e, err) : HEARTH_OK;
    if (more) *more = e->n_done < e->n;
    return st;
}

hearth_status hearth_embed(hearth_embedder *e, const hearth_embed_text *texts, size_t n, float *vectors,
                           hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!e) return hth_fail_null(err, "embedder");
    HTH_USE(use, e);
    if (!use) return hth_fail_in_use(err, "embedder");
    hearth_status st = begin_texts(e, texts, n, vectors, err);
    while (st == HEARTH_OK && e->n_done < e->n) st = step(e, err);
    drop_texts(e);
    return st;
}
