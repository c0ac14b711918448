/* Matrices of devices: rows in structure-of-arrays parts give the bits of the CPU's kernels on the null device and on
 * the first that Vulkan knows; rows of floats give the same bits on both, near those of the CPU. */
#include "base/bits.h"
#include "kernels/kernels.h"
#include "forward/gpu/shader_params.h"
#include "forward/gpu/weight_layout.h"
#include "support/device/shaders.h"
#include "support/kernels/proof.h"
#include "support/kernels/rows_case.h"

static const char *const devices[] = {"null", "vulkan:0"};
enum { N_DEVICE = 2 };

/* Rows that are live: all without a mask; of a mask's, a group at a time. */
typedef enum mask { MASK_NONE = 0, MASK_FULL, MASK_EMPTY, MASK_SINGLE, MASK_ALTERNATING, MASK_ANY } mask;

/* How the outputs are shared among invocations. */
typedef struct cut {
    uint32_t local, cols, rows;
} cut;

typedef struct product {
    hth_type type;
    size_t n_row, n_col, n_tok;
    proof_kind weights, inputs;
    cut cut;
    bool accumulates, has_bias, want;
    bool one_sign; /* inputs are 0.9 to 1 */
    mask mask;
    size_t row_first, mask_first;   /* with a mask: rows before, in the structure-of-arrays parts and in it */
    size_t n_class, y_first, y_gap; /* tokens that the grid covers; floats of y beside those written */
    hth_coopmat_shape matrix;       /* m 0: without matrix units */
    hth_coopmat_level by;           /* which they are */
    uint32_t split;                 /* subgroups / 8 of cooperative-matrix tiles */
    uint32_t lanes;                 /* invocations of a row; 0: eight */
} product;

/* ---- one product ---------------------------------------------------------------------------------- */

typedef struct data {
    product shape;
    size_t row_size, n_block, y_stride, n_y;
    uint8_t *w, *planes;
    hth_soa_layout places;
    float *x, *bias;
    int8_t *q;
    float *d;
    int32_t *sum;    /* as devices have them */
    int16_t *sum_16; /* as the CPU has those of 256 */
    float *before, *expected, *y;
    uint32_t *mask_bits, step[4];
} data;

static void *get(size_t n, size_t size) { return calloc(n ? n : 1, size); }

