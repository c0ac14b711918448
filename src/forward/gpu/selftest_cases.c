/* The inputs of each shader in the self-test: shapes that end inside groups, stretches and tiles, with tokens
 * of the step that must not be computed. Values: selftest_data.c. Only float_rules has subnormals: a device that keeps
 * them there keeps them in all shaders. No result is NaN, whose bits are not promised. */
#include "forward/gpu/selftest.h"

#include "kernels/kernels.h"
#include "model/program.h"
#include "forward/gpu/cache.h"
#include "forward/gpu/experts/pack_table.h"
#include "forward/kv_pool.h"

#include <assert.h>
#include <string.h>

enum { ALIGNMENT = 256, WIDTH = HTH_TEST_WIDTH, MASK_AT = HTH_TEST_MASK_AT, MASK_KINDS = 4 };

static uint32_t over(uint32_t n, uint32_t by) { return (n + by - 1) / by; }

/* ---- shapes ------------------------------------------------------------------------------------------- */

static hth_gpu_test_input *bind_input(hth_gpu_testcase *t, hth_gpu_fill_kind fill, uint64_t n, uint64_t size)
{
    hth_gpu_test_input *g = &t->bind[t->n_bind++];
    *g = (hth_gpu_test_input){.fill = fill, .size = n > 0 ? (n * size + 3) / 4 * 4 : 4};
    return g;
}

/* n floats below 2^max_exponent. */
static void bind_floats(hth_gpu_testcase *t, uint64_t n, int32_t max_exponent)
{
    bind_input(t, HTH_FILL_FLOATS, n, 4)->max_exponent = max_exponent;
}

static void bind_output(hth_gpu_testcase *t, uint64_t n, uint64_t size)
{
    bind_input(t, HTH_FILL_POISON, n, size);
}

/* n_row tokens of which n_done are computed. The step's other count has a value that would expose its
 * misuse. */
static void bind_step(hth_gpu_testcase *t, uint32_t n_row, uint32_t n_done, uint32_t by_want)
{
    t->n_row = n_row, t->n_done = n_done, t->by_want = by_want;
    bind_input(t, HTH_FILL_STEP, HTH_STEP_ROWS + (uint64_t)n_row * HTH_STEP_ROW_WORDS, 4);
}

/* The same with positions and page tables, those of each hth_kv_class (fill_step). */
static void bind_paged_step(hth_gpu_testcase *t, uint32_t n_row, uint32_t n_done,
                            const uint32_t (*positions)[2], const uint32_t *tables, uint32_t n_table)
{
    t->positions = positions, t->tables = tables, t->n_table = n_table;
    bind_step(t, n_row, n_done, 0);
    t->bind[t->n_bind - 1].size += HTH_N_KV_POSITION_CLASS * n_table * sizeof *tables;
}

/* The same with slots of experts. Returns where they begin. */
static uint32_t bind_slots_step(hth_gpu_testcase *t, uint32_t n_row, uint32_t n_done, uint32_t n_expert)
{
    t->n_expert = n_expert;
    bind_step(t, n_row, n_done, 0);
    t->bind[t->n_bind - 1].size += n_expert * sizeof(uint32_t);
    return HTH_STEP_ROWS + n_row * HTH_STEP_ROW_WORDS;
}

/* The same with runs of tokens, of which the last one does not count (fill_runs). */
static void bind_run_step(hth_gpu_testcase *t, uint32_t n_row, uint32_t n_done, const uint32_t (*runs)[HTH_RUN_WORDS],
                          uint32_t n_run)
{
    t->runs = runs, t->n_run = n_run;
    bind_step(t, n_row, n_done, 0);
    t->bind[t->n_bind - 1].size += n_run * sizeof *runs;
}

static void set_call(hth_gpu_testcase *t, const void *push, size_t size, uint32_t gx, uint32_t gy,
                     uint32_t gz)
{
    assert(size == hth_shader_infos[t->id].push_size);
    memcpy(t->push, push, size);
    t->grid[0] = gx, t->grid[1] = gy, t->grid[2] = gz;
}

/* Destination of quantised values; block 0: none. */
static void bind_quantised(hth_gpu_testcase *t, uint64_t n, uint32_t block)
{
    bind_output(t, block ? n : 0, 1);
    bind_output(t, block ? n / block : 0, 4);
    bind_output(t, block ? n / (block == 32 ? 32 : 16) : 0, 4);
}

static void norm_quantize(hth_gpu_testcase *t)
{
    enum { N_ROW = 3 };
    const uint32_t *c = t->consts, block = c[HTH_NORM_QUANTIZE_BLOCK];
    const hth_push_norm_quantize push = {WIDTH, 1, 1e-5f, 1.0f / WIDTH};
    set_call(t, &push, sizeof push, hth_vector_groups(WIDTH, c[HTH_NORM_QUANTIZE_LOCAL]), N_ROW, 1);
    bind_step(t, N_ROW, N_ROW - 1, c[HTH_NORM_QUANTIZE_GATHER]);
    hth_gpu_test_input *x = bind_input(t, HTH_FILL_BLOCKS, (uint64_t)N_ROW * WIDTH, 4);
    x->width = block ? block : 32, x->min_exponent = -60, x->max_exponent = 4;
    bind_floats(t, WIDTH, 1);
    bind_floats(t, WIDTH, 0);
    bind_output(t, c[HTH_NORM_QUANTIZE_STORE] ? (uint64_t)N_ROW * WIDTH : 0, 4);
    bind_quantised(t, (uint64_t)N_ROW * WIDTH, block);
}

static void act_quantize(hth_gpu_testcase *t)
{
    enum { N_ROW = 3, SCORE_STRIDE = WIDTH + 3 };
    const uint32_t *c = t->consts, block = c[HTH_ACT_QUANTIZE_BLOCK], select = c[HTH_ACT_QUANTIZE_SELECT];
    const hth_push_act_quantize push = {WIDTH, SCORE_STRIDE, 0.25f, block || select ? 0.0f : 2.0f};
    set_call(t, &push, sizeof push, hth_vector_groups(WIDTH, c[HTH_ACT_QUANTIZE_LOCAL]), N_ROW, 1);
    bind_step(t, N_ROW, N_ROW - 1, 0);
    bool gated = c[HTH_ACT_QUANTIZE_GATED];
    hth_gpu_test_input *x =
        bind_input(t, gated ? HTH_FILL_GATE_UP : HTH_FILL_UP, (uint64_t)N_ROW * WIDTH * (gated ? 2 : 1), 4);
    x->width = block ? block : 32, x->min_exponent = -30, x->max_exponent = 5;
    hth_gpu_test_input *scores =
        bind_input(t, HTH_FILL_SCORES, select == HTH_SELECT_PREDICTOR ? N_ROW * SCORE_STRIDE : 0, 4);
    scores->width = x->width, scores->min_exponent = SCORE_STRIDE;
    bind_floats(t, select == HTH_SELECT_THRESHOLD ? WIDTH : 0, 0);
    bind_output(t, c[HTH_ACT_QUANTIZE_STORE] ? (uint64_t)N_ROW * WIDTH : 0, 4);
    bind_quantised(t, (uint64_t)N_ROW * WIDTH, block);
}

