/* Products of bf16: an approximation, so it is held against its own bound: inputs rounded to eight
 * bits, sums of floats in any order. Skipped where the machine has no such products. */
#include "support/kernels/proof.h"

#include "base/bits.h"
#include "kernels/kernels.h"

enum { MAX_ROW = 64, MAX_COL = 4200, MAX_TOK = 140, MAX_WEIGHT = 1 << 18, MAX_INPUT_SIZE = 1 << 17 };

static uint16_t weights[MAX_WEIGHT];
static uint8_t panels[2 * MAX_WEIGHT];
_Alignas(64) static uint8_t work[HTH_PANEL_WORK];
static float x[MAX_INPUT_SIZE], tiled[2 * MAX_INPUT_SIZE];
static float got[2][MAX_ROW * MAX_TOK], exact[MAX_ROW * MAX_TOK];

typedef struct shape {
    size_t n_row, n_col, n_tok;
} shape;

static hth_rows make_job(test_random *r, const shape *s)
{
    hth_tiles tiles = {.x = tiled};
    proof_fill_bf16(r, PROOF_PLAIN, weights, s->n_row * s->n_col);
    proof_fill_f32(r, PROOF_PLAIN, x, s->n_tok * s->n_col);
    for (size_t i = 0; i < s->n_row; i += HTH_PANEL_ROW)
        hth_panel_pack(HTH_TYPE_BF16, s->n_col, (const uint8_t *)(weights + i * s->n_col), 2 * s->n_col,
                       panels + 2 * i * s->n_col);
    for (size_t t = 0; t < s->n_tok; t++) hth_tiles_put_floats(&tiles, t, s->n_tok, s->n_col, x + t * s->n_col);
    return (hth_rows){.w = (const uint8_t *)weights, .row_size = 2 * s->n_col, .n_col = s->n_col, .end = s->n_row,
                      .n_tok = s->n_tok, .y_stride = s->n_row, .work = work, .act = {.x = x, .tiles = tiles}};
}

/* Each output against the sum in doubles: an input is off by 2^-9 of itself at most, and a sum of
 * n floats by n 2^-24 of the sum of its sizes. */
static void check_bound(const shape *s, const float *y)
{
    for (size_t i = 0; i < s->n_row; i++)
        for (size_t t = 0; t < s->n_tok; t++) {
            double sum = 0, size = 0;
            for (size_t k = 0; k < s->n_col; k++) {
                double term = (double)hth_bf16_to_f32(weights[i * s->n_col + k]) * (double)x[t * s->n_col + k];
                sum += term, size += fabs(term);
            }
            double bound = size * (0x1p-8 + (double)s->n_col * 0x1p-23),
                   error = (double)y[t * s->n_row + i] - sum;
            if (!(fabs(error) <= bound))
                test_fail(__FILE__, __LINE__, "row %zu, token %zu of %zu x %zu x %zu is %g, not %g", i, t,
                          s->n_row, s->n_col, s->n_tok, (double)y[t * s->n_row + i], sum);
        }
}

static void check_shape(test_random *r, const hth_kernels *k, const shape *s)
{
    hth_rows job = make_job(r, s);
    for (int layout = 0; layout < 2; layout++) {
        job.layout = layout ? HTH_LAYOUT_PANELS : HTH_LAYOUT_ROWS;
        job.w = layout ? panels : (const uint8_t *)weights;
        job.y = got[layout];
        k->panels[HTH_TYPE_BF16](&job);
    }
    check_bound(s, got[0]);
    CHECK_BYTES(got[0], got[1], s->n_row * s->n_tok * sizeof(float));
}

TEST(products_of_bf16_stay_within_their_bound)
{
    test_random r = proof_random();
    hth_kernels before;
    hth_kernels k = proof_kernels(hth_cpu_detect());
    before = k;
    if (!hth_kernels_use_bf16_dot(&k)) { /* this machine multiplies no bf16: nothing changes */
        CHECK_BYTES(&k, &before, sizeof k);
        return;
    }
    CHECK(k.panels[HTH_TYPE_BF16] != before.panels[HTH_TYPE_BF16]);
    for (size_t n_col = 1; n_col <= 70; n_col++) {
        shape s = {16 * (1 + n_col % 4), n_col, 2 + n_col % 19};
        check_shape(&r, &k, &s);
    }
    check_shape(&r, &k, &(shape){48, 4160, 9}); /* more than a chunk in each pass */
    check_shape(&r, &k, &(shape){32, 33, 131}); /* more tokens than share a chunk */
}

TEST(one_token_is_exact_and_other_levels_have_none)
{
    test_random r = proof_random();
    shape s = {48, 531, 1};
    hth_rows job = make_job(&r, &s);
    hth_kernels k = proof_kernels(HTH_CPU_GENERIC);
    CHECK(!hth_kernels_use_bf16_dot(&k));
    CHECK(!k.panels[HTH_TYPE_BF16]);
    hth_kernels plain = proof_kernels(hth_cpu_detect());
    hth_kernels_init(&k, hth_cpu_detect());
    if (!hth_kernels_use_bf16_dot(&k)) return; /* other levels: above */
    job.w = panels, job.layout = HTH_LAYOUT_PANELS;
    job.y = got[0], k.panels[HTH_TYPE_BF16](&job);
    job.y = exact, plain.panels[HTH_TYPE_BF16](&job);
    CHECK_BYTES(got[0], exact, s.n_row * sizeof(float));
}
