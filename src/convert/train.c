/* Trains one predictor. predictors.c and study/predictor_quality.c call it for a layer and a rank at a time. A
 * step goes over the neurons in blocks whose scores stay in a core's cache: the gradients of the scores update
 * the neurons' own weights at once, and are summed for the hidden units. */
#include "convert/train.h"

#include "base/alloc.h"
#include "base/bits.h"
#include "kernels/vector/math.h"
#include "sample/random.h"

#include <string.h>

/* NEURONS: of a block. N_GROUP: groups of blocks, whose sums are added in their order whichever thread computes
 * them. UNIT_*: tokens, hidden units and inputs of a unit of work; ranks are multiples of 32. Rows of a batch
 * are BATCH_ROW floats apart, because powers of two would map to few sets of a cache; rows of hidden units
 * have MORE floats between them for the same reason. */
enum {
    NEURONS = 64,
    N_GROUP = 16,
    UNIT_TOK = 32,
    UNIT_HIDDEN = 32,
    UNIT_IN = 64,
    BATCH_ROW = HTH_TRAIN_BATCH + 16,
    PAD = 16
};

/* Weights, and Adam's means of their gradients and of the squared gradients. */
typedef struct weights {
    float *w, *m, *v;
} weights;

struct hth_trainer {
    const hth_kernels *k;
    hth_pool *pool;
    size_t d, d_ff, rank_max;
    weights in;   /* [d][rank] */
    weights out;  /* [d_ff][rank] */
    weights bias; /* [d_ff], whole blocks */
    float *in_t;  /* [rank][d] transposed first matrix of the trained network */
    /* A batch of n tokens. */
    size_t *picked;    /* [n] */
    float *x;          /* [n][d] */
    float *h, *h_t;    /* [n][rank + MORE], [rank][BATCH_ROW] */
    float *parts;      /* [N_GROUP][rank][BATCH_ROW] gradient of the loss by h_t */
    float *dh;         /* [n][rank + MORE] their sum */
    float *scratch;    /* per thread */
    uint32_t *n_fired; /* [d_ff] */
    hth_act_q8 act_q8;
    uint8_t *memory;
    size_t size;
};

/* ---- workspace ------------------------------------------------------------------------------- */

typedef struct arena {
    uint8_t *memory;
    size_t used;
} arena;

static void *arena_alloc(arena *c, size_t n, size_t size)
{
    void *p = c->memory ? c->memory + c->used : NULL;
    c->used += (n * size + 63) & ~(size_t)63;
    return p;
}

static weights alloc_weights(arena *c, size_t n)
{
    weights w;
    w.w = arena_alloc(c, n, sizeof(float));
    w.m = arena_alloc(c, n, sizeof(float));
    w.v = arena_alloc(c, n, sizeof(float));
    return w;
}

/* Scores of a block, or inputs of a unit, and their gradients. */
static size_t scratch_of(const hth_trainer *t)
{
    size_t scores = NEURONS * BATCH_ROW, inputs = HTH_TRAIN_BATCH * UNIT_IN;
    size_t units = NEURONS > UNIT_IN ? NEURONS : UNIT_IN;
    return (scores > inputs ? scores : inputs) + units * t->rank_max + NEURONS;
}

/* Allocates the quantised activations that the evaluation of a network needs, whatever type its weights have. */
static void alloc_act_q8(arena *c, hth_trainer *t)
{
    size_t n = HTH_TRAIN_BATCH, one = sizeof(float), n_thread = hth_pool_n_thread(t->pool);
    size_t d_max = t->d > t->rank_max ? t->d : t->rank_max, n_block = d_max / HTH_ACT_BLOCK + 1;
    t->act_q8.q = arena_alloc(c, n * d_max, 1);
    t->act_q8.d = arena_alloc(c, n * n_block, one);
    t->act_q8.sum = arena_alloc(c, n * n_block, sizeof(int32_t));
    t->act_q8.tiles.x = arena_alloc(c, hth_n_tiled(n) * d_max, one);
    t->act_q8.tiles.q = arena_alloc(c, hth_n_tiled(n) * d_max, 1);
    t->act_q8.tiles.d = arena_alloc(c, hth_n_tiled(n) * n_block, one);
    t->act_q8.tiles.offset = arena_alloc(c, hth_n_tiled(n) * n_block, sizeof(int32_t));
    t->act_q8.part = arena_alloc(c, n_thread * HTH_PRODUCT_SCRATCH, one);
    t->act_q8.work = arena_alloc(c, n_thread * HTH_PANEL_WORK, 1);
}