static void norm_add(hth_gpu_testcase *t)
{
    enum { N_ROW = 3 };
    const hth_push_norm_quantize push = {WIDTH, 1, 1e-5f, 1.0f / WIDTH};
    set_call(t, &push, sizeof push, hth_vector_groups(WIDTH, t->consts[HTH_NORM_ADD_LOCAL]), N_ROW, 1);
    bind_step(t, N_ROW, N_ROW - 1, 0);
    bind_floats(t, (uint64_t)N_ROW * WIDTH, 4);
    hth_gpu_test_input *y = bind_input(t, HTH_FILL_BLOCKS, (uint64_t)N_ROW * WIDTH, 4);
    y->width = 32, y->min_exponent = -60, y->max_exponent = 4;
    bind_floats(t, WIDTH, 1);
    bind_floats(t, WIDTH, 0);
}

static void soft_cap(hth_gpu_testcase *t)
{
    enum { N_ROW = 2, N = WIDTH + 5 };
    const hth_push_soft_cap push = {N, 30.0f, 1.0f / 30.0f};
    set_call(t, &push, sizeof push, hth_vector_groups(N, t->consts[HTH_SOFT_CAP_LOCAL]), N_ROW, 1);
    bind_step(t, N_ROW, N_ROW - 1, 1);
    bind_floats(t, (uint64_t)N_ROW * N, 7);
}

/* Two groups of values inside rows, of three tokens of which two count. */
static void norm_groups(hth_gpu_testcase *t)
{
    enum { N_ROW = 3, N_GROUP = 2, N = 77, STRIDE = N_GROUP * N + 5 };
    const hth_push_norm_groups push = {N, 1, t->consts[HTH_NORM_GROUPS_KIND] == HTH_KIND_LAYER, 1e-5f, 1.0f / N,
                                       {STRIDE, 2}, {STRIDE, 1}};
    set_call(t, &push, sizeof push, N_GROUP, N_ROW, 1);
    bind_step(t, N_ROW, N_ROW - 1, 0);
    bind_floats(t, N_ROW * STRIDE, 4);
    bind_floats(t, N_GROUP * N, 1);
    bind_floats(t, N, 0);
    bind_output(t, N_ROW * STRIDE, 4);
}

static void mul_values(hth_gpu_testcase *t)
{
    enum { N_ROW = 3, WIDTH_OF_HEAD = 3, N = 90 * WIDTH_OF_HEAD, STRIDE = N + 4 };
    bool by_head = t->consts[HTH_MUL_VALUES_FORM] == HTH_MUL_SIGMOID;
    const hth_push_mul_values push = {N, by_head ? WIDTH_OF_HEAD : 0, {STRIDE, 3}, {STRIDE, 0}, {STRIDE, 2}};
    set_call(t, &push, sizeof push, hth_vector_groups(N, t->consts[HTH_MUL_VALUES_LOCAL]), N_ROW, 1);
    bind_step(t, N_ROW, N_ROW - 1, 0);
    bind_floats(t, N_ROW * STRIDE, 4);
    bind_floats(t, N_ROW * STRIDE, 2);
    bind_output(t, N_ROW * STRIDE, 4);
}

static void copy_values(hth_gpu_testcase *t)
{
    enum { N_ROW = 3, COUNT = 9, N = 31, STRIDE = COUNT * (N + 2) + 1 };
    const hth_push_copy_values push = {COUNT, N, 0, 0.3f, {STRIDE, 1}, {STRIDE, 0}, N + 2, N + 1};
    set_call(t, &push, sizeof push, hth_vector_groups(COUNT * N, t->consts[HTH_COPY_VALUES_LOCAL]), N_ROW, 1);
    bind_step(t, N_ROW, N_ROW - 1, 0);
    bind_floats(t, N_ROW * STRIDE, 4);
    bind_floats(t, 1, 0);
    bind_output(t, N_ROW * STRIDE, 4);
}

static void float_rules(hth_gpu_testcase *t)
{
    enum { N = 120 };
    const hth_push_float_rules push = {N};
    set_call(t, &push, sizeof push, over(N, 64), 1, 1);
    for (uint32_t i = 0; i < 2; i++) bind_input(t, HTH_FILL_RULES, N, 4)->width = i;
    bind_output(t, 3 * N, 4);
}

/* Rows in the structure-of-arrays layout, of the last type with this quantisation descriptor. */
static void set_planes(hth_gpu_testcase *t, const uint32_t *form, uint32_t n_row, uint32_t n_block)
{
    hth_quant_desc other;
    memcpy(&t->desc, form, sizeof t->desc);
    for (uint32_t type = 0; type < HTH_TYPE_LIMIT; type++)
        if (hth_quant_desc_of((hth_type)type, &other) && memcmp(&other, form, sizeof other) == 0)
            t->type = (hth_type)type;
    t->n_weight_row = n_row, t->n_block = n_block;
    bool fits = hth_soa_layout_init(t->type, n_row, (uint64_t)n_block * t->desc.block, &t->layout);
    assert(fits); /* each descriptor belongs to a type */
    (void)fits;
}

/* A group of eight blocks and part of the next. */
static uint32_t blocks_of_row(uint32_t block) { return block == 16 ? 12 : block == 32 ? 11 : 9; }

/* A tile of rows (eight of them at least, so that ties are met), and of tokens, and part of the next. With a mask: a
 * tile of each kind (fill_mask) and some rows, starting inside the weights and inside a mask word. */
static void mul_mat_vec_q(hth_gpu_testcase *t)
{
    const uint32_t *c = t->consts, group = hth_rows_per_workgroup(c), tile = group < 8 ? 8 : group;
    const uint32_t cols = c[HTH_ROWS_COLS];
    const uint32_t block = c[HTH_ROWS_FORMAT], n_block = blocks_of_row(block), n_col = n_block * block;
    bool sparse = t->id == HTH_SHADER_mul_mat_vec_q_sparse;
    const uint32_t n_row = (sparse ? MASK_KINDS * tile : tile) + 3, n_done = cols + 2, n_tok = cols + 3,
                   stride = n_row + 2, first = sparse ? 2 : 0;
    set_planes(t, c + HTH_ROWS_FORMAT, n_row + first, n_block);
    const hth_push_mul_mat_vec_q_sparse push = {{n_row, n_block, stride, 1, 1, t->layout.offsets},
                                                {first, MASK_AT}};
    set_call(t, &push, sparse ? sizeof push : sizeof push.rows, over(n_tok, cols), over(n_row, group), 1);
    bind_step(t, n_tok, n_done, c[HTH_ROWS_WANT]);
    bind_input(t, HTH_FILL_PLANES, t->layout.size, 1);
    bind_input(t, HTH_FILL_Q, (uint64_t)n_tok * n_col, 1)->width = n_col;
    bind_input(t, HTH_FILL_Q_SCALES, (uint64_t)n_tok * n_block, 4);
    bind_input(t, HTH_FILL_Q_SUMS, (uint64_t)n_tok * n_col / (block == 256 ? 16 : 32), 4)->width =
        block == 256 ? 16 : 32;
    bind_floats(t, n_row + first, 4);
    if (strchr(hth_shader_infos[t->id].bindings, 'x')) /* _acc: y is read too */
        bind_floats(t, (uint64_t)n_tok * stride, 6);
    else bind_output(t, (uint64_t)n_tok * stride, 4);
    if (sparse) bind_input(t, HTH_FILL_MASK, over(MASK_AT + n_row, 32), 4)->width = tile;
}

