/* kernels/product.c: matrices of different types over one input give what each of them
 * gives alone: the input is rounded for each kind of block, and none gets another's. */
#include "kernels/product.h"

#include "base/alloc.h"
#include "support/kernels/proof.h"
#include "support/kernels/rows_case.h"

#include <time.h>

enum { N_COL = 512, N_ROW = 37, N_TOK = 5 };

enum { N_TYPE = 3 }; /* matrices of a product, each of its type */
static float x[N_TOK * N_COL], together[N_TYPE][N_TOK * N_ROW], alone[N_TOK * N_ROW];
static uint8_t weights[N_TYPE][4 * N_ROW * N_COL];
static int8_t q[N_TOK * N_COL], q_256[N_TOK * N_COL];
static float d[N_TOK * N_COL / 32], d_256[N_TOK * N_COL / 256];
static int32_t sum[N_TOK * N_COL / 32];
static int16_t sum_16[N_TOK * N_COL / 16];
static int8_t mul_mat_q[2][HTH_TILE_FLOAT_TOK * N_COL];
static float tile_d[2][HTH_TILE_FLOAT_TOK * N_COL / 32];
static float tile_x[HTH_TILE_FLOAT_TOK * N_COL];
static int32_t tile_offset[HTH_TILE_FLOAT_TOK * N_COL / 32];
static int16_t tile_sum_16[HTH_TILE_FLOAT_TOK * N_COL / 16];
static float part[2 * HTH_PRODUCT_SCRATCH]; /* two threads: units may be computed twice */
_Alignas(64) static uint8_t work[2 * HTH_PANEL_WORK];
static const hth_act_q8 act_q8 = {
    .q = q,
    .d = d,
    .sum = sum,
    .q_256 = q_256,
    .d_256 = d_256,
    .sum_16 = sum_16,
    .part = part,
    .work = work,
    .tiles = {.q = mul_mat_q[0], .d = tile_d[0], .offset = tile_offset, .x = tile_x},
    .tiles_256 = {.q = mul_mat_q[1], .d = tile_d[1], .sum_16 = tile_sum_16}};

static void fill_matrix(test_random *r, hth_type type, uint8_t *w)
{
    static rows_case c;
    rows_shape s = {.type = type, .n_row = N_ROW, .n_col = N_COL, .n_tok = 1};
    rows_case_open(&c, 4 * N_ROW * N_COL, N_COL);
    rows_case_make(&c, r, &s);
    memcpy(w, c.job.w, N_ROW * rows_bytes(type, N_COL));
    rows_case_close(&c);
}

static hth_matrix matrix_of(hth_type type, size_t n_row, const uint8_t *w, hth_layout layout)
{
    return (hth_matrix){.type = type,
                        .n_row = n_row,
                        .n_col = N_COL,
                        .row_size = rows_bytes(type, N_COL),
                        .data = w,
                        .layout = layout};
}

/* Rows of a list, in runs that lie apart, give what they give among all. */
static void check_list(test_random *r, hth_pool *pool, const hth_kernels *k, hth_type type, size_t n_tok)
{
    enum { SHIFT = 3, RUN = 1 << SHIFT, N_RUN = (N_ROW + RUN - 1) / RUN };
    static uint8_t apart[N_RUN * RUN * 4 * N_COL];
    const uint8_t *at[N_RUN] = {NULL};
    int32_t list[N_ROW];
    size_t n = 0, row_size = rows_bytes(type, N_COL);
    fill_matrix(r, type, weights[0]);
    hth_matrix m = matrix_of(type, N_ROW, weights[0], HTH_LAYOUT_ROWS), in_runs = m;
    for (size_t i = 0; i < N_ROW; i++) {
        if (i / RUN == 1 || test_random_below(r, 3) == 0) continue;
        uint8_t *to = apart + (N_RUN - 1 - i / RUN) * RUN * row_size;
        at[i / RUN] = to;
        memcpy(to + i % RUN * row_size, weights[0] + i * row_size, row_size);
        list[n++] = (int32_t)i;
    }
    in_runs.data = NULL, in_runs.runs = (hth_row_runs){at, SHIFT};
    hth_output all = {.matrix = &m, .y = alone},
               some = {.matrix = &in_runs, .list = list, .n_list = n, .y = together[0], .n_y = N_ROW};
    hth_product(k, pool, &act_q8, x, n_tok, &all, 1);
    hth_product(k, pool, &act_q8, x, n_tok, &some, 1);
    for (size_t t = 0; t < n_tok; t++)
        for (size_t i = 0; i < n; i++)
            if (memcmp(&together[0][t * N_ROW + i], &alone[t * N_ROW + (size_t)list[i]], sizeof *alone) != 0)
                test_fail(__FILE__, __LINE__, "%s: row %d of a list differs, token %zu of %zu",
                          rows_type_name(type), list[i], t, n_tok);
}