static void alloc_all(arena *c, hth_trainer *t)
{
    size_t n = HTH_TRAIN_BATCH, r = t->rank_max, one = sizeof(float);
    t->in = alloc_weights(c, t->d * r);
    t->out = alloc_weights(c, t->d_ff * r);
    t->bias = alloc_weights(c, (t->d_ff + NEURONS - 1) / NEURONS * NEURONS);
    t->in_t = arena_alloc(c, r * t->d, one);
    t->picked = arena_alloc(c, n, sizeof *t->picked);
    t->x = arena_alloc(c, n * t->d, one);
    t->h = arena_alloc(c, n * (r + PAD), one), t->h_t = arena_alloc(c, r * BATCH_ROW, one);
    t->parts = arena_alloc(c, N_GROUP * r * BATCH_ROW, one);
    t->dh = arena_alloc(c, n * (r + PAD), one);
    t->scratch = arena_alloc(c, hth_pool_n_thread(t->pool) * scratch_of(t), one);
    t->n_fired = arena_alloc(c, t->d_ff, sizeof *t->n_fired);
    alloc_act_q8(c, t);
}

hearth_status hth_trainer_open(const hth_kernels *k, hth_pool *pool, size_t d, size_t d_ff, size_t rank_max,
                               hth_trainer **out, hearth_error *err)
{
    arena c = {0};
    *out = NULL;
    hth_trainer *t = hth_alloc(1, sizeof *t);
    if (!t) return hth_fail_memory(err, sizeof *t, "a trainer");
    *t = (hth_trainer){.k = k, .pool = pool, .d = d, .d_ff = d_ff, .rank_max = rank_max};
    alloc_all(&c, t);
    t->size = c.used;
    t->memory = hth_pages_alloc(t->size);
    if (!t->memory) {
        hth_free(t);
        return hth_fail_memory(err, c.used, "the training of a predictor");
    }
    c = (arena){.memory = t->memory};
    alloc_all(&c, t);
    *out = t;
    return HEARTH_OK;
}

void hth_trainer_close(hth_trainer *t)
{
    if (!t) return;
    hth_pool_quiesce(t->pool);
    hth_pages_free(t->memory, t->size);
    hth_free(t);
}

/* ---- a step ---------------------------------------------------------------------------------------- */

typedef struct batch {
    hth_trainer *t;
    const hth_train_data *data;
    size_t n, rank;
    hth_adam adam;
} batch;

static float *scratch_for(const hth_trainer *t, uint32_t i_thread)
{
    return t->scratch + i_thread * scratch_of(t);
}

static void update(const batch *b, const weights *w, size_t first, const float *gradient, size_t n)
{
    b->t->k->adam(&b->adam, gradient, n, w->w + first, w->m + first, w->v + first);
}

/* Computes the hidden units of some tokens, in both orders. */
static void hidden_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    const batch *b = arg;
    hth_trainer *t = b->t;
    size_t first = i_unit * UNIT_TOK, left = b->n - first, n = left < UNIT_TOK ? left : UNIT_TOK;
    size_t row = b->rank + PAD;
    (void)i_thread;
    for (size_t i = first; i < first + n; i++)
        memcpy(t->x + i * t->d, b->data->input + t->picked[i] * t->d, t->d * sizeof *t->x);
    t->k->gemm(&(hth_gemm){.fused = true,
                           .a = t->x + first * t->d,
                           .a_row = t->d,
                           .a_col = 1,
                           .b = t->in.w,
                           .b_row = b->rank,
                           .y = t->h + first * row,
                           .y_row = row,
                           .n_row = n,
                           .n_col = b->rank,
                           .n_in = t->d});
    for (size_t i = first; i < first + n; i++)
        for (size_t r = 0; r < b->rank; r++) {
            float *h = &t->h[i * row + r];
            *h = *h > 0.0f ? *h : 0.0f;
            t->h_t[r * BATCH_ROW + i] = *h;
        }
}