/* Choices of slices, with weights of 2^min_exponent and more. */
static void bind_pairs(hth_gpu_testcase *t, uint32_t n_tok, uint32_t n_used, uint32_t n_slice, int32_t min_exponent)
{
    hth_gpu_test_input *pairs = bind_input(t, HTH_FILL_PAIRS, (uint64_t)n_tok * 2 * n_used, 4);
    pairs->width = n_slice, pairs->min_exponent = min_exponent;
}

/* A group of each slice, and the workgroups of one more. */
static void bind_groups(hth_gpu_testcase *t, uint32_t of, uint32_t n_slice)
{
    hth_gpu_test_input *groups = bind_input(t, HTH_FILL_GROUPS, HTH_GROUPS_HEAD + n_slice * (uint64_t)hth_group_words(of), 4);
    groups->width = n_slice, groups->max_exponent = (int32_t)of;
    t->grid[0] = (n_slice + 1) * (of / t->consts[HTH_ROWS_COLS]);
}

/* Two or four of four slices for each token: one has no slot, and one that of another dispatch. Slices overlap, which saves
 * memory. */
static void mul_mat_vec_q_sliced(hth_gpu_testcase *t)
{
    enum { N_SLICE = 4, FIRST = 1, SLICE = 5 };
    const uint32_t *c = t->consts, group = hth_rows_per_workgroup(c), of = c[HTH_ROWS_GROUP],
                   n_row = group + (of > 1 ? 3 : 27), n_weight = SLICE * (N_SLICE - 1) + FIRST + n_row,
                   n_used = of > 8 ? 4 : 2, n_tok = of > 1 ? of / n_used + N_SLICE : 12, n_done = n_tok - 1;
    const uint32_t block = c[HTH_ROWS_FORMAT], n_block = blocks_of_row(block), n_col = n_block * block,
                   stride = n_used * n_row + 2;
    set_planes(t, c + HTH_ROWS_FORMAT, n_weight, n_block);
    const uint32_t slots_at = bind_slots_step(t, n_tok, n_done, N_SLICE);
    const hth_push_mul_mat_vec_q_sliced push = {{n_row, n_block, stride, 1, 1, t->layout.offsets},
                                                {FIRST, SLICE, 1, 0, n_used, 0, n_row, 1, 2, 1, slots_at}};
    set_call(t, &push, sizeof push, n_tok * n_used, over(n_row, group), 1);
    bind_input(t, HTH_FILL_PLANES, t->layout.size, 1);
    bind_input(t, HTH_FILL_Q, (uint64_t)n_tok * n_col, 1)->width = n_col;
    bind_input(t, HTH_FILL_Q_SCALES, (uint64_t)n_tok * n_block, 4);
    bind_input(t, HTH_FILL_Q_SUMS, (uint64_t)n_tok * n_col / (block == 256 ? 16 : 32), 4)->width =
        block == 256 ? 16 : 32;
    bind_floats(t, n_weight, 4);
    bind_output(t, (uint64_t)n_tok * stride, 4);
    if (of > 1) bind_groups(t, of, N_SLICE);
    else bind_pairs(t, n_tok, n_used, N_SLICE, -3);
}

/* A tile of rows and part of the next, of a stretch of columns and part of another. */
static void router_rows(hth_gpu_testcase *t)
{
    enum { N = HTH_ROUTER_ROWS + 3, STRIDE = N + 2 };
    const uint32_t *c = t->consts, n_tok = c[HTH_ROUTER_ROWS_TOKENS] + 2, n_col = c[HTH_ROUTER_ROWS_WIDE] ? 300 : 299,
                   x_stride = n_col + 3;
    const hth_push_router_rows push = {N, n_col, 1, {x_stride, 2}, {STRIDE, 1}};
    set_call(t, &push, sizeof push, over(N, HTH_ROUTER_ROWS), over(n_tok, c[HTH_ROUTER_ROWS_TOKENS]), 1);
    bind_step(t, n_tok, n_tok - 1, 0);
    bind_floats(t, (uint64_t)N * n_col, 0);
    bind_floats(t, (uint64_t)n_tok * x_stride, 4);
    bind_floats(t, N, 2);
    bind_output(t, (uint64_t)n_tok * STRIDE, 4);
}

/* Some logits are equal. */
static void route(hth_gpu_testcase *t)
{
    const uint32_t *c = t->consts, n_row = c[HTH_ROUTE_PLACES] ? 1 : 3, n = c[HTH_ROUTE_N], n_used = n < 4 ? n : 4,
                   x_stride = n + 3, stride = 2 * n_used + 2,
                   slots_at = bind_slots_step(t, n_row, n_row > 1 ? n_row - 1 : 1, n + n_used);
    bool has_groups = n >= 8 && n % 4 == 0, is_chosen = c[HTH_ROUTE_SCORE] == HTH_SCORE_SOFTMAX_CHOSEN,
         is_constant = c[HTH_ROUTE_SCORE] == HTH_ROUTE_CONSTANT; /* of no model with either */
    const hth_push_route push = {.n_used = n_used,
                                 .n_group = has_groups ? 4 : 1,
                                 .n_group_used = has_groups ? 2 : 1,
                                 .has_select_bias = !is_constant && c[HTH_ROUTE_SCORE] != HTH_SCORE_SOFTMAX,
                                 .has_expert_scale = 1,
                                 .normalises = !is_constant && !is_chosen && n > 1,
                                 .scale = 0.7f,
                                 .x = {x_stride, 2},
                                 .y = {stride, 1},
                                 .slots_at = slots_at,
                                 .spares_at = slots_at + n};
    set_call(t, &push, sizeof push, n_row, 1, 1);
    bind_floats(t, n_row * x_stride, 2);
    bind_floats(t, n, 0);
    bind_floats(t, n, 1);
    bind_output(t, n_row * stride, 4);
    bind_output(t, hth_reads_words(n_used), 4);
}

