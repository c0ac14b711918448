/* kernels/product.c, hth_product_slices_add: rows of an input times slices of matrices give the bits of hth_product on
 * each slice alone, for every type, layout, level and number of threads. */
#include "base/bits.h"
#include "kernels/product.h"
#include "support/kernels/proof.h"
#include "support/kernels/rows_case.h"

enum { N_COL = 512, MAX_ROW = 176, N_SLICE = 10, N_X = 34, N_TILED = 40, N_THREAD = 3, N_OUTPUT = 2 };

/* Rows of slices with one token, with a part of a tile, and with enough to be packed as panels. Slice 3 comes twice. */
static const hth_submatrix slices[] = {{3, 0, 1}, {0, 1, 1}, {4, 8, 5}, {2, 16, 13}, {1, 32, 1}, {3, 33, 1}};
enum { N_USED = sizeof slices / sizeof *slices };

static float x[N_X * N_COL], x_from[N_X * N_COL], biases[N_OUTPUT][N_SLICE * MAX_ROW];
static uint8_t weights[N_OUTPUT][4 * N_SLICE * MAX_ROW * N_COL];
static float y[N_OUTPUT][N_X * MAX_ROW], expected[N_OUTPUT][N_X * MAX_ROW], added[N_X * MAX_ROW];
static uint32_t slice_of[N_X];

/* ---- scratch memory of products ------------------------------------------------------------------ */

static int8_t q[2][N_X * N_COL], tile_q[2][N_TILED * N_COL];
static float d[2][N_X * N_COL / 32], tile_d[2][N_TILED * N_COL / 32], tile_x[N_TILED * N_COL];
static int32_t sum[N_X * N_COL / 32], tile_offset[N_TILED * N_COL / 32];
static int16_t sum_16[N_X * N_COL / 16], tile_sum_16[N_TILED * N_COL / 16];
static float part[N_THREAD * HTH_PRODUCT_SCRATCH];
_Alignas(64) static uint8_t work[N_THREAD * HTH_PANEL_WORK];
enum { INPUT_SIZE = 16 * N_COL };
static uint64_t words[INPUT_SIZE / 8];
_Alignas(64) static uint8_t copies[N_THREAD * (HTH_INPUT_HEAD + INPUT_SIZE)];
static hth_shared_input input = {.words = words, .copies = copies, .size = INPUT_SIZE};
static const hth_act_q8 act_q8 = {
    .q = q[0], .d = d[0], .sum = sum, .q_256 = q[1], .d_256 = d[1], .sum_16 = sum_16, .part = part, .work = work,
    .tiles = {.q = tile_q[0], .d = tile_d[0], .offset = tile_offset, .x = tile_x},
    .tiles_256 = {.q = tile_q[1], .d = tile_d[1], .sum_16 = tile_sum_16}, .input = &input};

/* Every form of an input becomes NaN or nonsense, so that nothing is left of the product before. */
static void forget_inputs(void)
{
    memset(q, 0x55, sizeof q), memset(tile_q, 0x55, sizeof tile_q), memset(d, 0xff, sizeof d);
    memset(tile_d, 0xff, sizeof tile_d), memset(tile_x, 0xff, sizeof tile_x), memset(sum, 0x55, sizeof sum);
    memset(tile_offset, 0x55, sizeof tile_offset), memset(sum_16, 0x55, sizeof sum_16);
    memset(tile_sum_16, 0x55, sizeof tile_sum_16);
}

/* ---- cases ------------------------------------------------------------------------------------------ */

/* Two matrices of slices, n_row rows each. Joined: both outputs are of the first matrix, slices of one between
 * those of the other. */
typedef struct slices_case {
    const hth_kernels *k;
    hth_pool *pool;
    hth_matrix matrices[N_OUTPUT];
    size_t n_row;
    bool biased, joined;
} slices_case;

/* The matrix, and the bias, of output i, and which of its slices is slice i_slice of that output. */
static int matrix_of(const slices_case *c, int i) { return c->joined ? 0 : i; }
static size_t stored_at(const slices_case *c, int i, uint32_t i_slice)
{
    return c->joined ? 2 * i_slice + (size_t)i : i_slice;
}

