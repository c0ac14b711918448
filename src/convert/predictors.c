/* Trains predictors. One pass over the text keeps, for some tokens, the input of each layer's FFN and its
 * active neurons. Then small networks are trained for all layers, and larger ones for the layers with most
 * wasted work, until all are good enough or the budget is used up. hearth predictors and tests call it. */
#include "convert/predictors.h"

#include "base/bits.h"
#include "base/format_bytes.h"
#include "convert/range_check.h"
#include "convert/spill.h"
#include "convert/train.h"
#include "engine/engine.h"
#include "file/gguf_write.h"
#include "file/atomic_writer.h"
#include "measure/text_sampler.h"
#include "measure/chunks.h"
#include "sparse/sidecar.h"

#include <stdio.h>
#include <string.h>

/* Scores are counted in bins of 1/64 between -32 and 32. */
enum { RANK_STEP = 32, RANK_MAX = 2048, N_BIN = 4096, BINS_PER_UNIT = 64, PROGRESS_EVERY = 16 };

/* Factor by which a larger rank must raise the precision (share of marked neurons that are active) to be kept. */
static const double WORTH = 1.05;

typedef struct trained_layer {
    uint8_t *in, *out; /* rows in the form of the file */
    size_t in_size, out_size;
    float *bias;
} trained_layer;

typedef struct trainer_state {
    const hth_predictor_options *options;
    hearth_model *model;
    hearth_session *session;
    const char *out_path;
    hth_spill *spill; /* streams 2 i and 2 i + 1: inputs and active sets of layer i */
    hth_pool *pool;
    hth_trainer *trainer;
    hth_predictor_result *results;
    trained_layer *trained_layer;
    bool *is_final;    /* [n_layer] a larger rank was no better */
    uint32_t n_token; /* kept tokens, from n_chunk chunks */
    size_t n_chunk;
    uint64_t done, total, chunk_work; /* in units of hth_train_work */
    /* The current layer. */
    float *input;
    uint64_t step_work;
    uint8_t *fired;
    float *scores; /* [HTH_TRAIN_BATCH][d_ff] */
    hth_arena arena; /* holds all arrays but results */
} trainer_state;

hth_predictor_options hth_predictor_defaults(void)
{
    return (hth_predictor_options){.recall = 0.95,
                                   .precision = 0.5,
                                   .n_token = 16384,
                                   .memory = (uint64_t)2 << 30,
                                   .n_step = 1500,
                                   .seed = 1};
}

static uint32_t n_layer_of(const trainer_state *w) { return w->model->model->hparams.n_layer; }
static uint32_t d_of(const trainer_state *w) { return w->model->model->hparams.d_model; }
static uint32_t d_ff_of(const trainer_state *w, uint32_t i) { return w->model->model->layers[i].ffn.d_ff; }

static bool report_progress(trainer_state *w, uint64_t step)
{
    const hth_predictor_options *o = w->options;
    w->done += step;
    return !o->progress || o->progress(o->progress_user, w->done < w->total ? w->done : w->total, w->total);
}

static hearth_status fail_cancelled(hearth_error *err)
{
    return hth_fail(err, HEARTH_ERROR_CANCELLED, "interrupted; nothing was written");
}

/* ---- a pass over the text -------------------------------------------------------------------------- */

static hearth_status keep_token(void *user, const hth_ffn_probe *seen, size_t t, uint32_t i,
                                hearth_error *err)
{
    trainer_state *w = user;
    size_t n = seen->d_ff, n_byte = (n + 7) / 8, d_size = seen->d_model * sizeof(float);
    const float *hidden = seen->hidden + t * n;
    memset(w->fired, 0, n_byte);
    for (size_t j = 0; j < n; j++) w->fired[j / 8] |= (uint8_t)((hidden[j] != 0.0f) << j % 8);
    hearth_status st =
        hth_spill_put(w->spill, 2 * seen->i_layer, i * d_size, seen->input + t * seen->d_model, d_size, err);
    if (st == HEARTH_OK)
        st = hth_spill_put(w->spill, 2 * seen->i_layer + 1, i * n_byte, w->fired, n_byte, err);
    return st;
}

static hearth_status on_chunk(void *user, size_t i_chunk, hearth_error *err)
{
    trainer_state *w = user;
    return report_progress(w, i_chunk ? w->chunk_work : 0) ? HEARTH_OK : fail_cancelled(err);
}

/* ---- quality of a network --------------------------------------------------------------------------- */

typedef struct tally {
    uint64_t fires[N_BIN], rests[N_BIN];
} tally;