/* Replaces the scores s[n_neuron][BATCH_ROW] of neurons from `first` on by the gradient of the loss, which is
 * (probability - fired) / n. sums[NEURONS]: gradient by the biases. */
static void score(const batch *b, size_t first, size_t n_neuron, float *s, float *sums)
{
    const hth_trainer *t = b->t;
    size_t n_wide = (b->n + 15) / 16 * 16, n_byte = (t->d_ff + 7) / 8;
    t->k->gemm(&(hth_gemm){.fused = true,
                           .a = t->out.w + first * b->rank,
                           .a_row = b->rank,
                           .a_col = 1,
                           .b = t->h_t,
                           .b_row = BATCH_ROW,
                           .y = s,
                           .y_row = BATCH_ROW,
                           .n_row = n_neuron,
                           .n_col = n_wide,
                           .n_in = b->rank});
    for (size_t j = 0; j < n_neuron; j++)
        t->k->logistic(s + j * BATCH_ROW, t->bias.w[first + j], n_wide, s + j * BATCH_ROW);
    for (size_t i = 0; i < b->n; i++) {
        const uint8_t *fired = b->data->fired + t->picked[i] * n_byte + first / 8;
        for (size_t j = 0; j < n_neuron; j += 8)
            for (unsigned bits = fired[j / 8]; bits; bits &= bits - 1)
                s[(j + (size_t)__builtin_ctz(bits)) * BATCH_ROW + i] -= 1.0f;
    }
    memset(sums, 0, NEURONS * sizeof *sums);
    for (size_t j = 0; j < n_neuron; j++) {
        float *row = s + j * BATCH_ROW, part[8] = {0};
        t->k->scale(row, 1.0f / (float)b->n, b->n, row);
        for (size_t i = 0; i < b->n; i++) part[i % 8] += row[i];
        sums[j] = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
    }
}

/* Computes for the blocks of neurons of one group their part of the gradient by h_t, then updates their weights. */
static void group_unit(void *arg, size_t i_group, uint32_t i_thread)
{
    const batch *b = arg;
    hth_trainer *t = b->t;
    float *s = scratch_for(t, i_thread), *gradient = s + NEURONS * BATCH_ROW,
          *sums = gradient + NEURONS * b->rank;
    size_t n_block = (t->d_ff + NEURONS - 1) / NEURONS;
    size_t i_block = i_group * n_block / N_GROUP, end = (i_group + 1) * n_block / N_GROUP;
    hth_gemm to_hidden = {.fused = true,
                          .a = t->out.w,
                          .a_row = 1,
                          .a_col = b->rank,
                          .b = s,
                          .b_row = BATCH_ROW,
                          .y = t->parts + i_group * b->rank * BATCH_ROW,
                          .y_row = BATCH_ROW,
                          .n_row = b->rank,
                          .n_col = (b->n + 15) / 16 * 16};
    if (i_block == end) t->k->gemm(&to_hidden); /* no neurons: zeros */
    for (; i_block < end; i_block++) {
        size_t first = i_block * NEURONS, left = t->d_ff - first, n = left < NEURONS ? left : NEURONS;
        score(b, first, n, s, sums);
        to_hidden.a = t->out.w + first * b->rank, to_hidden.n_in = n;
        t->k->gemm(&to_hidden);
        to_hidden.more = true;
        t->k->gemm(&(hth_gemm){.fused = true,
                               .a = s,
                               .a_row = BATCH_ROW,
                               .a_col = 1,
                               .b = t->h,
                               .b_row = b->rank + PAD,
                               .y = gradient,
                               .y_row = b->rank,
                               .n_row = n,
                               .n_col = b->rank,
                               .n_in = b->n});
        update(b, &t->out, first * b->rank, gradient, n * b->rank);
        update(b, &t->bias, first, sums, NEURONS);
    }
}