static void group_pairs(hth_gpu_testcase *t)
{
    enum { N_ROW = 50, N_USED = 2 };
    const uint32_t *c = t->consts, n = c[HTH_GROUP_PAIRS_N], of = c[HTH_GROUP_PAIRS_PAIRS];
    const hth_push_group_pairs push = {N_USED, bind_slots_step(t, N_ROW, N_ROW - 1, n)};
    set_call(t, &push, sizeof push, over(n, c[HTH_GROUP_PAIRS_LOCAL]), 1, 1);
    bind_pairs(t, N_ROW, N_USED, n, -3);
    bind_output(t, HTH_GROUPS_HEAD + (uint64_t)hth_max_groups(n, N_ROW * N_USED, of) * hth_group_words(of), 4);
}

/* The type with this descriptor whose blocks have so many bytes. */
static void set_pack_type(hth_gpu_testcase *t)
{
    hth_quant_desc desc;
    for (uint32_t type = 0; type < HTH_TYPE_LIMIT; type++)
        if (hth_quant_desc_of((hth_type)type, &desc) && memcmp(&desc, &t->desc, sizeof desc) == 0 &&
            hth_type_find(type)->size == t->consts[HTH_PACK_ROWS_SIZE])
            t->type = (hth_type)type;
}

/* Two of three slices, the later one first, after an odd byte. One slice stays. Rows in file order end inside a tile. */
static void pack_rows(hth_gpu_testcase *t)
{
    enum { N_SLOT = 3, N_JOB = 2, JOBS_AT = 3, BASE = 5 };
    const uint32_t *c = t->consts, block = c[HTH_PACK_ROWS_FORMAT], form = c[HTH_PACK_ROWS_FORM];
    const uint32_t n_row = form == HTH_PACK_ROWS_PANELS ? 16 : 19, n_block = block ? blocks_of_row(block) : 12;
    uint32_t grid[2], pitch = n_row * n_block * (block > 0 ? c[HTH_PACK_ROWS_SIZE] : 4) + 3;
    hth_soa_layout alone;
    if (block > 0) set_planes(t, c + HTH_PACK_ROWS_FORMAT, N_SLOT * n_row, n_block);
    else t->layout.size = 4 * N_SLOT * n_row * n_block;
    if (form != HTH_PACK_ROWS_PLANES) set_pack_type(t);
    else if (block > 0 && hth_soa_layout_init(t->type, n_row, n_block * block, &alone)) pitch = (uint32_t)alone.size;
    const hth_push_pack_rows push = {JOBS_AT, BASE, pitch, n_row, n_block, t->layout.offsets};
    hth_pack_rows_grid(c, n_row, n_block, grid);
    set_call(t, &push, sizeof push, grid[0], grid[1], N_JOB + 1);
    bind_input(t, HTH_FILL_JOBS, JOBS_AT + HTH_PACK_ROWS_HEAD + 2 * (N_JOB + 1), 4)->width = N_JOB;
    bind_input(t, HTH_FILL_BYTES, over(BASE + N_JOB * pitch, 16), 16);
    bind_input(t, HTH_FILL_PACK_TABLE, form == HTH_PACK_ROWS_PLANES ? 0 : HTH_PACK_TABLE_WORDS, 4);
    bind_output(t, t->layout.size, 1);
}

/* Three tokens of which two count; each neuron's half is of the same kind in both. */
static void active_mask(hth_gpu_testcase *t)
{
    enum { N_ROW = 3, N = 7 * 32 + 5, STRIDE = 512, SCORE_STRIDE = N + 3 };
    const uint32_t *c = t->consts;
    const hth_push_active_mask push = {N, STRIDE, SCORE_STRIDE, 0.25f};
    set_call(t, &push, sizeof push, over(N, c[HTH_ACTIVE_MASK_LOCAL]), 1, 1);
    bind_step(t, N_ROW, N_ROW - 1, 0);
    hth_gpu_test_input *x = bind_input(t, HTH_FILL_BLOCKS, N_ROW * STRIDE, 4);
    x->width = 32, x->min_exponent = -30, x->max_exponent = 5;
    bind_floats(t, c[HTH_ACTIVE_MASK_SELECT] == HTH_SELECT_PREDICTOR ? N_ROW * SCORE_STRIDE : 0, 0);
    bind_floats(t, c[HTH_ACTIVE_MASK_SELECT] == HTH_SELECT_THRESHOLD ? N : 0, 0);
    bind_output(t, over(N, 32) + 1, 4);
}

/* ---- attention ---------------------------------------------------------------------------------------- */

/* Words before the table are factors of queries. */
static void rope_store(hth_gpu_testcase *t)
{
    enum { N_ROW = 4, N_DONE = 3, N_HEAD = 3, N_HEAD_KV = 2, N_POSITION = 3 * HTH_KV_PAGE, TABLE_AT = 5 };
    /* Two sequences; positions in the next group of 16, in the next page, and at the beginning. */
    static const uint32_t tables[] = {2, 0, 1},
                          places[N_ROW][2] = {{18, 0}, {HTH_KV_PAGE + 3, 0}, {0, 2}, {1, 2}};
    const uint32_t *c = t->consts, d = c[HTH_ROPE_D_HEAD], n_pair = d / 4 + d / 8;
    const hearth_kv_type kv = (hearth_kv_type)c[HTH_ROPE_KV];
    bool rounds = kv == HEARTH_KV_Q8_0;
    uint32_t head_words = (uint32_t)hth_gpu_cache_head_words(kv, d, N_POSITION), n_q = N_ROW * N_HEAD * d,
             n_norm = c[HTH_ROPE_NORM] < HTH_ROPE_NORM_OWN ? 2 : N_HEAD + N_HEAD_KV;
    bool limits = c[HTH_ROPE_NORM] == HTH_ROPE_NORM_OWN_LAYER, is_narrow = c[HTH_ROPE_NORMS_VALUES];
    const hth_push_rope_store push = {.n_head = N_HEAD,
                                      .n_head_kv = N_HEAD_KV,
                                      .n_pair = n_pair,
                                      .table_at = TABLE_AT,
                                      .sine_at = N_ROW * n_pair + 1,
                                      .d_at = n_q / 4,
                                      .head_words = head_words,
                                      .eps = 1e-5f,
                                      .inv_n = 1.0f / (float)d,
                                      .limit = limits ? 100.0f : 0.0f,
                                      .value_scale = is_narrow ? 0.3f : 1.0f,
                                      .kv_class = HTH_KV_WINDOW,
                                      .qkv_stride = (N_HEAD + N_HEAD_KV) * d,
                                      .value_stride = N_HEAD_KV * d,
                                      .d_value = is_narrow ? d - 4 : d};
    set_call(t, &push, sizeof push, N_HEAD + 2 * N_HEAD_KV, N_ROW, 1);
    bind_paged_step(t, N_ROW, N_DONE, places, tables, 3);
    hth_gpu_test_input *x = bind_input(t, HTH_FILL_BLOCKS, (uint64_t)N_ROW * (N_HEAD + N_HEAD_KV) * d, 4);
    x->width = 32, x->min_exponent = rounds ? -60 : -20,
    x->max_exponent = 4; /* halves and rotated values stay normal, or exact */
    const hth_gpu_test_input values = *x;
    hth_gpu_test_input *table = bind_input(t, HTH_FILL_TABLE, TABLE_AT + 2 * (uint64_t)N_ROW * n_pair + 1, 4);
    table->width = n_pair, table->min_exponent = TABLE_AT;
    bind_floats(t, n_norm * (uint64_t)d, 1);
    bind_output(t, (uint64_t)N_HEAD_KV * head_words, 4);
    bind_output(t, (uint64_t)N_HEAD_KV * head_words, 4);
    bind_output(t, rounds ? n_q / 4 + n_q / HTH_ACT_BLOCK : 0, 4);
    hth_gpu_test_input *v = bind_input(t, HTH_FILL_BLOCKS, N_ROW * N_HEAD_KV * d, 4);
    v->width = values.width, v->min_exponent = values.min_exponent, v->max_exponent = values.max_exponent;
}

