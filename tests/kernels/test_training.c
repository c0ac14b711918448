/* Every level gives the bits of the definition in training and in products of recurrent mixers, between guard pages,
 * and the definition is what its header says. */
#include "base/fma.h"
#include "kernels/kernels.h"
#include "kernels/vector/math.h"
#include "support/guard.h"
#include "support/kernels/proof.h"

enum { MAX_ROW = 23, MAX_COL = 288, MAX_IN = 600, MAX_GAP = 9 };
enum {
    SIZE_A = MAX_ROW * (MAX_IN + MAX_GAP) > MAX_IN *(MAX_ROW + MAX_GAP)
                 ? MAX_ROW *(MAX_IN + MAX_GAP)
                 : MAX_IN *(MAX_ROW + MAX_GAP),
    SIZE_B = MAX_IN * (MAX_COL + MAX_GAP),
    SIZE_Y = MAX_ROW * (MAX_COL + MAX_GAP),
};

enum { N_GUARD = 4, MAX_WEIGHT = 264 };

static guard guards[N_GUARD];
static float a[SIZE_A], b[SIZE_B], before[SIZE_Y], expected[SIZE_Y];

static void open_rooms(void)
{
    static const size_t sizes[N_GUARD] = {sizeof a, sizeof b, sizeof before, MAX_WEIGHT * sizeof(float)};
    for (int i = 0; i < N_GUARD; i++) guard_open(&guards[i], sizes[i]);
}

static void close_guards(void) { for (int i = 0; i < N_GUARD; i++) guard_close(&guards[i]); }

/* Floats from the first to the last that a matrix of that shape has. */
static size_t span(size_t n_row, size_t n_col, size_t row)
{
    return n_row == 0 || n_col == 0 ? 0 : (n_row - 1) * row + n_col;
}

typedef struct invocation {
    hth_gemm_fn *gemm;
    hth_gemm job;
} invocation;

static void invoke_gemm(void *arg)
{
    const invocation *v = arg;
    v->gemm(&v->job);
}

/* A job over arrays between guard pages that hold nothing else. */
static void place(hth_gemm *job, bool turned, guard_side side)
{
    size_t one = sizeof(float);
    size_t n_a = turned ? span(job->n_in, job->n_row, job->a_col) : span(job->n_row, job->n_in, job->a_row);
    size_t n_b = span(job->n_in, job->n_col, job->b_row), n_y = span(job->n_row, job->n_col, job->y_row);
    float *own_a = guard_place(&guards[0], n_a * one, side, 0),
          *own_b = guard_place(&guards[1], n_b * one, side, 0);
    job->y = guard_place(&guards[2], n_y * one, side, 0);
    memcpy(own_a, a, n_a * one);
    memcpy(own_b, b, n_b * one);
    memcpy(job->y, before, n_y * one);
    job->a = own_a, job->b = own_b;
}

static hth_gemm random_job(test_random *r, bool turned, size_t most_in)
{
    /* one row is computed in wider tiles */
    hth_gemm job = {.n_row = test_random_below(r, 4) == 0 ? 1 : test_random_below(r, MAX_ROW + 1),
                    .n_col = 16 * (size_t)test_random_below(r, MAX_COL / 16 + 1),
                    .n_in = test_random_below(r, (uint32_t)most_in + 1), .more = test_random_below(r, 2) == 1,
                    .fused = test_random_below(r, 2) == 1};
    size_t row = (turned ? job.n_row : job.n_in) + test_random_below(r, MAX_GAP);
    job.a_row = turned ? 1 : row, job.a_col = turned ? row : 1;
    job.b_row = job.n_col + test_random_below(r, MAX_GAP);
    job.y_row = job.n_col + test_random_below(r, MAX_GAP);
    return job;
}