static hth_matrix make_matrix(test_random *r, hth_type type, size_t n_row, hth_layout layout, uint8_t *w)
{
    static uint8_t rows[HTH_PANEL_ROW * 4 * N_COL];
    size_t size = rows_bytes(type, N_COL), n = N_SLICE * n_row;
    rows_shape s = {.type = type, .n_col = N_COL};
    for (size_t i = 0; i < n; i++) {
        rows_fill_row(r, &s, w + i * size);
        if (layout == HTH_LAYOUT_ROWS || i % HTH_PANEL_ROW < HTH_PANEL_ROW - 1) continue;
        uint8_t *panel = w + (i - (HTH_PANEL_ROW - 1)) * size;
        memcpy(rows, panel, HTH_PANEL_ROW * size);
        hth_panel_pack(type, N_COL / rows_block(type), rows, size, panel);
    }
    return (hth_matrix){.type = type, .n_row = n, .n_col = N_COL, .row_size = size, .data = w, .layout = layout,
                        .n_slice = N_SLICE};
}

/* Rows that no slice has are NaN; outputs that nothing writes are a number. */
static void fill_case(test_random *r)
{
    for (int i = 0; i < N_X; i++) slice_of[i] = UINT32_MAX;
    for (uint32_t i = 0; i < N_USED; i++)
        for (uint32_t t = 0; t < slices[i].n; t++) slice_of[slices[i].first + t] = i;
    for (int i = 0; i < N_X; i++) {
        memset(x + i * N_COL, 0xff, N_COL * sizeof *x);
        if (slice_of[i] < UINT32_MAX) proof_fill_f32(r, PROOF_PLAIN, x + i * N_COL, N_COL);
    }
    for (int i = 0; i < N_OUTPUT; i++) proof_fill_f32(r, PROOF_PLAIN, biases[i], N_SLICE * MAX_ROW);
    forget_inputs();
    memset(y, 0x5a, sizeof y), memset(expected, 0x5a, sizeof expected);
}

static hth_submatrices all_slices(const slices_case *c)
{
    return (hth_submatrices){.slices = slices, .n_slice = N_USED, .n_row = (uint32_t)c->n_row, .n_x = N_X,
                             .slice_of = slice_of};
}

static void name_outputs(const slices_case *c, hth_output outputs[N_OUTPUT])
{
    for (int i = 0; i < N_OUTPUT; i++)
        outputs[i] = (hth_output){.matrix = &c->matrices[matrix_of(c, i)], .y = y[i],
                                  .bias = c->biased ? biases[matrix_of(c, i)] : NULL,
                                  .slice_step = c->joined ? 2 : (uint32_t)i, /* 0 is 1 */
                                  .first_slice = c->joined ? (uint32_t)i : 0};
}

/* Output i of slice s by hth_product, to `expected`. */
static void expect_slice(const slices_case *c, int i, const hth_submatrix *s, const float *rows)
{
    hth_matrix one = c->matrices[matrix_of(c, i)];
    size_t first = stored_at(c, i, s->i_slice) * c->n_row;
    one.data += first * one.row_size, one.n_row = c->n_row, one.n_slice = 0;
    hth_output o = {.matrix = &one, .y = expected[i] + s->first * c->n_row};
    if (c->biased) o.bias = biases[matrix_of(c, i)] + first;
    hth_product(c->k, c->pool, &act_q8, rows, s->n, &o, 1);
    hth_pool_quiesce(c->pool);
}

static void expect_all(const slices_case *c)
{
    for (int i = 0; i < N_OUTPUT; i++)
        for (uint32_t s = 0; s < N_USED; s++) expect_slice(c, i, &slices[s], x + slices[s].first * N_COL);
    forget_inputs();
}

