/* Neuron-major products on a pool: what one call of the kernel gives over a whole list, whatever the
 * number of threads and of tokens; each cluster has the scale of its own values. */
#include "kernels/sparse_down.h"
#include "support/kernels/proof.h"
#include "support/kernels/rows_case.h"

enum { N_NEURON = 900, N_CLUSTER = 4, N_OUT = 768, MAX_TOK = 70, MAX_THREAD = 4 };

static uint8_t weights[4 * (N_NEURON + 16) * N_OUT];
static int32_t lists[MAX_TOK][N_NEURON];
static float h[MAX_TOK][N_NEURON], y[MAX_TOK * N_OUT], add_to[MAX_TOK * N_OUT], bias[N_OUT],
    scale_max[N_CLUSTER];
static hth_active_set active[MAX_TOK];

typedef struct sums_buffers {
    hth_axpy_scratch scratch;
    int64_t *wide;
    int32_t *sums, *offsets;
    float *chain;
    hth_axpy_state state[MAX_THREAD];
    float scale[MAX_TOK * N_CLUSTER];
} sums_buffers;

static void open_sums(sums_buffers *r)
{
    size_t n = MAX_THREAD * hth_axpy_width(N_OUT);
    r->wide = calloc(n, sizeof *r->wide);
    r->sums = calloc(n, sizeof *r->sums);
    r->offsets = calloc(n / 16, sizeof *r->offsets);
    r->chain = calloc(n, sizeof *r->chain);
    if (!r->wide || !r->sums || !r->offsets || !r->chain) abort();
    r->scratch = (hth_axpy_scratch){r->wide, r->sums, r->offsets, r->chain, r->state, r->scale, N_CLUSTER};
}

static void close_sums(sums_buffers *r)
{
    free(r->wide);
    free(r->sums);
    free(r->offsets);
    free(r->chain);
}

static hth_transposed_down make_neurons(test_random *r, hth_type type)
{
    static rows_case c;
    rows_shape s = {.type = type, .n_row = N_NEURON, .n_col = N_OUT, .n_tok = 1};
    size_t row_size = rows_bytes(type, N_OUT);
    hth_transposed_down n = {
        {.type = type, .n_row = N_NEURON, .n_col = N_OUT, .row_size = row_size, .data = weights},
        scale_max,
        N_CLUSTER};
    rows_case_open(&c, sizeof weights, N_OUT);
    rows_case_make(&c, r, &s);
    memcpy(weights, c.job.w, N_NEURON * row_size);
    rows_case_close(&c);
    memset(scale_max, 0, sizeof scale_max);
    for (size_t i = 0; i < N_NEURON; i++)
        hth_axpy_raise(&scale_max[i / HTH_CLUSTER_NEURONS],
                       hth_axpy_absmax_scale(type, weights + i * row_size, N_OUT));
    return n;
}

static void make_firing(test_random *r, size_t n_tok)
{
    for (size_t t = 0; t < n_tok; t++) {
        uint32_t one_in = 1 + test_random_below(r, 30);
        float sizes[N_CLUSTER];
        size_t n = 0;
        for (int i = 0; i < N_CLUSTER; i++)
            sizes[i] = (float)(1 << test_random_below(r, 3) * test_random_below(r, 5));
        for (int32_t i = 0; i < N_NEURON; i++)
            if (test_random_below(r, one_in) == 0) {
                lists[t][n] = i;
                h[t][n++] = sizes[i / HTH_CLUSTER_NEURONS] * test_random_float(r);
            }
        if (t % 9 == 5) n = 0;
        active[t] = (hth_active_set){lists[t], h[t], n};
    }
}

/* One token, cluster by cluster. */
static void expect_token(const hth_kernels *k, const hth_transposed_down *n, const hth_active_set *f,
                         float *out)
{
    static int64_t acc64[N_OUT];
    static int32_t sums[N_OUT], offsets[N_OUT / 16];
    static float chain[N_OUT];
    hth_type type = n->rows.type;
    bool floats = hth_type_act_block(type) == 0, overflow = false;
    int safe = hth_axpy_safe_exponent(type, N_CLUSTER);
    hth_axpy_job d = {.w = weights,
                      .row_size = n->rows.row_size,
                      .n_out = N_OUT,
                      .list = f->list,
                      .h = f->h,
                      .sums = sums,
                      .offsets = offsets,
                      .chain = chain};
    memset(acc64, 0, sizeof acc64);
    for (size_t at = 0; at < f->n; at += d.n, d.list += d.n, d.h += d.n) {
        for (d.n = 1; at + d.n < f->n && d.list[d.n] / 256 == d.list[0] / 256; d.n++) continue;
        d.scale = hth_axpy_scale(d.h, d.n, scale_max[d.list[0] / 256], safe);
        overflow |= d.scale == 0.0f && !floats;
        if (overflow) continue;
        k->axpy[type](&d);
        if (floats) k->axpy_flush_chain(N_OUT, chain, acc64);
        else k->axpy_flush(type, N_OUT, d.scale, sums, offsets, acc64);
    }
    hth_axpy_finish(acc64, N_OUT, out);
    for (size_t o = 0; overflow && o < N_OUT; o++) out[o] = NAN;
}