static void free_data(data *a)
{
    void *all[] = {a->w,   a->planes, a->x,      a->bias,     a->q, a->d,
                   a->sum, a->sum_16, a->before, a->expected, a->y, a->mask_bits};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void round_inputs(data *a, const hth_kernels *k)
{
    const product *s = &a->shape;
    const bool wide = hth_type_act_block(s->type) == 256;
    for (size_t t = 0; t < s->n_tok; t++) {
        const float *x = a->x + t * s->n_col;
        int8_t *q = a->q + t * s->n_col;
        float *d = a->d + t * a->n_block;
        if (wide) k->quant_act_256(x, s->n_col, q, d, a->sum_16 + t * s->n_col / 16);
        else k->quant_act(x, s->n_col, q, d, a->sum + t * a->n_block);
    }
    for (size_t i = 0; wide && i < s->n_tok * s->n_col / 16; i++) a->sum[i] = a->sum_16[i];
}

static bool is_live(const data *a, size_t row)
{
    size_t i = a->shape.mask_first + row;
    return a->shape.mask == MASK_NONE || (a->mask_bits[i / 32] >> i % 32 & 1);
}

/* What lies before and behind the rows is the opposite of what they are. */
static void fill_mask(test_random *r, data *a)
{
    const product *s = &a->shape;
    const size_t n_bit = s->mask_first + s->n_row, one = test_random_below(r, (uint32_t)s->n_row);
    a->mask_bits = get(n_bit / 32 + 1, sizeof *a->mask_bits);
    for (size_t i = 0; i < (n_bit / 32 + 1) * 32; i++) {
        size_t row = i - s->mask_first;
        bool inside = i >= s->mask_first && row < s->n_row, live = s->mask == MASK_FULL;
        if (s->mask == MASK_SINGLE) live = inside && row == one;
        if (s->mask == MASK_ALTERNATING) live = row % 2;
        if (s->mask == MASK_ANY) live = test_random_below(r, 2);
        a->mask_bits[i / 32] |= (uint32_t)(live == inside) << i % 32;
    }
}

/* The CPU's product, with what comes after it. */
static void expect(data *a, const hth_kernels *k)
{
    const product *s = &a->shape;
    FREED float *product_of = get(s->n_tok * s->n_row, sizeof *product_of);
    const hth_rows job = {.w = a->w + s->row_first * a->row_size, .row_size = a->row_size, .n_col = s->n_col,
                          .end = s->n_row, .n_tok = s->n_tok,
                          .act = {.x = a->x, .q = a->q, .d = a->d, .sum = a->sum, .sum_16 = a->sum_16},
                          .y = product_of, .y_stride = s->n_row};
    k->rows[s->type](&job);
    memcpy(a->expected, a->before, a->n_y * sizeof *a->before);
    for (size_t t = 0; t < s->n_tok; t++)
        for (size_t i = 0; i < s->n_row; i++) {
            float *y = a->expected + t * a->y_stride + s->y_first + i, value = product_of[t * s->n_row + i];
            if (!is_live(a, i)) continue;
            if (s->has_bias) value += a->bias[s->row_first + i];
            *y = s->accumulates ? *y + value : value;
        }
}

static data make(test_random *r, const product *s, const hth_kernels *k)
{
    const size_t n_x = s->n_tok * s->n_col, block = rows_act_block(s->type);
    data a = {.shape = *s, .row_size = rows_bytes(s->type, s->n_col), .n_block = s->n_col / block};
    const rows_shape row = {.type = s->type, .n_col = s->n_col, .kind = s->weights};
    a.y_stride = s->y_first + s->n_row + s->y_gap, a.n_y = s->n_class * a.y_stride;
    const size_t n_row = s->row_first + s->n_row;
    a.w = get(n_row, a.row_size);
    for (size_t i = 0; i < n_row; i++) rows_fill_row(r, &row, a.w + i * a.row_size);
    CHECK(hth_soa_layout_init(s->type, n_row, s->n_col, &a.places));
    a.planes = get(1, (size_t)a.places.size);
    hth_soa_layout_pack(s->type, n_row, s->n_col, a.w, a.row_size, 0, n_row, a.planes);
    if (s->mask != MASK_NONE) fill_mask(r, &a);
    a.x = get(n_x, sizeof *a.x), a.bias = get(n_row, sizeof *a.bias);
    proof_fill_f32(r, s->inputs, a.x, n_x);
    for (size_t i = 0; s->one_sign && i < n_x; i++) a.x[i] = 1.0f - (float)test_random_below(r, 100) * 1e-3f;
    proof_fill_f32(r, PROOF_PLAIN, a.bias, n_row);
    a.q = get(n_x, 1), a.d = get(n_x / block, sizeof *a.d);
    a.sum = get(n_x / 16, sizeof *a.sum), a.sum_16 = get(n_x / 16, sizeof *a.sum_16);
    if (rows_quantised(s->type)) round_inputs(&a, k);
    a.before = get(a.n_y, sizeof(float)), a.expected = get(a.n_y, sizeof(float));
    a.y = get(a.n_y, sizeof(float));
    memset(a.before, SHADERS_POISON, a.n_y * sizeof(float));
    if (s->accumulates) proof_fill_f32(r, PROOF_PLAIN, a.before, a.n_y);
    /* The other count is one that would show. */
    a.step[HTH_STEP_N_TOK] = (uint32_t)(s->want ? s->n_class : s->n_tok);
    a.step[HTH_STEP_N_WANT] = (uint32_t)(s->want ? s->n_tok : 0);
    expect(&a, k);
    return a;
}

static uint32_t lanes_of(const product *s) { return s->lanes ? s->lanes : 8; }

static void set_grid(const product *s, uint32_t grid[3])
{
    uint32_t rows = s->cut.local / lanes_of(s) * s->cut.rows;
    grid[0] = ((uint32_t)s->n_class + s->cut.cols - 1) / s->cut.cols;
    grid[1] = ((uint32_t)s->n_row + rows - 1) / rows, grid[2] = 1;
}

static size_t mask_bytes(const product *s) { return s->mask ? (s->mask_first + s->n_row + 31) / 32 * 4 : 0; }

static bool compute_quantised(hth_device *d, data *a)
{
    const product *s = &a->shape;
    uint32_t consts[HTH_TILE_N_CONST] = {s->cut.local, s->cut.cols, s->cut.rows, s->want, lanes_of(s)};
    hth_quant_desc desc;
    if (!CHECK(hth_quant_desc_of(s->type, &desc))) return false;
    memcpy(consts + HTH_ROWS_FORMAT, &desc, sizeof desc);
    consts[HTH_TILE_M] = s->matrix.m, consts[HTH_TILE_N] = s->matrix.n, consts[HTH_TILE_K] = s->matrix.k;
    consts[HTH_TILE_SPLIT] = s->split;
    const hth_push_mul_mat_vec_q_sparse push = {{(uint32_t)s->n_row, (uint32_t)s->n_col / desc.block,
                                                 (uint32_t)a->y_stride, (uint32_t)s->y_first, s->has_bias,
                                                 a->places.offsets},
                                                {(uint32_t)s->row_first, (uint32_t)s->mask_first}};
    const size_t n_x = s->n_tok * s->n_col, n_row = s->row_first + s->n_row;
    hth_shader_id id = s->mask   ? HTH_SHADER_mul_mat_vec_q_sparse
                       : s->accumulates ? HTH_SHADER_mul_mat_vec_q_acc : HTH_SHADER_mul_mat_vec_q;
    if (s->matrix.m > 0 && s->by == HTH_COOPMAT_KHR)
        id = s->accumulates ? HTH_SHADER_mul_mat_q_acc : HTH_SHADER_mul_mat_q;
    if (s->matrix.m > 0 && s->by == HTH_COOPMAT_CM2)
        id = s->accumulates ? HTH_SHADER_mul_mat_q_cm2_acc : HTH_SHADER_mul_mat_q_cm2;
    shaders_run run = {.id = id,
                        .consts = consts,
                        .push = &push,
                        .bind = {{a->step, sizeof a->step},
                                 {a->planes, (size_t)a->places.size},
                                 {a->q, n_x},
                                 {a->d, s->n_tok * a->n_block * 4},
                                 {a->sum, n_x / (rows_act_block(s->type) == 32 ? 32 : 16) * 4},
                                 {a->bias, s->has_bias ? n_row * 4 : 0},
                                 {a->y, a->n_y * 4},
                                 {a->mask_bits, mask_bytes(s)}}};
    set_grid(s, run.grid);
    return shaders_do(d, &run);
}

static bool compute_floats(hth_device *d, data *a)
{
    const product *s = &a->shape;
    const uint32_t consts[] = {s->cut.local, s->cut.cols, s->cut.rows, s->want, lanes_of(s), (uint32_t)s->type};
    const hth_push_mul_mat_vec_f_sparse push = {{(uint32_t)s->n_row, (uint32_t)s->n_col,
                                                 (uint32_t)a->y_stride, (uint32_t)s->y_first, s->has_bias,
                                                 hth_soa_row_words(s->type, s->n_col)},
                                                {(uint32_t)s->row_first, (uint32_t)s->mask_first}};
    shaders_run run = {.id = s->mask   ? HTH_SHADER_mul_mat_vec_f_sparse
                              : s->accumulates ? HTH_SHADER_mul_mat_vec_f_acc
                                        : HTH_SHADER_mul_mat_vec_f,
                        .consts = consts,
                        .push = &push,
                        .bind = {{a->step, sizeof a->step},
                                 {a->planes, (size_t)a->places.size},
                                 {a->x, s->n_tok * s->n_col * 4},
                                 {a->bias, s->has_bias ? (s->row_first + s->n_row) * 4 : 0},
                                 {a->y, a->n_y * 4},
                                 {a->mask_bits, mask_bytes(s)}}};
    set_grid(s, run.grid);
    return shaders_do(d, &run);
}

static bool compute(hth_device *d, data *a)
{
    if (a->shape.accumulates) memcpy(a->y, a->before, a->n_y * sizeof *a->y);
    return rows_quantised(a->shape.type) ? compute_quantised(d, a) : compute_floats(d, a);
}

/* ---- against the CPU --------------------------------------------------------------------------------- */

static void describe(char *text, size_t size, const char *device, const product *s)
{
    static const char *const masks[] = {
        "", " live", " of an empty mask", ", one alone", ", every other", " by a mask"};
    snprintf(text, size,
             "%s, %s%s%s, %zu rows of %zu, %zu of %zu tokens, weights %s, inputs %s, cut %u %u %u of %u, matrix "
             "%ux%ux%u (%d)",
             device, rows_type_name(s->type), s->accumulates ? " accumulates" : "", masks[s->mask], s->n_row, s->n_col,
             s->n_tok, s->n_class, proof_kind_name(s->weights), proof_kind_name(s->inputs), s->cut.local,
             s->cut.cols, s->cut.rows, lanes_of(s), s->matrix.m, s->matrix.n, s->matrix.k, (int)s->by);
}

static void check_bits(const char *device, const data *a)
{
    char text[300];
    size_t i = proof_differ_f32(a->y, a->expected, a->n_y);
    if (i == a->n_y) return;
    describe(text, sizeof text, device, &a->shape);
    test_fail(__FILE__, __LINE__, "%s: y[%zu] of stride %zu is %a, not %a", text, i, a->y_stride,
              (double)a->y[i], (double)a->expected[i]);
}

/* Sizes that end a group, a word of scales, a tile of rows or tokens at every place. */
static product random_shape(test_random *r, hth_type type, cut how)
{
    const size_t unroll = 3 * 8; /* blocks */
    const uint32_t max = rows_block(type) == 256 ? 11 : unroll + 3, n_row = how.local / 8 * how.rows;
    product s = {.type = type, .cut = how};
    s.n_row = 1 + test_random_below(r, 2 * n_row + 2);
    s.n_col = rows_quantised(type) ? rows_block(type) * (1 + test_random_below(r, max))
                                   : 1 + test_random_below(r, 300);
    s.n_class = 1 + test_random_below(r, 2 * how.cols + 1);
    s.n_tok = 1 + test_random_below(r, (uint32_t)s.n_class);
    s.has_bias = test_random_below(r, 2), s.want = false;
    s.y_first = test_random_below(r, 3), s.y_gap = test_random_below(r, 3);
    s.weights = (proof_kind)test_random_below(r, PROOF_N_KIND);
    s.inputs = (proof_kind)test_random_below(r, PROOF_N_KIND);
    return s;
}

static void prove(hth_device *d, const char *name, const hth_kernels *k, test_random *r, const product *s)
{
    CLEANUP(free_data) data a = make(r, s, k);
    if (compute(d, &a)) check_bits(name, &a);
}

/* fn(device, its name, the C reference, random numbers), on every device there is. */
static void on_each(void (*fn)(hth_device *, const char *, const hth_kernels *, test_random *))
{
    hth_kernels k = proof_kernels(HTH_CPU_GENERIC);
    for (size_t i = 0; i < N_DEVICE; i++) {
        test_random r = proof_random();
        hth_device *d = shaders_open(devices[i]);
        if (!d) continue;
        fn(d, devices[i], &k, &r);
        shaders_close(d);
    }
}

static void all_types(hth_device *d, const char *name, const hth_kernels *k, test_random *r)
{
    static const cut cuts[] = {{64, 1, 1}, {24, 3, 2}};
    enum { N_SHAPE = 20 };
    for (size_t t = 0; t < ROWS_N_TYPE; t++)
        for (size_t c = 0; c < sizeof cuts / sizeof *cuts && rows_quantised(rows_types[t]); c++)
            for (size_t i = 0; i < N_SHAPE && !(shaders_are_few(name) && c != t % 2); i++) {
                product s = random_shape(r, rows_types[t], cuts[c]);
                prove(d, name, k, r, &s);
            }
}
TEST(quantised_rows_have_the_bits_of_the_cpu) { on_each(all_types); }

/* More lanes than chains: windows of blocks of every length, and more than one. */
static void many_lanes(hth_device *d, const char *name, const hth_kernels *k, test_random *r)
{
    enum { N_SHAPE = 24 };
    for (size_t t = 0; t < ROWS_N_TYPE; t++)
        for (size_t i = 0; i < N_SHAPE && rows_quantised(rows_types[t]); i++) {
            if (rows_types[t] == HTH_TYPE_NVFP4 || (shaders_are_few(name) && (i + t) % 4 != 0)) continue;
            const cut one = {i % 4 < 2 ? 64 : 32, 1, 1};
            const size_t block = rows_block(rows_types[t]);
            product s = random_shape(r, rows_types[t], one);
            s.lanes = i % 2 ? 16 : 32, s.n_row = 1 + test_random_below(r, 5);
            if (i % 3 == 0) s.n_col = block * (1 + test_random_below(r, block == 256 ? 150 : 600));
            s.accumulates = i % 4 == 1;
            if (i % 4 == 2) s.mask = MASK_ANY, s.row_first = i % 3, s.mask_first = test_random_below(r, 70);
            prove(d, name, k, r, &s);
        }
}
TEST(more_invocations_for_a_row_do_not_change_bits) { on_each(many_lanes); }

static void large_cuts(hth_device *d, const char *name, const hth_kernels *k, test_random *r)
{
    static const product shapes[] = {
        {HTH_TYPE_Q5_1, 70, 32 * 19, 17, PROOF_PLAIN, PROOF_PLAIN, {128, 8, 4}, .n_class = 19},
        {HTH_TYPE_Q6_K, 33, 256 * 9, 8, PROOF_LARGEST, PROOF_LARGEST, {256, 8, 4}, .n_class = 8},
        {HTH_TYPE_Q4_K, 5, 256 * 8, 3, PROOF_LARGEST, PROOF_PLAIN, {8, 2, 4}, .n_class = 16},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) prove(d, name, k, r, &shapes[i]);
}
TEST(how_outputs_are_shared_does_not_change_bits) { on_each(large_cuts); }

/* Weights of a block that are all large add up. */
static void large_sums(hth_device *d, const char *name, const hth_kernels *k, test_random *r)
{
    static const hth_type types[] = {HTH_TYPE_Q4_K, HTH_TYPE_Q5_K, HTH_TYPE_Q6_K, HTH_TYPE_IQ3_XXS, HTH_TYPE_IQ2_S};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        product s = {types[i], 60, 256 * 5, 1, PROOF_LARGEST, PROOF_PLAIN, {64, 1, 1}, .n_class = 1};
        s.one_sign = true;
        prove(d, name, k, r, &s);
        s.lanes = 32;
        prove(d, name, k, r, &s);
    }
}
TEST(sums_of_a_block_beyond_24_bits_round_to_nearest_even) { on_each(large_sums); }

