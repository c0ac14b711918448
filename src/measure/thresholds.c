/* Calibration of thresholds. A pass over the text keeps, for some tokens, the magnitudes of both halves of
 * every neuron. Then each layer is recomputed from them with more and more neurons left out. */
#include "measure/thresholds.h"

#include "engine/engine.h"
#include "file/gguf_write.h"
#include "kernels/vector/math.h"
#include "measure/contribution.h"
#include "measure/text_sampler.h"
#include "sparse/sidecar.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* N_STEP: shares of neurons left out at which CETT is measured. N_PART: subdivisions of such a step at which
 * the limit is known; the largest few of a hundred values differ too much for linear interpolation between
 * steps. */
enum { N_STEP = 24, N_PART = 64, N_FINE = N_STEP * N_PART };

/* Kept values of one layer. */
typedef struct kept_layer {
    float *scores; /* [n_sample][d_ff] |f(first half)| */
    float *hidden; /* [n_sample][d_ff] */
    double *other; /* [d_ff] sums of squares of the half that is not in the score */
} kept_layer;

/* cett[s]: CETT with a share of s / N_STEP left out. limit[i]: a share of i / N_FINE is below it. */
typedef struct layer_curve {
    double cett[N_STEP + 1];
    float limit[N_FINE + 1];
} layer_curve;

typedef struct finder {
    const hearth_model *model;
    const hth_threshold_options *options;
    hth_thresholds *out;
    kept_layer *layers;
    layer_curve *curves;
    uint32_t n_sample, n_thread;
    uint64_t n_chunk;
    hth_pool *pool;
    hth_step *step;
    /* The current layer. */
    float *weights;         /* [d_ff] norm at the output per unit of score */
    double *squares;        /* [d_ff] */
    float *weighted_scores; /* [n_sample * d_ff] scores times weights, sorted */
    float *scratch;         /* [HTH_ABLATION_ROWS][d_ff] scratch memory */
    double *whole, *part;   /* [n_sample] */
    hth_arena arena;        /* holds the arrays */
} finder;

/* ---- a pass over the text ------------------------------------------------------------------------ */

static hearth_status keep_token(void *user, const hth_ffn_probe *seen, size_t t, uint32_t i,
                                hearth_error *err)
{
    finder *f = user;
    kept_layer *l = &f->layers[seen->i_layer];
    const hth_kernels *k = &f->model->kernels;
    size_t n = seen->d_ff, at = t * n;
    float *scores = l->scores + i * n, *hidden = l->hidden + i * n;
    (void)err;
    k->activate[f->model->model->hparams.activation](NULL, (seen->gate ? seen->gate : seen->up) + at, n,
                                                     scores);
    memcpy(hidden, seen->hidden + at, n * sizeof *hidden);
    for (size_t j = 0; j < n; j++) {
        scores[j] = scores[j] < 0.0f ? -scores[j] : scores[j];
        double other = seen->gate ? (double)seen->up[at + j] : 1.0;
        l->other[j] += other * other;
    }
    return HEARTH_OK;
}

/* Reports progress: chunks, then layers. */
static hearth_status report_progress(void *user, size_t done, hearth_error *err)
{
    const finder *f = user;
    const hth_threshold_options *o = f->options;
    if (!o->progress || o->progress(o->progress_user, done, f->n_chunk + f->out->n_layer)) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_CANCELLED, "interrupted; nothing was written");
}

/* ---- one layer ----------------------------------------------------------------------------------- */