/* The same rows in runs that lie in another order; runs without an active row are nowhere. */
static hth_transposed_down scatter(const hth_transposed_down *n, size_t n_tok)
{
    enum { SHIFT = 4, N_RUN = (N_NEURON >> SHIFT) + 1 };
    static uint8_t scattered[sizeof weights];
    static const uint8_t *at[N_RUN];
    size_t row_size = n->rows.row_size, run_size = row_size << SHIFT;
    hth_transposed_down in_runs = *n;
    memset(at, 0, sizeof at);
    for (size_t t = 0; t < n_tok; t++)
        for (size_t i = 0; i < active[t].n; i++) {
            size_t row = (size_t)active[t].list[i], run = row >> SHIFT;
            uint8_t *to = scattered + (N_RUN - 1 - run) * run_size;
            at[run] = to;
            memcpy(to + (row - (run << SHIFT)) * row_size, n->rows.data + row * row_size, row_size);
        }
    in_runs.rows.data = NULL, in_runs.rows.runs = (hth_row_runs){at, SHIFT};
    return in_runs;
}

static void check_rows(const hth_kernels *k, hth_pool *pool, const hth_transposed_down *n,
                       const hth_transposed_down *lie, size_t n_tok, sums_buffers *scratch)
{
    static float expected[N_OUT];
    hth_axpy_output out = {.down_t = lie, .bias = bias, .y = y, .add_to = add_to};
    for (size_t i = 0; i < n_tok * N_OUT; i++) add_to[i] = (float)(i % 7);
    hth_axpy_add(k, pool, &scratch->scratch, active, n_tok, &out);
    hth_pool_finish(pool);
    for (size_t t = 0; t < n_tok; t++) {
        expect_token(k, n, &active[t], expected);
        for (size_t o = 0; o < N_OUT; o++) {
            expected[o] += bias[o];
            expected[o] = (float)((t * N_OUT + o) % 7) + expected[o];
        }
        if (proof_differ_f32(add_to + t * N_OUT, expected, N_OUT) < N_OUT)
            test_fail(__FILE__, __LINE__, "%s: token %zu of %zu differs, %u threads",
                      rows_type_name(n->rows.type), t, n_tok, hth_pool_n_thread(pool));
    }
}

static void check_product(const hth_kernels *k, hth_pool *pool, const hth_transposed_down *n, size_t n_tok,
                          sums_buffers *scratch)
{
    const hth_transposed_down in_runs = scatter(n, n_tok);
    check_rows(k, pool, n, n, n_tok, scratch);
    check_rows(k, pool, n, &in_runs, n_tok, scratch);
}

TEST(any_threads_and_tokens_give_the_sums_of_the_whole_list)
{
    static const hth_type types[] = {HTH_TYPE_Q4_0, HTH_TYPE_Q8_0, HTH_TYPE_Q4_K, HTH_TYPE_Q6_K,
                                     HTH_TYPE_F16};
    test_random r = proof_random();
    hth_cpu levels[PROOF_MAX_LEVEL];
    CLEANUP(close_sums) sums_buffers scratch = {0};
    int n_level = proof_levels(levels);
    hth_kernels k = proof_kernels(n_level ? levels[n_level - 1] : HTH_CPU_GENERIC);
    open_sums(&scratch);
    for (size_t i = 0; i < N_OUT; i++) bias[i] = test_random_float(&r);
    for (uint32_t n_thread = 1; n_thread <= MAX_THREAD; n_thread++) {
        CLOSED(hth_pool) *pool = OPENED(hth_pool, n_thread);
        for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
            hth_transposed_down n = make_neurons(&r, types[i]);
            static const size_t n_toks[] = {1, 2, 3, 4, 31, 32, 33, MAX_TOK};
            for (size_t j = 0; j < sizeof n_toks / sizeof *n_toks; j++) {
                make_firing(&r, n_toks[j]);
                check_product(&k, pool, &n, n_toks[j], &scratch);
            }
        }
    }
}

/* An input that is not finite, or too large, makes the outputs of its token NaN and no others. */
TEST(a_value_that_is_not_finite_spoils_its_token_alone)
{
    test_random r = proof_random();
    CLEANUP(close_sums) sums_buffers scratch = {0};
    hth_kernels k = proof_kernels(hth_cpu_detect());
    open_sums(&scratch);
    CLOSED(hth_pool) *pool = OPENED(hth_pool, 2);
    static const hth_type types[] = {HTH_TYPE_Q4_0, HTH_TYPE_F16, HTH_TYPE_Q8_0};
    static const float wrong[] = {NAN, 0x1p100f, 0x1p50f};
    for (size_t i = 0; i < 3; i++) {
        hth_transposed_down n = make_neurons(&r, types[i]);
        for (size_t n_tok = 2; n_tok <= 6; n_tok += 4) {
            hth_axpy_output out = {.down_t = &n, .y = y};
            make_firing(&r, n_tok);
            for (size_t j = 0; j < N_NEURON; j++) lists[1][j] = (int32_t)j, h[1][j] = 1.0f;
            h[1][10] = wrong[i];
            active[1].n = N_NEURON;
            hth_axpy_add(&k, pool, &scratch.scratch, active, n_tok, &out);
            hth_pool_finish(pool);
            bool others = true, own = true;
            for (size_t o = 0; o < N_OUT; o++) own = own && y[N_OUT + o] != y[N_OUT + o];
            for (size_t t = 0; t < n_tok; t++)
                for (size_t o = 0; t != 1 && o < N_OUT; o++)
                    others = others && y[t * N_OUT + o] == y[t * N_OUT + o];
            CHECK(own && others);
            make_firing(&r, n_tok); /* and leaves nothing behind */
            check_product(&k, pool, &n, n_tok, &scratch);
        }
    }
}