static void accumulates(hth_device *d, const char *name, const hth_kernels *k, test_random *r)
{
    static const hth_type types[] = {HTH_TYPE_Q4_0, HTH_TYPE_Q5_K};
    for (size_t i = 0; i < 8; i++) {
        product s = random_shape(r, types[i / 4], (cut){64, 2, 1});
        s.accumulates = true, s.has_bias = i % 2;
        prove(d, name, k, r, &s);
    }
}
TEST(accumulation_adds_to_what_is_there) { on_each(accumulates); }

static void wanted(hth_device *d, const char *name, const hth_kernels *k, test_random *r)
{
    for (size_t i = 0; i < 4; i++) {
        product s = random_shape(r, HTH_TYPE_Q8_0, (cut){64, 2, 1});
        s.n_class = 5, s.n_tok = i, s.want = true;
        prove(d, name, k, r, &s);
    }
}
TEST(the_head_computes_requested_rows_only) { on_each(wanted); }

/* In the midst of structure-of-arrays parts and of a mask's words; workgroups end in a word, or have their rows in
 * several. */
static void live(hth_device *d, const char *name, const hth_kernels *k, test_random *r)
{
    static const cut cuts[] = {{64, 1, 1}, {64, 8, 1}, {24, 3, 2}, {256, 2, 4}};
    for (size_t t = 0; t < ROWS_N_TYPE; t++)
        for (int m = MASK_FULL; m <= MASK_ANY && rows_quantised(rows_types[t]); m++)
            for (size_t i = 0; i < 4; i++) {
                if (shaders_are_few(name) && i != t % 4) continue;
                product s = random_shape(r, rows_types[t], cuts[i]);
                s.mask = (mask)m;
                s.row_first = test_random_below(r, 9), s.mask_first = test_random_below(r, 70);
                prove(d, name, k, r, &s);
            }
}
TEST(active_rows_have_the_bits_of_the_cpu_and_others_are_not_written) { on_each(live); }