static hearth_status weigh_neurons(finder *f, uint32_t i_layer, hearth_error *err)
{
    const hth_layer *l = &f->model->model->layers[i_layer];
    hearth_status st = hth_down_row_squares(f->model, i_layer, f->squares, err);
    for (uint32_t j = 0; st == HEARTH_OK && j < l->ffn.d_ff; j++)
        f->weights[j] = (float)hth_sqrt_d(f->squares[j] * f->layers[i_layer].other[j] / f->n_sample + 1e-30);
    return st;
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Squared norms of what each token's output loses below the limit. limit NULL: of the whole output. */
static void find_norms(finder *f, uint32_t i_layer, const float *limit, double *norms)
{
    const kept_layer *kept = &f->layers[i_layer];
    hth_ablation lost = {.step = f->step,
                         .i_layer = i_layer,
                         .n_tok = f->n_sample,
                         .d_ff = f->out->layers[i_layer].d_ff,
                         .d_model = f->model->model->hparams.d_model,
                         .hidden = kept->hidden,
                         .scores = kept->scores,
                         .weights = f->weights,
                         .scratch = f->scratch};
    hth_ablation_norms(&lost, limit, limit != NULL, norms);
}

/* Measures CETT with 0, 1/24 ... of the neurons left out. */
static hearth_status measure_layer(finder *f, uint32_t i_layer, hearth_error *err)
{
    const kept_layer *kept = &f->layers[i_layer];
    layer_curve *c = &f->curves[i_layer];
    size_t d_ff = f->out->layers[i_layer].d_ff, n = f->n_sample * d_ff;
    hearth_status st = weigh_neurons(f, i_layer, err);
    if (st != HEARTH_OK) return st;
    for (size_t i = 0; i < n; i++) f->weighted_scores[i] = kept->scores[i] * f->weights[i % d_ff];
    qsort(f->weighted_scores, n, sizeof *f->weighted_scores, by_size);
    find_norms(f, i_layer, NULL, f->whole);
    for (size_t i = 0; i <= N_FINE; i++) {
        size_t at = n * i / N_FINE;
        c->limit[i] = at < n ? f->weighted_scores[at] : f->weighted_scores[n - 1] * 2.0f;
    }
    for (int s = 0; s <= N_STEP; s++) {
        c->cett[s] = 0.0;
        if (s > 0) find_norms(f, i_layer, &c->limit[s * N_PART], f->part);
        for (uint32_t t = 0; s > 0 && t < f->n_sample; t++)
            if (f->whole[t] > 0.0) c->cett[s] += f->part[t] / f->whole[t] / f->n_sample;
    }
    return HEARTH_OK;
}

/* ---- choice of thresholds -------------------------------------------------------------------------- */

/* The largest share of neurons left out for which CETT stays within the bound, with linear interpolation
 * between the measured steps. */
static double share_within(const layer_curve *c, double bound)
{
    int s = 0;
    while (s < N_STEP && c->cett[s + 1] <= bound) s++;
    if (s == N_STEP) return 1.0;
    double step = c->cett[s + 1] - c->cett[s], part = step > 0.0 ? (bound - c->cett[s]) / step : 0.0;
    return (s + (part > 0.0 ? part : 0.0)) / N_STEP;
}

static double mean_share(const finder *f, double bound)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < f->out->n_layer; i++) sum += share_within(&f->curves[i], bound);
    return sum / f->out->n_layer;
}

/* The bound of CETT, the same for all layers, for which the mean share left out is `share`. */
static double bound_of_share(const finder *f, double share)
{
    double low = 0.0, high = 4.0;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2.0;
        if (mean_share(f, middle) < share) low = middle;
        else high = middle;
    }
    return high;
}

/* The weighted score below which that share of values is. */
static float limit_of_share(const layer_curve *c, double share)
{
    double at = share * N_FINE;
    int i = at < N_FINE ? (int)at : N_FINE - 1;
    return c->limit[i] + (c->limit[i + 1] - c->limit[i]) * (float)(at - i);
}

/* Sets the thresholds of a layer and their CETT. A threshold is never 0, because exact zeros cost nothing. */
static hearth_status choose_thresholds(finder *f, uint32_t i_layer, double bound, hearth_error *err)
{
    hth_threshold_layer *l = &f->out->layers[i_layer];
    const layer_curve *c = &f->curves[i_layer];
    float limit = limit_of_share(c, share_within(c, bound));
    hearth_status st = weigh_neurons(f, i_layer, err);
    if (st != HEARTH_OK) return st;
    find_norms(f, i_layer, NULL, f->whole);
    find_norms(f, i_layer, &limit, f->part);
    for (uint32_t j = 0; j < l->d_ff; j++) {
        float threshold = limit / f->weights[j];
        l->thresholds[j] = threshold > 1e30f ? 1e30f : threshold >= FLT_MIN ? threshold : FLT_MIN;
    }
    uint64_t below = 0, zero = 0;
    for (uint32_t t = 0; t < f->n_sample; t++) {
        const float *scores = f->layers[i_layer].scores + (size_t)t * l->d_ff;
        if (f->whole[t] > 0.0) l->cett += f->part[t] / f->whole[t] / f->n_sample;
        for (uint32_t j = 0; j < l->d_ff; j++)
            below += scores[j] < l->thresholds[j], zero += scores[j] < FLT_MIN;
    }
    l->sparsity = (double)below / ((double)f->n_sample * l->d_ff);
    l->zero = (double)zero / ((double)f->n_sample * l->d_ff);
    return HEARTH_OK;
}

/* ---- entry points ------------------------------------------------------------------------------------ */

static hearth_status alloc_buffers(finder *f, hearth_error *err)
{
    hth_arena *a = &f->arena;
    const hth_model *m = f->model->model;
    uint32_t n_layer = m->hparams.n_layer, n = f->n_sample;
    size_t d_ff = m->hparams.d_ff;
    f->out->layers = hth_alloc(n_layer, sizeof *f->out->layers);
    f->layers = hth_arena_alloc(a, n_layer, sizeof *f->layers, 64);
    f->curves = hth_arena_alloc(a, n_layer, sizeof *f->curves, 64);
    f->weights = hth_arena_alloc(a, d_ff, sizeof *f->weights, 64);
    f->squares = hth_arena_alloc(a, d_ff, sizeof *f->squares, 64);
    f->weighted_scores = hth_arena_alloc(a, n, d_ff * sizeof *f->weighted_scores, 64);
    f->scratch = hth_arena_alloc(a, HTH_ABLATION_ROWS, d_ff * sizeof *f->scratch, 64);
    f->whole = hth_arena_alloc(a, n, sizeof *f->whole, 64);
    f->part = hth_arena_alloc(a, n, sizeof *f->part, 64);
    bool ok = f->out->layers && !a->failed;
    for (uint32_t i = 0; ok && i < n_layer; i++) {
        hth_threshold_layer *l = &f->out->layers[i];
        f->out->n_layer = i + 1;
        l->d_ff = m->layers[i].ffn.d_ff;
        l->thresholds = hth_alloc(l->d_ff, sizeof *l->thresholds);
        f->layers[i].scores = hth_arena_alloc(a, n, l->d_ff * sizeof(float), 64);
        f->layers[i].hidden = hth_arena_alloc(a, n, l->d_ff * sizeof(float), 64);
        f->layers[i].other = hth_arena_alloc(a, l->d_ff, sizeof(double), 64);
        ok = l->thresholds && !a->failed;
    }
    return ok ? HEARTH_OK
              : hth_fail_memory(err, (uint64_t)n_layer * n * d_ff * 8,
                                "the samples for thresholds; use fewer samples");
}