/* A split and part of the next, in pages that are not in order. KV heads are 16 positions apart, so that they
 * share most of a small cache. BY_SPLIT 0: a window over both splits (with sinks chunks of a split, with slopes all
 * positions, as rounded weights hide what few scores differ by), pages of a windowed layer, and a token with fewer
 * positions. */
static void attend(hth_gpu_testcase *t)
{
    enum { AT = HTH_ATTN_SPLIT + 12, N_PAGE = AT / HTH_KV_PAGE + 1, N_HEAD_KV = 2, N_SPLIT = 3 };
    enum { N_POSITION = N_PAGE * HTH_KV_PAGE + 16 };
    static const uint32_t tables[N_PAGE] = {4, 2, 7, 0, 8, 1, 6, 3, 5},
                          places[3][2] = {{AT, 0}, {5, 2}, {6, 2}};
    const uint32_t *c = t->consts, d = c[HTH_ATTN_D_HEAD], n_head = N_HEAD_KV * c[HTH_ATTN_SHARED];
    const hearth_kv_type kv = (hearth_kv_type)c[HTH_ATTN_KV];
    bool by_split = c[HTH_ATTN_BY_SPLIT], rounds = kv == HEARTH_KV_Q8_0;
    uint32_t n_tok = by_split ? 2 : 3, stride = n_head * d + 4, n_q = n_tok * n_head * d;
    uint32_t n_word = (uint32_t)hth_gpu_cache_words(kv, d);
    const hth_push_attn push = {.n_head = n_head,
                                .n_head_kv = N_HEAD_KV,
                                .window = by_split || c[HTH_ATTN_SLOPES] ? 0 : 20,
                                .n_split = N_SPLIT,
                                .qkv_stride = stride,
                                .d_at = n_q / 4,
                                .head_words = 16 * n_word,
                                .scale = 0.125f,
                                .cap = by_split ? 0.0f : 20.0f,
                                .inverse_cap = by_split ? 0.0f : 1.0f / 20.0f,
                                .kv_class = by_split ? HTH_KV_FULL : HTH_KV_WINDOW,
                                .chunk = c[HTH_ATTN_SINKS] ? HTH_ATTN_SPLIT : 0};
    set_call(t, &push, sizeof push, by_split ? 2 : 1, N_HEAD_KV, over(n_tok, c[HTH_ATTN_TOKENS]));
    bind_paged_step(t, n_tok, n_tok - 1, places, tables, N_PAGE);
    bind_input(t, kv == HEARTH_KV_F16 ? HTH_FILL_QUERIES : HTH_FILL_FLOATS, rounds ? 0 : (uint64_t)n_tok * stride, 4)
        ->max_exponent = 2;
    bind_input(t, HTH_FILL_ROUNDED, rounds ? n_q / 4 + n_q / HTH_ACT_BLOCK : 0, 4)->width = n_q / 4;
    bind_input(t, HTH_FILL_KEYS, (uint64_t)N_POSITION * n_word, 4)->width = n_word;
    bind_input(t, HTH_FILL_VALUES, (uint64_t)N_POSITION * n_word, 4)->width = n_word;
    bind_output(t, (uint64_t)n_tok * n_head * d * (by_split ? N_SPLIT : 1), 4);
    bind_output(t, by_split ? (uint64_t)n_tok * N_SPLIT * n_head : 0, 8);
    bind_floats(t, c[HTH_ATTN_SINKS] || c[HTH_ATTN_SLOPES] ? 2 * n_head : 0, 0);
}

static void attn_reduce(hth_gpu_testcase *t)
{
    enum { N_ROW = 3, N_SPLIT = 3 };
    static const uint32_t places[N_ROW][2] = {{2 * HTH_ATTN_SPLIT + 9, 0}, {7, 0}, {8, 0}};
    /* Whole blocks in a row, of heads that may not be. */
    const uint32_t *c = t->consts, d = c[HTH_ATTN_REDUCE_D_HEAD], block = c[HTH_ATTN_REDUCE_BLOCK],
                   power = d > 0 ? d & (0 - d) : 1, n_head = block > power ? block / power : 3;
    const hth_push_attn_reduce push = {.n_head = n_head, .n_split = N_SPLIT};
    set_call(t, &push, sizeof push, hth_vector_groups(n_head * d, c[HTH_ATTN_REDUCE_LOCAL]), N_ROW, 1);
    bind_paged_step(t, N_ROW, N_ROW - 1, places, NULL, 0);
    bind_floats(t, (uint64_t)N_ROW * N_SPLIT * n_head * d, 6);
    bind_input(t, HTH_FILL_PARTS, (uint64_t)N_ROW * N_SPLIT * n_head, 8);
    bind_output(t, c[HTH_ATTN_REDUCE_STORE] ? (uint64_t)N_ROW * n_head * d : 0, 4);
    bind_quantised(t, (uint64_t)N_ROW * n_head * d, block);
    bind_floats(t, c[HTH_ATTN_REDUCE_SINKS] ? n_head : 0, 4);
}

/* From page 0 to page 2 of three (fill_step). */
static void copy_page(hth_gpu_testcase *t)
{
    enum { N_HEAD_KV = 2, N_WORD = 1000, HEAD_WORDS = 3 * N_WORD + 5 };
    const hth_push_copy_page push = {HTH_STEP_COPY, HEAD_WORDS, N_WORD, N_WORD};
    set_call(t, &push, sizeof push, 3, N_HEAD_KV, 1);
    bind_step(t, 1, 1, 0);
    bind_floats(t, N_HEAD_KV * HEAD_WORDS, 4);
    bind_floats(t, N_HEAD_KV * HEAD_WORDS, 4);
}

/* ---- recurrent mixers ---------------------------------------------------------------------------------- */

