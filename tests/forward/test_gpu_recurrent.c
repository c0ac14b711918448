/* Convolutions along tokens, Kimi Delta Attention and selective state spaces have the bits of the CPU's kernels on every
 * device, however a text is cut into runs. Gated DeltaNet comes near its recurrence in double, token by token, and so do
 * its rates. */
#include "forward/gpu/shader_params.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "support/device/shaders.h"
#include "support/kernels/proof.h"

#include <math.h>

static const char *const devices[] = {"null", "vulkan:0"};
enum { N_DEVICE = 2, N_PAGE = 3, MAX_RUN = 2, RUNS_AT = HTH_STEP_ROWS };

static void *get(size_t n, size_t size) { return calloc(n ? n : 1, size); }

static void on_each(void (*fn)(hth_device *, const char *))
{
    for (size_t i = 0; i < N_DEVICE; i++) {
        hth_device *d = shaders_open(devices[i]);
        if (!d) continue;
        fn(d, devices[i]);
        shaders_close(d);
    }
}

static void fill(test_random *r, float *x, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++) x[i] = scale * ((float)test_random_below(r, 2001) * 1e-3f - 1.0f);
}

typedef struct step {
    uint32_t words[RUNS_AT + MAX_RUN * HTH_RUN_WORDS];
} step;

/* Two runs: tokens of another sequence, which begins, then n of one from a position on, whose pages are these. */
static step step_of(uint32_t n_other, uint32_t n, uint32_t position, const uint32_t pages[2])
{
    step s = {{[HTH_STEP_N_TOK] = n_other + n, [HTH_STEP_N_RUN] = 2}};
    uint32_t *other = s.words + RUNS_AT, *run = other + HTH_RUN_WORDS;
    other[HTH_RUN_N_TOK] = n_other;
    other[HTH_RUN_STEP_FROM] = other[HTH_RUN_STEP_TO] = other[HTH_RUN_CHUNK_FROM] = other[HTH_RUN_CHUNK_TO] =
        N_PAGE - 1;
    run[HTH_RUN_FIRST] = n_other, run[HTH_RUN_N_TOK] = n, run[HTH_RUN_POSITION] = position;
    run[HTH_RUN_STEP_FROM] = run[HTH_RUN_CHUNK_FROM] = pages[0],
    run[HTH_RUN_STEP_TO] = run[HTH_RUN_CHUNK_TO] = pages[1];
    return s;
}

/* ---- convolution ---------------------------------------------------------------------------------------- */

typedef struct conv_shape {
    uint32_t n_channel, d_conv;
    bool has_bias, silu;
} conv_shape;

