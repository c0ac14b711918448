/* Sessions of hearth.h: a cache, a position and the last logits, and usually a batch of its own. */
#include "engine/batch_int.h"

#include "base/checked_math.h"
#include "base/fp_state.h"

#include <hearth/experimental.h>
#include <string.h>

/* The mutable, locked part of a model that its sessions share (gpu_fallback.c). */
hearth_model *hth_engine_mutable(const hearth_model *m) { return (hearth_model *)(uintptr_t)m; }

/* ---- sessions ------------------------------------------------------------------ */

/* Learned positions, or an indexer, limit the context. */
static hearth_status check_context(const hearth_model *model, uint32_t n_ctx, hearth_error *err)
{
    uint32_t n_position = model->model->hparams.n_position;
    if (n_position == 0 || n_ctx <= n_position) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_ARGUMENT, "n_ctx is %u, but %s is limited to %u positions", n_ctx,
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
    s->model = hth_engine_hold_model(model), s->options = o, s->generation = hth_engine_generation(model);
    s->options.n_ctx = hth_session_context(model, &o);
    uint32_t n_ctx = s->options.n_ctx, n_tok = hth_session_batch(model, &o);
    hearth_status st = check_context(model, n_ctx, err);
    hth_kv_pool *pool;
    uint64_t size =
        hth_session_size(model, &o, budget, model->streamed.reader != NULL); /* 0: the sequence is refused */
    if (st == HEARTH_OK) st = hth_engine_reserve(hth_engine_mutable(model), size, err);
    if (st == HEARTH_OK) s->size = size;
    if (st == HEARTH_OK) st = hth_engine_kv_pool(hth_engine_mutable(model), o.kv, &pool, err);
    const hth_sequence_options sequence = hth_session_sequence_options(&o, budget, n_ctx, n_tok);
    if (st == HEARTH_OK)
        st = from ? hth_sequence_fork(&from->seq, &s->seq, err)
                  : hth_sequence_open(&s->seq, pool, &sequence, err);
    if (st != HEARTH_OK) goto fail;
    s->tokens = hth_alloc(n_ctx, sizeof *s->tokens);
    s->logits = hth_alloc(HTH_N_LOGITS * (size_t)model->model->hparams.n_vocab, sizeof *s->logits);
    if (!s->tokens || !s->logits) {
        st = hth_fail_memory(err, model->model->hparams.n_vocab * sizeof *s->logits, "a session");
        goto fail;
    }
    if (n_tok > 0) st = hth_batch_open_own(model, n_tok, o.n_thread, o.bf16_dot, o.selector, &s->own, err);
    if (st != HEARTH_OK) goto fail;
    if (o.no_pin) hearth_batch_unpin(s->own);
    *out = s;
    return HEARTH_OK;
fail:
    hearth_session_close(s);
    return st;
}

hearth_status hearth_session_open(const hearth_model *model, const hearth_session_options *options,
                                  hearth_session **out, hearth_error *err)
{
    HTH_FP_SCOPE;
    hearth_session_options o;
    if (!out) return hth_fail_null(err, "out");
    *out = NULL;
    if (!model) return hth_fail_null(err, "model");
    hearth_status st = hth_session_read_options(options, &o, err);
    if (st == HEARTH_OK) st = hth_engine_need_model(model, "a session", err);
    if (st != HEARTH_OK) return st;
    return open_session(model, &o, NULL, NULL, out, err);
}

hearth_status hth_session_open_in(const hearth_model *model, const hearth_session_options *options,
                                  hth_kv_budget *budget, hearth_session **out, hearth_error *err)
{
    return open_session(model, options, budget, NULL, out, err);
}