/* A sequence that begins, and one that goes on, whose tokens end a chunk: it reads other pages than it writes. */
enum { N_RUN = 3, N_STATE_PAGE = 3, N_OF_RUNS = 10, N_IN_RUNS = 9 };
enum { RUNS_AT = HTH_STEP_ROWS + N_OF_RUNS * HTH_STEP_ROW_WORDS };
static const uint32_t runs_of_states[N_RUN][HTH_RUN_WORDS] = {
    {0, 3, 0, 0, 0, 0, 0}, {3, 6, 2 * HTH_CHUNK - 2, 1, 2, 1, 2}, {9, 1, 5, 1, 1, 1, 1}};
/* Neither the first token of a run nor the last one is of the dispatch. */
static const hth_token_range tokens_of_states = {1, N_IN_RUNS - 2};

static void conv(hth_gpu_testcase *t)
{
    enum { N = 70, N_TAP = 4, STRIDE = N + 5 };
    const hth_push_conv push = {.n_channel = N,
                                .d_conv = N_TAP,
                                .has_bias = 1,
                                .silu = 1,
                                .runs_at = RUNS_AT,
                                .x = {STRIDE, 3},
                                .y = {STRIDE, 1}};
    set_call(t, &push, sizeof push, over(N, t->consts[HTH_CONV_LOCAL]), N_RUN, 1);
    bind_run_step(t, N_OF_RUNS, N_IN_RUNS, runs_of_states, N_RUN);
    bind_floats(t, N_OF_RUNS * STRIDE, 2);
    bind_floats(t, N_TAP * N, 1);
    bind_floats(t, N, 0);
    bind_floats(t, N_STATE_PAGE * HTH_CONV_RING * N, 2);
    bind_output(t, N_OF_RUNS * STRIDE, 4);
}

static void delta_rates(hth_gpu_testcase *t)
{
    enum { N_ROW = 3, N_HEAD = 70, STRIDE = N_HEAD + 3 };
    const hth_push_delta_rates push = {.n_head = N_HEAD,
                                       .n_shared = 1,
                                       .beta = {STRIDE, 1},
                                       .decay = {STRIDE, 0},
                                       .to_beta = {STRIDE, 2},
                                       .to_decay = {STRIDE, 3}};
    set_call(t, &push, sizeof push, over(N_HEAD, t->consts[HTH_DELTA_RATES_LOCAL]), N_ROW, 1);
    bind_step(t, N_ROW, N_ROW - 1, 0);
    bind_floats(t, N_ROW * STRIDE, 4);
    bind_floats(t, N_ROW * STRIDE, 4);
    bind_floats(t, N_HEAD, 1);
    bind_floats(t, N_HEAD, 1);
    bind_output(t, N_ROW * STRIDE, 4);
    bind_output(t, N_ROW * STRIDE, 4);
}

/* Two heads that share keys. */
static void delta_net(hth_gpu_testcase *t)
{
    enum { N_HEAD = 2, HEADS_STRIDE = N_HEAD + 3 };
    const uint32_t d = t->consts[HTH_DELTA_NET_D], x_stride = (2 + N_HEAD) * d + 3, y_stride = N_HEAD * d + 2,
                   page = d * HTH_CHUNK + N_HEAD * (d * d + d * HTH_CHUNK + HTH_CHUNK);
    const hth_push_delta_net push = {.n_head_key = 1,
                                     .n_shared = N_HEAD,
                                     .runs_at = RUNS_AT,
                                     .tokens = tokens_of_states,
                                     .inverse_root = 0.125f,
                                     .x = {x_stride, 1},
                                     .beta = {HEADS_STRIDE, 2},
                                     .decay = {HEADS_STRIDE, 0},
                                     .y = {y_stride, 1}};
    set_call(t, &push, sizeof push, 1, N_RUN, 1);
    bind_run_step(t, N_OF_RUNS, N_IN_RUNS, runs_of_states, N_RUN);
    bind_floats(t, (uint64_t)N_OF_RUNS * x_stride, 0);
    bind_floats(t, N_OF_RUNS * HEADS_STRIDE, 0);
    bind_floats(t, N_OF_RUNS * HEADS_STRIDE, 0);
    bind_floats(t, (uint64_t)N_STATE_PAGE * page, 0);
    bind_output(t, (uint64_t)N_OF_RUNS * y_stride, 4);
}

static void kda_rates(hth_gpu_testcase *t)
{
    enum { N_ROW = 3, N_HEAD = 5, D = 20, STRIDE = N_HEAD * D + 3 };
    const hth_push_kda_rates push = {.n_head = N_HEAD, .d = D, .beta = {STRIDE, 1}, .decay = {STRIDE, 2}};
    set_call(t, &push, sizeof push, over(N_HEAD * D, t->consts[HTH_KDA_RATES_LOCAL]), N_ROW, 1);
    bind_step(t, N_ROW, N_ROW - 1, 0);
    bind_floats(t, N_HEAD, 1);
    bind_floats(t, N_HEAD * D, 1);
    bind_floats(t, N_ROW * STRIDE, 4);
    bind_floats(t, N_ROW * STRIDE, 4);
}

static void kda(hth_gpu_testcase *t)
{
    enum { N_HEAD = 2, BETA_STRIDE = N_HEAD + 3 };
    const uint32_t d = t->consts[HTH_KDA_D], stride = N_HEAD * d + 3;
    const hth_push_kda push = {.n_head = N_HEAD,
                               .runs_at = RUNS_AT,
                               .tokens = tokens_of_states,
                               .inverse_root = 0.125f,
                               .query = {stride, 1},
                               .key = {stride, 0},
                               .value = {stride, 3},
                               .beta = {BETA_STRIDE, 2},
                               .decay = {stride, 2},
                               .y = {stride, 1}};
    set_call(t, &push, sizeof push, N_HEAD * over(d, t->consts[HTH_KDA_LOCAL]), N_RUN, 1);
    bind_run_step(t, N_OF_RUNS, N_IN_RUNS, runs_of_states, N_RUN);
    for (int i = 0; i < 3; i++) bind_floats(t, (uint64_t)N_OF_RUNS * stride, 0);
    bind_floats(t, N_OF_RUNS * BETA_STRIDE, 0);
    bind_floats(t, (uint64_t)N_OF_RUNS * stride, 0);
    bind_floats(t, (uint64_t)N_STATE_PAGE * N_HEAD * d * d, 0);
    bind_output(t, (uint64_t)N_OF_RUNS * stride, 4);
}

static void ssm_rates(hth_gpu_testcase *t)
{
    enum { N_ROW = 3, N = 70, STRIDE = N + 3 };
    const hth_push_ssm_rates push = {.n = N, .delta = {STRIDE, 1}};
    set_call(t, &push, sizeof push, over(N, t->consts[HTH_SSM_RATES_LOCAL]), N_ROW, 1);
    bind_step(t, N_ROW, N_ROW - 1, 0);
    bind_floats(t, N_ROW * STRIDE, 4);
}

/* Heads of which two share B and C, or channels with rates of their own. They fill no quads, and the states no group of
 * loads. */