/* Three types in one call, then one by one with nothing left of the call before. */
static void check_types(test_random *r, hth_pool *pool, const hth_kernels *k, const hth_type types[])
{
    hth_matrix m[N_TYPE];
    hth_output outputs[N_TYPE];
    for (int i = 0; i < N_TYPE; i++) {
        fill_matrix(r, types[i], weights[i]);
        m[i] = matrix_of(types[i], N_ROW, weights[i], HTH_LAYOUT_ROWS);
        outputs[i] = (hth_output){.matrix = &m[i], .y = together[i]};
    }
    hth_product(k, pool, &act_q8, x, N_TOK, outputs, N_TYPE);
    for (int i = 0; i < N_TYPE; i++) {
        memset(q, 1, sizeof q), memset(q_256, 1, sizeof q_256);
        hth_output one = {.matrix = &m[i], .y = alone};
        hth_product(k, pool, &act_q8, x, N_TOK, &one, 1);
        if (proof_differ_f32(together[i], alone, N_TOK * N_ROW) < N_TOK * N_ROW)
            test_fail(__FILE__, __LINE__, "%s beside %s, %s and %s gives other bits",
                      rows_type_name(types[i]), rows_type_name(types[0]), rows_type_name(types[1]),
                      rows_type_name(types[2]));
    }
}

TEST(listed_rows_in_runs_give_what_they_give_among_all)
{
    static const hth_type types[] = {HTH_TYPE_Q4_0, HTH_TYPE_Q8_0, HTH_TYPE_Q4_K,
                                     HTH_TYPE_Q6_K, HTH_TYPE_F16,  HTH_TYPE_F32};
    test_random r = proof_random();
    hth_cpu levels[PROOF_MAX_LEVEL];
    int n_level = proof_levels(levels);
    CLOSED(hth_pool) *pool = OPENED(hth_pool, 2);
    for (size_t i = 0; i < N_TOK * N_COL; i++) x[i] = test_random_float(&r);
    for (int l = 0; pool && l < n_level; l++) {
        hth_kernels k = proof_kernels(levels[l]);
        for (size_t i = 0; i < sizeof types / sizeof *types; i++)
            for (size_t n_tok = 1; n_tok <= N_TOK; n_tok++) check_list(&r, pool, &k, types[i], n_tok);
    }
}

TEST(types_that_share_an_input_do_not_disturb_each_other)
{
    test_random r = proof_random();
    CLOSED(hth_pool) *pool = NULL;
    hearth_error err;
    hth_kernels k = proof_kernels(hth_cpu_detect());
    if (!CHECK_INT(hth_pool_open(2, &pool, &err), HEARTH_OK)) return;
    proof_fill_f32(&r, PROOF_PLAIN, x, N_TOK * N_COL);
    for (int a = 0; a < ROWS_N_TYPE; a++)
        for (int b = 0; b < ROWS_N_TYPE; b++) {
            int c = (int)test_random_below(&r, ROWS_N_TYPE);
            check_types(&r, pool, &k, (hth_type[]){rows_types[a], rows_types[b], rows_types[c]});
        }
}

/* y against the sum in double of what the weights and the inputs are: rounding to 8 bits
 * errs by a hundredth at most. */