hearth_status hearth_session_fork(const hearth_session *from, hearth_session **out, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!out) return hth_fail_null(err, "out");
    *out = NULL;
    if (!from) return hth_fail_null(err, "session");
    HTH_USE_READING(use, from);
    if (!use) return hth_fail_in_use(err, "session");
    if (from->pending_in)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "the session waits in a batch that was not run");
    hearth_status st = open_session(from->model, &from->options, from->seq.options.budget, from, out, err);
    if (st != HEARTH_OK) return st;
    hearth_session *s = *out;
    memcpy(s->tokens, from->tokens, from->position * sizeof *s->tokens);
    if (from->has_logits)
        memcpy(s->logits, hearth_session_logits(from), s->model->model->hparams.n_vocab * sizeof *s->logits);
    s->position = from->position, s->has_logits = from->has_logits, s->generation = from->generation;
    if (from->n_draft_pending > 0) hth_sequence_truncate(&s->seq, s->position);
    return HEARTH_OK;
}

void hearth_session_cancel(hearth_session *s)
{
    if (s) hearth_batch_cancel(s->own);
}

void hearth_session_close(hearth_session *s)
{
    HTH_FP_SCOPE;
    if (!s) return;
    if (s->pending_in) hth_batch_remove(s->pending_in, s);
    hth_speculation_close(s);
    hearth_batch_close(s->own);
    hth_free(s->tokens);
    hth_free(s->logits);
    hth_sequence_close(&s->seq);
    hth_engine_release(hth_engine_mutable(s->model), s->size);
    hth_engine_release_model(s->model);
    hth_free(s);
}

static hearth_status check_own_batch(const hearth_session *s, hearth_error *err)
{
    if (!s->own)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "the session was opened with n_batch HEARTH_BATCH_NONE: evaluate it by a batch");
    if (s->pending_in)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "the session waits in a batch that was not run");
    return HEARTH_OK;
}

typedef struct eval_output {
    hearth_session *session;
    hearth_logits_fn *fn; /* NULL: only the last logits are wanted */
    void *user;
    size_t first, n; /* index of the first token of the step; tokens of all steps */
} eval_output;

static hearth_status call_back(hearth_logits_fn *fn, void *user, size_t i, const float *values, hearth_error *err)
{
    HTH_FP_CALLBACK;
    return fn(user, i, values, err);
}

static hearth_status store_token_logits(void *user, uint32_t i_want, const float *logits, hearth_error *err)
{
    const eval_output *output = user;
    if (!output->fn || output->first + i_want + 1 == output->n)
        hth_session_store_logits(output->session, logits);
    if (!output->fn) return HEARTH_OK;
    hearth_error why = {0};
    hearth_status st = call_back(output->fn, output->user, output->first + i_want, logits, &why);
    st = hth_returned(st, "the function of hearth_session_eval_each", &why);
    if (st != HEARTH_OK && err) *err = why;
    return st;
}

/* The sequence has fewer tokens than the session until the next step completes its cache. */
static void rewind_to(hearth_session *s, uint32_t position)
{
    if (position < s->seq.n_tok) hth_sequence_truncate(&s->seq, hth_sequence_reachable(&s->seq, position));
    s->position = position, s->n_draft_pending = 0;
}

void hth_session_discard_draft(hearth_session *s)
{
    if (s->n_draft_pending > 0) hth_sequence_truncate(&s->seq, s->position);
    s->n_draft_pending = 0;
}

bool hth_session_advance(hearth_session *s, int32_t token)
{
    if (s->n_draft_pending == 0) return false;
    bool is_right = s->tokens[s->position] == token;
    hth_speculation_note(s, is_right);
    if (!is_right) {
        hth_session_discard_draft(s);
        return false;
    }
    hth_session_store_logits(s, s->ahead);
    hth_session_take_logits(s);
    s->ahead += s->model->model->hparams.n_vocab;
    s->position++, s->n_draft_pending--;
    if (s->n_draft_pending == 0) hth_sequence_set_ahead(&s->seq, 0, NULL); /* other drafts may take its rows */
    return true;
}

/* The tokens whose logits are computed. With OF_EACH a function gets those of each token. */
typedef enum wanted_logits { OF_NONE, OF_LAST, OF_EACH } wanted_logits;