/* Gradient by some hidden units, token by token: zero where the unit is not active. */
static void back_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    const batch *b = arg;
    const hth_trainer *t = b->t;
    size_t size = b->rank * BATCH_ROW, row = b->rank + PAD;
    (void)i_thread;
    for (size_t r = i_unit * UNIT_HIDDEN; r < (i_unit + 1) * UNIT_HIDDEN; r++) {
        float *sum = t->parts + r * BATCH_ROW;
        for (size_t g = 1; g < N_GROUP; g++) t->k->add(sum, sum + g * size, b->n, sum);
        for (size_t i = 0; i < b->n; i++) t->dh[i * row + r] = t->h[i * row + r] > 0.0f ? sum[i] : 0.0f;
    }
}

/* Updates the weights of some inputs. */
static void input_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    const batch *b = arg;
    const hth_trainer *t = b->t;
    size_t first = i_unit * UNIT_IN, left = t->d - first, n = left < UNIT_IN ? left : UNIT_IN;
    float *x = scratch_for(t, i_thread), *gradient = x + HTH_TRAIN_BATCH * UNIT_IN;
    for (size_t i = 0; i < b->n; i++) memcpy(x + i * UNIT_IN, t->x + i * t->d + first, n * sizeof *x);
    t->k->gemm(&(hth_gemm){.fused = true,
                           .a = x,
                           .a_row = 1,
                           .a_col = UNIT_IN,
                           .b = t->dh,
                           .b_row = b->rank + PAD,
                           .y = gradient,
                           .y_row = b->rank,
                           .n_row = n,
                           .n_col = b->rank,
                           .n_in = b->n});
    update(b, &t->in, first * b->rank, gradient, n * b->rank);
}

static void make_step(batch *b, size_t i_step, float rate)
{
    hth_trainer *t = b->t;
    double step = (double)i_step + 1.0;
    b->adam = (hth_adam){.keep_m = 0.9f,
                         .keep_v = 0.99f,
                         .correct_m = (float)(1.0 / (1.0 - hth_pow_d(0.9, step))),
                         .correct_v = (float)(1.0 / (1.0 - hth_pow_d(0.99, step))),
                         .rate = rate};
    hth_pool_run(t->pool, hidden_unit, b, (b->n + UNIT_TOK - 1) / UNIT_TOK);
    hth_pool_run(t->pool, group_unit, b, N_GROUP);
    hth_pool_run(t->pool, back_unit, b, b->rank / UNIT_HIDDEN);
    hth_pool_run(t->pool, input_unit, b, (t->d + UNIT_IN - 1) / UNIT_IN);
}

/* ---- training ---------------------------------------------------------------------------------------- */

static float next_even(hth_sample_random *r) { return (float)(2.0 * hth_sample_random_unit(r) - 1.0); }

static void begin_weights(const weights *w, size_t n, float size, hth_sample_random *random)
{
    for (size_t i = 0; i < n; i++) w->w[i] = size * next_even(random);
    memset(w->m, 0, n * sizeof *w->m);
    memset(w->v, 0, n * sizeof *w->v);
}