static size_t bin_of(float score)
{
    float x = (score + 32.0f) * BINS_PER_UNIT;
    return x >= (float)N_BIN ? N_BIN - 1 : x > 0.0f ? (size_t)x : 0;
}

/* Scores of all held-out tokens (of all tokens, if there are too few). */
static void histogram_scores(trainer_state *w, const hth_train_data *data, const hth_network_form *form, tally *t)
{
    bool all = !hth_train_holds_out(data->n_tok);
    memset(t, 0, sizeof *t);
    for (size_t first = 0; first < data->n_tok; first += HTH_TRAIN_BLOCK) {
        size_t left = data->n_tok - first, n = left < HTH_TRAIN_BLOCK ? left : HTH_TRAIN_BLOCK;
        if (!all && !hth_train_is_held(first, data->n_tok)) continue;
        hth_network_scores(w->trainer, form, data->input + first * data->d, n, w->scores);
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < data->d_ff; j++) {
                bool fires = hth_bit_at(data->fired + (first + i) * ((data->d_ff + 7) / 8), j);
                (fires ? t->fires : t->rests)[bin_of(w->scores[i * data->d_ff + j])]++;
            }
    }
}

/* Sets the largest threshold with which enough of the active neurons are marked. */
static void choose_threshold(const tally *t, double recall, hth_predictor_result *r)
{
    uint64_t fires = 0, rests = 0, hit = 0, marked = 0;
    size_t bin = N_BIN;
    for (size_t i = 0; i < N_BIN; i++) fires += t->fires[i], rests += t->rests[i];
    while (bin > 0 && (double)hit < recall * (double)fires) {
        bin--;
        hit += t->fires[bin];
        marked += t->fires[bin] + t->rests[bin];
    }
    r->threshold = bin == 0 ? -1e30f : (float)bin / BINS_PER_UNIT - 32.0f;
    r->live = (double)fires / (double)(fires + rests);
    r->marked = (double)marked / (double)(fires + rests);
    r->recall = fires ? (double)hit / (double)fires : 1.0;
    r->precision = marked ? (double)hit / (double)marked : 1.0;
}

/* ---- one layer ---------------------------------------------------------------------------------------- */

static hth_type type_for(size_t n_col) { return n_col % 32 == 0 ? HTH_TYPE_Q8_0 : HTH_TYPE_F16; }

uint64_t hth_predictor_network_size(uint32_t d_model, uint32_t d_ff, bool gated)
{
    return (gated ? 3 : 2) * (uint64_t)d_ff * d_model * 34 / 32;
}

uint64_t hth_predictor_size(uint32_t d_model, uint32_t d_ff, uint32_t rank)
{
    return (uint64_t)rank * hth_type_row_size(type_for(d_model), d_model) +
           (uint64_t)d_ff * (hth_type_row_size(HTH_TYPE_Q8_0, rank) + sizeof(float));
}

static uint64_t size_of_rank(const trainer_state *w, uint32_t i, uint32_t rank)
{
    return hth_predictor_size(d_of(w), d_ff_of(w, i), rank);
}

/* Bytes for all predictors: the option, or a tenth of the bytes of the networks in Q8_0. */
static uint64_t budget_of(const trainer_state *w)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < n_layer_of(w); i++) {
        bool gated = w->model->model->layers[i].ffn.gate.n_row > 0;
        all += hth_predictor_network_size(d_of(w), d_ff_of(w, i), gated);
    }
    return w->options->budget ? w->options->budget : all / 10;
}

/* The largest rank that all layers can have within the budget. */
static uint32_t common_rank(const trainer_state *w)
{
    for (uint32_t rank = RANK_STEP;; rank *= 2) {
        uint64_t size = 0;
        for (uint32_t i = 0; i < n_layer_of(w); i++) size += size_of_rank(w, i, 2 * rank);
        if (2 * rank > RANK_MAX || size > budget_of(w)) return rank;
    }
}

/* Packs rows of floats to rows of the file. */
static uint8_t *pack_rows(const trainer_state *w, const float *x, size_t n_row, size_t n_col, hth_type type,
                          size_t *size)
{
    size_t row_size = hth_type_row_size(type, n_col);
    uint8_t *rows = hth_alloc(n_row, row_size);
    *size = n_row * row_size;
    for (size_t i = 0; rows && i < n_row; i++)
        w->model->kernels.pack[type](x + i * n_col, n_col, rows + i * row_size);
    return rows;
}