/* Runs steps of up to n_tok_max tokens. */
static hearth_status eval_tokens(hearth_session *s, const int32_t *tokens, size_t n, wanted_logits wanted,
                                 hearth_logits_fn *fn, void *user, hearth_error *err)
{
    hearth_status st = check_own_batch(s, err);
    if (st != HEARTH_OK || n == 0) return st;
    if ((st = hth_session_check_tokens(s, tokens, n, err)) != HEARTH_OK) return st;
    if (n == 1 && wanted == OF_LAST && s->drafts) return hth_speculation_eval(s, tokens[0], err);
    hth_session_discard_draft(s);
    hearth_batch *b = s->own;
    eval_output output = {s, fn, user, 0, n};
    uint32_t start = s->position, n_tok;
    bool is_text = n > 1; /* rather than a generated token: callers return to where it begins or ends */
    if (is_text && s->seq.n_tok == start) hth_sequence_checkpoint(&s->seq, HTH_CHECKPOINT_EXPLICIT);
    for (; st == HEARTH_OK && output.first < n; output.first += n_tok) {
        n_tok = n - output.first < b->n_tok_max ? (uint32_t)(n - output.first) : b->n_tok_max;
        for (uint32_t i = 0; i < n_tok; i++)
            b->tokens[i] = (hth_batch_token){.seq = &s->seq,
                                             .token = tokens[output.first + i],
                                             .position = s->position + i,
                                             .want_logits = wanted == OF_EACH ||
                                                            (wanted == OF_LAST && output.first + i + 1 == n)};
        st = hth_batch_step(b, n_tok, store_token_logits, &output, err);
        s->position += n_tok;
    }
    if (st != HEARTH_OK) {
        rewind_to(s, start);
        return st;
    }
    if (wanted == OF_NONE) s->has_logits = false;
    else hth_session_take_logits(s);
    if (is_text) hth_sequence_checkpoint(&s->seq, HTH_CHECKPOINT_EXPLICIT);
    return st;
}

hearth_status hth_session_eval(hearth_session *s, const int32_t *tokens, size_t n, hearth_error *err)
{
    return eval_tokens(s, tokens, n, OF_LAST, NULL, NULL, err);
}

hearth_status hearth_session_eval(hearth_session *s, const int32_t *tokens, size_t n, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!s) return hth_fail_null(err, "session");
    HTH_USE(use, s);
    if (!use) return hth_fail_in_use(err, "session");
    return hth_session_eval(s, tokens, n, err);
}

hearth_status hearth_session_eval_each(hearth_session *s, const int32_t *tokens, size_t n,
                                       hearth_logits_fn *fn, void *user, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!s) return hth_fail_null(err, "session");
    HTH_USE(use, s);
    if (!use) return hth_fail_in_use(err, "session");
    return eval_tokens(s, tokens, n, fn ? OF_EACH : OF_LAST, fn, user, err);
}

hearth_status hth_engine_need_hidden(const hearth_model *m, hearth_error *err)
{
    if (!hth_engine_has_gpu(m)) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "with a GPU the output of the last layer is not given");
}

hearth_status hth_engine_check_hidden(const hearth_model *m, const float *rows, uint32_t n, hearth_error *err)
{
    if (hth_all_finite(rows, n * (size_t)m->model->hparams.d_model)) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_NUMERIC,
                    "%s: an output is not finite: the weights hold NaN or infinity, or a sum overflowed",
                    hth_gguf_path(m->file));
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
    hearth_status st = hth_engine_check_hidden(to->session->model, rows, n, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < n; i++) {
        hearth_error why = {0};
        st = hth_returned(call_back(to->fn, to->user, at - to->start + i, rows + i * d, &why),
                          "the function of hearth_session_eval_hidden", &why);
        if (st != HEARTH_OK && err) *err = why;
    }
    return st;
}