static void compare(const slices_case *c, int i, const char *what, size_t n)
{
    size_t at = proof_differ_f32(y[i], expected[i], n * c->n_row);
    if (at == n * c->n_row) return;
    const hth_matrix *m = c->matrices;
    test_fail(__FILE__, __LINE__,
              "%s: %s beside %s at %s, layout %d, joined %d, %u threads, %zu rows: row %zu of x, output %zu", what,
              rows_type_name(m[i].type), rows_type_name(m[1 - i].type), hth_cpu_name(c->k->level), (int)m[i].layout,
              c->joined, hth_pool_n_thread(c->pool), c->n_row, at / c->n_row, at % c->n_row);
}

/* ---- separate outputs ------------------------------------------------------------------------------- */

static void check_separate(test_random *r, const slices_case *c)
{
    hth_output outputs[N_OUTPUT];
    hth_submatrices what = all_slices(c);
    fill_case(r);
    expect_all(c);
    name_outputs(c, outputs);
    hth_product_slices_add(c->k, c->pool, &act_q8, x, &what, outputs, N_OUTPUT, NULL);
    hth_pool_finish(c->pool);
    for (int i = 0; i < N_OUTPUT; i++) compare(c, i, "slices", N_X);
}

/* The results are added to what a residual stream holds, but not in padding rows. */
static void check_added(test_random *r, const slices_case *c)
{
    hth_output outputs[N_OUTPUT];
    hth_submatrices what = all_slices(c);
    fill_case(r);
    expect_all(c);
    name_outputs(c, outputs);
    proof_fill_f32(r, PROOF_PLAIN, added, N_X * c->n_row);
    for (size_t i = 0; i < N_X * c->n_row; i++)
        expected[0][i] = slice_of[i / c->n_row] < UINT32_MAX ? added[i] + expected[0][i] : added[i];
    outputs[0].add_to = added;
    hth_product_slices_add(c->k, c->pool, &act_q8, x, &what, outputs, 1, NULL);
    hth_pool_finish(c->pool);
    memcpy(y[0], added, N_X * c->n_row * sizeof *added);
    compare(c, 0, "added", N_X);
}

/* One row of x for slices of one row of y each. */
static void check_shared(test_random *r, const slices_case *c)
{
    static const hth_submatrix ones[] = {{4, 0, 1}, {1, 1, 1}, {2, 2, 1}};
    hth_submatrices what = {.slices = ones, .n_slice = 3, .n_row = (uint32_t)c->n_row, .n_x = 3, .shares_x = true};
    hth_output outputs[N_OUTPUT];
    fill_case(r);
    for (int i = 0; i < N_OUTPUT; i++)
        for (int s = 0; s < 3; s++) expect_slice(c, i, &ones[s], x);
    forget_inputs();
    name_outputs(c, outputs);
    hth_product_slices_add(c->k, c->pool, &act_q8, x, &what, outputs, N_OUTPUT, NULL);
    hth_pool_finish(c->pool);
    for (int i = 0; i < N_OUTPUT; i++) compare(c, i, "one row of x", 3);
}

/* ---- gate and up ------------------------------------------------------------------------------------- */

typedef struct copy_arg {
    const float *from;
    float *to;
    uint64_t unused[2];
} copy_arg;
_Static_assert(sizeof(copy_arg) == HTH_PREPARE_SIZE, "what a product copies");

static void copy_row(const void *arg, size_t t)
{
    const copy_arg *a = arg;
    if (slice_of[t] == UINT32_MAX) test_fail(__FILE__, __LINE__, "row %zu is padding, but is prepared", t);
    memcpy(a->to + t * N_COL, a->from + t * N_COL, N_COL * sizeof *a->to);
}