static void try_conv(hth_device *d, const char *name, const conv_shape *s)
{
    enum { N = 90, N_OTHER = 2 };
    static const uint32_t cuts[] = {1, 2, 1, 31, 40, 15};
    hth_kernels k = proof_kernels(HTH_CPU_GENERIC);
    test_random r = proof_random();
    uint32_t n = s->n_channel, pages[] = {0, 1};
    size_t n_ring = (size_t)N_PAGE * HTH_CONV_RING * n;
    const hth_rows_at x_at = {n + 3, 3}, y_at = {n + 5, 2};
    float *x = get((N + N_OTHER) * x_at.stride, 4), *taps = get(s->d_conv * n, 4), *bias = get(n, 4),
          *ring = get(n_ring, 4), *y = get((N + N_OTHER) * y_at.stride, 4), *expected = get(n, 4),
          *zeros = get(n, 4);
    fill(&r, x, (N + N_OTHER) * x_at.stride, 2.0f), fill(&r, taps, s->d_conv * n, 1.0f),
        fill(&r, bias, n, 1.0f);
    for (size_t i = 0; i < n_ring; i++) ring[i] = NAN; /* nothing is read before it was written */
    const hth_push_conv push = {n, s->d_conv, s->has_bias, s->silu, RUNS_AT, x_at, y_at};
    for (uint32_t c = 0, at = 0; c < sizeof cuts / sizeof *cuts; at += cuts[c++]) {
        step words = step_of(N_OTHER, cuts[c], at, pages);
        /* The text's own tokens lie behind those of the other sequence. */
        float *in = get((N_OTHER + cuts[c]) * x_at.stride, 4);
        memcpy(in, x, N_OTHER * x_at.stride * 4);
        memcpy(in + N_OTHER * x_at.stride, x + (N_OTHER + at) * x_at.stride, cuts[c] * x_at.stride * 4);
        shaders_run run = {.id = HTH_SHADER_conv,
                           .consts = (const uint32_t[]){64},
                           .push = &push,
                           .bind = {{words.words, sizeof words},
                                    {in, (N_OTHER + cuts[c]) * x_at.stride * 4},
                                    {taps, s->d_conv * n * 4},
                                    {bias, n * 4},
                                    {ring, n_ring * 4},
                                    {y, (N_OTHER + cuts[c]) * y_at.stride * 4}},
                           .grid = {(n + 63) / 64, MAX_RUN, 1}};
        bool done = shaders_do(d, &run);
        for (uint32_t t = 0; done && t < cuts[c]; t++) {
            const float *rows[HTH_CONV_MAX_TAP];
            for (uint32_t j = 0; j < s->d_conv; j++) {
                int64_t from = (int64_t)at + t + j + 1 - s->d_conv;
                rows[j] = from < 0 ? zeros : x + (N_OTHER + (size_t)from) * x_at.stride + x_at.at;
            }
            k.conv(rows, taps, s->d_conv, n, expected);
            if (s->has_bias) k.add(expected, bias, n, expected);
            if (s->silu) k.activate[HTH_ACTIVATION_SILU](NULL, expected, n, expected);
            const float *got = y + (N_OTHER + t) * y_at.stride + y_at.at;
            size_t i = proof_differ_f32(got, expected, n);
            if (i < n)
                test_fail(__FILE__, __LINE__, "%s: %u channels, %u taps, token %u: y[%zu] is %a, not %a",
                          name, n, s->d_conv, at + t, i, (double)got[i], (double)expected[i]);
        }
        free(in);
        uint32_t before = pages[0];
        pages[0] = pages[1], pages[1] = before;
    }
    free(x), free(taps), free(bias), free(ring), free(y), free(expected), free(zeros);
}

static void convolutions(hth_device *d, const char *name)
{
    static const conv_shape shapes[] = {
        {70, 4, false, true}, {8, 1, true, false}, {130, 16, true, true}, {64, 3, false, false}};
    for (size_t i = 0; i < 4; i++) try_conv(d, name, &shapes[i]);
}
TEST(convolutions_have_the_bits_of_the_cpu) { on_each(convolutions); }

/* ---- gated DeltaNet ----------------------------------------------------------------------------------------- */

typedef struct delta_shape {
    uint32_t d, n_key, n_shared;
    bool interleaved;
} delta_shape;

/* A token of a head by the recurrence. */
static void recur(double *state, size_t d, const float *q, const float *k, const float *v, double beta,
                  double decay, double *out)
{
    for (size_t j = 0; j < d; j++) {
        double from_key = 0.0, sum = 0.0;
        for (size_t i = 0; i < d; i++) from_key += exp(decay) * state[i * d + j] * (double)k[i];
        double u = beta * ((double)v[j] - from_key);
        for (size_t i = 0; i < d; i++) {
            state[i * d + j] = exp(decay) * state[i * d + j] + (double)k[i] * u;
            sum += state[i * d + j] * (double)q[i];
        }
        out[j] = sum / sqrt((double)d);
    }
}

