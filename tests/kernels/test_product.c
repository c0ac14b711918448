/* kernels/product.c: matrices of different types over one input give what each of them
 * gives alone: the input is rounded for each kind of block, and none gets another's. */
#include "kernels/product.h"
#include "support/proof.h"
#include "support/rows_case.h"

#include <string.h>

enum { N_COL = 512, N_ROW = 37, N_TOK = 5 };

static float x[N_TOK * N_COL], together[HTH_PRODUCT_MAX][N_TOK * N_ROW], alone[N_TOK * N_ROW];
static uint8_t weights[HTH_PRODUCT_MAX][4 * N_ROW * N_COL];
static int8_t q[N_TOK * N_COL], q_256[N_TOK * N_COL];
static float d[N_TOK * N_COL / 32], d_256[N_TOK * N_COL / 256];
static int32_t sum[N_TOK * N_COL / 32];
static int16_t sum_16[N_TOK * N_COL / 16];
static int8_t tile_q[2][HTH_TILE_FLOAT_TOK * N_COL];
static float tile_d[2][HTH_TILE_FLOAT_TOK * N_COL / 32];
static float tile_x[HTH_TILE_FLOAT_TOK * N_COL];
static int32_t tile_offset[HTH_TILE_FLOAT_TOK * N_COL / 32];
static int16_t tile_sum_16[HTH_TILE_FLOAT_TOK * N_COL / 16];
static float part[2 * HTH_PRODUCT_PART]; /* two threads: units may be computed twice */
_Alignas(64) static uint8_t work[2 * HTH_PANEL_WORK];
static const hth_rounding rounding = {
    .q = q,
    .d = d,
    .sum = sum,
    .q_256 = q_256,
    .d_256 = d_256,
    .sum_16 = sum_16,
    .part = part,
    .work = work,
    .tiles = {.q = tile_q[0], .d = tile_d[0], .offset = tile_offset, .x = tile_x},
    .tiles_256 = {.q = tile_q[1], .d = tile_d[1], .sum_16 = tile_sum_16}};

static void fill_matrix(test_random *r, hth_type type, uint8_t *w)
{
    static rows_case c;
    rows_shape s = {.type = type, .n_row = N_ROW, .n_col = N_COL, .n_tok = 1};
    rows_case_open(&c, 4 * N_ROW * N_COL, N_COL);
    rows_case_make(&c, r, &s);
    memcpy(w, c.job.w, N_ROW * rows_bytes(type, N_COL));
    rows_case_close(&c);
}

/* Three types in one call, then one by one with nothing left of the call before. */
static void check_types(test_random *r, hth_pool *pool, const hth_kernels *k, const hth_type types[])
{
    hth_matrix m[HTH_PRODUCT_MAX];
    hth_output outputs[HTH_PRODUCT_MAX];
    for (int i = 0; i < HTH_PRODUCT_MAX; i++) {
        fill_matrix(r, types[i], weights[i]);
        m[i] = (hth_matrix){types[i], N_ROW, N_COL, rows_bytes(types[i], N_COL), weights[i], HTH_LAYOUT_ROWS};
        outputs[i] = (hth_output){.matrix = &m[i], .y = together[i]};
    }
    hth_product(k, pool, &rounding, x, N_TOK, outputs, HTH_PRODUCT_MAX);
    for (int i = 0; i < HTH_PRODUCT_MAX; i++) {
        memset(q, 1, sizeof q), memset(q_256, 1, sizeof q_256);
        hth_output one = {.matrix = &m[i], .y = alone};
        hth_product(k, pool, &rounding, x, N_TOK, &one, 1);
        if (proof_differ_f32(together[i], alone, N_TOK * N_ROW) < N_TOK * N_ROW)
            test_fail(__FILE__, __LINE__, "%s beside %s, %s and %s gives other bits",
                      rows_type_name(types[i]), rows_type_name(types[0]), rows_type_name(types[1]),
                      rows_type_name(types[2]));
    }
}

TEST(types_that_share_an_input_do_not_disturb_each_other)
{
    test_random r = proof_random();
    hth_kernels k;
    hth_pool *pool = NULL;
    hearth_error err;
    hth_kernels_init(&k, hth_cpu_machine());
    if (!CHECK_INT(hth_pool_open(2, &pool, &err), HEARTH_OK)) return;
    proof_fill_f32(&r, PROOF_PLAIN, x, N_TOK * N_COL);
    for (int a = 0; a < ROWS_N_TYPE; a++)
        for (int b = 0; b < ROWS_N_TYPE; b++) {
            int c = (int)test_random_below(&r, ROWS_N_TYPE);
            check_types(&r, pool, &k, (hth_type[]){rows_types[a], rows_types[b], rows_types[c]});
        }
    hth_pool_close(pool);
}

/* y against the sum in double of what the weights and the inputs are: rounding to 8 bits
 * errs by a hundredth at most. */
TEST(every_type_gives_about_the_product_of_its_weights)
{
    static float row[N_COL];
    test_random r = proof_random();
    hth_kernels k;
    hth_pool *pool = NULL;
    hearth_error err;
    hth_kernels_init(&k, hth_cpu_machine());
    if (!CHECK_INT(hth_pool_open(1, &pool, &err), HEARTH_OK)) return;
    proof_fill_f32(&r, PROOF_PLAIN, x, N_TOK * N_COL);
    for (int t = 0; t < ROWS_N_TYPE; t++) {
        hth_matrix m = {rows_types[t], N_ROW,          N_COL, rows_bytes(rows_types[t], N_COL),
                        weights[0],    HTH_LAYOUT_ROWS};
        hth_output one = {.matrix = &m, .y = alone};
        fill_matrix(&r, rows_types[t], weights[0]);
        hth_product(&k, pool, &rounding, x, N_TOK, &one, 1);
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
    hth_pool_close(pool);
}

TEST_MAIN
