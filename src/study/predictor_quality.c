/* How well small networks predict active neurons, as a function of their size. study.c calls it for some
 * layers. */
#include "base/bits.h"
#include "convert/predictors.h"
#include "convert/train.h"
#include "sparse/profile.h"
#include "study/study_int.h"

#include <string.h>

/* Ranks double up to this share of the network's bytes. */
static const uint32_t RANK_MIN = 32;
static const double LARGEST_SHARE = 0.13;

/* Training steps between two calls of the progress function, which may cancel. */
enum { PROGRESS_EVERY = 64 };

typedef struct predict_state {
    hth_study_state *s;
    hth_study_layer *layer;
    hth_train_data data;
    hth_trainer *trainer;
    float *input, *scores; /* [n_tok][d], [HTH_TRAIN_BLOCK][d_ff] */
    uint8_t *active;       /* [n_tok][n_byte] */
    uint32_t *words;       /* [d_ff] scores as integers of the same order */
    hearth_error error;    /* why training ended */
    hth_arena arena;       /* holds the arrays */
} predict_state;

static size_t d_of(const hth_study_state *s) { return s->model->model->hparams.d_model; }

static double share_of(const hth_study_state *s, uint32_t i_layer, uint32_t rank)
{
    const hth_layer *l = &s->model->model->layers[i_layer];
    uint32_t d = (uint32_t)d_of(s);
    return (double)hth_predictor_size(d, l->ffn.d_ff, rank) /
           (double)hth_predictor_network_size(d, l->ffn.d_ff, l->ffn.gate.n_row > 0);
}

uint32_t hth_study_n_rank(const hth_study_state *s, uint32_t i_layer)
{
    uint32_t n = 1;
    while (n < HTH_STUDY_MAX_RANK && share_of(s, i_layer, RANK_MIN << n) <= LARGEST_SHARE) n++;
    return n;
}

/* ---- evaluation on held-out tokens -------------------------------------------------------------- */

typedef struct tally {
    uint64_t n, active, marked, hit, hit_of_top;
} tally;

/* Maps floats to integers below 2^31 in the same order, except for the last bit. */
static uint32_t word_of(float x)
{
    uint32_t bits = hth_bits_of(x);
    return (bits >> 31 ? ~bits : bits | 0x80000000u) >> 1;
}

static void evaluate_token(const predict_state *p, const float *scores, const uint8_t *active, tally *t)
{
    size_t d_ff = p->layer->d_ff;
    for (size_t j = 0; j < d_ff; j++) p->words[j] = word_of(scores[j]);
    uint32_t top = hth_profile_kth(p->words, d_ff, (d_ff + 4) / 5);
    for (size_t j = 0; j < d_ff; j++) {
        unsigned is_active = hth_bit_at(active, j), marked = scores[j] > 0.0f;
        t->active += is_active;
        t->marked += marked;
        t->hit += is_active & marked;
        t->hit_of_top += is_active & (p->words[j] >= top);
    }
    t->n += d_ff;
}

static tally evaluate(predict_state *p, const hth_network *net)
{
    const hth_train_data *data = &p->data;
    size_t n_byte = hth_study_n_byte(p->layer), one = sizeof(float);
    tally t = {0};
    hth_network_form form = {.in = {.type = HTH_TYPE_F32,
                                    .n_row = net->rank,
                                    .n_col = net->d,
                                    .row_size = net->d * one,
                                    .data = (const uint8_t *)net->in},
                             .out = {.type = HTH_TYPE_F32,
                                     .n_row = net->d_ff,
                                     .n_col = net->rank,
                                     .row_size = net->rank * one,
                                     .data = (const uint8_t *)net->out},
                             .bias = net->bias};
    for (size_t first = 0; first < data->n_tok; first += HTH_TRAIN_BLOCK) {
        size_t left = data->n_tok - first, n = left < HTH_TRAIN_BLOCK ? left : HTH_TRAIN_BLOCK;
        if (!hth_train_is_held(first, data->n_tok)) continue;
        hth_network_scores(p->trainer, &form, data->input + first * data->d, n, p->scores);
        for (size_t i = 0; i < n; i++)
            evaluate_token(p, p->scores + i * data->d_ff, p->active + (first + i) * n_byte, &t);
    }
    return t;
}