static void ssm_scan(hth_gpu_testcase *t)
{
    enum { N_HEAD = 4, N_STATE = 7, N_INNER = 88, X_STRIDE = N_INNER + 3, STEP_STRIDE = N_INNER + 1, BC_STRIDE = 2 * N_STATE + 1 };
    bool by_channel = t->consts[HTH_SSM_SCAN_BY_CHANNEL];
    const uint32_t n_part = by_channel ? 1 : N_HEAD, size = N_INNER / n_part - 2, n_d = by_channel ? size : n_part,
                   n_a = by_channel ? N_STATE * n_d : n_d;
    const hth_push_ssm_scan push = {.n_part = n_part,
                                    .size = size,
                                    .n_state = N_STATE,
                                    .n_shared = by_channel ? 1 : N_HEAD / 2,
                                    .d_at = n_a,
                                    .runs_at = RUNS_AT,
                                    .tokens = tokens_of_states,
                                    .x = {X_STRIDE, 2},
                                    .delta = {STEP_STRIDE, 1},
                                    .b = {BC_STRIDE, 0},
                                    .c = {BC_STRIDE, 1},
                                    .y = {X_STRIDE, 1}};
    set_call(t, &push, sizeof push, over(n_part * hth_ssm_quads(size), t->consts[HTH_SSM_SCAN_LOCAL]), N_RUN, 1);
    bind_run_step(t, N_OF_RUNS, N_IN_RUNS, runs_of_states, N_RUN);
    bind_floats(t, N_OF_RUNS * X_STRIDE, 1);
    bind_floats(t, N_OF_RUNS * STEP_STRIDE, 1);
    bind_floats(t, n_a + n_d, 0);
    bind_floats(t, N_OF_RUNS * BC_STRIDE, 0);
    bind_floats(t, N_OF_RUNS * BC_STRIDE, 0);
    bind_floats(t, (uint64_t)N_STATE_PAGE * n_part * N_STATE * 4 * hth_ssm_quads(size), 1);
    bind_output(t, N_OF_RUNS * X_STRIDE, 4);
}

/* ---- down --------------------------------------------------------------------------------------------- */

enum { MAX_EXPONENT = 2, FIRST_TOK = 1 }; /* of hidden values */

/* With a safe exponent that some clusters reach and others do not. */
static void down_scale(hth_gpu_testcase *t)
{
    enum { N_ROW = 6, N = 300, N_CLUSTER = 2, STRIDE = 303, SAFE = 14 };
    const hth_push_down_scale push = {N, STRIDE, SAFE};
    set_call(t, &push, sizeof push, N_CLUSTER, N_ROW, 1);
    bind_step(t, N_ROW, N_ROW - 1, 0);
    hth_gpu_test_input *h = bind_input(t, HTH_FILL_NEURONS, N_ROW * STRIDE, 4);
    h->width = STRIDE, h->max_exponent = MAX_EXPONENT;
    bind_floats(t, N_CLUSTER, 2);
    bind_output(t, N_ROW * N_CLUSTER, 4);
}

/* The second split of a layer and part of the third, after neurons that are elsewhere. */
static void down_q(hth_gpu_testcase *t)
{
    enum { N_NEURON = HTH_DOWN_SPLIT + 37, N_SPLIT = 3, N_CLUSTER = 2 };
    enum { STRIDE = HTH_DOWN_SPLIT + N_NEURON + 3 };
    const uint32_t *c = t->consts, *form = c + HTH_DOWN_FORMAT, cols = c[HTH_DOWN_COLS];
    const uint32_t n_block = form[0] == 32 ? 3 : 1, n_out = n_block * form[0], n_tok = FIRST_TOK + cols + 2;
    set_planes(t, form, N_NEURON, n_block);
    const hth_push_down push = {N_NEURON,       n_block, STRIDE,    N_SPLIT,          N_CLUSTER,
                                HTH_DOWN_SPLIT, 1,       FIRST_TOK, t->layout.offsets};
    set_call(t, &push, sizeof push, over(n_out * t->desc.low_bits / 128, c[HTH_DOWN_LOCAL] / c[HTH_DOWN_GROUPS]),
             over(N_NEURON, HTH_DOWN_SPLIT), over(cols + 2, cols));
    bind_step(t, n_tok, n_tok - 1, 0);
    bind_input(t, HTH_FILL_PLANES, t->layout.size, 1);
    hth_gpu_test_input *h = bind_input(t, HTH_FILL_NEURONS, (uint64_t)n_tok * STRIDE, 4);
    h->width = STRIDE, h->max_exponent = MAX_EXPONENT;
    bind_input(t, HTH_FILL_CLUSTER_SCALES, n_tok * N_CLUSTER, 4)->max_exponent = MAX_EXPONENT;
    bind_output(t, (uint64_t)(cols + 2) * N_SPLIT * n_out, 4);
}

/* Two of three slices for each token: one that begins with a cluster, others within one, in its first split or the
 * second. */
enum { N_SLICE = 3, N_USED = 2 };

static void down_scale_sliced(hth_gpu_testcase *t)
{
    enum { N_ROW = 6, N = 300, N_CLUSTER = N_USED * 3, STRIDE = N_USED * N + 3, SAFE = 14 };
    const hth_push_down_scale_sliced push = {{N, STRIDE, SAFE}, N_USED};
    set_call(t, &push, sizeof push, N_CLUSTER, N_ROW, 1);
    bind_step(t, N_ROW, N_ROW - 1, 0);
    hth_gpu_test_input *h = bind_input(t, HTH_FILL_NEURONS, N_ROW * STRIDE, 4);
    h->width = STRIDE, h->max_exponent = MAX_EXPONENT;
    bind_floats(t, over(N_SLICE * N, HTH_CLUSTER_NEURONS), 2);
    bind_output(t, N_ROW * N_CLUSTER, 4);
    bind_pairs(t, N_ROW, N_USED, N_SLICE, -1);
}

static void down_q_sliced(hth_gpu_testcase *t)
{
    enum { N_NEURON = HTH_DOWN_SPLIT + 37, N_CLUSTER = N_USED * 2, N_SPLIT = 2 * N_CLUSTER };
    enum { STRIDE = N_USED * N_NEURON + 3, N_CLASS = 3, N_TOK = FIRST_TOK + N_CLASS };
    const uint32_t *c = t->consts, *form = c + HTH_DOWN_FORMAT;
    const uint32_t n_block = form[0] == 32 ? 3 : 1, n_out = n_block * form[0];
    set_planes(t, form, N_SLICE * N_NEURON, n_block);
    const hth_push_down_sliced push = {
        {N_NEURON, n_block, STRIDE, N_SPLIT, N_CLUSTER, 0, 0, FIRST_TOK, t->layout.offsets}, N_USED};
    set_call(t, &push, sizeof push, over(n_out * t->desc.low_bits / 128, c[HTH_DOWN_LOCAL] / c[HTH_DOWN_GROUPS]),
             N_SPLIT, N_CLASS);
    bind_step(t, N_TOK, N_TOK - 1, 0);
    bind_input(t, HTH_FILL_PLANES, t->layout.size, 1);
    hth_gpu_test_input *h = bind_input(t, HTH_FILL_NEURONS, N_TOK * STRIDE, 4);
    h->width = STRIDE, h->max_exponent = MAX_EXPONENT;
    bind_input(t, HTH_FILL_CLUSTER_SCALES, N_TOK * N_CLUSTER, 4)->max_exponent = MAX_EXPONENT;
    bind_output(t, (uint64_t)N_CLASS * N_SPLIT * n_out, 4);
    bind_pairs(t, N_TOK, N_USED, N_SLICE, -1);
}