static void long_rows(hth_device *d, const char *name, const hth_kernels *k, test_random *r)
{
    static const product shapes[] = {
        {HTH_TYPE_Q8_0, 2, 53248, 8, PROOF_PLAIN, PROOF_PLAIN, {8, 8, 4}, .n_class = 8},
        {HTH_TYPE_Q2_K, 2, 53248, 8, PROOF_PLAIN, PROOF_PLAIN, {8, 8, 4}, .n_class = 8},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) prove(d, name, k, r, &shapes[i]);
}
TEST(rows_as_long_as_those_of_the_largest_models_are_summed_to_their_end) { on_each(long_rows); }

/* ---- matrix units ------------------------------------------------------------------------------------- */

/* The CPU's bits, or, where a device that keeps no subnormals has others, those that it has without matrix
 * units: what it owes there the tests above say. */
static void prove_tiled(hth_device *d, const char *name, const hth_kernels *k, test_random *r,
                        const product *s)
{
    CLEANUP(free_data) data a = make(r, s, k);
    if (compute(d, &a) && proof_differ_f32(a.y, a.expected, a.n_y) < a.n_y) {
        FREED float *tiled = get(a.n_y, sizeof *tiled);
        memcpy(tiled, a.y, a.n_y * sizeof *tiled);
        a.shape.matrix.m = 0, a.shape.cut = (cut){64, 1, 1};
        if (compute(d, &a)) memcpy(a.expected, a.y, a.n_y * sizeof *a.y);
        memcpy(a.y, tiled, a.n_y * sizeof *tiled);
        a.shape = *s;
        check_bits(name, &a);
    }
}