/* Each is the log-odds of its neuron, the prediction of a network without inputs. */
static void begin_bias(hth_trainer *t, const hth_train_data *data, size_t n_own)
{
    size_t n_byte = (t->d_ff + 7) / 8, n = (t->d_ff + NEURONS - 1) / NEURONS * NEURONS;
    memset(t->n_fired, 0, t->d_ff * sizeof *t->n_fired);
    for (size_t i = 0; i < data->n_tok; i++) {
        const uint8_t *fired = data->fired + i * n_byte;
        if (hth_train_is_held(i, data->n_tok)) continue;
        for (size_t j = 0; j < t->d_ff; j++) t->n_fired[j] += hth_bit_at(fired, j);
    }
    memset(t->bias.w, 0, n * sizeof *t->bias.w);
    memset(t->bias.m, 0, n * sizeof *t->bias.m);
    memset(t->bias.v, 0, n * sizeof *t->bias.v);
    for (size_t j = 0; j < t->d_ff; j++) {
        double p = ((double)t->n_fired[j] + 0.5) / ((double)n_own + 1.0);
        t->bias.w[j] = (float)hth_log_d(p / (1.0 - p));
    }
}

/* Small random matrices. */
static void begin(hth_trainer *t, const hth_train_data *data, size_t rank, hth_sample_random *random)
{
    double squares = 0.0;
    size_t n_own = 0; /* tokens to train on; held-out tokens must not be used */
    for (size_t i = 0; i < data->n_tok; i++) {
        if (hth_train_is_held(i, data->n_tok)) continue;
        n_own++;
        for (size_t c = i * t->d; c < (i + 1) * t->d; c++)
            squares += (double)data->input[c] * (double)data->input[c];
    }
    double rms = hth_sqrt_d(squares / (double)(n_own * t->d));
    rms = rms > 1e-4 ? rms : 1e-4; /* also for inputs that are all zero: weights must fit F16 */
    begin_weights(&t->in, t->d * rank, (float)(1.7320508 / (rms * hth_sqrt_d((double)t->d))), random);
    begin_weights(&t->out, t->d_ff * rank, (float)(1.7320508 / hth_sqrt_d((double)rank)), random);
    begin_bias(t, data, n_own);
}

static void pick_batch(hth_trainer *t, const hth_train_data *data, hth_sample_random *random, size_t n)
{
    for (size_t i = 0; i < n; i++) do
            t->picked[i] = (size_t)(hth_sample_random_unit(random) * (double)data->n_tok);
        while (hth_train_is_held(t->picked[i], data->n_tok));
}

bool hth_train(hth_trainer *t, const hth_train_data *data, size_t rank, size_t n_step, uint64_t seed,
               hth_train_progress_fn *progress, void *user, hth_network *out)
{
    batch b = {.t = t, .data = data, .rank = rank};
    b.n = data->n_tok < HTH_TRAIN_BATCH ? data->n_tok : HTH_TRAIN_BATCH;
    hth_sample_random random;
    hth_sample_random_seed(&random, seed);
    begin(t, data, rank, &random);
    for (size_t i = 0; i < n_step; i++) {
        if (progress && !progress(user, i)) return false;
        double left = 1.0 - (double)i / (double)n_step; /* the rate falls quadratically to a fiftieth */
        pick_batch(t, data, &random, b.n);
        make_step(&b, i, (float)(4e-3 * (left * left + 0.02)));
    }
    for (size_t c = 0; c < t->d; c++)
        for (size_t r = 0; r < rank; r++) t->in_t[r * t->d + c] = t->in.w[c * rank + r];
    *out = (hth_network){rank, t->d, t->d_ff, t->in_t, t->out.w, t->bias.w};
    return true;
}

/* ---- evaluation ---------------------------------------------------------------------------------------- */

void hth_network_scores(hth_trainer *t, const hth_network_form *f, const float *input, size_t n_tok,
                        float *scores)
{
    hth_output in = {.matrix = &f->in, .y = t->h}, out = {.matrix = &f->out, .bias = f->bias, .y = scores};
    hth_product(t->k, t->pool, &t->act_q8, input, n_tok, &in, 1);
    for (size_t i = 0; i < n_tok * f->in.n_row; i++) t->h[i] = t->h[i] > 0.0f ? t->h[i] : 0.0f;
    hth_product(t->k, t->pool, &t->act_q8, t->h, n_tok, &out, 1);
    hth_pool_quiesce(t->pool); /* the caller may free the network */
}
