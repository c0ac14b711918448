/* The passes of a study, in order: sampled contributions give each layer's limit; the active neurons of every
 * token; predictors; perplexities with fewer and fewer neurons. hearth study and tests call it. */
#include "study/study.h"

#include "convert/train.h"
#include "kernels/vector/math.h"
#include "measure/contribution.h"
#include "measure/text_sampler.h"
#include "study/study_int.h"

#include <string.h>

hth_study_options hth_study_defaults(void)
{
    return (hth_study_options){.n_sample = 128,
                               .n_chunk = 16,
                               .n_scored = 4,
                               .n_trained = 4,
                               .n_step = 600,
                               .cett = 0.2,
                               .memory = (uint64_t)2 << 30};
}

/* Limits of the data of a layer that is read back to memory at once: bits of all tokens, inputs of the first
 * ones. */
enum { MAX_TOK = 1 << 20, MAX_TRAIN = 16384 };

static uint32_t n_layer_of(const hth_study_state *s) { return s->model->model->hparams.n_layer; }

hearth_status hth_study_progress(hth_study_state *s, uint64_t step, hearth_error *err)
{
    const hth_study_options *o = s->options;
    s->done = s->done + step < s->total ? s->done + step : s->total;
    if (!o->progress || o->progress(o->progress_user, s->done, s->total)) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_CANCELLED, "interrupted; nothing was written");
}

/* ---- layers with predictors ---------------------------------------------------------------------- */

/* With too few tokens, none is held out for the evaluation. */
static uint32_t n_trained(const hth_study_state *s)
{
    uint32_t n = s->options->n_trained < n_layer_of(s) ? s->options->n_trained : n_layer_of(s);
    return s->out->n_held > 0 ? n : 0;
}

/* The first layer, the last, and others evenly between. */
static uint32_t trained_layer(const hth_study_state *s, uint32_t i)
{
    uint32_t n = n_trained(s);
    return n < 2 ? 0 : (uint32_t)((uint64_t)i * (n_layer_of(s) - 1) / (n - 1));
}

/* The stream of a layer's inputs; n_trained: it has none. */
static uint32_t stream_of(const hth_study_state *s, uint32_t i_layer)
{
    uint32_t i = 0;
    while (i < n_trained(s) && trained_layer(s, i) != i_layer) i++;
    return i;
}

static uint32_t count_held(uint64_t n_tok)
{
    uint32_t n = 0;
    for (uint64_t i = 0; i < n_tok; i++) n += hth_train_is_held(i, n_tok);
    return n;
}

/* ---- first pass: hidden values of some tokens ------------------------------------------------------- */

static hearth_status keep_hidden(void *user, const hth_ffn_probe *seen, size_t t, uint32_t i,
                                 hearth_error *err)
{
    const hth_study_state *s = user;
    size_t size = seen->d_ff * sizeof *seen->hidden;
    return hth_spill_put(s->hidden, seen->i_layer, i * size, seen->hidden + t * seen->d_ff, size, err);
}

static hearth_status look(void *user, size_t i_chunk, hearth_error *err)
{
    return hth_study_progress(user, i_chunk > 0, err);
}

static hearth_status sample_tokens(hth_study_state *s, hearth_error *err)
{
    hth_text_sampler walk = {s->out->n_sample, s->chunks.n_chunk, keep_hidden, look, s};
    size_t size = (size_t)s->out->n_sample * s->model->model->hparams.d_ff * sizeof(float);
    hearth_status st =
        hth_spill_open(n_layer_of(s), size, s->options->memory / 2, s->options->beside, &s->hidden, err);
    return st == HEARTH_OK ? hth_text_sampler_run(&walk, s->model, s->session, &s->chunks, err) : st;
}

/* ---- second pass: active neurons of each token ---------------------------------------------------------- */

