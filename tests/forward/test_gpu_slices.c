/* Rows of slices that were chosen for each token: on the null device and on the first that Vulkan knows they have the
 * bits of the CPU's kernels, pair by pair or in groups, by matrix units too, with a bias, a weight, and gate and up in
 * one matrix. Rows of floats come near the CPU, and are the same on both. */
#include "base/bits.h"
#include "forward/gpu/gpu_int.h"
#include "forward/gpu/weight_layout.h"
#include "support/device/shaders.h"
#include "support/kernels/proof.h"
#include "support/kernels/rows_case.h"

static const char *const devices[] = {"null", "vulkan:0"};
enum { N_DEVICE = 2, MAX_USED = 4, MAX_TOK = 24, MAX_SLICE = 5, GUARD = 3 };

typedef struct shape {
    hth_type type;
    uint32_t n_row, n_col, n_slice, step, first; /* rows of a slice; slice of expert i: i step + first */
    uint32_t row_first, n_used, n_tok, lanes;
    uint32_t of;                 /* pairs of a group; 1: none */
    uint32_t consts[HTH_TILE_N_CONST];
    hth_coopmat_level by;
    uint32_t slot_first, n_slot; /* slots of the slices that are here */
    bool by_pair, has_bias, weighs, moves; /* moves: slices have other slots than their numbers, or none */
} shape;

typedef struct data {
    shape s;
    size_t row_size, n_block, n_x, n_y, y_stride;
    uint8_t *w, *planes;
    hth_soa_layout places;
    float *x, *bias, *expected, *y;
    int8_t *q;
    float *d;
    int32_t *sum;
    int16_t *sum_16;
    uint32_t pairs[MAX_TOK * 2 * MAX_USED], step[HTH_STEP_ROWS + MAX_SLICE], slot_of[MAX_SLICE];
    uint32_t groups[HTH_GROUPS_HEAD + MAX_TOK * MAX_USED * (2 + 2 * HTH_GPU_MAX_EXPERT_PAIRS)];
} data;

static void *get(size_t n, size_t size) { return calloc(n ? n : 1, size); }