/* fn as above with the same, and each of the shaders that a device has for each of its shapes; null computes
 * without any. */
typedef struct units {
    hth_coopmat_shape shape;
    hth_coopmat_level by;
    uint32_t subgroup;
} units;
typedef void with_units(hth_device *d, const char *name, const hth_kernels *k, test_random *r, const units *of);

static void on_all_units(with_units *fn)
{
    hth_kernels k = proof_kernels(HTH_CPU_GENERIC);
    for (size_t i = 0; i < N_DEVICE; i++) {
        test_random r = proof_random();
        hth_device *d = shaders_open(devices[i]);
        if (!d) continue;
        const hth_device_info *info = hth_device_get_info(d);
        bool cm2 = i == 0 || info->features & HTH_FEATURE_COOPMAT2;
        if (i > 0 && info->n_shape == 0) test_note("%s has no matrix units of bytes", info->name);
        else if (!cm2) test_note("%s has no functions of elements", info->name);
        for (int by = HTH_COOPMAT_KHR; by <= (cm2 ? HTH_COOPMAT_CM2 : HTH_COOPMAT_KHR); by++) {
            if (i == 0) fn(d, devices[i], &k, &r, &(units){{16, 16, 16}, (hth_coopmat_level)by, 32});
            for (uint32_t s = 0; s < info->n_shape; s++)
                fn(d, devices[i], &k, &r, &(units){info->shapes[s], (hth_coopmat_level)by, info->subgroup_size});
        }
        shaders_close(d);
    }
}