TEST(products_of_every_level_are_those_of_the_definition)
{
    hth_cpu levels[PROOF_MAX_LEVEL];
    int n_level = proof_levels(levels);
    test_random r = proof_random();
    open_rooms();
    for (int i = 0; i < 150; i++) {
        bool turned = i % 2;
        hth_gemm job = random_job(&r, turned, i % 10 == 9 ? MAX_IN : 40);
        proof_fill_f32(&r, (proof_kind)(i % PROOF_N_KIND), a, SIZE_A);
        proof_fill_f32(&r, (proof_kind)(i / 8 % 4), b, SIZE_B);
        proof_fill_f32(&r, PROOF_PLAIN, before, SIZE_Y);
        place(&job, turned, i % 4 < 2 ? GUARD_BEFORE : GUARD_BEHIND);
        size_t n_y = span(job.n_row, job.n_col, job.y_row);
        hth_kernels ref = proof_kernels(HTH_CPU_GENERIC);
        invocation first = {ref.gemm, job};
        CHECK(guard_call(invoke_gemm, &first));
        memcpy(expected, job.y, n_y * sizeof *expected);
        for (int l = 0; l < n_level; l++) {
            hth_kernels k = proof_kernels(levels[l]);
            memcpy(job.y, before, n_y * sizeof *before);
            invocation v = {k.gemm, job};
            bool whole = guard_call(invoke_gemm, &v) && guard_is_whole(&guards[0]) &&
                         guard_is_whole(&guards[1]) && guard_is_whole(&guards[2]);
            if (!whole || proof_differ_f32(job.y, expected, n_y) < n_y)
                test_fail(__FILE__, __LINE__, "%s, job %d: %zu x %zu x %zu, more %d, fused %d, turned %d",
                          hth_cpu_name(levels[l]), i, job.n_row, job.n_col, job.n_in, job.more, job.fused, turned);
        }
    }
    close_guards();
}

TEST(the_definition_of_products_is_their_sum)
{
    test_random r = proof_random();
    hth_kernels k = proof_kernels(HTH_CPU_GENERIC);
    for (int n = 0; n < 20; n++) {
        bool turned = n % 2;
        hth_gemm job = random_job(&r, turned, 200);
        proof_fill_f32(&r, PROOF_PLAIN, a, SIZE_A);
        proof_fill_f32(&r, PROOF_PLAIN, b, SIZE_B);
        proof_fill_f32(&r, PROOF_PLAIN, before, SIZE_Y);
        memcpy(expected, before, sizeof expected);
        job.a = a, job.b = b, job.y = expected;
        k.gemm(&job);
        for (size_t i = 0; i < job.n_row; i++)
            for (size_t j = 0; j < job.y_row && i * job.y_row + j < SIZE_Y; j++) {
                bool is_between = j >= job.n_col; /* two rows */
                float sum = job.more || is_between ? before[i * job.y_row + j] : 0.0f;
                for (size_t c = 0; c < job.n_in && !is_between; c++) {
                    float x = a[turned ? c * job.a_col + i : i * job.a_row + c], w = b[c * job.b_row + j], product = x * w;
                    sum = job.fused ? hth_fma(x, w, sum) : sum + product;
                }
                CHECK_BYTES(&expected[i * job.y_row + j], &sum, sizeof sum);
            }
    }
}

typedef struct stepping {
    hth_adam_fn *adam;
    hth_adam step;
    float *gradient, *p, *m, *v;
    size_t n;
} stepping;

static void invoke_adam(void *arg)
{
    const stepping *s = arg;
    s->adam(&s->step, s->gradient, s->n, s->p, s->m, s->v);
}

/* p, m and v after three steps from there. */
static bool steps_of(hth_cpu level, float start[4][MAX_WEIGHT], size_t n, guard_side side,
                     float end[3][MAX_WEIGHT])
{
    float *own[4];
    hth_kernels k = proof_kernels(level);
    for (int i = 0; i < 4; i++) {
        own[i] = guard_place(&guards[i], n * sizeof(float), side, 0);
        memcpy(own[i], start[i], n * sizeof(float));
    }
    stepping s = {k.adam, {0.9f, 0.99f, 0.0f, 0.0f, 4e-3f}, own[0], own[1], own[2], own[3], n};
    bool whole = true;
    for (int i = 1; i <= 3; i++) {
        s.step.correct_m = (float)(1.0 / (1.0 - hth_pow_d(0.9, i)));
        s.step.correct_v = (float)(1.0 / (1.0 - hth_pow_d(0.99, i)));
        whole = whole && guard_call(invoke_adam, &s);
    }
    for (int i = 0; i < 4; i++) whole = whole && guard_is_whole(&guards[i]);
    for (int i = 0; i < 3; i++) memcpy(end[i], own[i + 1], n * sizeof(float));
    return whole;
}