/* ---- the layer ----------------------------------------------------------------------------------- */

static bool on_step(void *user, size_t i_step)
{
    predict_state *p = user;
    return i_step == 0 || i_step % PROGRESS_EVERY || hth_study_progress(p->s, PROGRESS_EVERY, &p->error) == HEARTH_OK;
}

static double ratio(uint64_t n, uint64_t of) { return of > 0 ? (double)n / (double)of : hth_study_nan(); }

static hearth_status try_rank(predict_state *p, uint32_t i_layer, uint32_t rank, hearth_error *err)
{
    hth_study_predictor *r = &p->layer->predictors[p->layer->n_predictor++];
    hth_network net;
    if (!hth_train(p->trainer, &p->data, rank, p->s->options->n_step, i_layer + 1, on_step, p, &net)) {
        if (err) *err = p->error;
        return p->error.status;
    }
    size_t n_told = (p->s->options->n_step - 1) / PROGRESS_EVERY * PROGRESS_EVERY;
    hearth_status st = hth_study_progress(p->s, p->s->options->n_step - n_told, err);
    if (st != HEARTH_OK) return st;
    tally t = evaluate(p, &net);
    r->rank = rank;
    r->size = hth_predictor_size((uint32_t)p->data.d, (uint32_t)p->data.d_ff, rank);
    r->share_of_network = share_of(p->s, i_layer, rank);
    r->recall_top_20 = ratio(t.hit_of_top, t.active);
    r->recall = ratio(t.hit, t.active);
    r->precision = ratio(t.hit, t.marked);
    r->sparsity = 1.0 - (double)t.marked / (double)t.n;
    return HEARTH_OK;
}

static hearth_status alloc_workspace(predict_state *p, uint32_t rank_max, hearth_error *err)
{
    hth_arena *a = &p->arena;
    size_t n = p->data.n_tok, d = p->data.d, d_ff = p->data.d_ff;
    p->input = hth_arena_alloc(a, n, d * sizeof *p->input, 64);
    p->active = hth_arena_alloc(a, n, hth_study_n_byte(p->layer), 64);
    p->scores = hth_arena_alloc(a, HTH_TRAIN_BLOCK, d_ff * sizeof *p->scores, 64);
    p->words = hth_arena_alloc(a, d_ff, sizeof *p->words, 64);
    p->data.input = p->input, p->data.fired = p->active;
    if (a->failed)
        return hth_fail_memory(err, n * d * sizeof *p->input, "training data of a predictor");
    return hth_trainer_open(&p->s->model->kernels, p->s->pool, d, d_ff, rank_max, &p->trainer, err);
}

hearth_status hth_study_predict(hth_study_state *s, uint32_t i_layer, uint32_t i_stream, hearth_error *err)
{
    predict_state p = {.s = s, .layer = &s->out->layers[i_layer]};
    uint32_t n_rank = hth_study_n_rank(s, i_layer);
    p.data = (hth_train_data){.n_tok = s->n_train, .d = d_of(s), .d_ff = p.layer->d_ff};
    hearth_status st = alloc_workspace(&p, RANK_MIN << (n_rank - 1), err);
    if (st == HEARTH_OK)
        st = hth_spill_get(s->input, i_stream, 0, p.input, p.data.n_tok * p.data.d * sizeof *p.input, err);
    if (st == HEARTH_OK)
        st = hth_spill_get(s->active, i_layer, 0, p.active, p.data.n_tok * hth_study_n_byte(p.layer), err);
    for (uint32_t i = 0; st == HEARTH_OK && i < n_rank; i++) st = try_rank(&p, i_layer, RANK_MIN << i, err);
    hth_trainer_close(p.trainer);
    hth_arena_free(&p.arena);
    return st;
}