/* Rows: `least`, in multiples of M and of what an invocation's ROWS add. */
static cut cut_of_subgroups(const units *of, uint32_t split, uint32_t least, uint32_t tokens)
{
    uint32_t unit = split * of->subgroup, rows = 1;
    while (rows * unit < least || rows * unit % of->shape.m != 0) rows++;
    return (cut){8 * unit, tokens, rows};
}

/* What a shape can be cut into: the tile of models; one as small as the shape; several of it each way. With
 * functions of elements a workgroup has eight subgroups, or a multiple of that. */
static size_t tile_cuts(const units *of, cut cuts[4])
{
    const hth_coopmat_shape *s = &of->shape;
    size_t n = 0;
    if (of->by == HTH_COOPMAT_CM2) {
        uint32_t split = of->subgroup < 32 ? 32 / of->subgroup : 1;
        cuts[n++] = cut_of_subgroups(of, split, 64, split * s->n < 32 ? 32 / s->n * s->n : split * s->n);
        cuts[n++] = cut_of_subgroups(of, 2, 2 * s->m, 2 * s->n);
        cuts[n++] = cut_of_subgroups(of, 1, s->m, s->n);
        cuts[n++] = cut_of_subgroups(of, 1, s->m, 3 * s->n);
    } else {
        if (32 % s->m == 0 && 16 % s->n == 0) cuts[n++] = (cut){256, 16, 1};
        if (16 * s->n * s->m * 4 < 8192) cuts[n++] = (cut){8 * s->m, 2 * s->n, 2};
        cuts[n++] = (cut){8 * s->m, s->n, 1};
    }
    return n;
}

static void set_units(product *s, const units *of)
{
    s->matrix = of->shape, s->by = of->by, s->split = s->cut.local / (8 * of->subgroup);
}

static void all_types_tiled(hth_device *d, const char *name, const hth_kernels *k, test_random *r,
                            const units *of)
{
    enum { N_SHAPE = 12 };
    cut cuts[4];
    size_t n_cut = tile_cuts(of, cuts);
    for (size_t t = 0; t < ROWS_N_TYPE; t++)
        for (size_t c = 0; c < n_cut && rows_quantised(rows_types[t]) && rows_types[t] != HTH_TYPE_NVFP4; c++)
            for (size_t i = 0; i < N_SHAPE; i++) {
                product s = random_shape(r, rows_types[t], cuts[c]);
                set_units(&s, of);
                s.accumulates = i % 3 == 2;
                prove_tiled(d, name, k, r, &s);
            }
}
TEST(matrix_units_give_the_bits_of_the_cpu) { on_all_units(all_types_tiled); }

static void large_sums_tiled(hth_device *d, const char *name, const hth_kernels *k, test_random *r,
                             const units *of)
{
    static const hth_type types[] = {HTH_TYPE_Q8_0, HTH_TYPE_Q4_K, HTH_TYPE_Q5_K, HTH_TYPE_Q6_K};
    cut cuts[4];
    tile_cuts(of, cuts);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        product s = {types[i], 60, 256 * 5, 17, PROOF_LARGEST, PROOF_PLAIN, cuts[0], .n_class = 20};
        s.one_sign = true;
        set_units(&s, of);
        prove_tiled(d, name, k, r, &s);
    }
    product s = {HTH_TYPE_Q2_K,       2,           53248, 8, PROOF_PLAIN, PROOF_PLAIN, cuts[0], .n_class = 9};
    set_units(&s, of);
    prove_tiled(d, name, k, r, &s);
}
TEST(matrix_units_add_up_the_largest_weights_and_the_longest_rows) { on_all_units(large_sums_tiled); }

static void wanted_tiled(hth_device *d, const char *name, const hth_kernels *k, test_random *r,
                         const units *of)
{
    cut cuts[4];
    tile_cuts(of, cuts);
    for (size_t i = 0; i < 4; i++) {
        product s = random_shape(r, i % 2 ? HTH_TYPE_Q6_K : HTH_TYPE_Q8_0, cuts[0]);
        s.n_class = 2 * cuts[0].cols + 4, s.n_tok = s.n_class * i / 4, s.want = true;
        set_units(&s, of);
        prove_tiled(d, name, k, r, &s);
    }
}
TEST(cooperative_matrices_compute_requested_rows_only) { on_all_units(wanted_tiled); }

/* ---- floats ------------------------------------------------------------------------------------------ */