static void down_accumulate(hth_gpu_testcase *t)
{
    enum { N_OUT = 133, N_SPLIT = 3, N_ROW = 4, N_CLUSTER = 3 };
    const hth_push_down_accumulate push = {N_OUT, N_SPLIT, FIRST_TOK, 0, HTH_CLUSTER_NEURONS, N_CLUSTER};
    const uint32_t n_wide = HTH_HOST_SUMS + 2 * N_ROW * N_OUT;
    set_call(t, &push, sizeof push, over(N_OUT, t->consts[HTH_DOWN_ACCUMULATE_LOCAL]), N_ROW - FIRST_TOK, 1);
    bind_step(t, N_ROW, N_ROW - 1, 0);
    bind_input(t, HTH_FILL_SUMS, (N_ROW - FIRST_TOK) * N_SPLIT * N_OUT, 4)->width = N_OUT;
    bind_input(t, HTH_FILL_HOST, n_wide, 4);
    bind_input(t, HTH_FILL_HOST, t->consts[HTH_DOWN_ACCUMULATE_HOST] ? n_wide : 0, 4);
    bind_input(t, HTH_FILL_CLUSTER_SCALES, N_ROW * N_CLUSTER, 4)->max_exponent = MAX_EXPONENT;
}

static void down_reduce(hth_gpu_testcase *t)
{
    enum { N_OUT = 133, N_SPLIT = 3, N_ROW = 4, N_CLUSTER = 2 };
    const uint32_t *c = t->consts;
    const hth_push_down_reduce push = {N_OUT, N_SPLIT, 1, FIRST_TOK,
                                       c[HTH_DOWN_REDUCE_FLOATS] ? 0 : N_CLUSTER};
    bool has_host = c[HTH_DOWN_REDUCE_HOST];
    uint32_t lanes = c[HTH_DOWN_REDUCE_LOCAL] / c[HTH_DOWN_REDUCE_GROUPS];
    set_call(t, &push, sizeof push, over(N_OUT, lanes), N_ROW - FIRST_TOK, 1);
    bind_step(t, N_ROW, N_ROW - 1, 0);
    if (c[HTH_DOWN_REDUCE_FLOATS]) bind_floats(t, (N_ROW - FIRST_TOK) * N_SPLIT * N_OUT, 20);
    else bind_input(t, HTH_FILL_SUMS, (N_ROW - FIRST_TOK) * N_SPLIT * N_OUT, 4)->width = N_OUT;
    bind_input(t, HTH_FILL_CLUSTER_SCALES, N_ROW * N_CLUSTER, 4)->max_exponent = MAX_EXPONENT;
    bind_input(t, HTH_FILL_HOST, has_host ? HTH_HOST_SUMS + 2 * N_ROW * N_OUT : 0, 4);
    bind_floats(t, N_OUT, 4);
    if (t->id == HTH_SHADER_down_reduce_acc) bind_floats(t, N_ROW * N_OUT, 6);
    else bind_output(t, N_ROW * N_OUT, 4);
}

/* Shaders without an entry promise no exact bits, or are not part of a layer. */
static void (*const shapes[HTH_N_SHADER])(hth_gpu_testcase *t) = {
    [HTH_SHADER_float_rules] = float_rules,
    [HTH_SHADER_norm_quantize] = norm_quantize,
    [HTH_SHADER_mul_mat_vec_q] = mul_mat_vec_q,
    [HTH_SHADER_mul_mat_vec_q_acc] = mul_mat_vec_q,
    [HTH_SHADER_active_mask] = active_mask,
    [HTH_SHADER_mul_mat_vec_q_sparse] = mul_mat_vec_q,
    [HTH_SHADER_mul_mat_vec_q_sliced] = mul_mat_vec_q_sliced,
    [HTH_SHADER_mul_mat_q_sliced] = mul_mat_vec_q_sliced,
    [HTH_SHADER_mul_mat_q_cm2_sliced] = mul_mat_vec_q_sliced,
    [HTH_SHADER_mul_mat_q] = mul_mat_vec_q,
    [HTH_SHADER_mul_mat_q_acc] = mul_mat_vec_q,
    [HTH_SHADER_mul_mat_q_cm2] = mul_mat_vec_q,
    [HTH_SHADER_mul_mat_q_cm2_acc] = mul_mat_vec_q,
    [HTH_SHADER_router_rows] = router_rows,
    [HTH_SHADER_route] = route,
    [HTH_SHADER_group_pairs] = group_pairs,
    [HTH_SHADER_pack_rows] = pack_rows,
    [HTH_SHADER_rope_store] = rope_store,
    [HTH_SHADER_attn] = attend,
    [HTH_SHADER_attn_reduce] = attn_reduce,
    [HTH_SHADER_copy_page] = copy_page,
    [HTH_SHADER_act_quantize] = act_quantize,
    [HTH_SHADER_norm_add] = norm_add,
    [HTH_SHADER_soft_cap] = soft_cap,
    [HTH_SHADER_norm_groups] = norm_groups,
    [HTH_SHADER_mul_values] = mul_values,
    [HTH_SHADER_copy_values] = copy_values,
    [HTH_SHADER_conv] = conv,
    [HTH_SHADER_delta_rates] = delta_rates,
    [HTH_SHADER_delta_net] = delta_net,
    [HTH_SHADER_kda_rates] = kda_rates,
    [HTH_SHADER_kda] = kda,
    [HTH_SHADER_ssm_rates] = ssm_rates,
    [HTH_SHADER_ssm_scan] = ssm_scan,
    [HTH_SHADER_down_scale] = down_scale,
    [HTH_SHADER_down_q] = down_q,
    [HTH_SHADER_down_scale_sliced] = down_scale_sliced,
    [HTH_SHADER_down_q_sliced] = down_q_sliced,
    [HTH_SHADER_down_accumulate] = down_accumulate,
    [HTH_SHADER_down_reduce] = down_reduce,
    [HTH_SHADER_down_reduce_acc] = down_reduce,
};

bool hth_gpu_testcase_of(hth_shader_id id, const uint32_t *consts, hth_gpu_testcase *out)
{
    *out = (hth_gpu_testcase){.id = id, .consts = consts};
    if (shapes[id]) shapes[id](out);
    return shapes[id] != NULL;
}

uint64_t hth_gpu_testcase_bytes(const hth_gpu_testcase *t)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < t->n_bind; i++) all += (t->bind[i].size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return all;
}
