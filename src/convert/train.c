/* Training of one predictor. Called by predictors.c and study/predict.c, a layer and a rank at a time. Matrix products
 * are those of the engine, over floats; what a step needs of both orders of a matrix is transposed. */
#include "convert/train.h"

#include "base/alloc.h"
#include "base/bits.h"
#include "base/checked.h"
#include "kernels/math.h"
#include "sample/random.h"

#include <string.h>

struct hth_trainer {
    const hth_kernels *k;
    hth_pool *pool;
    size_t d, d_ff, rank_max;
    hth_rounding rounding;
    /* the network, and both orders of its matrices */
    float *in, *in_t;   /* [rank][d], [d][rank] */
    float *out, *out_t; /* [d_ff][rank], [rank][d_ff] */
    float *bias;
    /* Adam's means of gradients and of their squares, in the order of in_t, out_t, bias */
    float *in_m, *in_v, *out_m, *out_v, *bias_m, *bias_v;
    /* of a batch */
    size_t *picked; /* [HTH_TRAIN_BATCH] tokens */
    float *x, *x_t; /* [n][d], [d][n] */
    float *h, *h_t; /* [n][rank], before relu, then after */
    float *s, *s_t; /* [n][d_ff] scores, then what the loss says of them */
    float *dh, *dh_t;
    float *d_in, *d_out; /* gradients, as in_t and out_t */
    uint8_t *memory;
    size_t size;
};

/* ---- the workspace --------------------------------------------------------------------------- */

typedef struct cutter {
    uint8_t *memory;
    size_t used;
} cutter;

static void *cut(cutter *c, size_t n, size_t size)
{
    void *p = c->memory ? c->memory + c->used : NULL;
    c->used += (n * size + 63) & ~(size_t)63;
    return p;
}

static void cut_all(cutter *c, hth_trainer *t)
{
    size_t n = HTH_TRAIN_BATCH, r = t->rank_max, d = t->d, f = t->d_ff, one = sizeof(float);
    size_t widest = d > f ? d : f, most = d > n ? d : n; /* columns; tokens of a product */
    widest = widest > n ? widest : n;
    widest = widest > r ? widest : r;
    size_t n_thread = hth_pool_n_thread(t->pool), n_tiled = hth_n_tiled(most > r ? most : r);
    t->in = cut(c, r * d, one), t->in_t = cut(c, r * d, one);
    t->out = cut(c, r * f, one), t->out_t = cut(c, r * f, one);
    t->bias = cut(c, f, one);
    t->in_m = cut(c, r * d, one), t->in_v = cut(c, r * d, one);
    t->out_m = cut(c, r * f, one), t->out_v = cut(c, r * f, one);
    t->bias_m = cut(c, f, one), t->bias_v = cut(c, f, one);
    t->picked = cut(c, n, sizeof *t->picked);
    t->x = cut(c, n * d, one), t->x_t = cut(c, n * d, one);
    t->h = cut(c, n * r, one), t->h_t = cut(c, n * r, one);
    t->s = cut(c, n * f, one), t->s_t = cut(c, n * f, one);
    t->dh = cut(c, n * r, one), t->dh_t = cut(c, n * r, one);
    t->d_in = cut(c, r * d, one), t->d_out = cut(c, r * f, one);
    t->rounding.tiles.x = cut(c, n_tiled * widest, one);
    /* networks in Q8_0 are evaluated too */
    t->rounding.q = cut(c, n * widest, 1);
    t->rounding.d = cut(c, n * (widest / HTH_ACT_BLOCK + 1), one);
    t->rounding.sum = cut(c, n * (widest / HTH_ACT_BLOCK + 1), sizeof(int32_t));
    t->rounding.tiles.q = cut(c, hth_n_tiled(n) * widest, 1);
    t->rounding.tiles.d = cut(c, hth_n_tiled(n) * (widest / HTH_ACT_BLOCK + 1), one);
    t->rounding.tiles.offset = cut(c, hth_n_tiled(n) * (widest / HTH_ACT_BLOCK + 1), sizeof(int32_t));
    t->rounding.part = cut(c, n_thread * HTH_PRODUCT_PART, one);
    t->rounding.work = cut(c, n_thread * HTH_PANEL_WORK, 1);
}