/* sqrt(mean square of the difference / mean square of what is expected) must stay below 2e-6. */
static void check_near(const char *device, const data *a)
{
    char text[300];
    double difference = 0, all = 0;
    for (size_t t = 0; t < a->shape.n_tok; t++)
        for (size_t i = 0; i < a->shape.n_row; i++) {
            size_t at = t * a->y_stride + a->shape.y_first + i;
            double e = (double)a->expected[at] - (double)a->y[at];
            difference += e * e, all += (double)a->expected[at] * (double)a->expected[at];
        }
    if (difference <= 4e-12 * all) return;
    describe(text, sizeof text, device, &a->shape);
    test_fail(__FILE__, __LINE__, "%s: error %g of %g", text, difference, all);
}

static void prove_floats(hth_device *const *d, const hth_kernels *k, test_random *r, const product *s)
{
    CLEANUP(free_data) data a = make(r, s, k);
    if (!compute(d[0], &a)) return;
    if (s->weights == PROOF_PLAIN && s->inputs == PROOF_PLAIN) check_near(devices[0], &a);
    /* What was not to be written is still what it was expected to be. */
    for (size_t i = 0; i < a.n_y; i++)
        if (i / a.y_stride >= s->n_tok || i % a.y_stride < s->y_first ||
            i % a.y_stride >= s->y_first + s->n_row || !is_live(&a, i % a.y_stride - s->y_first))
            CHECK(hth_bits_of(a.y[i]) == hth_bits_of(a.expected[i]));
    memcpy(a.expected, a.y, a.n_y * sizeof *a.y);
    if (d[1] && compute(d[1], &a)) check_bits(devices[1], &a);
}

TEST(rows_of_floats_are_near_the_cpu_and_the_same_everywhere)
{
    static const hth_type types[] = {HTH_TYPE_F32, HTH_TYPE_F16, HTH_TYPE_BF16};
    static const cut cuts[] = {{64, 1, 1}, {24, 3, 2}};
    static const proof_kind kinds[] = {PROOF_PLAIN, PROOF_PLAIN, PROOF_ZEROS, PROOF_OUTLIER, PROOF_SPECIAL};
    test_random r = proof_random();
    hth_device *d[N_DEVICE] = {shaders_open(devices[0]), shaders_open(devices[1])};
    hth_kernels k = proof_kernels(HTH_CPU_GENERIC);
    for (size_t t = 0; t < 3; t++)
        for (size_t c = 0; c < 2; c++) {
            hth_device *const there[N_DEVICE] = {d[0], shaders_are_few(devices[1]) && c != t % 2 ? NULL : d[1]};
            for (size_t i = 0; i < 20; i++) {
                product s = random_shape(&r, types[t], cuts[c]);
                s.weights = kinds[i % 5], s.inputs = i < 10 ? PROOF_PLAIN : PROOF_ZEROS;
                s.accumulates = c == 1 && i % 2;
                if (types[t] == HTH_TYPE_F16 && i % 5 == 1) s.weights = PROOF_SUBNORMAL;
                prove_floats(there, &k, &r, &s);
                s.accumulates = false, s.mask = (mask)(MASK_FULL + i % MASK_ANY), s.row_first = i % 3;
                s.mask_first = test_random_below(&r, 70);
                prove_floats(there, &k, &r, &s);
            }
        }
    product s = {HTH_TYPE_F16, 3, 53248, 8, PROOF_PLAIN, PROOF_PLAIN, {8, 8, 4}, .n_class = 8};
    prove_floats(d, &k, &r, &s);
    for (size_t i = 0; i < N_DEVICE; i++) shaders_close(d[i]);
}

/* Row h of two weights: half h, and 0, in either order; the inputs are 1. */
static void halves_are_widened_on(hth_device *d, bool high)
{
    enum { N = 65536, N_COL = 2, LOCAL = 64 };
    static float y[N];
    float x[N_COL] = {1.0f, 1.0f}, bias = 0.0f;
    uint32_t step[HTH_STEP_ROWS] = {[HTH_STEP_N_TOK] = 1};
    const uint32_t row_words = hth_soa_row_words(HTH_TYPE_F16, N_COL),
                   consts[] = {LOCAL, 1, 1, 0, 8, HTH_TYPE_F16};
    const hth_push_mul_mat_vec_f push = {.n_row = N, .n_col = N_COL, .y_stride = N, .row_words = row_words};
    uint32_t *w = get(N, row_words * sizeof *w);
    for (uint32_t h = 0; h < N; h++)
        w[h * row_words + hth_soa_word_offset(HTH_TYPE_F16, N_COL, 0)] = high ? h << 16 : h;
    shaders_run run = {.id = HTH_SHADER_mul_mat_vec_f,
                       .consts = consts,
                       .push = &push,
                       .bind = {{step, sizeof step},
                                {w, N * row_words * sizeof *w},
                                {x, sizeof x},
                                {&bias, sizeof bias},
                                {y, sizeof y}},
                       .grid = {1, N * 8 / LOCAL, 1}};
    bool ran = shaders_do(d, &run);
    for (uint32_t h = 0; ran && h < N; h++) {
        float widened = hth_f16_to_f32((uint16_t)h), expected = 0.0f + widened;
        if (widened != widened ? y[h] != y[h] : hth_bits_of(y[h]) == hth_bits_of(expected)) continue;
        test_fail(__FILE__, __LINE__, "%s half %04x: %a, not %a", high ? "high" : "low", (unsigned)h,
                  (double)y[h], (double)expected);
        break;
    }
    free(w);
}