static void try_delta(hth_device *device, const char *name, const delta_shape *s)
{
    enum { N = 201, N_OTHER = 3 };
    static const uint32_t cuts[] = {1, 39, 23, 1,
                                    1, 35, 92, 9}; /* some end a chunk, and some begin in its midst */
    test_random r = proof_random();
    uint32_t d = s->d, n_head = s->n_key * s->n_shared, n_channel = (2 * s->n_key + n_head) * d,
             pages[] = {0, 1};
    size_t page = s->n_key * (d * HTH_CHUNK + s->n_shared * ((size_t)d * d + d * HTH_CHUNK + HTH_CHUNK)),
           n_state = N_PAGE * page, n_all = N + N_OTHER;
    const hth_rows_at x_at = {n_channel + 1, 1}, beta_at = {n_head + 2, 2}, decay_at = {n_head, 0},
                      y_at = {n_head * d, 0};
    float *x = get(n_all * x_at.stride, 4), *beta = get(n_all * beta_at.stride, 4),
          *decay = get(n_all * n_head, 4), *states = get(n_state, 4), *y = get(n_all * y_at.stride, 4);
    double *own = get((size_t)n_head * d * d, sizeof *own), *out = get(d, sizeof *out);
    fill(&r, x, n_all * x_at.stride, 1.0f / sqrtf((float)d));
    for (size_t i = 0; i < n_all * beta_at.stride; i++) beta[i] = (float)test_random_below(&r, 1000) * 1e-3f;
    for (size_t i = 0; i < n_all * n_head; i++) decay[i] = -(float)test_random_below(&r, 1000) * 2e-4f;
    for (size_t i = 0; i < n_state; i++) states[i] = NAN;
    for (uint32_t c = 0, at = 0; c < sizeof cuts / sizeof *cuts; at += cuts[c++]) {
        step words = step_of(N_OTHER, cuts[c], at, pages);
        size_t n = N_OTHER + cuts[c];
        float *in = get(n * x_at.stride, 4), *b = get(n * beta_at.stride, 4), *g = get(n * n_head, 4);
        memcpy(in + N_OTHER * x_at.stride, x + at * x_at.stride, cuts[c] * x_at.stride * 4);
        memcpy(b + N_OTHER * beta_at.stride, beta + at * beta_at.stride, cuts[c] * beta_at.stride * 4);
        memcpy(g + N_OTHER * n_head, decay + at * n_head, cuts[c] * n_head * 4);
        hth_push_delta_net push = {.n_head_key = s->n_key,
                                   .n_shared = s->n_shared,
                                   .interleaved = s->interleaved,
                                   .runs_at = RUNS_AT,
                                   .inverse_root = 1.0f / sqrtf((float)d),
                                   .x = x_at,
                                   .beta = beta_at,
                                   .decay = decay_at,
                                   .y = y_at};
        bool done = true;
        /* In two dispatches, as long steps have them. */
        float *whole = get(n * y_at.stride, 4);
        for (push.tokens.first = 0; done && push.tokens.first < n; push.tokens.first += push.tokens.n) {
            push.tokens.n = push.tokens.first == 0 && n > 20 ? 20 : (uint32_t)n;
            shaders_run run = {.id = HTH_SHADER_delta_net,
                               .consts = (const uint32_t[]){d, 64},
                               .push = &push,
                               .bind = {{words.words, sizeof words},
                                        {in, n * x_at.stride * 4},
                                        {b, n * beta_at.stride * 4},
                                        {g, n * n_head * 4},
                                        {states, n_state * 4},
                                        {y, n * y_at.stride * 4}},
                               .grid = {s->n_key, MAX_RUN, 1}};
            done = shaders_do(device, &run);
            for (size_t t = push.tokens.first; t < n && t < push.tokens.first + push.tokens.n; t++)
                memcpy(whole + t * y_at.stride, y + t * y_at.stride, y_at.stride * 4);
        }
        for (uint32_t t = 0; done && t < cuts[c]; t++)
            for (uint32_t h = 0; h < n_head; h++) {
                uint32_t key = s->interleaved ? h % s->n_key : h / s->n_shared;
                const float *row = x + (at + t) * x_at.stride + x_at.at, *q = row + key * d;
                recur(own + (size_t)h * d * d, d, q, q + s->n_key * d, row + (2 * s->n_key + h) * d,
                      (double)beta[(at + t) * beta_at.stride + beta_at.at + h],
                      (double)decay[(at + t) * n_head + h], out);
                for (uint32_t i = 0; i < d; i++) {
                    double got = (double)whole[(N_OTHER + t) * y_at.stride + h * d + i];
                    if (fabs(got - out[i]) < 1e-5) continue;
                    test_fail(__FILE__, __LINE__, "%s: heads of %u, head %u, token %u: y[%u] is %g, not %g",
                              name, d, h, at + t, i, got, out[i]);
                    done = false;
                    break;
                }
            }
        if (at / HTH_CHUNK != (at + cuts[c]) / HTH_CHUNK) {
            uint32_t before = pages[0];
            pages[0] = pages[1], pages[1] = before;
        }
        free(in), free(b), free(g), free(whole);
    }
    free(x), free(beta), free(decay), free(states), free(y), free(own), free(out);
}

