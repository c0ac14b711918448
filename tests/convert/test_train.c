/* Training against the same steps in double, written out naively: every weight of every matrix, for shapes that
 * fill blocks and groups of neurons, and for those that do not. */
#include "convert/train.h"
#include "base/bits.h"
#include "sample/random.h"
#include "support/kernels/proof.h"
#include "support/test.h"

enum { N_STEP = 3, SEED = 9 };

typedef struct shape {
    size_t d, d_ff, rank, n_tok;
} shape;

/* ---- data that can be learnt ------------------------------------------------------------------- */

typedef struct task {
    shape s;
    float *input;
    uint8_t *fired;
} task;

static task make_task(const shape *s, test_random *r)
{
    size_t n_byte = (s->d_ff + 7) / 8;
    task t = {*s, calloc(s->n_tok * s->d, sizeof(float)), calloc(s->n_tok, n_byte)};
    for (size_t i = 0; i < s->n_tok * s->d; i++) t.input[i] = 1.4f * test_random_float(r);
    for (size_t i = 0; i < s->n_tok; i++)
        for (size_t j = 0; j < s->d_ff; j++) {
            const float *x = t.input + i * s->d;
            bool fires = x[j % s->d] + x[(j * 7 + 3) % s->d] > 1.0f;
            t.fired[i * n_byte + j / 8] |= (uint8_t)(fires << j % 8);
        }
    return t;
}

static hth_train_data data_of(const task *t)
{
    return (hth_train_data){t->input, t->fired, t->s.n_tok, t->s.d, t->s.d_ff};
}

static void free_task(task *t)
{
    free(t->input);
    free(t->fired);
}

/* ---- the same in double ---------------------------------------------------------------------------- */

/* [n] weights, their gradient, and Adam's means. */
typedef struct tensor {
    size_t n;
    double *w, *g, *m, *v;
} tensor;

typedef struct naive {
    const task *t;
    hth_sample_random random;
    tensor in, out, bias; /* [rank][d], [d_ff][rank], [d_ff] */
    size_t n, *picked;    /* tokens of a step */
    double *h, *s;        /* [n][rank], [n][d_ff] */
} naive;

static tensor make_tensor(size_t n)
{
    double *all = calloc(4 * n, sizeof *all);
    return (tensor){n, all, all + n, all + 2 * n, all + 3 * n};
}

static unsigned fires(const naive *x, size_t i_tok, size_t j)
{
    return hth_bit_at(x->t->fired + i_tok * ((x->t->s.d_ff + 7) / 8), j);
}

static double even(naive *x) { return (double)(float)(2.0 * hth_sample_random_unit(&x->random) - 1.0); }

static void begin(naive *x)
{
    const shape *s = &x->t->s;
    double squares = 0.0;
    size_t n_own = 0;
    for (size_t i = 0; i < s->n_tok; i++) {
        if (hth_train_is_held(i, s->n_tok)) continue;
        n_own++;
        for (size_t c = 0; c < s->d; c++) squares += pow((double)x->t->input[i * s->d + c], 2);
    }
    double in_size = 1.7320508 / (sqrt(squares / (double)(n_own * s->d)) * sqrt((double)s->d));
    for (size_t c = 0; c < s->d; c++)
        for (size_t r = 0; r < s->rank; r++) x->in.w[r * s->d + c] = in_size * even(x);
    for (size_t i = 0; i < x->out.n; i++) x->out.w[i] = 1.7320508 / sqrt((double)s->rank) * even(x);
    for (size_t j = 0; j < s->d_ff; j++) {
        double n = 0.5;
        for (size_t i = 0; i < s->n_tok; i++) n += !hth_train_is_held(i, s->n_tok) && fires(x, i, j);
        x->bias.w[j] = log(n / ((double)n_own + 1.0 - n));
    }
}

static void find_scores(naive *x)
{
    const shape *s = &x->t->s;
    for (size_t i = 0; i < x->n; i++) {
        for (size_t r = 0; r < s->rank; r++) {
            double sum = 0.0;
            for (size_t c = 0; c < s->d; c++)
                sum += (double)x->t->input[x->picked[i] * s->d + c] * x->in.w[r * s->d + c];
            x->h[i * s->rank + r] = sum > 0.0 ? sum : 0.0;
        }
        for (size_t j = 0; j < s->d_ff; j++) {
            double sum = x->bias.w[j];
            for (size_t r = 0; r < s->rank; r++) sum += x->h[i * s->rank + r] * x->out.w[j * s->rank + r];
            x->s[i * s->d_ff + j] = (1.0 / (1.0 + exp(-sum)) - (double)fires(x, x->picked[i], j)) / (double)x->n;
        }
    }
}

