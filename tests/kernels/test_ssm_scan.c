/* The proof of the scan of state spaces: every level against its definition, bit for bit, between guard pages, for
 * heads and for channels, whole and in any cut of its tokens; and near the recurrence in double. `--bench` measures. */
#include "kernels/kernels.h"
#include "support/guard.h"
#include "support/kernels/bench.h"
#include "support/kernels/proof.h"

#include <time.h>

enum { MAX_CHANNEL = 70, MAX_STATE = 20, MAX_TOK = 11, MAX_N = 5 * 16 * MAX_STATE };

/* Buffers of a case. */
enum { X, DELTA, DECAY, A, B, C, D, NOW, NEXT, Y, N_BUFFER };
static guard rooms[N_BUFFER];

typedef struct shape {
    size_t n_channel, n_state, n_tok;
    bool by_channel;
} shape;

static size_t n_value_of(const shape *s, size_t n_tok) { return s->by_channel ? n_tok * s->n_channel : n_tok; }

static size_t size_of(const shape *s, int buffer)
{
    switch (buffer) {
    case X:
    case Y: return s->n_tok * s->n_channel;
    case DELTA: return n_value_of(s, s->n_tok);
    case DECAY: return s->by_channel ? 0 : s->n_tok;
    case A: return s->by_channel ? s->n_state * s->n_channel : 0;
    case B:
    case C: return s->n_tok * s->n_state;
    case D: return n_value_of(s, 1);
    default: return hth_ssm_state_size(s->n_channel, s->n_state);
    }
}

static float *place(int buffer, const shape *s, guard_side side)
{
    return guard_place(&rooms[buffer], size_of(s, buffer) * sizeof(float), side, 0);
}

static hth_ssm_scan make_case(test_random *r, const shape *s, proof_kind kind)
{
    float *p[N_BUFFER];
    for (int i = 0; i < N_BUFFER; i++) {
        p[i] = place(i, s, test_random_below(r, 2) ? GUARD_BEHIND : GUARD_BEFORE);
        if (i != NEXT && i != Y) proof_fill_f32(r, kind, p[i], size_of(s, i));
    }
    size_t n_value = n_value_of(s, 1);
    for (size_t i = 0; i < size_of(s, DELTA); i++) p[DELTA][i] = __builtin_fabsf(p[DELTA][i]);
    for (size_t i = 0; i < size_of(s, A); i++) p[A][i] = -__builtin_fabsf(p[A][i]);
    return (hth_ssm_scan){.n_channel = s->n_channel, .n_state = s->n_state, .n_tok = s->n_tok, .now = p[NOW],
                          .next = p[NEXT], .x = p[X], .delta = p[DELTA], .decay = p[DECAY],
                          .a = s->by_channel ? p[A] : NULL, .d = p[D], .b = p[B], .c = p[C], .y = p[Y],
                          .x_stride = s->n_channel, .delta_stride = n_value, .a_stride = s->n_channel,
                          .bc_stride = s->n_state, .y_stride = s->n_channel};
}

/* ---- the definition (docs/arithmetic.md 5) ------------------------------------------------------------- */

static float product(float a, float b)
{
    volatile float p = a * b;
    return p;
}

static hth_kernels reference;

static float exp_of(float x)
{
    reference.exp(&x, 1, &x);
    return x;
}

/* One channel over all tokens. state: [n_state], HTH_SSM_TILE apart. */
static void scan_channel(const hth_ssm_scan *j, size_t c, float *state, float *y)
{
    for (size_t t = 0; t < j->n_tok; t++) {
        float delta = j->delta[t * j->delta_stride + (j->a ? c : 0)], x = j->x[t * j->x_stride + c], sum = 0.0f;
        float u = product(delta, x), d = j->d[j->a ? c : 0];
        for (size_t k = 0; k < j->n_state; k++) {
            float *h = state + k * HTH_SSM_TILE;
            float decay = j->a ? exp_of(product(delta, j->a[k * j->a_stride + c])) : j->decay[t * j->delta_stride];
            *h = product(*h, decay) + product(j->b[t * j->bc_stride + k], u);
            sum += product(*h, j->c[t * j->bc_stride + k]);
        }
        y[t * j->y_stride + c] = sum + product(d, x);
    }
}

static size_t place_of(const hth_ssm_scan *j, size_t c)
{
    return c / HTH_SSM_TILE * HTH_SSM_TILE * j->n_state + c % HTH_SSM_TILE;
}

typedef struct call {
    const hth_kernels *k;
    hth_ssm_scan job;
    size_t n_first; /* tokens of the first of two calls */
} call;

static void invoke(void *arg)
{
    call *c = arg;
    hth_ssm_scan part = c->job;
    part.n_tok = c->n_first;
    if (part.n_tok > 0) c->k->ssm_scan(&part);
    if (part.n_tok > 0) part.now = part.next;
    part.x += c->n_first * part.x_stride, part.delta += c->n_first * part.delta_stride;
    part.decay += part.a ? 0 : c->n_first * part.delta_stride;
    part.b += c->n_first * part.bc_stride, part.c += c->n_first * part.bc_stride;
    part.y += c->n_first * part.y_stride;
    part.n_tok = c->job.n_tok - c->n_first;
    c->k->ssm_scan(&part);
}