hearth_status hth_trainer_open(const hth_kernels *k, hth_pool *pool, size_t d, size_t d_ff, size_t rank_max,
                               hth_trainer **out, hearth_error *err)
{
    cutter c = {0};
    *out = NULL;
    hth_trainer *t = hth_alloc(1, sizeof *t);
    if (!t) return hth_fail_memory(err, sizeof *t, "a trainer");
    *t = (hth_trainer){.k = k, .pool = pool, .d = d, .d_ff = d_ff, .rank_max = rank_max};
    cut_all(&c, t);
    t->size = c.used;
    t->memory = hth_pages_alloc(t->size);
    if (!t->memory) {
        hth_free(t);
        return hth_fail_memory(err, c.used, "the training of a predictor");
    }
    c = (cutter){.memory = t->memory};
    cut_all(&c, t);
    *out = t;
    return HEARTH_OK;
}

void hth_trainer_close(hth_trainer *t)
{
    if (!t) return;
    hth_pool_settle(t->pool);
    hth_pages_free(t->memory, t->size);
    hth_free(t);
}

/* ---- products ----------------------------------------------------------------------------------- */

/* y[n_tok][n_row] = x[n_tok][n_col] times rows w[n_row][n_col]. */
static void multiply(hth_trainer *t, const float *w, size_t n_row, size_t n_col, const float *x, size_t n_tok,
                     float *y)
{
    hth_matrix m = {.type = HTH_TYPE_F32,
                    .n_row = n_row,
                    .n_col = n_col,
                    .row_size = n_col * sizeof *w,
                    .data = (const uint8_t *)w};
    hth_output out = {.matrix = &m, .y = y};
    hth_product(t->k, t->pool, &t->rounding, x, n_tok, &out, 1);
    hth_pool_settle(t->pool); /* m is gone when this returns */
}

typedef struct transposing {
    const float *from;
    float *to;
    size_t n_row, n_col;
} transposing;

enum { TURN = 32 };

/* Some columns of from[n_row][n_col] become rows of to. */
static void transpose_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    const transposing *job = arg;
    size_t first = i_unit * TURN, end = first + TURN < job->n_col ? first + TURN : job->n_col;
    (void)i_thread;
    for (size_t r0 = 0; r0 < job->n_row; r0 += TURN)
        for (size_t c = first; c < end; c++)
            for (size_t r = r0; r < r0 + TURN && r < job->n_row; r++)
                job->to[c * job->n_row + r] = job->from[r * job->n_col + c];
}

static void transpose(hth_trainer *t, const float *from, size_t n_row, size_t n_col, float *to)
{
    transposing job = {from, to, n_row, n_col};
    hth_pool_run(t->pool, transpose_unit, &job, (n_col + TURN - 1) / TURN);
}

/* ---- a step ---------------------------------------------------------------------------------------- */

typedef struct batch {
    hth_trainer *t;
    const hth_train_data *data;
    size_t n, rank;
} batch;

/* Row i of the scores becomes the gradient of the loss: (probability - fired) / n. */
static void score_row(void *arg, size_t i, uint32_t i_thread)
{
    const batch *b = arg;
    const hth_trainer *t = b->t;
    float *s = t->s + i * t->d_ff, scale = 1.0f / (float)b->n;
    const uint8_t *fired = b->data->fired + t->picked[i] * ((t->d_ff + 7) / 8);
    (void)i_thread;
    t->k->add(s, t->bias, t->d_ff, s);
    for (size_t j = 0; j < t->d_ff; j++) s[j] = -s[j];
    t->k->exp(s, t->d_ff, s);
    for (size_t j = 0; j < t->d_ff; j++) {
        float y = (float)hth_bit_at(fired, j);
        s[j] = (1.0f / (1.0f + s[j]) - y) * scale;
    }
}