hearth_status hearth_session_eval_hidden(hearth_session *s, const int32_t *tokens, size_t n,
                                         hearth_logits_fn *fn, void *user, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!s || !fn) return hth_fail_null(err, s ? "fn" : "session");
    HTH_USE(use, s);
    if (!use) return hth_fail_in_use(err, "session");
    hidden_output to = {s, fn, user, s->position};
    hth_hidden_fn *before = s->hidden_fn;
    void *user_before = s->hidden_user;
    hearth_status st = hth_engine_need_hidden(s->model, err);
    if (st != HEARTH_OK) return st;
    s->hidden_fn = give_hidden, s->hidden_user = &to;
    st = eval_tokens(s, tokens, n, OF_NONE, NULL, NULL, err);
    s->hidden_fn = before, s->hidden_user = user_before;
    return st;
}

const float *hearth_session_logits(const hearth_session *s)
{
    return s && s->has_logits ? s->logits + s->i_logits * (size_t)s->model->model->hparams.n_vocab : NULL;
}

uint32_t hth_session_count_same(const hearth_session *s, const int32_t *tokens, size_t n)
{
    uint32_t same = 0;
    while (same < s->position && same < n && s->tokens[same] == tokens[same]) same++;
    return same;
}

uint32_t hearth_session_position(const hearth_session *s) { return s ? s->position : 0; }
const int32_t *hearth_session_tokens(const hearth_session *s) { return s ? s->tokens : NULL; }
uint32_t hearth_session_n_cached(const hearth_session *s)
{
    if (!s) return 0;
    if (s->generation != hth_engine_generation(s->model)) return 0;
    return s->n_draft_pending > 0 ? s->position : s->seq.n_tok;
}
uint32_t hearth_session_n_ctx(const hearth_session *s) { return s ? s->seq.options.n_ctx : 0; }
uint32_t hearth_session_n_thread(const hearth_session *s)
{
    return s && s->own ? hth_pool_n_thread(s->own->pool) : 0;
}

hearth_status hth_session_truncate(hearth_session *s, uint32_t position, hearth_error *err)
{
    if (position > s->position || s->pending_in)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "cannot go back to position %u of %u%s", position,
                        s->position, s->pending_in ? " while the session waits in a batch" : "");
    if (position == s->position) return HEARTH_OK;
    rewind_to(s, position);
    s->has_logits = false;
    return HEARTH_OK;
}

hearth_status hearth_session_truncate(hearth_session *s, uint32_t position, hearth_error *err)
{
    if (!s) return hth_fail_null(err, "session");
    HTH_USE(use, s);
    if (!use) return hth_fail_in_use(err, "session");
    return hth_session_truncate(s, position, err);
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
    rewind_to(s, 0);
    s->has_logits = false, s->i_logits = 0;
    s->generation = hth_engine_generation(s->model);
}

void hth_session_set(hearth_session *s, uint32_t position, bool has_logits, bool has_cache)
{
    if (!has_cache || hth_engine_has_gpu(s->model)) hth_sequence_truncate(&s->seq, 0);
    s->position = position, s->has_logits = has_logits, s->n_draft_pending = 0;
    hth_speculation_forget(s);
    s->generation = hth_engine_generation(s->model);
}

hearth_selector hth_session_selector(const hearth_session *s) { return s->own->selector; }

hth_step *hth_session_step(const hearth_session *session) { return session->own ? session->own->step : NULL; }
uint32_t hth_session_n_row(const hearth_session *session)
{
    return session->own ? session->own->n_tok_max : 0;
}

void hearth_session_enable_sparsity_stats(hearth_session *s, bool on)
{
    if (s && s->own) hth_batch_count_active(s->own, on);
}

uint64_t hearth_session_sparsity_stats(const hearth_session *s, double *share)
{
    HTH_FP_SCOPE;
    if (!s) return 0;
    if (s->own) return hth_batch_active_shares(s->own, share);
    if (share) memset(share, 0, s->model->model->hparams.n_layer * sizeof *share);
    return 0;
}