TEST(all_halves_are_widened_exactly)
{
    for (size_t i = 0; i < 2 * N_DEVICE; i++) {
        hth_device *d =
            shaders_open_as(&(hth_device_spec){.name = devices[i / 2], .no_half_conversion = i % 2 > 0});
        const hth_device_info *info = d ? hth_device_get_info(d) : NULL;
        if (d && info->kind == HTH_DEVICE_CPU) CHECK_INT(info->converts_halves, i % 2 == 0);
        for (int high = 0; d && high < 2; high++) halves_are_widened_on(d, high);
        shaders_close(d);
    }
}

/* ---- structure-of-arrays parts
 * -------------------------------------------------------------------------------------------- */

/* Sixteenths of a bit of a weight whose layout is larger than the file: indices of values or digits, scales of
 * sub-blocks, and the block's. */
static size_t device_bits(hth_type type)
{
    switch (type) {
    case HTH_TYPE_IQ3_XXS:
    case HTH_TYPE_IQ3_S: return 64 + 4 + 1;
    case HTH_TYPE_IQ2_XXS:
    case HTH_TYPE_IQ1_S: return 48 + 4 + 1;
    case HTH_TYPE_IQ2_XS:
    case HTH_TYPE_IQ2_S:
    case HTH_TYPE_IQ1_M: return 48 + 8 + 1;
    case HTH_TYPE_NVFP4: return 64 + 16;
    default: return 32 + 1;
    }
}

TEST(repacked_weights_filled_in_pieces_equal_those_filled_at_once)
{
    test_random r = proof_random();
    for (size_t t = 0; t < ROWS_N_TYPE; t++) {
        const size_t n_row = 7, n_col = rows_quantised(rows_types[t]) ? 11 * rows_block(rows_types[t]) : 37;
        const size_t size = rows_bytes(rows_types[t], n_col), stride = size + 3;
        const rows_shape row = {.type = rows_types[t], .n_col = n_col, .kind = PROOF_BITS};
        uint8_t *w = get(n_row, stride), *once, *pieces;
        hth_soa_layout places;
        for (size_t i = 0; i < n_row; i++) rows_fill_row(&r, &row, w + i * stride);
        if (!CHECK(hth_soa_layout_init(rows_types[t], n_row, n_col, &places))) continue;
        CHECK_INT(places.size % 256, 0);
        const size_t packed = t < ROWS_N_FULL ? size : n_col * device_bits(rows_types[t]) / 128;
        CHECK(places.size >= n_row * packed && places.size < n_row * (packed + 50) + 6 * 256);
        once = get(1, (size_t)places.size), pieces = get(1, (size_t)places.size);
        hth_soa_layout_pack(rows_types[t], n_row, n_col, w, stride, 0, n_row, once);
        for (size_t first = n_row; first > 0; first -= first > 2 ? 3 : 1) {
            size_t n = first > 2 ? 3 : 1;
            hth_soa_layout_pack(rows_types[t], n_row, n_col, w + (first - n) * stride, stride, first - n, n, pieces);
        }
        CHECK_BYTES(pieces, once, (size_t)places.size);
        free(w), free(once), free(pieces);
    }
}

TEST(repacked_weights_that_no_shader_can_read_are_refused)
{
    hth_soa_layout p;
    hth_quant_desc desc;
    CHECK(!hth_quant_desc_of(HTH_TYPE_F16, &desc) && !hth_quant_desc_of(HTH_TYPE_I32, &desc));
    CHECK(hth_quant_desc_of(HTH_TYPE_IQ4_XS, &desc) && desc.table == 1 && desc.block == 256);
    CHECK(!hth_soa_layout_init(HTH_TYPE_I32, 4, 32, &p));
    CHECK(!hth_soa_layout_init(HTH_TYPE_Q4_0, 4, 33, &p));
    CHECK(hth_soa_layout_init(HTH_TYPE_Q4_0, (uint64_t)1 << 20, 16384, &p)); /* 8 GiB of 16 */
    CHECK(!hth_soa_layout_init(HTH_TYPE_Q4_0, (uint64_t)1 << 21, 16384, &p));
    CHECK(!hth_soa_layout_init(HTH_TYPE_F32, (uint64_t)1 << 62, 4096, &p));
    CHECK(!hth_soa_layout_init(HTH_TYPE_Q8_0, UINT64_MAX, UINT32_MAX - 31, &p));
}