TEST(every_type_gives_about_the_product_of_its_weights)
{
    static float row[N_COL];
    test_random r = proof_random();
    CLOSED(hth_pool) *pool = NULL;
    hearth_error err;
    hth_kernels k = proof_kernels(hth_cpu_detect());
    if (!CHECK_INT(hth_pool_open(1, &pool, &err), HEARTH_OK)) return;
    proof_fill_f32(&r, PROOF_PLAIN, x, N_TOK * N_COL);
    for (int t = 0; t < ROWS_N_TYPE; t++) {
        hth_matrix m = matrix_of(rows_types[t], N_ROW, weights[0], HTH_LAYOUT_ROWS);
        hth_output one = {.matrix = &m, .y = alone};
        fill_matrix(&r, rows_types[t], weights[0]);
        hth_product(&k, pool, &act_q8, x, N_TOK, &one, 1);
        for (int i = 0; i < N_ROW * N_TOK; i++) {
            double y = 0, size = 0;
            k.unpack[m.type](weights[0] + (size_t)(i % N_ROW) * m.row_size, N_COL, row);
            for (int j = 0; j < N_COL; j++) {
                double term = (double)row[j] * (double)x[i / N_ROW * N_COL + j];
                y += term, size += term < 0 ? -term : term;
            }
            double error = y - (double)alone[i];
            if (!(error <= 0.01 * size && -error <= 0.01 * size))
                test_fail(__FILE__, __LINE__, "%s: output %d is %g, not %g", rows_type_name(m.type), i,
                          (double)alone[i], y);
        }
    }
}

/* ---- units of many sizes ---------------------------------------------------------------------- */

enum { N_LARGE_ROW = 40000 }; /* Q8_0: 22 MB, so that units of one token have the most weights */

/* The first of two tokens, whose units are the smallest, against the same token alone. */
static void check_units(hth_pool *pool, const hth_kernels *k, hth_matrix *m, hth_activate_fn *activate)
{
    static float pair[2 * N_LARGE_ROW], one[N_LARGE_ROW];
    static const size_t n_rows[] = {100, 9000, 20011, N_LARGE_ROW};
    for (size_t i = 0; i < sizeof n_rows / sizeof *n_rows; i++) {
        hth_matrix half = *m;
        size_t n = activate ? n_rows[i] / 2 : n_rows[i];
        m->n_row = half.n_row = n;
        half.data = m->data + (activate ? n * m->row_size : 0);
        for (size_t n_tok = 1; n_tok <= 2; n_tok++) {
            float *y = n_tok == 1 ? one : pair;
            hth_output outputs[2] = {{.matrix = m, .y = y}, {.matrix = &half}};
            hth_fusion fusion = {.activate = activate, .hidden = y};
            memset(y, 255, n_tok * n * sizeof *y);
            hth_product_add(k, pool, &act_q8, x, n_tok, outputs, activate ? 2 : 1, activate ? &fusion : NULL);
            hth_pool_finish(pool);
        }
        if (proof_differ_f32(one, pair, n) < n)
            test_fail(__FILE__, __LINE__, "%zu rows%s: other bits", n, activate ? " of gate and up" : "");
    }
}

TEST(units_of_any_size_give_the_same_bits)
{
    test_random r = proof_random();
    CLOSED(hth_pool) *pool = NULL;
    hearth_error err;
    hth_kernels k = proof_kernels(hth_cpu_detect());
    size_t row_size = rows_bytes(HTH_TYPE_Q8_0, N_COL);
    uint8_t *w = hth_alloc(N_LARGE_ROW, row_size);
    if (!CHECK_INT(hth_pool_open(2, &pool, &err), HEARTH_OK)) return;
    proof_fill_f32(&r, PROOF_PLAIN, x, 2 * N_COL);
    fill_matrix(&r, HTH_TYPE_Q8_0, w);
    for (size_t at = N_ROW; at < N_LARGE_ROW; at++)
        memcpy(w + at * row_size, w + at % N_ROW * row_size, row_size);
    hth_matrix m = matrix_of(HTH_TYPE_Q8_0, N_LARGE_ROW, w, HTH_LAYOUT_ROWS);
    check_units(pool, &k, &m, NULL);
    check_units(pool, &k, &m, k.activate[0]);
    hth_free(w);
}