static hearth_status keep_active(void *user, const hth_ffn_probe *seen, size_t t, uint32_t i,
                                 hearth_error *err)
{
    hth_study_state *s = user;
    const hth_study_layer *l = &s->out->layers[seen->i_layer];
    const float *h = seen->hidden + t * seen->d_ff, *norms = s->norms[seen->i_layer];
    size_t n_byte = hth_study_n_byte(l), d_size = seen->d_model * sizeof(float);
    uint32_t i_stream = stream_of(s, seen->i_layer);
    float limit = s->out->by_contribution ? (float)l->limit : 0x1p-149f;
    memset(s->bits, 0, n_byte);
    for (size_t j = 0; j < seen->d_ff; j++) {
        float size = __builtin_fabsf(h[j]);
        if (s->out->by_contribution) size *= norms[j];
        s->bits[j / 8] |= (uint8_t)((unsigned)(size >= limit) << j % 8);
    }
    hearth_status st = hth_spill_put(s->active, seen->i_layer, i * n_byte, s->bits, n_byte, err);
    if (st == HEARTH_OK && i_stream < n_trained(s) && i < s->n_train)
        st = hth_spill_put(s->input, i_stream, i * d_size, seen->input + t * seen->d_model, d_size, err);
    return st;
}

static hearth_status see_all_tokens(hth_study_state *s, hearth_error *err)
{
    const hth_hparams *h = &s->model->model->hparams;
    const hth_study_options *o = s->options;
    uint32_t n = n_trained(s);
    hth_text_sampler walk = {(uint32_t)s->out->n_tok, s->chunks.n_chunk, keep_active, look, s};
    hearth_status st = hth_spill_open(h->n_layer, s->out->n_tok * (((uint64_t)h->d_ff + 7) / 8),
                                      o->memory / 2, o->beside, &s->active, err);
    if (st == HEARTH_OK && n > 0)
        st = hth_spill_open(n, (uint64_t)s->n_train * h->d_model * sizeof(float), o->memory / 2, o->beside,
                            &s->input, err);
    return st == HEARTH_OK ? hth_text_sampler_run(&walk, s->model, s->session, &s->chunks, err) : st;
}

/* ---- entry point ----------------------------------------------------------------------------------------- */

static uint64_t count_work(const hth_study_state *s)
{
    uint64_t n = 2 * s->chunks.n_chunk + 2 * (uint64_t)n_layer_of(s), n_scored = s->options->n_scored;
    uint64_t n_whole =
        s->chunks.n_id / s->chunks.n_ctx; /* perplexities use chunks after the last studied one too */
    for (uint32_t i = 0; i < n_trained(s); i++)
        n += (uint64_t)hth_study_n_rank(s, trained_layer(s, i)) * s->options->n_step;
    return n + HTH_STUDY_N_ROW * (n_scored < n_whole ? n_scored : n_whole);
}

static hearth_status find_norms(hth_study_state *s, hearth_error *err)
{
    double *squares = hth_alloc(s->model->model->hparams.d_ff, sizeof *squares);
    hearth_status st = squares ? HEARTH_OK : hth_fail_memory(err, sizeof *squares, "norms of neurons");
    for (uint32_t i = 0; st == HEARTH_OK && i < n_layer_of(s); i++) {
        st = hth_down_row_squares(s->model, i, squares, err);
        for (uint32_t j = 0; st == HEARTH_OK && j < s->out->layers[i].d_ff; j++)
            s->norms[i][j] = (float)hth_sqrt_d(squares[j]);
    }
    hth_free(squares);
    return st;
}