static void check_case(test_random *r, const hth_kernels *k, const shape *s, proof_kind kind)
{
    static float states[MAX_N], y[MAX_TOK * MAX_CHANNEL];
    call c = {.k = k, .job = make_case(r, s, kind), .n_first = test_random_below(r, (uint32_t)s->n_tok)};
    memcpy(states, c.job.now, size_of(s, NOW) * sizeof *states);
    for (size_t i = 0; i < s->n_channel; i++) scan_channel(&c.job, i, states + place_of(&c.job, i), y);
    bool ok = guard_call(invoke, &c);
    for (int i = 0; i < N_BUFFER; i++) ok = ok && guard_is_whole(&rooms[i]);
    size_t wrong = proof_differ_f32(y, c.job.y, size_of(s, Y)), i = 0;
    for (; i < s->n_channel * s->n_state && ok; i++) {
        size_t at = place_of(&c.job, i / s->n_state) + i % s->n_state * HTH_SSM_TILE;
        if (proof_differ_f32(states + at, c.job.next + at, 1) == 0) break;
    }
    if (ok && wrong == size_of(s, Y) && i == s->n_channel * s->n_state) return;
    test_fail(__FILE__, __LINE__, "%s: %s; %zu channels%s, %zu states, %zu and %zu tokens, %s", hth_cpu_name(k->level),
              !ok ? "fault, or wrote outside" : "not the bits of the definition", s->n_channel,
              s->by_channel ? " apart" : "", s->n_state, c.n_first, s->n_tok - c.n_first, proof_kind_name(kind));
}

TEST(scans_equal_their_definition_in_any_cut)
{
    hth_cpu levels[1 + PROOF_MAX_LEVEL] = {HTH_CPU_GENERIC};
    int n_level = 1 + proof_levels(levels + 1);
    test_random r = proof_random();
    reference = proof_kernels(HTH_CPU_GENERIC);
    for (int i = 0; i < N_BUFFER; i++) guard_open(&rooms[i], MAX_N * sizeof(float) + 64);
    for (int l = 0; l < n_level; l++) {
        hth_kernels k = proof_kernels(levels[l]);
        for (int kind = 0; kind < PROOF_N_KIND; kind++)
            for (int i = 0; i < 60; i++) {
                shape s = {1 + test_random_below(&r, MAX_CHANNEL), 1 + test_random_below(&r, MAX_STATE),
                           1 + test_random_below(&r, MAX_TOK), i % 2 > 0};
                check_case(&r, &k, &s, (proof_kind)kind);
            }
    }
    for (int i = 0; i < N_BUFFER; i++) guard_close(&rooms[i]);
}

/* ---- speed ------------------------------------------------------------------------------------------------ */

enum { N = 5120, N_STATE = 128, MAX_BENCH = 64 };

/* A layer of Mamba-2 2.7B, or of Mamba 2.8B: heads or channels of a unit, one unit after another. */
static void run_layer(const hth_kernels *k, float *states, float *rows, bool by_channel, size_t n_tok)
{
    size_t n_state = by_channel ? 16 : N_STATE, n = by_channel ? 128 : 64, size = n * n_state;
    hth_ssm_scan s = {.n_channel = n, .n_state = n_state, .n_tok = n_tok, .delta = rows, .decay = rows, .d = rows,
                      .b = rows, .c = rows, .x_stride = N, .delta_stride = by_channel ? N : N / n, .a_stride = N,
                      .bc_stride = n_state, .y_stride = N};
    for (size_t u = 0; u < N / n; u++) {
        s.now = states + u * size, s.next = states + N * N_STATE + u * size;
        s.x = rows + u * n, s.y = rows + N * MAX_BENCH + u * n, s.a = by_channel ? s.x : NULL;
        k->ssm_scan(&s);
    }
}

static void bench_form(const hth_kernels *k, bool by_channel, size_t n_tok)
{
    float *states = calloc(2 * (size_t)N * N_STATE, sizeof *states), *rows = calloc(2 * (size_t)N * MAX_BENCH, sizeof *rows);
    double times[15];
    for (int i = 0; i < 15; i++) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        run_layer(k, states, rows, by_channel, n_tok);
        clock_gettime(CLOCK_MONOTONIC, &b);
        times[i] = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
    }
    qsort(times, 15, sizeof *times, bench_by_size);
    printf("%-8s %s, %2zu tokens: %7.1f us per token (%.1f to %.1f)\n", hth_cpu_name(k->level),
           by_channel ? "channels" : "heads   ", n_tok, times[7] / (double)n_tok * 1e6, times[0] / (double)n_tok * 1e6,
           times[14] / (double)n_tok * 1e6);
    free(states), free(rows);
}

int main(int argc, char **argv)
{
    hth_cpu levels[1 + PROOF_MAX_LEVEL] = {HTH_CPU_GENERIC};
    if (argc < 2 || strcmp(argv[1], "--bench") != 0) return test_run_all(argc, argv);
    int n_level = 1 + proof_levels(levels + 1);
    for (int l = 0; l < n_level; l++)
        for (int form = 0; form < 2; form++)
            for (size_t n_tok = 1; n_tok <= 64; n_tok *= 8) {
                hth_kernels k = proof_kernels(levels[l]);
                bench_form(&k, form > 0, n_tok);
            }
    return 0;
}