/* ---- late threads --------------------------------------------------------------------------- */

enum { N_THREAD = 3, N_LATE_ROW = 3200 }; /* F32: units of one token have more rows than the least */

static void nap_sometimes(hth_pool_point point, uint32_t i_thread)
{
    static _Atomic uint32_t n_call;
    if (point == HTH_POOL_CLAIMED && i_thread > 0 && n_call++ % 16 == 0)
        nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
}

/* N_TOK products of one token, queued one behind the other: to y[t] of N_LATE_ROW. */
static void multiply_one_by_one(hth_pool *pool, const hth_kernels *k, const hth_act_q8 *r,
                                const hth_matrix *m, float *y)
{
    for (size_t t = 0; t < N_TOK; t++) {
        hth_output one = {.matrix = m, .y = y + t * N_LATE_ROW};
        hth_product_add(k, pool, r, x + t * N_COL, 1, &one, 1, NULL);
    }
    hth_pool_finish(pool);
}

TEST(threads_that_are_late_change_nothing)
{
    static float many_part[N_THREAD * HTH_PRODUCT_SCRATCH], wanted[N_TOK * N_LATE_ROW], y[N_TOK * N_LATE_ROW];
    test_random r = proof_random();
    hth_pool *alone_pool = NULL, *pool = NULL;
    hearth_error err;
    hth_shared_input input = {.size = hth_input_size(N_COL)};
    input.words = hth_alloc(1, input.size);
    input.copies = hth_alloc(N_THREAD, HTH_INPUT_HEAD + input.size);
    uint8_t *w = hth_alloc(N_LATE_ROW, N_COL * sizeof(float)),
            *rows_work = hth_alloc(N_THREAD, HTH_PANEL_WORK);
    hth_act_q8 late = act_q8;
    late.input = &input, late.part = many_part, late.work = rows_work;
    hth_kernels k = proof_kernels(hth_cpu_detect());
    if (!CHECK_INT(hth_pool_open(1, &alone_pool, &err), HEARTH_OK)) return;
    if (!CHECK_INT(hth_pool_open(N_THREAD, &pool, &err), HEARTH_OK)) return;
    hth_pool_set_hook(pool, nap_sometimes);
    hth_pool_set_straggler_timeout(pool, 1);
    proof_fill_f32(&r, PROOF_PLAIN, x, N_TOK * N_COL);
    for (int i = 0; i < 2 * ROWS_N_TYPE; i++) {
        hth_type type = rows_types[i / 2];
        hth_layout layout =
            i % 2 && k.panels[type] && hth_panel_supported(type) ? HTH_LAYOUT_PANELS : HTH_LAYOUT_ROWS;
        hth_matrix m = matrix_of(type, N_LATE_ROW, w, layout);
        fill_matrix(&r, type, w);
        for (size_t at = 0; at < N_LATE_ROW; at++) /* N_ROW random rows, over and over */
            memmove(w + at * m.row_size, w + at % N_ROW * m.row_size, m.row_size);
        multiply_one_by_one(alone_pool, &k, &late, &m, wanted);
        for (int round = 0; round < 4; round++) {
            memset(y, 255, sizeof y);
            multiply_one_by_one(pool, &k, &late, &m, y);
            if (proof_differ_f32(y, wanted, N_TOK * N_LATE_ROW) < N_TOK * N_LATE_ROW)
                test_fail(__FILE__, __LINE__, "%s, round %d: other bits", rows_type_name(type), round);
        }
        hth_pool_quiesce(pool); /* before the matrix changes */
    }
    CHECK(hth_pool_n_backup(pool) > 0);
    hth_pool_close(pool);
    hth_pool_close(alone_pool);
    hth_free(input.words);
    hth_free(input.copies);
    hth_free(w);
    hth_free(rows_work);
}