static void delta_nets(hth_device *d, const char *name)
{
    static const delta_shape shapes[] = {{16, 2, 2, true}, {32, 1, 3, false}, {128, 1, 1, false}};
    for (size_t i = 0; i < 3; i++) try_delta(d, name, &shapes[i]);
}
TEST(gated_delta_net_comes_near_its_recurrence) { on_each(delta_nets); }

static void rates(hth_device *d, const char *name)
{
    enum { N_HEAD = 6, N_SHARED = 3, N_TOK = 3 };
    for (uint32_t joined = 0; joined < 2; joined++) {
        test_random r = proof_random();
        const hth_rows_at beta_at = {2 * N_HEAD + 1, 1}, decay_at = {N_HEAD, 0}, to = {N_HEAD + 1, 0};
        const hth_push_delta_rates push = {N_HEAD, N_SHARED, joined, beta_at, joined ? beta_at : decay_at,
                                           to,     to};
        uint32_t words[HTH_STEP_ROWS] = {[HTH_STEP_N_TOK] = N_TOK};
        float beta[N_TOK * (2 * N_HEAD + 1)], decay[N_TOK * N_HEAD], a[N_HEAD], dt[N_HEAD],
            got[2][N_TOK * (N_HEAD + 1)];
        fill(&r, beta, sizeof beta / 4, 30.0f), fill(&r, decay, sizeof decay / 4, 30.0f);
        fill(&r, a, N_HEAD, 2.0f), fill(&r, dt, N_HEAD, 3.0f);
        shaders_run run = {.id = HTH_SHADER_delta_rates,
                           .consts = (const uint32_t[]){64},
                           .push = &push,
                           .bind = {{words, sizeof words},
                                    {beta, sizeof beta},
                                    {joined ? beta : decay, joined ? sizeof beta : sizeof decay},
                                    {a, sizeof a},
                                    {dt, sizeof dt},
                                    {got[0], sizeof got[0]},
                                    {got[1], sizeof got[1]}},
                           .grid = {1, N_TOK + 1, 1}};
        if (!shaders_do(d, &run)) return;
        for (uint32_t t = 0; t < N_TOK; t++)
            for (uint32_t h = 0; h < N_HEAD; h++) {
                uint32_t at = joined ? h / N_SHARED * 2 * N_SHARED + h % N_SHARED : h;
                const float *row = beta + t * beta_at.stride + beta_at.at;
                double raw = (double)(joined ? row[at + N_SHARED] : decay[t * N_HEAD + h]) + (double)dt[h],
                       beta_of = 1.0 / (1.0 + exp(-(double)row[at])),
                       g = (double)a[h] * (raw > 30.0 ? raw : log1p(exp(raw)));
                double beta_got = (double)got[0][t * to.stride + h],
                       g_got = (double)got[1][t * to.stride + h];
                if (fabs(beta_got - beta_of) > 1e-6 || fabs(g_got - g) > 1e-6 * (1.0 + fabs(g)))
                    test_fail(__FILE__, __LINE__, "%s: head %u of token %u: %g and %g, not %g and %g", name,
                              h, t, beta_got, g_got, beta_of, g);
            }
    }
}
TEST(rates_of_gated_delta_net_come_near) { on_each(rates); }