/* Checks that the values are in range of the file's types. Otherwise the file could not be opened. */
static hearth_status check_network(const hth_network *net, hth_type in_type, uint32_t i, hearth_error *err)
{
    if (hth_type_in_range(net->in, net->rank * net->d, in_type) &&
        hth_type_in_range(net->out, net->d_ff * net->rank, HTH_TYPE_Q8_0) &&
        hth_type_in_range(net->bias, net->d_ff, HTH_TYPE_F32))
        return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_NUMERIC,
                    "layer %u: training of rank %zu ended in weights that are not finite, or too large for "
                    "%s; nothing was written",
                    i, net->rank, hth_type_find((uint32_t)in_type)->name);
}

static void free_trained(trained_layer *m)
{
    hth_free(m->in);
    hth_free(m->out);
    hth_free(m->bias);
    *m = (trained_layer){0};
}

static bool on_step(void *user, size_t i_step)
{
    trainer_state *w = user;
    return i_step % PROGRESS_EVERY || report_progress(w, i_step ? PROGRESS_EVERY * w->step_work : 0);
}

/* Trains a network of that rank, converts it to the form of the file and evaluates it. */
static hearth_status try_rank(trainer_state *w, uint32_t i, const hth_train_data *data, uint32_t rank,
                              trained_layer *m, hth_predictor_result *r, hearth_error *err)
{
    hth_network net;
    tally *t;
    size_t d = data->d, d_ff = data->d_ff;
    hth_type in_type = type_for(d);
    if (!hth_train(w->trainer, data, rank, w->options->n_step, w->options->seed + i, on_step, w, &net))
        return fail_cancelled(err);
    hearth_status st = check_network(&net, in_type, i, err);
    if (st != HEARTH_OK) return st;
    m->in = pack_rows(w, net.in, rank, d, in_type, &m->in_size);
    m->out = pack_rows(w, net.out, d_ff, rank, HTH_TYPE_Q8_0, &m->out_size);
    m->bias = hth_alloc(d_ff, sizeof *m->bias);
    t = hth_alloc(1, sizeof *t);
    if (!m->in || !m->out || !m->bias || !t) {
        hth_free(t);
        return hth_fail_memory(err, m->in_size + m->out_size, "a predictor");
    }
    memcpy(m->bias, net.bias, d_ff * sizeof *m->bias);
    hth_network_form form = {
        .in = {.type = in_type, .n_row = rank, .n_col = d, .row_size = m->in_size / rank, .data = m->in},
        .out = {.type = HTH_TYPE_Q8_0,
                .n_row = d_ff,
                .n_col = rank,
                .row_size = m->out_size / d_ff,
                .data = m->out},
        .bias = m->bias};
    histogram_scores(w, data, &form, t);
    choose_threshold(t, w->options->recall, r);
    r->rank = rank, r->size = size_of_rank(w, i, rank);
    hth_free(t);
    return HEARTH_OK;
}

/* Trains a network of that rank for a layer; it replaces the previous one if it is better. */
static hearth_status increase_rank(trainer_state *w, uint32_t i, uint32_t rank, hearth_error *err)
{
    size_t d = d_of(w), d_ff = d_ff_of(w, i), n_byte = (d_ff + 7) / 8;
    hth_train_data data = {.input = w->input, .fired = w->fired, .n_tok = w->n_token, .d = d, .d_ff = d_ff};
    hth_predictor_result r = {0};
    trained_layer m = {0};
    w->step_work = hth_train_work(d, d_ff, rank);
    hearth_status st = hth_spill_get(w->spill, 2 * i, 0, w->input, w->n_token * d * sizeof *w->input, err);
    if (st == HEARTH_OK) st = hth_spill_get(w->spill, 2 * i + 1, 0, w->fired, w->n_token * n_byte, err);
    if (st == HEARTH_OK) st = hth_trainer_open(&w->model->kernels, w->pool, d, d_ff, rank, &w->trainer, err);
    if (st == HEARTH_OK) st = try_rank(w, i, &data, rank, &m, &r, err);
    bool better = st == HEARTH_OK && (rank == RANK_STEP || r.precision >= WORTH * w->results[i].precision);
    if (better) {
        free_trained(&w->trained_layer[i]);
        w->trained_layer[i] = m;
        w->results[i] = r;
    } else {
        free_trained(&m);
        w->is_final[i] = true;
    }
    hth_trainer_close(w->trainer);
    w->trainer = NULL;
    return st;
}