static void free_buffers(finder *f)
{
    hth_arena_free(&f->arena);
    hth_step_close(f->step);
    hth_pool_close(f->pool);
}

static hearth_status find_all(finder *f, hearth_error *err)
{
    uint32_t n_layer = f->out->n_layer;
    hearth_status st = hth_pool_open(f->n_thread, &f->pool, err);
    if (st == HEARTH_OK)
        st = hth_step_open(f->model->model, &f->model->kernels, f->pool, HTH_ABLATION_ROWS,
                           HEARTH_SELECTOR_DENSE, &f->step, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < n_layer; i++) {
        st = measure_layer(f, i, err);
        if (st == HEARTH_OK) st = report_progress(f, f->n_chunk + i + 1, err);
    }
    double bound = f->options->cett;
    if (st == HEARTH_OK && bound <= 0.0) bound = bound_of_share(f, f->options->sparsity);
    for (uint32_t i = 0; st == HEARTH_OK && i < n_layer; i++) st = choose_thresholds(f, i, bound, err);
    f->out->n_token = f->n_sample;
    return st;
}

hearth_status hth_thresholds_find(const hearth_model *model, hearth_session *session, const char *text,
                                  size_t n, const hth_threshold_options *options, hth_thresholds *out,
                                  hearth_error *err)
{
    hth_chunks w = {0};
    finder f = {.model = model, .options = options, .out = out, .n_thread = hearth_session_n_thread(session)};
    *out = (hth_thresholds){0};
    hearth_status st = hth_model_check_dense(model->model, "hearth thresholds", err);
    if (st == HEARTH_OK) st = hth_engine_need_weights(model, "hearth thresholds", err);
    if (st == HEARTH_OK) st = hth_chunks_open(&w, model, text, n, hearth_session_n_ctx(session), err);
    if (st != HEARTH_OK) return st;
    f.n_chunk = hth_text_sampler_n_chunk(&w, options->n_sample);
    uint64_t n_text = f.n_chunk * w.n_ctx;
    f.n_sample = n_text < options->n_sample ? (uint32_t)n_text : options->n_sample;
    hth_text_sampler sampler = {f.n_sample, f.n_chunk, keep_token, report_progress, &f};
    st = alloc_buffers(&f, err);
    if (st == HEARTH_OK) st = hth_text_sampler_run(&sampler, model, session, &w, err);
    if (st == HEARTH_OK) st = find_all(&f, err);
    hth_chunks_close(&w);
    free_buffers(&f);
    if (st != HEARTH_OK) hth_thresholds_close(out);
    return st;
}

void hth_thresholds_close(hth_thresholds *t)
{
    for (uint32_t i = 0; t->layers && i < t->n_layer; i++) hth_free(t->layers[i].thresholds);
    hth_free(t->layers);
    *t = (hth_thresholds){0};
}

/* ---- the file ------------------------------------------------------------------------------------------ */

hearth_status hth_thresholds_write(const hth_thresholds *t, const hearth_model *model, const char *path,
                                   hearth_error *err)
{
    hth_gguf_writer *out;
    uint64_t hash;
    hearth_status st = hth_model_hash(model->file, &hash, err);
    if (st == HEARTH_OK) st = hth_gguf_writer_open(path, &out, err);
    if (st != HEARTH_OK) return st;
    hth_sidecar_write_head(out, "thresholds", hash);
    for (uint32_t i = 0; i < t->n_layer; i++) {
        char name[40];
        uint64_t dim[] = {t->layers[i].d_ff};
        snprintf(name, sizeof name, "blk.%u.ffn_floor.weight", i);
        hth_gguf_writer_tensor(out, name, HTH_TYPE_F32, 1, dim);
    }
    st = hth_gguf_writer_begin(out, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < t->n_layer; i++)
        st = hth_gguf_writer_data(out, t->layers[i].thresholds, t->layers[i].d_ff * sizeof(float), err);
    if (st == HEARTH_OK) st = hth_gguf_writer_finish(out, err);
    hth_gguf_writer_close(out);
    return st;
}