/* ---- states that change with every token ---------------------------------------------------------------------- */

/* Some rows of a text, which lie behind those of another sequence in a step. */
enum { N_TEXT = 70, N_BEFORE = 2, N_CUT = 5 };
static const uint32_t cuts_of_text[N_CUT] = {1, 2, 1, 31, 35};

/* The rows of tokens [at, at + n) of a text for a step; those of the other sequence are the text's first ones. */
static float *rows_of_step(const float *text, size_t stride, uint32_t at, uint32_t n)
{
    float *rows = get((N_BEFORE + n) * stride, 4);
    memcpy(rows, text, N_BEFORE * stride * 4);
    memcpy(rows + N_BEFORE * stride, text + at * stride, n * stride * 4);
    return rows;
}

/* Inputs of a shader, by binding: rows of a text with so many values and some beside them, or what is the same in all
 * steps. */
typedef struct text_input {
    float *text;
    size_t stride; /* 0: it has n values for all steps */
    size_t n;
} text_input;

static text_input text_of(test_random *r, size_t width, float scale)
{
    text_input in = {.text = get(N_TEXT * (width + 3), 4), .stride = width + 3};
    fill(r, in.text, N_TEXT * in.stride, scale);
    return in;
}

/* A shader over the cuts of a text, in two dispatches each where it is long enough. tokens: in the push constants. y: its
 * output, [N_TEXT][y_stride]. false: the device lacks it. */
typedef struct text_run {
    shaders_run run; /* without words, inputs, states and outputs */
    hth_token_range *tokens;
    uint32_t n_in;
    const text_input *in; /* from binding 1 on; states and output are the next ones */
    size_t n_state, y_stride;
    float *y;
} text_run;

static bool run_step(hth_device *d, const text_run *t, uint32_t at, uint32_t n, const uint32_t pages[2], float *states)
{
    step words = step_of(N_BEFORE, n, at, pages);
    float *rows[HTH_SHADER_MAX_BIND] = {NULL}, *out = get((N_BEFORE + n) * t->y_stride, 4);
    shaders_run run = t->run;
    bool done = true;
    run.bind[0] = (shaders_binding){words.words, sizeof words};
    for (uint32_t i = 0; i < t->n_in; i++) {
        const text_input *in = &t->in[i];
        if (in->stride > 0) rows[i] = rows_of_step(in->text, in->stride, at, n);
        run.bind[1 + i] = (shaders_binding){in->stride ? rows[i] : in->text, (in->stride ? (N_BEFORE + n) * in->stride : in->n) * 4};
    }
    run.bind[1 + t->n_in] = (shaders_binding){states, N_PAGE * t->n_state * 4};
    run.bind[2 + t->n_in] = (shaders_binding){out, (N_BEFORE + n) * t->y_stride * 4};
    for (t->tokens->first = 0; done && t->tokens->first < N_BEFORE + n; t->tokens->first += t->tokens->n) {
        uint32_t first = t->tokens->first;
        t->tokens->n = first == 0 && n > 20 ? 20 : N_BEFORE + n;
        done = shaders_do(d, &run);
        for (uint32_t k = first > N_BEFORE ? first : N_BEFORE; k < N_BEFORE + n && k < first + t->tokens->n; k++)
            memcpy(t->y + (at + k - N_BEFORE) * t->y_stride, out + k * t->y_stride, t->y_stride * 4);
    }
    for (uint32_t i = 0; i < t->n_in; i++) free(rows[i]);
    free(out);
    return done;
}