/* The layer that computes most neurons in vain, of those whose rank may still grow; n_layer: none. */
static uint32_t next_candidate(const trainer_state *w)
{
    uint32_t n = n_layer_of(w), found = n;
    uint64_t used = 0;
    double max = 0.0;
    for (uint32_t i = 0; i < n; i++) used += w->results[i].size;
    for (uint32_t i = 0; i < n; i++) {
        const hth_predictor_result *r = &w->results[i];
        double wasted = r->marked * (1.0 - r->precision) * d_ff_of(w, i);
        uint64_t grown = used - r->size + size_of_rank(w, i, 2 * r->rank);
        bool may = !w->is_final[i] && r->precision < w->options->precision && 2 * r->rank <= RANK_MAX &&
                   grown <= budget_of(w);
        if (may && wasted > max) found = i, max = wasted;
    }
    return found;
}

/* ---- the file ------------------------------------------------------------------------------------------- */

static void declare_layer(const trainer_state *w, hth_gguf_writer *out, uint32_t i)
{
    char name[64];
    uint32_t rank = w->results[i].rank, d = d_of(w), d_ff = d_ff_of(w, i);
    uint64_t in[] = {d, rank}, net_out[] = {rank, d_ff}, bias[] = {d_ff};
    snprintf(name, sizeof name, "blk.%u.fc1.weight", i);
    hth_gguf_writer_tensor(out, name, type_for(d), 2, in);
    snprintf(name, sizeof name, "blk.%u.fc2.weight", i);
    hth_gguf_writer_tensor(out, name, HTH_TYPE_Q8_0, 2, net_out);
    snprintf(name, sizeof name, "blk.%u.fc2.bias", i);
    hth_gguf_writer_tensor(out, name, HTH_TYPE_F32, 1, bias);
}

static hearth_status write_file(trainer_state *w, hearth_error *err)
{
    hth_gguf_writer *out;
    uint64_t hash;
    uint32_t n = n_layer_of(w);
    float *thresholds = hth_alloc(n, sizeof *thresholds);
    if (!thresholds) return hth_fail_memory(err, n * sizeof *thresholds, "thresholds");
    for (uint32_t i = 0; i < n; i++) thresholds[i] = w->results[i].threshold;
    hearth_status st = hth_model_hash(w->model->file, &hash, err);
    if (st == HEARTH_OK) st = hth_gguf_writer_open(w->out_path, &out, err);
    if (st != HEARTH_OK) goto done;
    hth_sidecar_write_head(out, "predictors", hash);
    hth_gguf_writer_text(out, "hearth.predictor.input", "normed", 6);
    hth_gguf_writer_array(out, "hearth.predictor.threshold", HTH_GGUF_F32, thresholds, n);
    for (uint32_t i = 0; i < n; i++) declare_layer(w, out, i);
    st = hth_gguf_writer_begin(out, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < n; i++) {
        const trained_layer *m = &w->trained_layer[i];
        st = hth_gguf_writer_data(out, m->in, m->in_size, err);
        if (st == HEARTH_OK) st = hth_gguf_writer_data(out, m->out, m->out_size, err);
        if (st == HEARTH_OK) st = hth_gguf_writer_data(out, m->bias, d_ff_of(w, i) * sizeof *m->bias, err);
    }
    if (st == HEARTH_OK) st = hth_gguf_writer_finish(out, err);
    hth_gguf_writer_close(out);
done:
    hth_free(thresholds);
    return st;
}

/* ---- entry points -------------------------------------------------------------------------------------------- */

static hearth_status open_model(trainer_state *w, const char *path, uint32_t n_ctx, hearth_error *err)
{
    hearth_model_options mo = {.n_thread = w->options->n_thread, .selector = HEARTH_SELECTOR_DENSE};
    hearth_session_options so = hearth_session_defaults();
    hearth_status st = hth_engine_open_dense(path, &mo, "hearth predictors", &w->model, err);
    if (st != HEARTH_OK) return st;
    so.n_ctx = n_ctx ? n_ctx : hth_chunks_default(w->model);
    so.n_thread = w->options->n_thread;
    if (!hth_activation_is_sparse(w->model->model->hparams.activation))
        return hth_fail(
            err, HEARTH_ERROR_ARGUMENT,
            "%s: activation %s gives no exact zeros, so there is nothing to predict; use hearth "
            "thresholds",
            path, hth_activation_name(w->model->model->hparams.activation));
    return hearth_session_open(w->model, &so, &w->session, err);
}