static void free_data(data *a)
{
    void *all[] = {a->w, a->planes, a->x, a->bias, a->expected, a->y, a->q, a->d, a->sum, a->sum_16};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void round_inputs(data *a, const hth_kernels *k)
{
    const shape *s = &a->s;
    bool wide = hth_type_act_block(s->type) == 256;
    for (size_t i = 0; i < a->n_x; i++) {
        const float *x = a->x + i * s->n_col;
        if (wide)
            k->quant_act_256(x, s->n_col, a->q + i * s->n_col, a->d + i * a->n_block,
                             a->sum_16 + i * s->n_col / 16);
        else k->quant_act(x, s->n_col, a->q + i * s->n_col, a->d + i * a->n_block, a->sum + i * a->n_block);
    }
    for (size_t i = 0; wide && i < a->n_x * s->n_col / 16; i++) a->sum[i] = a->sum_16[i];
}

static bool is_here(const shape *s, uint32_t slot) { return slot >= s->slot_first && slot - s->slot_first < s->n_slot; }

/* The CPU's product of a pair, with what comes after it. */
static void expect(data *a, const hth_kernels *k, uint32_t t, uint32_t j)
{
    const shape *s = &a->s;
    const uint32_t *of_token = a->pairs + t * 2 * s->n_used;
    uint32_t expert = of_token[j], n = s->n_row - s->row_first;
    size_t row = (size_t)(expert * s->step + s->first) * s->n_row + s->row_first,
           x = s->by_pair ? t * s->n_used + j : t;
    float weight = hth_float_of(of_token[s->n_used + j]),
          *y = a->expected + t * a->y_stride + GUARD + j * s->n_row;
    const hth_rows job = {.w = a->w + row * a->row_size,
                          .row_size = a->row_size,
                          .n_col = s->n_col,
                          .end = n,
                          .n_tok = 1,
                          .act = {.x = a->x + x * s->n_col,
                                  .q = a->q + x * s->n_col,
                                  .d = a->d + x * a->n_block,
                                  .sum = a->sum + x * a->n_block,
                                  .sum_16 = a->sum_16 + x * s->n_col / 16},
                          .y = y,
                          .y_stride = n};
    bool has_slot = a->slot_of[expert] != HTH_STEP_NO_SLOT;
    if (has_slot && !is_here(s, a->slot_of[expert])) return; /* that of another dispatch, which writes it */
    k->rows[s->type](&job);
    for (uint32_t i = 0; i < n && !has_slot; i++) y[i] = 0.0f;
    for (uint32_t i = 0; i < n && has_slot; i++) {
        if (s->has_bias) y[i] = y[i] + a->bias[expert * s->n_row + s->row_first + i];
        if (s->weighs) y[i] = y[i] * weight;
    }
}

/* Pairs of an expert, in groups. */
static void group_pairs(data *a)
{
    const shape *s = &a->s;
    for (uint32_t e = 0; e < s->n_slice; e++)
        for (uint32_t i = 0, n = 0; i < s->n_tok * s->n_used; i++) {
            const uint32_t *id = a->pairs + i / s->n_used * 2 * s->n_used + i % s->n_used;
            if (*id != e) continue;
            a->groups[0] += n == 0;
            uint32_t *group = a->groups + HTH_GROUPS_HEAD + (a->groups[0] - 1) * hth_group_words(s->of);
            group[0] = e, group[1] = n + 1, group[2 + n] = i, group[2 + s->of + n] = id[s->n_used];
            n = (n + 1) % s->of;
        }
}

/* All slices are here, or moves: those in some slots, others have slots elsewhere, or none. */
static void place(data *a, test_random *r)
{
    const shape *s = &a->s;
    size_t n = (size_t)s->step * s->n_row;
    for (uint32_t i = 0; i < s->n_slice; i++) a->slot_of[i] = i;
    for (uint32_t i = s->n_slice; s->moves && i > 1; i--) {
        uint32_t k = test_random_below(r, i), slot = a->slot_of[k];
        a->slot_of[k] = a->slot_of[i - 1], a->slot_of[i - 1] = slot;
    }
    for (uint32_t i = 0; i < s->n_slice; i++) {
        if (is_here(s, a->slot_of[i]))
            hth_soa_layout_pack(s->type, n * s->n_slice, s->n_col, a->w + i * n * a->row_size, a->row_size,
                                (a->slot_of[i] - s->slot_first) * n, n, a->planes);
        if (a->slot_of[i] >= s->slot_first + s->n_slot) a->slot_of[i] = HTH_STEP_NO_SLOT;
        a->step[HTH_STEP_ROWS + i] = a->slot_of[i];
    }
}

static data make(test_random *r, const shape *s, const hth_kernels *k)
{
    const size_t block = rows_act_block(s->type), n_slice = (size_t)s->n_slice * s->step,
                 n_row = n_slice * s->n_row;
    data a = {.s = *s,
              .row_size = rows_bytes(s->type, s->n_col),
              .n_block = s->n_col / block,
              .n_x = (size_t)s->n_tok * (s->by_pair ? s->n_used : 1)};
    const rows_shape row = {.type = s->type, .n_col = s->n_col, .kind = PROOF_PLAIN};
    size_t n_value = a.n_x * s->n_col;
    a.w = get(n_row, a.row_size);
    for (size_t i = 0; i < n_row; i++) rows_fill_row(r, &row, a.w + i * a.row_size);
    CHECK(hth_soa_layout_init(s->type, n_row, s->n_col, &a.places));
    a.planes = get(1, (size_t)a.places.size);
    place(&a, r);
    a.x = get(n_value, sizeof *a.x), a.bias = get((size_t)s->n_slice * s->n_row, sizeof *a.bias);
    proof_fill_f32(r, PROOF_PLAIN, a.x, n_value);
    proof_fill_f32(r, PROOF_PLAIN, a.bias, (size_t)s->n_slice * s->n_row);
    a.q = get(n_value, 1), a.d = get(n_value / block + 1, sizeof *a.d);
    a.sum = get(n_value / 16 + 1, sizeof *a.sum), a.sum_16 = get(n_value / 16 + 1, sizeof *a.sum_16);
    if (rows_quantised(s->type)) round_inputs(&a, k);
    a.y_stride = GUARD + (size_t)s->n_used * s->n_row, a.n_y = (s->n_tok + 1) * a.y_stride;
    a.expected = get(a.n_y, sizeof *a.expected), a.y = get(a.n_y, sizeof *a.y);
    memset(a.expected, SHADERS_POISON, a.n_y * sizeof *a.expected);
    a.step[HTH_STEP_N_TOK] = s->n_tok;
    for (uint32_t t = 0; t < s->n_tok; t++)
        for (uint32_t j = 0; j < s->n_used; j++) {
            a.pairs[(t * 2) * s->n_used + j] = test_random_below(r, s->n_slice);
            a.pairs[(t * 2 + 1) * s->n_used + j] = hth_bits_of((float)test_random_below(r, 1000) * 1e-3f);
            expect(&a, k, t, j);
        }
    if (s->of > 1) group_pairs(&a);
    return a;
}

static bool compute(hth_device *device, data *a)
{
    static const hth_shader_id ids[HTH_N_COOPMAT_LEVEL] = {HTH_SHADER_mul_mat_vec_q_sliced, HTH_SHADER_mul_mat_q_sliced,
                                                           HTH_SHADER_mul_mat_q_cm2_sliced};
    const shape *s = &a->s;
    bool quantised = rows_quantised(s->type);
    uint32_t n = s->n_row - s->row_first,
             consts[HTH_TILE_N_CONST];
    const hth_push_sliced sliced = {s->row_first, s->n_row,   s->step,  s->first,
                                    s->n_used,    s->by_pair, s->n_row, s->weighs, s->n_slot,
                                    s->slot_first, s->moves ? HTH_STEP_ROWS : 0};
    hth_quant_desc desc = {.block = 1};
    memcpy(consts, s->consts, sizeof consts);
    if (quantised && !CHECK(hth_quant_desc_of(s->type, &desc))) return false;
    const hth_push_mul_mat_vec_q_sliced q = {
        {n, s->n_col / desc.block, (uint32_t)a->y_stride, GUARD, s->has_bias, a->places.offsets}, sliced};
    const hth_push_mul_mat_vec_f_sliced f = {
        {n, s->n_col, (uint32_t)a->y_stride, GUARD, s->has_bias, hth_soa_row_words(s->type, s->n_col)},
        sliced};
    const shaders_binding bias = {a->bias, s->has_bias ? (size_t)s->n_slice * s->n_row * 4 : 4},
                          y = {a->y, a->n_y * 4},
                          pairs = {s->of > 1 ? a->groups : a->pairs,
                                   s->of > 1 ? sizeof a->groups : (size_t)s->n_tok * 2 * s->n_used * 4},
                          planes = {a->planes, (size_t)a->places.size};
    /* One token more than there is, or group. */
    uint32_t n_group = s->of > 1 ? (a->groups[0] + 1) * (s->of / consts[HTH_ROWS_COLS]) : (s->n_tok + 1) * s->n_used,
             n_together = hth_rows_per_workgroup(consts);
    shaders_run run = {.consts = consts, .grid = {n_group, (n + n_together - 1) / n_together, 1}};
    if (quantised) {
        memcpy(consts + HTH_ROWS_FORMAT, &desc, sizeof desc);
        run.id = ids[s->by], run.push = &q;
        const shaders_binding bind[] = {
            {a->step, sizeof a->step},
            planes,
            {a->q, a->n_x * s->n_col},
            {a->d, a->n_x * a->n_block * 4},
            {a->sum, a->n_x * s->n_col / (rows_act_block(s->type) == 32 ? 32 : 16) * 4},
            bias,
            y,
            pairs};
        memcpy(run.bind, bind, sizeof bind);
    } else {
        consts[HTH_FLOATS_TYPE] = (uint32_t)s->type;
        run.id = HTH_SHADER_mul_mat_vec_f_sliced, run.push = &f;
        const shaders_binding bind[] = {
            {a->step, sizeof a->step}, planes, {a->x, a->n_x * s->n_col * 4}, bias, y, pairs};
        memcpy(run.bind, bind, sizeof bind);
    }
    return shaders_do(device, &run);
}

static void check(const char *device, const data *a)
{
    const shape *s = &a->s;
    size_t i = proof_differ_f32(a->y, a->expected, a->n_y);
    if (i < a->n_y)
        test_fail(__FILE__, __LINE__,
                  "%s, %s, %u slices of %u rows of %u, %u of %u tokens: y[%zu] is %a, not %a", device,
                  rows_type_name(s->type), s->n_slice * s->step, s->n_row, s->n_col, s->n_used, s->n_tok, i,
                  (double)a->y[i], (double)a->expected[i]);
}

/* Dot products, of rows that an invocation has together. */
static void set_consts(shape *s, uint32_t n_row_together)
{
    const uint32_t consts[HTH_TILE_N_CONST] = {64, s->of < 8 ? s->of : 8, n_row_together, s->of, s->lanes};
    memcpy(s->consts, consts, sizeof consts);
}

static shape random_shape(test_random *r, hth_type type, uint32_t i)
{
    static const uint32_t lanes[] = {8, 16, 32};
    shape s = {.type = type, .by_pair = i % 2, .has_bias = i / 2 % 2, .weighs = i / 4 % 2};
    s.of = i / 4 % 2 ? (uint32_t)HTH_GPU_EXPERT_PAIRS << i % 4 : i % 4 == 3 ? 2u : 1u;
    s.lanes = rows_quantised(type) && type != HTH_TYPE_NVFP4 && s.of == 1 ? lanes[i % 3] : 8;
    set_consts(&s, s.of > 1 ? 1 + i % 4 : 1);
    s.n_row = 1 + test_random_below(r, 40), s.row_first = i % 5 == 0 ? test_random_below(r, s.n_row) : 0;
    s.n_col = rows_quantised(type) ? (uint32_t)rows_block(type) * (1 + test_random_below(r, 9))
                                   : 1 + test_random_below(r, 300);
    s.step = 1 + i % 2, s.first = s.step - 1, s.n_slice = 1 + test_random_below(r, MAX_SLICE);
    s.moves = i % 3 > 0;
    s.slot_first = i % 3 == 2 ? test_random_below(r, s.n_slice) : 0;
    s.n_slot = i % 3 == 2 ? 1 + test_random_below(r, s.n_slice - s.slot_first) : s.n_slice;
    s.n_used = 1 + test_random_below(r, MAX_USED), s.n_tok = 1 + test_random_below(r, s.of > 2 ? MAX_TOK : 5);
    return s;
}

TEST(rows_of_chosen_slices_have_the_bits_of_the_cpu)
{
    hth_kernels k = proof_kernels(HTH_CPU_GENERIC);
    for (size_t i = 0; i < N_DEVICE; i++) {
        test_random r = proof_random();
        hth_device *d = shaders_open(devices[i]);
        for (size_t t = 0; d && t < ROWS_N_TYPE; t++)
            for (uint32_t n = 0; n < 8 && rows_quantised(rows_types[t]); n++) {
                shape s = random_shape(&r, rows_types[t], n);
                if (shaders_are_few(devices[i])) {
                    if (s.lanes > 8) s.lanes = t % 2 ? 8 : 32;
                    if (s.of > 1) s.of = (uint32_t)HTH_GPU_EXPERT_PAIRS << t % 4;
                    set_consts(&s, s.of > 1 ? 2 : 1);
                }
                CLEANUP(free_data) data a = make(&r, &s, &k);
                if (compute(d, &a)) check(devices[i], &a);
            }
        if (d) shaders_close(d);
    }
}

/* By the tiles that models have, of groups of one tile and of several. */
static void check_units(hth_device *d, const char *name, const hth_device_info *units, hth_coopmat_level by)
{
    hth_kernels k = proof_kernels(HTH_CPU_GENERIC);
    test_random r = proof_random();
    for (size_t t = 0; t < ROWS_N_TYPE; t++)
        for (uint32_t n = 0, n_done = 0; n < 8; n++) {
            hth_quant_desc desc;
            if (!hth_quant_desc_of(rows_types[t], &desc) || desc.block == 16) continue;
            shape s = random_shape(&r, rows_types[t], n);
            s.of = 16u << (n + t) % 3, s.n_row += 30, s.n_tok = 1 + test_random_below(&r, MAX_TOK);
            set_consts(&s, 1);
            if (hth_gpu_choose_tile(units, &desc, by, s.of, s.consts) != by || s.of % s.consts[HTH_ROWS_COLS] != 0)
                continue;
            s.consts[HTH_ROWS_GROUP] = s.of, s.by = by;
            if (shaders_are_few(name) && n_done++ > 0) continue;
            CLEANUP(free_data) data a = make(&r, &s, &k);
            if (compute(d, &a)) check(name, &a);
        }
}

TEST(matrix_units_give_the_bits_of_the_cpu_for_chosen_slices)
{
    for (size_t i = 0; i < N_DEVICE; i++) {
        hth_device *d = shaders_open(devices[i]);
        if (!d) continue;
        hth_device_info units = *hth_device_get_info(d);
        if (i == 0) units.n_shape = 1, units.shapes[0] = (hth_coopmat_shape){16, 16, 16}, units.subgroup_size = 32;
        if (i == 0) units.features |= HTH_FEATURE_COOPMAT2, units.max_shared_memory = 49152;
        if (units.n_shape == 0) test_note("%s has no matrix units of bytes", units.name);
        else check_units(d, devices[i], &units, HTH_COOPMAT_KHR);
        if (units.features & HTH_FEATURE_COOPMAT2) check_units(d, devices[i], &units, HTH_COOPMAT_CM2);
        shaders_close(d);
    }
}

TEST(rows_of_chosen_slices_of_floats_are_near_the_cpu_and_the_same_everywhere)
{
    static const hth_type types[] = {HTH_TYPE_F32, HTH_TYPE_F16, HTH_TYPE_BF16};
    hth_kernels k = proof_kernels(HTH_CPU_GENERIC);
    test_random r = proof_random();
    hth_device *d[N_DEVICE] = {shaders_open(devices[0]), shaders_open(devices[1])};
    for (size_t t = 0; t < 3; t++)
        for (uint32_t n = 0; n < 12 && d[0]; n++) {
            shape s = random_shape(&r, types[t], n);
            CLEANUP(free_data) data a = make(&r, &s, &k);
            if (!compute(d[0], &a)) continue;
            for (size_t i = 0; i < a.n_y; i++) {
                bool is_poison = hth_bits_of(a.expected[i]) == 0x01010101u * SHADERS_POISON;
                float error = a.y[i] - a.expected[i],
                      size = 1.0f + (a.expected[i] < 0 ? -a.expected[i] : a.expected[i]);
                if (is_poison ? hth_bits_of(a.y[i]) != hth_bits_of(a.expected[i])
                              : !(error < 1e-4f * size && error > -1e-4f * size))
                    test_fail(__FILE__, __LINE__, "%s: y[%zu] is %g, not %g", rows_type_name(types[t]), i,
                              (double)a.y[i], (double)a.expected[i]);
            }
            memcpy(a.expected, a.y, a.n_y * sizeof *a.y);
            if (d[1] && compute(d[1], &a)) check(devices[1], &a);
        }
    for (size_t i = 0; i < N_DEVICE; i++) shaders_close(d[i]);
}