static bool run_text(hth_device *d, const text_run *t)
{
    uint32_t pages[] = {0, 1};
    float *states = get(N_PAGE * t->n_state, 4);
    bool done = true;
    for (size_t i = 0; i < N_PAGE * t->n_state; i++) states[i] = NAN;
    for (uint32_t c = 0, at = 0; done && c < N_CUT; at += cuts_of_text[c++]) {
        done = run_step(d, t, at, cuts_of_text[c], pages, states);
        uint32_t before = pages[0];
        pages[0] = pages[1], pages[1] = before;
    }
    free(states);
    return done;
}

static void compare(const char *name, const char *what, const float *got, const float *expected, size_t n, uint32_t t)
{
    size_t i = proof_differ_f32(got, expected, n);
    if (i < n)
        test_fail(__FILE__, __LINE__, "%s: %s, token %u: y[%zu] is %a, not %a", name, what, t, i, (double)got[i],
                  (double)expected[i]);
}

/* A token of a head as forward/kda.c computes it. */
static void kda_token(const hth_kernels *k, size_t d, const float *const qkv[3], float beta, const float *decay, float *state,
                      float *y)
{
    float *u = get(d, 4);
    hth_gemm times_key = {.a = qkv[1], .b = state, .y = u, .a_row = d, .a_col = 1, .b_row = d, .y_row = d, .n_row = 1,
                          .n_col = d, .n_in = d},
             add_outer = {.a = qkv[1], .b = u, .y = state, .a_row = 1, .a_col = 1, .b_row = d, .y_row = d, .n_row = d,
                          .n_col = d, .n_in = 1, .more = true},
             times_query = times_key;
    times_query.a = qkv[0], times_query.y = y;
    for (size_t i = 0; i < d; i++) k->scale(state + i * d, decay[i], d, state + i * d);
    k->gemm(&times_key);
    for (size_t j = 0; j < d; j++) u[j] = (qkv[2][j] - u[j]) * beta;
    k->gemm(&add_outer);
    k->gemm(&times_query);
    k->scale(y, 0.25f, d, y);
    free(u);
}

static void try_kda(hth_device *device, const char *name, uint32_t d, uint32_t local)
{
    enum { N_HEAD = 3 };
    hth_kernels k = proof_kernels(HTH_CPU_GENERIC);
    test_random r = proof_random();
    uint32_t n = N_HEAD * d;
    text_input in[5];
    for (int i = 0; i < 5; i++) in[i] = text_of(&r, i == 3 ? N_HEAD : n, i < 3 ? 2.0f / sqrtf((float)d) : 1.0f);
    hth_push_kda push = {.n_head = N_HEAD, .runs_at = RUNS_AT, .inverse_root = 0.25f, .y = {n + 2, 1}};
    hth_rows_at *rows[] = {&push.query, &push.key, &push.value, &push.beta, &push.decay};
    for (uint32_t i = 0; i < 5; i++) *rows[i] = (hth_rows_at){(uint32_t)in[i].stride, i % 3};
    text_run t = {.run = {.id = HTH_SHADER_kda,
                          .consts = (const uint32_t[]){d, local},
                          .push = &push,
                          .grid = {N_HEAD * ((d + local - 1) / local), MAX_RUN, 1}},
                  .tokens = &push.tokens,
                  .n_in = 5,
                  .in = in,
                  .n_state = (size_t)n * d,
                  .y_stride = push.y.stride,
                  .y = get((size_t)N_TEXT * push.y.stride, 4)};
    float *states = get(t.n_state, 4), *expected = get(n, 4);
    bool done = run_text(device, &t);
    for (uint32_t at = 0; done && at < N_TEXT; at++) {
        for (size_t h = 0; h < N_HEAD; h++) {
            const float *row[5];
            for (int i = 0; i < 5; i++) row[i] = in[i].text + at * in[i].stride + rows[i]->at + (i == 3 ? h : h * d);
            kda_token(&k, d, row, *row[3], row[4], states + h * d * d, expected + h * d);
        }
        compare(name, "Kimi Delta Attention", t.y + at * t.y_stride + push.y.at, expected, n, at);
    }
    for (int i = 0; i < 5; i++) free(in[i].text);
    free(states), free(expected), free(t.y);
}