/* The input is made where it is quantised, and only the activations are kept; of gate and up, or of one matrix. */
static void check_fused(test_random *r, const slices_case *c, size_t n_output)
{
    hth_output outputs[N_OUTPUT];
    hth_submatrices what = all_slices(c);
    copy_arg from = {.from = x_from, .to = x};
    hth_fusion fusion = {.prepare = copy_row, .prepare_arg = &from, .hidden = y[0],
                         .activate = c->k->activate[n_output == 2 ? HTH_ACTIVATION_SWIGLU_OAI : HTH_ACTIVATION_GELU]};
    fill_case(r);
    expect_all(c);
    for (uint32_t s = 0; s < N_USED; s++) {
        size_t at = slices[s].first * c->n_row;
        const float *gate = n_output == 2 ? expected[0] + at : NULL;
        fusion.activate(gate, expected[n_output - 1] + at, slices[s].n * c->n_row, expected[0] + at);
    }
    memcpy(x_from, x, sizeof x), memset(x, 0xff, sizeof x);
    name_outputs(c, outputs);
    outputs[0].y = outputs[1].y = NULL;
    CHECK(hth_product_fits_scratch(13, outputs, n_output));
    hth_product_slices_add(c->k, c->pool, &act_q8, x, &what, outputs, n_output, &fusion);
    hth_pool_finish(c->pool);
    compare(c, 0, n_output == 2 ? "gate and up" : "up alone", N_X);
}

/* ---- all of them -------------------------------------------------------------------------------------- */

static void check_case(test_random *r, slices_case *c, const hth_type types[N_OUTPUT], hth_layout layout)
{
    for (int i = 0; i < N_OUTPUT; i++) {
        hth_layout own = c->k->panels[types[i]] && hth_panel_supported(types[i]) ? layout : HTH_LAYOUT_ROWS;
        c->matrices[i] = make_matrix(r, types[i], c->n_row, own, weights[i]);
    }
    c->biased = test_random_below(r, 2), c->joined = test_random_below(r, 2);
    check_separate(r, c);
    check_added(r, c);
    check_shared(r, c);
    check_fused(r, c, 1);
    check_fused(r, c, 2);
}

static void check_level(hth_cpu level, uint32_t n_thread)
{
    CLOSED(hth_pool) *pool = NULL;
    hearth_error err;
    CHECK(hth_input_size(N_COL) <= INPUT_SIZE);
    if (!CHECK_INT(hth_pool_open(n_thread, &pool, &err), HEARTH_OK)) return;
    hth_kernels k = proof_kernels(level);
    slices_case c = {.k = &k, .pool = pool};
    test_random r = proof_random();
    for (int i = 0; i < ROWS_N_TYPE; i++) {
        hth_type types[N_OUTPUT] = {rows_types[i], rows_types[test_random_below(&r, ROWS_N_TYPE)]};
        c.n_row = 37; /* not whole panels: the next slice does not begin with one */
        check_case(&r, &c, types, HTH_LAYOUT_ROWS);
        c.n_row = MAX_ROW; /* several units */
        check_case(&r, &c, types, HTH_LAYOUT_ROWS);
        check_case(&r, &c, types, HTH_LAYOUT_PANELS);
    }
}

TEST(slices_give_the_bits_of_each_matrix_alone)
{
    hth_cpu levels[PROOF_MAX_LEVEL];
    int n_level = proof_levels(levels);
    if (levels[0] != HTH_CPU_GENERIC) check_level(HTH_CPU_GENERIC, 1);
    for (int i = 0; i < n_level; i++) check_level(levels[i], 1);
}

TEST(slices_do_not_depend_on_threads)
{
    for (uint32_t n = 2; n <= N_THREAD; n++) check_level(hth_cpu_detect(), n);
}

TEST(the_most_rows_that_are_fused_fit_into_scratch_memory)
{
    for (size_t n_output = 1; n_output <= 2; n_output++)
        for (size_t size = 18; size < 100000; size += 1 + size / 7) {
            hth_matrix m = {.type = HTH_TYPE_Q4_0, .n_row = 64, .n_col = 32, .row_size = size};
            hth_output outputs[] = {{.matrix = &m}, {.matrix = &m}};
            size_t n = hth_product_max_fused(outputs, n_output), more = n == 1 ? 0 : n;
            CHECK(n == 1 || n % HTH_TILE_FLOAT_TOK == 0);
            CHECK(hth_product_fits_scratch(n, outputs, n_output));
            CHECK(!hth_product_fits_scratch(more + HTH_TILE_FLOAT_TOK, outputs, n_output));
        }
}