static hearth_status alloc_workspace(trainer_state *w, const hth_chunks *chunks, hearth_error *err)
{
    uint32_t n = n_layer_of(w), d_ff = w->model->model->hparams.d_ff;
    const hth_predictor_options *o = w->options;
    w->n_chunk = hth_text_sampler_n_chunk(chunks, o->n_token);
    uint64_t n_text = (uint64_t)w->n_chunk * chunks->n_ctx;
    w->n_token = n_text < o->n_token ? (uint32_t)n_text : o->n_token;
    uint64_t min = 0;
    for (uint32_t i = 0; i < n; i++) min += size_of_rank(w, i, RANK_STEP);
    if (o->budget && o->budget < min)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "a budget of %s is too small: the smallest predictors of this model take %s",
                        hth_format_bytes(o->budget).text, hth_format_bytes(min).text);
    /* Quantised weights are multiplied about twice as fast as a network is trained (Q8_0, 1B, rank 256: 450 and
     * 190 G/s). */
    hearth_model_info info = {0};
    hearth_model_get_info(w->model, &info);
    w->chunk_work = chunks->n_ctx * info.n_parameter / 2;
    w->total = w->n_chunk * w->chunk_work;
    for (uint32_t rank = RANK_STEP; rank <= common_rank(w); rank *= 2)
        for (uint32_t i = 0; i < n; i++) w->total += o->n_step * hth_train_work(d_of(w), d_ff_of(w, i), rank);
    w->results = hth_alloc(n, sizeof *w->results);
    w->trained_layer = hth_arena_alloc(&w->arena, n, sizeof *w->trained_layer, 64);
    w->is_final = hth_arena_alloc(&w->arena, n, sizeof *w->is_final, 64);
    w->input = hth_arena_alloc(&w->arena, w->n_token, d_of(w) * sizeof *w->input, 64);
    w->fired = hth_arena_alloc(&w->arena, w->n_token + 1, (d_ff + 7) / 8, 64);
    w->scores = hth_arena_alloc(&w->arena, HTH_TRAIN_BATCH, d_ff * sizeof *w->scores, 64);
    if (!w->results || w->arena.failed)
        return hth_fail_memory(err, (uint64_t)w->n_token * d_of(w) * sizeof *w->input,
                               "training data of predictors");
    return hth_spill_open(2 * n, (uint64_t)w->n_token * (d_of(w) * sizeof(float) + (d_ff + 7) / 8), o->memory,
                          w->out_path, &w->spill, err);
}

static void close_all(trainer_state *w)
{
    for (uint32_t i = 0; w->trained_layer && i < n_layer_of(w); i++) free_trained(&w->trained_layer[i]);
    hth_pool_close(w->pool);
    hth_spill_close(w->spill);
    hth_arena_free(&w->arena);
    hearth_session_close(w->session);
    hearth_model_close(w->model);
}

/* The session's pool is idle while networks are trained; its threads sleep. */
static hearth_status train_all(trainer_state *w, hearth_error *err)
{
    hearth_status st = hth_pool_open(hth_pool_default_threads(w->options->n_thread), &w->pool, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < n_layer_of(w); i++) st = increase_rank(w, i, RANK_STEP, err);
    for (uint32_t i; st == HEARTH_OK && (i = next_candidate(w)) < n_layer_of(w);)
        st = increase_rank(w, i, 2 * w->results[i].rank, err);
    return st;
}

hearth_status hth_predictors_make(const char *path, const char *text, size_t n, const char *out_path,
                                  uint32_t n_ctx, const hth_predictor_options *options,
                                  hth_predictor_result **layers, uint32_t *n_layer, hearth_error *err)
{
    trainer_state w = {.options = options, .out_path = out_path};
    hth_chunks chunks = {0};
    *layers = NULL;
    hearth_status st = hth_atomic_writer_check(out_path, err);
    if (st == HEARTH_OK) st = open_model(&w, path, n_ctx, err);
    if (st == HEARTH_OK)
        st = hth_chunks_open(&chunks, w.model, text, n, hearth_session_n_ctx(w.session), err);
    if (st == HEARTH_OK) st = alloc_workspace(&w, &chunks, err);
    hth_text_sampler walk = {w.n_token, w.n_chunk, keep_token, on_chunk, &w};
    if (st == HEARTH_OK) st = hth_text_sampler_run(&walk, w.model, w.session, &chunks, err);
    if (st == HEARTH_OK) st = train_all(&w, err);
    if (st == HEARTH_OK) st = write_file(&w, err);
    if (st == HEARTH_OK) {
        *layers = w.results;
        *n_layer = n_layer_of(&w);
    } else {
        hth_free(w.results);
    }
    hth_chunks_close(&chunks);
    close_all(&w);
    return st;
}