/* Adam's move of n parameters along their gradients. */
typedef struct moving {
    const hth_kernels *k;
    float *p, *m, *v;
    const float *gradient;
    float rate, correct_m, correct_v;
    size_t n;
} moving;

enum { MOVE_UNIT = 2048 };

static void move_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    const moving *w = arg;
    float size[MOVE_UNIT] = {0};
    size_t first = i_unit * MOVE_UNIT, n = w->n - first < MOVE_UNIT ? w->n - first : MOVE_UNIT;
    float *p = w->p + first, *m = w->m + first, *v = w->v + first;
    const float *g = w->gradient + first;
    (void)i_thread;
    for (size_t i = 0; i < n; i++) {
        m[i] = 0.9f * m[i] + 0.1f * g[i];
        v[i] = 0.99f * v[i] + 0.01f * (g[i] * g[i]);
        size[i] = v[i] * w->correct_v + 1e-16f;
    }
    w->k->rsqrt(size, n, size);
    for (size_t i = 0; i < n; i++) p[i] -= w->rate * (m[i] * w->correct_m) * size[i];
}

static void move(hth_trainer *t, float *p, float *m, float *v, const float *gradient, size_t n, float rate,
                 size_t step)
{
    double of_m = 1.0 - hth_pow_d(0.9, (double)step + 1.0), of_v = 1.0 - hth_pow_d(0.99, (double)step + 1.0);
    moving w = {t->k, p, m, v, gradient, rate, (float)(1.0 / of_m), (float)(1.0 / of_v), n};
    hth_pool_run(t->pool, move_unit, &w, (n + MOVE_UNIT - 1) / MOVE_UNIT);
}

static void relu(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = x[i] > 0.0f ? x[i] : 0.0f;
}

/* Gradients of out_t, in_t and, in s_t's first row, of the bias. */
static void find_gradients(batch *b)
{
    hth_trainer *t = b->t;
    size_t n = b->n, r = b->rank;
    for (size_t i = 0; i < n; i++)
        memcpy(t->x + i * t->d, b->data->input + t->picked[i] * t->d, t->d * sizeof *t->x);
    multiply(t, t->in, r, t->d, t->x, n, t->h);
    relu(t->h, n * r);
    multiply(t, t->out, t->d_ff, r, t->h, n, t->s);
    hth_pool_run(t->pool, score_row, b, n);
    multiply(t, t->out_t, r, t->d_ff, t->s, n, t->dh);
    for (size_t i = 0; i < n * r; i++) t->dh[i] = t->h[i] > 0.0f ? t->dh[i] : 0.0f;
    transpose(t, t->s, n, t->d_ff, t->s_t);
    transpose(t, t->h, n, r, t->h_t);
    multiply(t, t->s_t, t->d_ff, n, t->h_t, r, t->d_out);
    transpose(t, t->x, n, t->d, t->x_t);
    transpose(t, t->dh, n, r, t->dh_t);
    multiply(t, t->dh_t, r, n, t->x_t, t->d, t->d_in);
    for (size_t j = 0; j < t->d_ff; j++) { /* the bias sees each row of s_t whole */
        float sum = 0.0f;
        for (size_t i = 0; i < n; i++) sum += t->s_t[j * n + i];
        t->s[j] = sum;
    }
}

static void make_step(batch *b, size_t i_step, float rate)
{
    hth_trainer *t = b->t;
    size_t r = b->rank;
    find_gradients(b);
    move(t, t->in_t, t->in_m, t->in_v, t->d_in, t->d * r, rate, i_step);
    move(t, t->out_t, t->out_m, t->out_v, t->d_out, r * t->d_ff, rate, i_step);
    move(t, t->bias, t->bias_m, t->bias_v, t->s, t->d_ff, rate, i_step);
    transpose(t, t->in_t, t->d, r, t->in);
    transpose(t, t->out_t, r, t->d_ff, t->out);
}

/* ---- training ---------------------------------------------------------------------------------------- */

static float next_even(hth_sample_random *r) { return (float)(2.0 * hth_sample_random_unit(r) - 1.0); }

/* Small random matrices; each bias the log-odds of its neuron, which is what a network without inputs
 * would say. */