TEST(adam_is_alike_at_all_levels_and_moves_as_it_should)
{
    static float start[4][MAX_WEIGHT], first[3][MAX_WEIGHT], other[3][MAX_WEIGHT];
    hth_cpu levels[PROOF_MAX_LEVEL];
    int n_level = proof_levels(levels);
    test_random r = proof_random();
    open_rooms();
    for (size_t n = 0; n <= MAX_WEIGHT; n += 8) {
        for (int i = 0; i < 4; i++) proof_fill_f32(&r, PROOF_PLAIN, start[i], n);
        memset(start[2], 0, sizeof start[2]);
        memset(start[3], 0, sizeof start[3]);
        CHECK(steps_of(HTH_CPU_GENERIC, start, n, GUARD_BEFORE, first));
        for (int l = 0; l < n_level; l++) {
            CHECK(steps_of(levels[l], start, n, GUARD_BEHIND, other));
            for (int i = 0; i < 3; i++) CHECK_BYTES(other[i], first[i], n * sizeof(float));
        }
        /* With the same gradient each time, corrected means are that gradient: each step is the rate. */
        for (size_t i = 0; i < n; i++) {
            double moved = (double)first[0][i] - (double)start[1][i], sign = start[0][i] > 0.0f ? 1.0 : -1.0;
            if (fabsf(start[0][i]) > 1e-3f) CHECK(fabs(moved + sign * 3 * 4e-3) < 1e-6);
        }
    }
    close_guards();
}

typedef struct mapping {
    hth_logistic_fn *logistic;
    const float *x;
    float bias, *y;
    size_t n;
} mapping;

static void invoke_logistic(void *arg)
{
    const mapping *m = arg;
    m->logistic(m->x, m->bias, m->n, m->y);
}

TEST(the_logistic_function_is_alike_at_all_levels_and_exact_enough)
{
    static float x[MAX_WEIGHT], first[MAX_WEIGHT];
    hth_cpu levels[PROOF_MAX_LEVEL + 1] = {HTH_CPU_GENERIC};
    int n_level = 1 + proof_levels(levels + 1);
    test_random r = proof_random();
    open_rooms();
    for (size_t n = 0; n <= MAX_WEIGHT; n += 8)
        for (int l = 0; l < n_level; l++) {
            hth_kernels k = proof_kernels(levels[l]);
            if (l == 0) proof_fill_f32(&r, n % 16 ? PROOF_PLAIN : PROOF_SPECIAL, x, n);
            for (size_t i = 0; l == 0 && i < n; i++) x[i] *= 100.0f;
            float *own = guard_place(&guards[0], n * sizeof *x, n % 24 ? GUARD_BEFORE : GUARD_BEHIND, 0);
            memcpy(own, x, n * sizeof *x);
            mapping m = {k.logistic, own, 0.25f, own, n};
            CHECK(guard_call(invoke_logistic, &m) && guard_is_whole(&guards[0]));
            if (l == 0) memcpy(first, own, n * sizeof *first);
            else CHECK(proof_differ_f32(own, first, n) == n);
            for (size_t i = 0; i < n; i++) {
                double z = (double)(x[i] + 0.25f), right = 1.0 / (1.0 + exp(z < -80.0 ? 80.0 : -z));
                if (isnan(z)) CHECK(isnan(own[i]));
                else CHECK(fabs((double)own[i] - right) <= 4e-7 * right);
            }
        }
    close_guards();
}