static void kdas(hth_device *d, const char *name)
{
    static const uint32_t shapes[][2] = {{16, 32}, {36, 16}, {128, 32}, {8, 4}}; /* heads, columns of a workgroup */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) try_kda(d, name, shapes[i][0], shapes[i][1]);
}
TEST(kimi_delta_attention_has_the_bits_of_the_cpu) { on_each(kdas); }

typedef struct scan_shape {
    uint32_t n_head, n_group, size, n_state; /* n_head 0: rates are of channels */
} scan_shape;

static void try_scan(hth_device *device, const char *name, const scan_shape *s)
{
    hth_kernels k = proof_kernels(HTH_CPU_GENERIC);
    test_random r = proof_random();
    bool by_channel = s->n_head == 0;
    uint32_t n_part = by_channel ? 1 : s->n_head, n = n_part * s->size, n_d = by_channel ? n : n_part,
             n_a = by_channel ? n * s->n_state : n_part, n_bc = s->n_group * s->n_state;
    text_input in[] = {text_of(&r, n, 1.0f), text_of(&r, n_d, 1.0f), {.text = get(n_a + n_d, 4), .n = n_a + n_d},
                       text_of(&r, n_bc, 1.0f), text_of(&r, n_bc, 1.0f)};
    fill(&r, in[2].text, n_a + n_d, 1.0f);
    for (size_t i = 0; i < N_TEXT * in[1].stride; i++) in[1].text[i] = fabsf(in[1].text[i]);
    for (uint32_t i = 0; i < n_a; i++) in[2].text[i] = -fabsf(in[2].text[i]);
    hth_push_ssm_scan push = {.n_part = n_part,
                              .size = s->size,
                              .n_state = s->n_state,
                              .n_shared = n_part / s->n_group,
                              .d_at = n_a,
                              .runs_at = RUNS_AT,
                              .x = {(uint32_t)in[0].stride, 1},
                              .delta = {(uint32_t)in[1].stride, 2},
                              .b = {(uint32_t)in[3].stride, 0},
                              .c = {(uint32_t)in[4].stride, 3},
                              .y = {n + 1, 1}};
    text_run t = {.run = {.id = HTH_SHADER_ssm_scan,
                          .consts = (const uint32_t[]){by_channel, 64},
                          .push = &push,
                          .grid = {(n_part * hth_ssm_quads(s->size) + 63) / 64, MAX_RUN, 1}},
                  .tokens = &push.tokens,
                  .n_in = 5,
                  .in = in,
                  .n_state = (size_t)n_part * s->n_state * 4 * hth_ssm_quads(s->size),
                  .y_stride = push.y.stride,
                  .y = get((size_t)N_TEXT * push.y.stride, 4)};
    size_t of_part = hth_ssm_state_size(s->size, s->n_state);
    float *states = get(n_part * of_part, 4), *expected = get(n, 4);
    bool done = run_text(device, &t);
    for (uint32_t at = 0; done && at < N_TEXT; at++) {
        const float *x = in[0].text + at * in[0].stride + push.x.at, *delta = in[1].text + at * in[1].stride + push.delta.at,
                    *b = in[3].text + at * in[3].stride + push.b.at, *c = in[4].text + at * in[4].stride + push.c.at;
        for (uint32_t p = 0; p < n_part; p++) {
            float decay = delta[p] * in[2].text[p], *h = states + p * of_part;
            size_t group = p / push.n_shared * s->n_state;
            k.exp(&decay, 1, &decay);
            hth_ssm_scan scan = {.n_channel = s->size, .n_state = s->n_state, .n_tok = 1, .now = h, .next = h,
                                 .x = x + p * s->size, .delta = delta + p, .decay = by_channel ? NULL : &decay,
                                 .a = by_channel ? in[2].text : NULL, .d = in[2].text + n_a + p, .b = b + group,
                                 .c = c + group, .y = expected + p * s->size, .a_stride = n};
            k.ssm_scan(&scan);
        }
        compare(name, "state spaces", t.y + at * t.y_stride + push.y.at, expected, n, at);
    }
    for (int i = 0; i < 5; i++) free(in[i].text);
    free(states), free(expected), free(t.y);
}