static hearth_status alloc_buffers(hth_study_state *s, hearth_error *err)
{
    uint32_t n_layer = n_layer_of(s), d_ff = s->model->model->hparams.d_ff;
    hth_study *out = s->out;
    out->layers = hth_alloc(n_layer, sizeof *out->layers);
    s->norms = hth_arena_alloc(&s->arena, n_layer, sizeof *s->norms, 64);
    s->bits = hth_arena_alloc(&s->arena, d_ff + 7, 1, 64);
    bool ok = out->layers && s->norms && s->bits;
    for (uint32_t i = 0; ok && i < n_layer; i++) {
        out->n_layer = i + 1;
        out->layers[i].d_ff = s->model->model->layers[i].ffn.d_ff;
        ok = (s->norms[i] = hth_arena_alloc(&s->arena, out->layers[i].d_ff, sizeof(float), 64)) != NULL;
    }
    if (!ok) return hth_fail_memory(err, (uint64_t)n_layer * d_ff * sizeof(float), "norms of neurons");
    hearth_status st = hth_pool_open(hearth_session_n_thread(s->session), &s->pool, err);
    if (st == HEARTH_OK)
        st = hth_step_open(s->model->model, &s->model->kernels, s->pool, HTH_ABLATION_ROWS, HEARTH_SELECTOR_DENSE,
                           &s->step, err);
    return st;
}

static void close_all(hth_study_state *s)
{
    hth_arena_free(&s->arena);
    hth_spill_close(s->hidden);
    hth_spill_close(s->active);
    hth_spill_close(s->input);
    hth_step_close(s->step);
    hth_pool_close(s->pool);
    hth_chunks_close(&s->chunks);
}

/* Opens the text and computes the amount of work. */
static hearth_status begin(hth_study_state *s, const char *text, size_t n, hearth_error *err)
{
    hth_study *out = s->out;
    const hth_study_options *o = s->options;
    *out = (hth_study){.n_ctx = hearth_session_n_ctx(s->session), .bound = o->cett};
    hearth_status st = hth_chunks_open(&s->chunks, s->model, text, n, out->n_ctx, err);
    if (st != HEARTH_OK) return st;
    if (o->n_chunk > 0 && o->n_chunk < s->chunks.n_chunk) s->chunks.n_chunk = o->n_chunk;
    out->n_chunk = s->chunks.n_chunk;
    out->n_tok = out->n_chunk * out->n_ctx;
    if (out->n_tok > MAX_TOK)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "a study of %llu tokens is too long: at most %d are possible; use fewer chunks",
                        (unsigned long long)out->n_tok, MAX_TOK);
    out->n_sample = o->n_sample < out->n_tok ? o->n_sample : (uint32_t)out->n_tok;
    s->n_train = out->n_tok < MAX_TRAIN ? (uint32_t)out->n_tok : MAX_TRAIN;
    out->n_held = count_held(s->n_train);
    out->by_contribution = !hth_activation_is_sparse(s->model->model->hparams.activation);
    st = alloc_buffers(s, err);
    s->total = count_work(s);
    return st == HEARTH_OK ? find_norms(s, err) : st;
}

hearth_status hth_study_run(const hearth_model *model, hearth_session *session, const char *text, size_t n,
                            const hth_study_options *options, hth_study *out, hearth_error *err)
{
    hth_study_state s = {.model = model, .session = session, .options = options, .out = out};
    hearth_status st = hth_model_check_dense(model->model, "hearth study", err);
    if (st == HEARTH_OK) st = hth_engine_need_weights(model, "hearth study", err);
    if (st != HEARTH_OK) return st;
    st = begin(&s, text, n, err);
    if (st == HEARTH_OK) st = sample_tokens(&s, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < out->n_layer; i++) st = hth_study_sizes(&s, i, err);
    hth_spill_close(s.hidden);
    s.hidden = NULL;
    if (st == HEARTH_OK) st = see_all_tokens(&s, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < out->n_layer; i++) st = hth_study_firing(&s, i, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < n_trained(&s); i++)
        st = hth_study_predict(&s, trained_layer(&s, i), i, err);
    if (st == HEARTH_OK && options->n_scored > 0) st = hth_study_force(&s, text, n, err);
    close_all(&s);
    if (st != HEARTH_OK) hth_study_close(out);
    return st;
}

void hth_study_close(hth_study *study)
{
    hth_free(study->layers);
    study->layers = NULL;
    study->n_layer = 0;
}