static void begin(hth_trainer *t, const hth_train_data *data, size_t rank, hth_sample_random *random)
{
    double squares = 0.0;
    size_t n_own = 0; /* tokens to train on: the others may not be seen */
    for (size_t i = 0; i < data->n_tok; i++) {
        if (hth_train_is_held(i, data->n_tok)) continue;
        n_own++;
        for (size_t c = i * t->d; c < (i + 1) * t->d; c++)
            squares += (double)data->input[c] * (double)data->input[c];
    }
    double rms = hth_sqrt_d(squares / (double)(n_own * t->d));
    rms = rms > 1e-4 ? rms : 1e-4; /* of inputs that are all zero too: weights fit into halves */
    float in_size = (float)(1.7320508 / (rms * hth_sqrt_d((double)t->d)));
    float out_size = (float)(1.7320508 / hth_sqrt_d((double)rank));
    for (size_t i = 0; i < t->d * rank; i++) t->in_t[i] = in_size * next_even(random);
    for (size_t i = 0; i < rank * t->d_ff; i++) t->out_t[i] = out_size * next_even(random);
    for (size_t j = 0; j < t->d_ff; j++) {
        size_t n = 0;
        for (size_t i = 0; i < data->n_tok; i++)
            if (!hth_train_is_held(i, data->n_tok)) n += hth_bit_at(data->fired + i * ((t->d_ff + 7) / 8), j);
        double p = ((double)n + 0.5) / ((double)n_own + 1.0);
        t->bias[j] = (float)hth_log_d(p / (1.0 - p));
    }
    memset(t->in_m, 0, t->d * rank * sizeof *t->in_m), memset(t->in_v, 0, t->d * rank * sizeof *t->in_v);
    memset(t->out_m, 0, t->d_ff * rank * sizeof *t->out_m),
        memset(t->out_v, 0, t->d_ff * rank * sizeof *t->out_v);
    memset(t->bias_m, 0, t->d_ff * sizeof *t->bias_m), memset(t->bias_v, 0, t->d_ff * sizeof *t->bias_v);
    transpose(t, t->in_t, t->d, rank, t->in);
    transpose(t, t->out_t, rank, t->d_ff, t->out);
}

static void pick_batch(hth_trainer *t, const hth_train_data *data, hth_sample_random *random, size_t n)
{
    for (size_t i = 0; i < n; i++) do
            t->picked[i] = (size_t)(hth_sample_random_unit(random) * (double)data->n_tok);
        while (hth_train_is_held(t->picked[i], data->n_tok));
}

bool hth_train(hth_trainer *t, const hth_train_data *data, size_t rank, size_t n_step, uint64_t seed,
               hth_train_look *look, void *user, hth_network *out)
{
    batch b = {t, data, data->n_tok < HTH_TRAIN_BATCH ? data->n_tok : HTH_TRAIN_BATCH, rank};
    hth_sample_random random;
    hth_sample_random_seed(&random, seed);
    begin(t, data, rank, &random);
    for (size_t i = 0; i < n_step; i++) {
        if (look && !look(user, i)) return false;
        double left = 1.0 - (double)i / (double)n_step; /* the rate falls to a fiftieth, quadratically */
        pick_batch(t, data, &random, b.n);
        make_step(&b, i, (float)(4e-3 * (left * left + 0.02)));
    }
    *out = (hth_network){rank, t->d, t->d_ff, t->in, t->out, t->bias};
    return true;
}

void hth_network_scores(hth_trainer *t, const hth_network_form *f, const float *input, size_t n_tok,
                        float *scores)
{
    hth_output in = {.matrix = &f->in, .y = t->h}, out = {.matrix = &f->out, .bias = f->bias, .y = scores};
    hth_product(t->k, t->pool, &t->rounding, input, n_tok, &in, 1);
    relu(t->h, n_tok * f->in.n_row);
    hth_product(t->k, t->pool, &t->rounding, t->h, n_tok, &out, 1);
    hth_pool_settle(t->pool); /* the caller may give the form back */
}