static void find_gradients(naive *x)
{
    const shape *s = &x->t->s;
    memset(x->in.g, 0, x->in.n * sizeof(double));
    memset(x->out.g, 0, x->out.n * sizeof(double));
    memset(x->bias.g, 0, x->bias.n * sizeof(double));
    for (size_t i = 0; i < x->n; i++) {
        const double *h = x->h + i * s->rank, *of_score = x->s + i * s->d_ff;
        for (size_t j = 0; j < s->d_ff; j++) {
            x->bias.g[j] += of_score[j];
            for (size_t r = 0; r < s->rank; r++) x->out.g[j * s->rank + r] += of_score[j] * h[r];
        }
        for (size_t r = 0; r < s->rank; r++) {
            double of_h = 0.0;
            for (size_t j = 0; h[r] > 0.0 && j < s->d_ff; j++) of_h += of_score[j] * x->out.w[j * s->rank + r];
            for (size_t c = 0; c < s->d; c++)
                x->in.g[r * s->d + c] += of_h * (double)x->t->input[x->picked[i] * s->d + c];
        }
    }
}

static void move(tensor *t, int step, double rate)
{
    for (size_t i = 0; i < t->n; i++) {
        t->m[i] = 0.9 * t->m[i] + 0.1 * t->g[i];
        t->v[i] = 0.99 * t->v[i] + 0.01 * t->g[i] * t->g[i];
        double mean = t->m[i] / (1.0 - pow(0.9, step)), square = t->v[i] / (1.0 - pow(0.99, step));
        t->w[i] -= rate * mean / sqrt(square + 1e-16);
    }
}

static naive train_naively(const task *t)
{
    naive x = {.t = t, .n = t->s.n_tok < HTH_TRAIN_BATCH ? t->s.n_tok : HTH_TRAIN_BATCH};
    x.in = make_tensor(t->s.rank * t->s.d);
    x.out = make_tensor(t->s.d_ff * t->s.rank);
    x.bias = make_tensor(t->s.d_ff);
    x.picked = calloc(x.n, sizeof *x.picked);
    x.h = calloc(x.n * t->s.rank, sizeof *x.h);
    x.s = calloc(x.n * t->s.d_ff, sizeof *x.s);
    hth_sample_random_seed(&x.random, SEED);
    begin(&x);
    for (int step = 0; step < N_STEP; step++) {
        double left = 1.0 - (double)step / N_STEP, rate = 4e-3 * (left * left + 0.02);
        for (size_t i = 0; i < x.n; i++) do
                x.picked[i] = (size_t)(hth_sample_random_unit(&x.random) * (double)t->s.n_tok);
            while (hth_train_is_held(x.picked[i], t->s.n_tok));
        find_scores(&x);
        find_gradients(&x);
        move(&x.in, step + 1, rate);
        move(&x.out, step + 1, rate);
        move(&x.bias, step + 1, rate);
    }
    return x;
}

static void free_naive(naive *x)
{
    free(x->in.w);
    free(x->out.w);
    free(x->bias.w);
    free(x->picked);
    free(x->h);
    free(x->s);
}

/* ---- both ------------------------------------------------------------------------------------------- */

/* Root mean square of their difference. A first step moves each weight by 4e-3, whatever its gradient's size, so a few
 * whose gradient is noise may differ more. */
static double difference(const float *a, const tensor *b)
{
    double squares = 0.0;
    for (size_t i = 0; i < b->n; i++) squares += pow((double)a[i] - b->w[i], 2);
    return sqrt(squares / (double)b->n);
}

static void check_shape(const shape *s, uint32_t n_thread, test_random *r)
{
    hth_cpu level;
    hth_network net;
    CLEANUP(free_task) task t = make_task(s, r);
    hth_train_data data = data_of(&t);
    CHECK_OK(hth_cpu_choose(NULL, &level, err));
    hth_kernels k = proof_kernels(level);
    CLOSED(hth_pool) *pool = OPENED(hth_pool, n_thread);
    CLOSED(hth_trainer) *trainer = OPENED(hth_trainer, &k, pool, s->d, s->d_ff, s->rank);
    if (s->rank > 32)
        CHECK(hth_train(trainer, &data, 32, N_STEP, SEED, NULL, NULL, &net)); /* leaves no trace */
    CHECK(hth_train(trainer, &data, s->rank, N_STEP, SEED, NULL, NULL, &net));
    CLEANUP(free_naive) naive x = train_naively(&t);
    double in = difference(net.in, &x.in), out = difference(net.out, &x.out),
           bias = difference(net.bias, &x.bias);
    if (!(in < 1e-5 && out < 1e-5 && bias < 1e-5))
        test_fail(__FILE__, __LINE__,
                  "%zu inputs, %zu neurons, rank %zu, %zu tokens, %u threads: off by %g, %g and %g", s->d,
                  s->d_ff, s->rank, s->n_tok, n_thread, in, out, bias);
}

TEST(steps_are_those_of_a_naive_loop_in_double)
{
    static const shape shapes[] = {{33, 100, 32, 100},  {70, 1100, 64, 100}, {64, 61, 32, 5},
                                   {33, 2100, 32, 513}, {130, 1024, 96, 40}, {32, 4099, 32, 30}};
    test_random r = proof_random();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_shape(&shapes[i], i % 2 ? 3 : 1, &r);
}