static void scans(hth_device *d, const char *name)
{
    static const scan_shape shapes[] = {{4, 2, 24, 16}, {6, 3, 7, 10}, {0, 1, 90, 16}, {0, 1, 33, 3}, {2, 1, 64, 128}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) try_scan(d, name, &shapes[i]);
}
TEST(state_spaces_have_the_bits_of_the_cpu) { on_each(scans); }

/* In place, of values among others. */
static void rates_in_place(hth_device *d, const char *name)
{
    enum { N_HEAD = 5, D = 20, N = N_HEAD * D, N_TOK = 3, STRIDE = N + 3 };
    hth_kernels k = proof_kernels(HTH_CPU_GENERIC);
    test_random r = proof_random();
    const hth_rows_at rows = {STRIDE, 2};
    uint32_t words[HTH_STEP_ROWS] = {[HTH_STEP_N_TOK] = N_TOK};
    float a[N_HEAD], dt[N], beta[N_TOK * STRIDE], decay[N_TOK * STRIDE], delta[N_TOK * STRIDE], want[3][N_TOK * STRIDE];
    fill(&r, a, N_HEAD, 2.0f), fill(&r, dt, N, 3.0f), fill(&r, beta, N_TOK * STRIDE, 30.0f);
    fill(&r, decay, N_TOK * STRIDE, 30.0f), fill(&r, delta, N_TOK * STRIDE, 30.0f);
    memcpy(want[0], beta, sizeof beta), memcpy(want[1], decay, sizeof decay), memcpy(want[2], delta, sizeof delta);
    for (uint32_t t = 0; t < N_TOK; t++) {
        float *of_token[] = {want[0] + t * STRIDE + 2, want[1] + t * STRIDE + 2, want[2] + t * STRIDE + 2};
        k.sigmoid(of_token[0], N_HEAD, of_token[0]);
        k.add(of_token[1], dt, N, of_token[1]);
        k.softplus(of_token[1], N, of_token[1]);
        for (uint32_t h = 0; h < N_HEAD; h++) k.scale(of_token[1] + h * D, a[h], D, of_token[1] + h * D);
        k.exp(of_token[1], N, of_token[1]);
        k.softplus(of_token[2], N, of_token[2]);
    }
    const hth_push_kda_rates of_kda = {N_HEAD, D, rows, rows};
    const hth_push_ssm_rates of_ssm = {N, rows};
    shaders_run kda = {.id = HTH_SHADER_kda_rates,
                       .consts = (const uint32_t[]){64},
                       .push = &of_kda,
                       .bind = {{words, sizeof words}, {a, sizeof a}, {dt, sizeof dt}, {beta, sizeof beta},
                                {decay, sizeof decay}},
                       .grid = {2, N_TOK + 1, 1}},
                ssm = {.id = HTH_SHADER_ssm_rates,
                       .consts = (const uint32_t[]){64},
                       .push = &of_ssm,
                       .bind = {{words, sizeof words}, {delta, sizeof delta}},
                       .grid = {2, N_TOK + 1, 1}};
    if (!shaders_do(d, &kda) || !shaders_do(d, &ssm)) return;
    compare(name, "beta", beta, want[0], N_TOK * STRIDE, N_TOK);
    compare(name, "decays", decay, want[1], N_TOK * STRIDE, N_TOK);
    compare(name, "steps", delta, want[2], N_TOK * STRIDE, N_TOK);
}
TEST(rates_in_place_have_the_bits_of_the_cpu) { on_each(rates_in_place); }
