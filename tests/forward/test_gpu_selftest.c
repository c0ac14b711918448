/* The self-test of a device: it passes on devices that give the CPU's bits, and names the shader that is
 * off by one unit in the last place, whichever it is. */
#include "forward/gpu/selftest.h"

#include "base/bits.h"
#include "base/clock.h"
#include "kernels/kernels.h"
#include "model/arch.h"
#include "model/program.h"
#include "forward/gpu/cache.h"
#include "forward/gpu/gpu_int.h"
#include "forward/gpu/experts/pack_table.h"
#include "support/device/shaders.h"
#include "support/kernels/rows_case.h"

enum { MEMORY = 4 << 20, MAX_PROGRAMS = 820, LOCAL = 64, TABLE_IQ2 = 5 };

/* Shaders with constants, as record.c uses them. */
typedef struct wanted {
    hth_shader_id id;
    uint32_t consts[HTH_SHADER_MAX_CONST];
} wanted;

typedef struct list {
    wanted all[MAX_PROGRAMS];
    size_t n;
} list;

static void add(list *l, hth_shader_id id, const uint32_t *consts)
{
    wanted *w = &l->all[l->n++];
    w->id = id;
    memcpy(w->consts, consts, hth_shader_infos[id].n_const * sizeof *consts);
}

static void add_rows(list *l, hth_type type)
{
    /* cols, rows, lanes */
    static const uint32_t cuts[][3] = {{1, 1, 32}, {5, 1, 8}, {8, 4, 8}, {1, 1, 8}, {1, 1, 16}, {8, 2, 8}};
    uint32_t consts[HTH_ROWS_N_CONST] = {LOCAL, [HTH_ROWS_LANES] = 8};
    hth_quant_desc desc;
    if (!hth_quant_desc_of(type, &desc)) return;
    memcpy(consts + HTH_ROWS_FORMAT, &desc, sizeof desc);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        consts[HTH_ROWS_COLS] = cuts[i][0], consts[HTH_ROWS_ROWS] = cuts[i][1],
        consts[HTH_ROWS_LANES] = cuts[i][2], consts[HTH_ROWS_WANT] = i == 1;
        if (desc.block == 16 && consts[HTH_ROWS_LANES] > 8) continue;
        add(l, i == 2 ? HTH_SHADER_mul_mat_vec_q_acc : HTH_SHADER_mul_mat_vec_q, consts);
        if (i == 2) continue;
        consts[HTH_ROWS_WANT] = 0;
        add(l, HTH_SHADER_mul_mat_vec_q_sparse, consts);
        if (consts[HTH_ROWS_COLS] != 1 && consts[HTH_ROWS_COLS] != HTH_GPU_EXPERT_PAIRS) continue;
        consts[HTH_ROWS_GROUP] = consts[HTH_ROWS_COLS];
        add(l, HTH_SHADER_mul_mat_vec_q_sliced, consts);
        if (consts[HTH_ROWS_GROUP] == 1) continue;
        consts[HTH_ROWS_GROUP] = HTH_GPU_MAX_EXPERT_PAIRS;
        add(l, HTH_SHADER_mul_mat_vec_q_sliced, consts);
    }
}

static void add_down(list *l, hth_type type)
{
    uint32_t down[HTH_DOWN_N_CONST] = {LOCAL};
    hth_quant_desc desc;
    if (!hth_quant_desc_of(type, &desc)) return;
    memcpy(down + HTH_DOWN_FORMAT, &desc, sizeof desc);
    for (uint32_t cols = 1; cols <= 2; cols++) {
        down[HTH_DOWN_COLS] = cols, down[HTH_DOWN_GROUPS] = cols == 1 ? 4 : 1;
        add(l, HTH_SHADER_down_q, down);
        if (cols == 1) add(l, HTH_SHADER_down_q_sliced, down);
    }
}

static void add_attention(list *l, uint32_t d, hearth_kv_type kv, uint32_t shared)
{
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t kind = i == 0 ? HTH_ROPE_INTERLEAVED : HTH_ROPE_NEOX;
        add(l, HTH_SHADER_rope_store, (const uint32_t[]){d, kind, i, (uint32_t)kv, LOCAL, 0, 0, 0});
        add(l, HTH_SHADER_rope_store,
            (const uint32_t[]){d, kind, HTH_ROPE_NORM_OWN + i, (uint32_t)kv, LOCAL, 1 - i, 0, i});
        add(l, HTH_SHADER_rope_store, (const uint32_t[]){d, kind, i, (uint32_t)kv, LOCAL, 0, 1, 1});
        for (uint32_t terms = 0; terms < 3; terms++)
            if (!(i == 1 && terms == 1)) /* sinks follow the last split */
                add(l, HTH_SHADER_attn,
                    (const uint32_t[]){d, shared, (uint32_t)kv, i, LOCAL, i ? 1 : 2, terms == 1, terms == 2});
    }
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t sinks = 0; sinks < 2; sinks++)
            add(l, HTH_SHADER_attn_reduce,
                (const uint32_t[]){d, i == 0 ? 0 : i == 1 ? 32 : 256, i < 2, LOCAL, sinks});
}

static void add_recurrent(list *l)
{
    static const uint32_t sizes[] = {32, 128, HTH_DELTA_NET_MAX_D};
    add(l, HTH_SHADER_conv, (const uint32_t[]){LOCAL});
    add(l, HTH_SHADER_delta_rates, (const uint32_t[]){LOCAL});
    add(l, HTH_SHADER_kda_rates, (const uint32_t[]){LOCAL});
    add(l, HTH_SHADER_ssm_rates, (const uint32_t[]){LOCAL});
    for (uint32_t i = 0; i < 3; i++) {
        add(l, HTH_SHADER_delta_net, (const uint32_t[]){sizes[i], LOCAL});
        add(l, HTH_SHADER_kda, (const uint32_t[]){sizes[i], i < 2 ? HTH_KDA_MAX_LOCAL : 16});
    }
    for (uint32_t by_channel = 0; by_channel < 2; by_channel++)
        add(l, HTH_SHADER_ssm_scan, (const uint32_t[]){by_channel, LOCAL});
}

static void add_vectors(list *l)
{
    static const uint32_t blocks[] = {0, 32, 256}, chunks[] = {0, 4096, HTH_NORM_SMALL_CHUNK, 2048}; /* by KIND */
    for (uint32_t b = 0; b < 3; b++)
        for (uint32_t kind = HTH_KIND_NONE; kind < HTH_N_KIND; kind++)
            add(l, HTH_SHADER_norm_quantize,
                (const uint32_t[]){kind, blocks[b], b != 1, kind && b == 2, (uint32_t)LOCAL << b / 2, chunks[kind],
                                   b > 0});
    for (uint32_t kind = 0; kind < HTH_N_ACTIVATION; kind++)
        for (uint32_t gated = kind == HTH_ACTIVATION_SWIGLU_OAI; gated < 2; gated++)
            add(l, HTH_SHADER_act_quantize,
                (const uint32_t[]){kind, gated, blocks[(kind + gated) % 3], 1, LOCAL, (kind + 2 * gated) % 3,
                                   kind != HTH_ACTIVATION_GELU});
    for (uint32_t kind = 0; kind <= HTH_ACTIVATION_DRELU; kind++)
        for (uint32_t half = 0; half < 2; half++)
            add(l, HTH_SHADER_active_mask, (const uint32_t[]){kind, (kind + half) % 3, half, LOCAL});
    for (uint32_t kind = HTH_KIND_NONE; kind < HTH_N_KIND; kind++)
        add(l, HTH_SHADER_norm_add, (const uint32_t[]){kind, LOCAL, chunks[kind], kind != HTH_KIND_LAYER});
    add(l, HTH_SHADER_soft_cap, (const uint32_t[]){LOCAL});
    for (uint32_t kind = HTH_KIND_RMS; kind <= HTH_KIND_LAYER; kind++)
        add(l, HTH_SHADER_norm_groups, (const uint32_t[]){kind, LOCAL});
    for (uint32_t form = HTH_MUL_PLAIN; form <= HTH_MUL_GELU; form++)
        add(l, HTH_SHADER_mul_values, (const uint32_t[]){form, LOCAL});
    add(l, HTH_SHADER_copy_values, (const uint32_t[]){LOCAL});
    add_recurrent(l);
    add(l, HTH_SHADER_copy_page, (const uint32_t[]){0});
    add(l, HTH_SHADER_float_rules, (const uint32_t[]){0});
    add(l, HTH_SHADER_down_scale, (const uint32_t[]){LOCAL});
    add(l, HTH_SHADER_down_scale_sliced, (const uint32_t[]){LOCAL});
    for (uint32_t host = 0; host < 2; host++) add(l, HTH_SHADER_down_accumulate, (const uint32_t[]){LOCAL, host});
    for (uint32_t i = 0; i < 4; i++) {
        add(l, HTH_SHADER_down_reduce, (const uint32_t[]){LOCAL, i / 2, i % 2, i % 2 ? 4 : 1});
        add(l, HTH_SHADER_down_reduce_acc, (const uint32_t[]){LOCAL, i / 2, i % 2, i % 2 ? 4 : 1});
    }
}

static void add_routes(list *l)
{
    for (uint32_t n = 1; n <= 8; n *= 2)
        add(l, HTH_SHADER_router_rows, (const uint32_t[]){n, n % 4 > 0, 64 * n});
    for (uint32_t score = HTH_ROUTE_CONSTANT; score < HTH_N_SCORE; score++)
        add(l, HTH_SHADER_route, (const uint32_t[]){score, 128, 128, score % 2});
    for (uint32_t n = 1; n <= 10; n += 9) add(l, HTH_SHADER_route, (const uint32_t[]){HTH_SCORE_SIGMOID, n, LOCAL, 0});
    add(l, HTH_SHADER_group_pairs, (const uint32_t[]){7, 8, LOCAL});
    add(l, HTH_SHADER_group_pairs, (const uint32_t[]){130, 3, LOCAL});
}

/* Each type in the forms that it has: by its table, or copied. Floats are copied. */
static void add_packs(list *l)
{
    for (size_t i = 0; i < ROWS_N_TYPE; i++) {
        uint32_t consts[HTH_PACK_ROWS_N_CONST] = {LOCAL, HTH_PACK_ROWS_PLANES}, table[HTH_PACK_TABLE_WORDS], n_word;
        const uint32_t size = hth_type_find(rows_types[i])->size;
        hth_quant_desc desc = {0};
        if (!hth_quant_desc_of(rows_types[i], &desc) && rows_types[i] != HTH_TYPE_F16) continue;
        memcpy(consts + HTH_PACK_ROWS_FORMAT, &desc, sizeof desc);
        consts[HTH_PACK_ROWS_BLOCKS] = hth_pack_rows_blocks(0);
        add(l, HTH_SHADER_pack_rows, consts);
        consts[HTH_PACK_ROWS_SIZE] = size, consts[HTH_PACK_ROWS_BLOCKS] = hth_pack_rows_blocks(size);
        for (uint32_t form = HTH_PACK_ROWS_FILE; form <= HTH_PACK_ROWS_PANELS; form++) {
            consts[HTH_PACK_ROWS_FORM] = form;
            if (hth_pack_table(rows_types[i], (hth_layout)form, table, &n_word))
                add(l, HTH_SHADER_pack_rows, consts);
        }
    }
}

/* Where the device has matrix units. */
static void add_tiles(list *l, hth_type type, const hth_device_info *info)
{
    static const hth_shader_id ids[HTH_N_COOPMAT_LEVEL][3] = {
        {HTH_N_SHADER, HTH_N_SHADER, HTH_N_SHADER},
        {HTH_SHADER_mul_mat_q, HTH_SHADER_mul_mat_q_acc, HTH_SHADER_mul_mat_q_sliced},
        {HTH_SHADER_mul_mat_q_cm2, HTH_SHADER_mul_mat_q_cm2_acc, HTH_SHADER_mul_mat_q_cm2_sliced},
    };
    hth_quant_desc desc;
    bool cm2 = info->features & HTH_FEATURE_COOPMAT2;
    for (int max = HTH_COOPMAT_KHR; max <= (cm2 ? HTH_COOPMAT_CM2 : HTH_COOPMAT_KHR); max++) {
        uint32_t consts[HTH_TILE_N_CONST] = {0};
        if (!hth_quant_desc_of(type, &desc)) return;
        hth_coopmat_level by = hth_gpu_choose_tile(info, &desc, (hth_coopmat_level)max, 512, consts);
        if (by == HTH_COOPMAT_NONE) continue;
        memcpy(consts + HTH_ROWS_FORMAT, &desc, sizeof desc);
        add(l, ids[by][0], consts);
        consts[HTH_ROWS_WANT] = 1;
        add(l, ids[by][1], consts);
        for (uint32_t n_share = 1; n_share <= 2; n_share++) {
            consts[HTH_ROWS_GROUP] = n_share * consts[HTH_ROWS_COLS];
            add(l, ids[by][2], consts);
        }
    }
}

static list *shaders_of(const hth_device_info *info)
{
    list *l = calloc(1, sizeof *l);
    for (size_t i = 0; i < ROWS_N_TYPE; i++) add_rows(l, rows_types[i]);
    for (size_t i = 0; i < ROWS_N_FULL; i++) add_down(l, rows_types[i]);
    for (size_t i = 0; i < ROWS_N_TYPE; i++) add_tiles(l, rows_types[i], info);
    add_attention(l, 64, HEARTH_KV_F16, 4);
    add_attention(l, 80, HEARTH_KV_F32, 1);
    add_attention(l, 128, HEARTH_KV_Q8_0, 8);
    add_attention(l, HTH_GPU_MAX_D_HEAD, HEARTH_KV_F32, 2);
    add_vectors(l);
    add_routes(l);
    add_packs(l);
    return l;
}

/* null computes all, with matrices of any shape. */
static list *all_shaders(void)
{
    static const hth_device_info any = {.features = HTH_FEATURE_COOPMAT | HTH_FEATURE_COOPMAT2,
                                        .max_shared_memory = 32768, .max_workgroup_size = 256, .subgroup_size = 32,
                                        .n_shape = 1, .shapes = {{16, 16, 16}}};
    return shaders_of(&any);
}

/* ---- runs --------------------------------------------------------------------------------------------- */

static hth_gpu_messages notes;                     /* what it says */
static char *const note = notes[HTH_COOPMAT_NONE]; /* of shaders that cannot be done without */

/* The self-test of a device with these shaders. */
static hearth_status try(hth_device *d, const list *l, uint64_t memory, hearth_error *err)
{
    hth_buffer *buffer = NULL;
    hearth_status st = hth_buffer_new(d, HTH_MEMORY_DEVICE, memory, "a test", &buffer, err);
    for (size_t i = 0; st == HEARTH_OK && i < l->n; i++) {
        const hth_pipeline *p;
        st = hth_pipeline_get(d, l->all[i].id, l->all[i].consts, &p, err);
    }
    if (st == HEARTH_OK) st = hth_gpu_selftest(d, buffer, notes, err);
    hth_buffer_free(buffer);
    return st;
}

/* Once more, as drivers compile shaders when they first run. */
static void print_time(hth_device *d, const list *l)
{
    hth_buffer *buffer = OPENED_BY(hth_buffer_new, hth_buffer, d, HTH_MEMORY_DEVICE, MEMORY, "a test");
    uint64_t start = hth_clock_ns();
    CHECK_OK(hth_gpu_selftest(d, buffer, notes, err));
    fprintf(stderr, "  %s: %zu shaders in %.1f ms\n", hth_device_get_info(d)->name, l->n,
            (double)(hth_clock_ns() - start) * 1e-6);
    hth_buffer_free(buffer);
}

/* Models that are opened on a driver have it test the shaders that they need. */
static void keep_one_of(list *l, size_t every)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i += every) l->all[n++] = l->all[i];
    l->n = n;
}

TEST(all_shaders_pass_on_devices_that_give_the_bits_of_the_cpu)
{
    static const char *const names[] = {"null", "vulkan:0"};
    for (size_t i = 0; i < 2; i++) {
        hth_device *d = shaders_open(names[i]);
        if (!d) continue;
        FREED list *l = i == 0 ? all_shaders() : shaders_of(hth_device_get_info(d));
        if (shaders_are_few(names[i])) keep_one_of(l, 7);
        CHECK_OK(try(d, l, MEMORY, err));
        for (size_t k = 0; k < HTH_N_COOPMAT_LEVEL; k++) CHECK_TEXT(notes[k], "");
        print_time(d, l);
        shaders_close(d);
    }
}

/* ---- a shader that is off ---------------------------------------------------------------------------- */

static hth_device *open_with_off(hth_shader_id id)
{
    hth_device_spec spec = {.name = "null", .shader_refs = shaders_off_by_one(id)};
    hth_device *d = OPENED(hth_device, &spec);
    return d;
}

TEST(a_shader_that_is_off_by_one_unit_is_named)
{
    FREED list *l = all_shaders();
    for (size_t i = 0; i < l->n; i++) {
        list one = {.n = 1};
        const char *name = hth_shader_infos[l->all[i].id].name;
        CLOSED(hth_device) *d = open_with_off(l->all[i].id);
        one.all[0] = l->all[i];
        CHECK_OK(try(d, &one, MEMORY, err));
        hth_coopmat_level by = hth_shader_coopmat_level(l->all[i].id);
        const char *says = notes[by];
        if (strncmp(says, name, strlen(name)) != 0 || !strstr(says, " differs from the CPU"))
            test_fail(__FILE__, __LINE__, "%s is off, and it says '%s'", name, says);
        for (size_t k = 0; k < HTH_N_COOPMAT_LEVEL; k++) CHECK(k == by || notes[k][0] == '\0');
    }
}

/* ---- other roundings ---------------------------------------------------------------------------------- */

/* What the self-test says of one shader on a null device with these functions. */
static void try_on(hth_shader_ref_fn *const *functions, const wanted *w)
{
    list one = {.n = 1};
    hth_device_spec spec = {.name = "null", .shader_refs = functions};
    CLOSED(hth_device) *d = OPENED(hth_device, &spec);
    one.all[0] = *w;
    CHECK_OK(try(d, &one, MEMORY, err));
}

static bool is_named(hth_shader_ref_fn *const *functions, const wanted *w)
{
    const char *name = hth_shader_infos[w->id].name;
    try_on(functions, w);
    return strncmp(notes[hth_shader_coopmat_level(w->id)], name, strlen(name)) == 0;
}

/* Shaders that round integers, or make floats of long ones, and are given ties there. What a norm, or a
 * square, leaves is none; sums of blocks of 32, and those of Q2_K, Q3_K, IQ1, TQ1_0 and TQ2_0, are exact floats. */
static bool is_given_ties(const wanted *w)
{
    const uint32_t *c = w->consts, *form = c + HTH_ROWS_FORMAT;
    switch (w->id) {
    case HTH_SHADER_norm_quantize: return c[HTH_NORM_QUANTIZE_KIND] == HTH_KIND_NONE && c[HTH_NORM_QUANTIZE_BLOCK];
    case HTH_SHADER_act_quantize:
        return c[HTH_ACT_QUANTIZE_BLOCK] &&
               (c[HTH_ACT_QUANTIZE_KIND] != HTH_ACTIVATION_RELU2 || c[HTH_ACT_QUANTIZE_GATED]);
    case HTH_SHADER_rope_store:
        return c[HTH_ROPE_KV] == HEARTH_KV_Q8_0 && !(c[HTH_ROPE_NORM] && c[HTH_ROPE_NORMS_VALUES]) &&
               c[HTH_ROPE_NORM] != HTH_ROPE_NORM_OWN_LAYER;
    case HTH_SHADER_mul_mat_vec_q:
    case HTH_SHADER_mul_mat_vec_q_acc:
    case HTH_SHADER_mul_mat_q:
    case HTH_SHADER_mul_mat_q_acc:
    case HTH_SHADER_mul_mat_q_cm2:
    case HTH_SHADER_mul_mat_q_cm2_acc:
    case HTH_SHADER_mul_mat_vec_q_sparse:
    case HTH_SHADER_mul_mat_vec_q_sliced:
    case HTH_SHADER_mul_mat_q_sliced:
    case HTH_SHADER_mul_mat_q_cm2_sliced: return form[0] == 256 && (form[1] != 2 || form[4] == TABLE_IQ2);
    case HTH_SHADER_down_q:
    case HTH_SHADER_down_q_sliced:
    case HTH_SHADER_down_reduce:
    case HTH_SHADER_down_reduce_acc: return true;
    default: return false;
    }
}

static void describe(const wanted *w, char *text, size_t size)
{
    int n = snprintf(text, size, "%s", hth_shader_infos[w->id].name);
    for (uint32_t i = 0; i < hth_shader_infos[w->id].n_const; i++)
        n += snprintf(text + n, size - (size_t)n, " %u", w->consts[i]);
}

TEST(a_device_that_rounds_ties_away_from_zero_is_named)
{
    FREED list *l = all_shaders();
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        char text[200];
        describe(&l->all[i], text, sizeof text);
        n += is_given_ties(&l->all[i]);
        if (is_given_ties(&l->all[i]) != is_named(shaders_away, &l->all[i]))
            test_fail(__FILE__, __LINE__, "%s: is %snamed", text, is_given_ties(&l->all[i]) ? "not " : "");
    }
    CHECK(n > 60);
}

/* Products of an F16 cache are exact; those of others, and of slopes and distances, are not. */
TEST(a_device_that_fuses_is_named_unless_products_are_exact)
{
    hth_cpu levels[PROOF_MAX_LEVEL];
    FREED list *l = all_shaders();
    size_t n_exact = 0;
    if (proof_levels(levels) == 0) test_skip("no fused operations here");
    for (size_t i = 0; i < l->n; i++) {
        const wanted *w = &l->all[i];
        char text[200];
        if (w->id != HTH_SHADER_attn) continue;
        bool is_exact = w->consts[HTH_ATTN_KV] == HEARTH_KV_F16 && !w->consts[HTH_ATTN_SLOPES];
        describe(w, text, sizeof text);
        n_exact += is_exact;
        if (is_exact == is_named(shaders_fusing, w))
            test_fail(__FILE__, __LINE__, "%s: is %snamed", text, is_exact ? "" : "not ");
    }
    CHECK(n_exact > 0);
}

/* Masks, powers of two, sums of integers, copies and moved bits are made without rounding anything. */
static bool rounds(const wanted *w)
{
    bool copies = w->consts[HTH_NORM_QUANTIZE_KIND] == HTH_KIND_NONE && w->consts[HTH_NORM_QUANTIZE_BLOCK] == 0;
    if (w->id == HTH_SHADER_norm_quantize) return !copies;
    return w->id != HTH_SHADER_active_mask && w->id != HTH_SHADER_down_scale &&
           w->id != HTH_SHADER_down_scale_sliced && w->id != HTH_SHADER_down_accumulate &&
           w->id != HTH_SHADER_copy_page && w->id != HTH_SHADER_group_pairs &&
           w->id != HTH_SHADER_pack_rows;
}

TEST(a_device_that_truncates_is_named)
{
    FREED list *l = all_shaders();
    for (size_t i = 0; i < l->n; i++) {
        char text[200];
        describe(&l->all[i], text, sizeof text);
        if (rounds(&l->all[i]) != is_named(shaders_truncating, &l->all[i]))
            test_fail(__FILE__, __LINE__, "%s: is %snamed", text, rounds(&l->all[i]) ? "not " : "");
    }
}

/* A device that takes subnormals for zeros, or turns results to zeros that would be. */
static float flushed(float x) { return fpclassify(x) == FP_SUBNORMAL ? 0.0f : x; }

static void flush(const hth_dispatch_args *c, bool inputs)
{
    const float *a = c->bind[0], *b = c->bind[1];
    uint32_t *y = c->bind[2], n;
    memcpy(&n, c->push, sizeof n);
    for (uint32_t i = 0; i < n; i++) {
        float p = inputs ? flushed(a[i]) : a[i], q = inputs ? flushed(b[i]) : b[i];
        y[3 * i] = hth_bits_of(inputs ? p * q : flushed(p * q));
        y[3 * i + 1] = hth_bits_of(inputs ? p + q : flushed(p + q));
        y[3 * i + 2] = (a[i] < b[i] ? 1u : 0u) + (a[i] == 0.0f ? 2u : 0u);
    }
}
static void flush_inputs(const hth_dispatch_args *c) { flush(c, true); }
static void flush_results(const hth_dispatch_args *c) { flush(c, false); }

TEST(a_device_that_keeps_no_subnormals_is_named)
{
    static hth_shader_ref_fn *const flushing[] = {flush_inputs, flush_results};
    const wanted rules = {.id = HTH_SHADER_float_rules};
    for (size_t i = 0; i < 2; i++) {
        hth_shader_ref_fn *functions[HTH_N_SHADER];
        memcpy(functions, hth_shader_ref_table, sizeof functions);
        functions[HTH_SHADER_float_rules] = flushing[i];
        CHECK(is_named(functions, &rules));
    }
    CHECK(!is_named(hth_shader_ref_table, &rules));
}

/* Shaders that read the page tables of the other hth_kv_class. */
static void other_class_rope_store(const hth_dispatch_args *c)
{
    hth_push_rope_store push;
    hth_dispatch_args changed = *c;
    memcpy(&push, c->push, sizeof push);
    push.kv_class = 1 - push.kv_class, changed.push = &push;
    hth_shader_ref_table[HTH_SHADER_rope_store](&changed);
}

static void other_class_attn(const hth_dispatch_args *c)
{
    hth_push_attn push;
    hth_dispatch_args changed = *c;
    memcpy(&push, c->push, sizeof push);
    push.kv_class = 1 - push.kv_class, changed.push = &push;
    hth_shader_ref_table[HTH_SHADER_attn](&changed);
}

TEST(a_device_that_reads_the_page_tables_of_the_other_class_is_named)
{
    hth_shader_ref_fn *functions[HTH_N_SHADER];
    FREED list *l = all_shaders();
    memcpy(functions, hth_shader_ref_table, sizeof functions);
    functions[HTH_SHADER_rope_store] = other_class_rope_store, functions[HTH_SHADER_attn] = other_class_attn;
    for (size_t i = 0; i < l->n; i++) {
        char text[200];
        describe(&l->all[i], text, sizeof text);
        bool reads = l->all[i].id == HTH_SHADER_rope_store || l->all[i].id == HTH_SHADER_attn;
        if (reads && !is_named(functions, &l->all[i]))
            test_fail(__FILE__, __LINE__, "%s: is not named", text);
    }
}

/* Types with one descriptor have one shader, which is named after the last of them. */
static hth_type last_of_desc(hth_type type)
{
    hth_quant_desc desc, other;
    hth_type last = type;
    CHECK(hth_quant_desc_of(type, &desc));
    for (int i = 0; i < HTH_TYPE_LIMIT; i++)
        if (hth_quant_desc_of((hth_type)i, &other) && memcmp(&desc, &other, sizeof desc) == 0) last = (hth_type)i;
    return last;
}

TEST(a_matrix_vector_shader_is_named_with_its_type)
{
    for (size_t i = 0; i < ROWS_N_TYPE; i++) {
        list l = {.n = 0};
        char expected[HTH_GPU_MESSAGE_MAX];
        add_rows(&l, rows_types[i]);
        if (l.n == 0) continue;
        l.n = 1;
        CLOSED(hth_device) *d = open_with_off(HTH_SHADER_mul_mat_vec_q);
        CHECK_OK(try(d, &l, MEMORY, err));
        snprintf(expected, sizeof expected, "mul_mat_vec_q of %s differs from the CPU",
                 rows_type_name(last_of_desc(rows_types[i])));
        CHECK_TEXT(note, expected);
    }
}

TEST(every_shader_but_those_of_floats_has_a_test)
{
    static const uint32_t zeros[HTH_SHADER_MAX_CONST];
    static const hth_shader_id without[] = {
        HTH_SHADER_fill, HTH_SHADER_copy, HTH_SHADER_add, HTH_SHADER_mul_mat_vec_f, HTH_SHADER_mul_mat_vec_f_acc,
        HTH_SHADER_mul_mat_vec_f_sparse, HTH_SHADER_mul_mat_vec_f_sliced, HTH_SHADER_down_f, HTH_SHADER_down_f_sliced,
        HTH_SHADER_widen_halves,
    };
    FREED list *l = all_shaders();
    bool has[HTH_N_SHADER] = {false};
    for (size_t i = 0; i < l->n; i++) has[l->all[i].id] = true;
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        hth_gpu_testcase t;
        CHECK(!hth_gpu_testcase_of(without[i], zeros, &t));
        CHECK(!has[without[i]]);
        has[without[i]] = true;
    }
    for (size_t i = 0; i < HTH_N_SHADER; i++)
        if (!has[i]) test_fail(__FILE__, __LINE__, "%s is not tested here", hth_shader_infos[i].name);
}

/* ---- values ------------------------------------------------------------------------------------------- */

/* Which bindings of a shader hold floats afterwards. */
static const char *const floats_of[HTH_N_SHADER] = {
    [HTH_SHADER_float_rules] = "...", /* has subnormals */
    [HTH_SHADER_norm_quantize] = "....f.f.", [HTH_SHADER_mul_mat_vec_q] = "......f",
    [HTH_SHADER_mul_mat_vec_q_acc] = "......f", [HTH_SHADER_mul_mat_vec_q_sparse] = "......f.",
    [HTH_SHADER_mul_mat_vec_q_sliced] = "......f.", [HTH_SHADER_mul_mat_q_sliced] = "......f.",
    [HTH_SHADER_mul_mat_q_cm2_sliced] = "......f.",
    [HTH_SHADER_active_mask] = ".....", [HTH_SHADER_down_accumulate] = ".....", [HTH_SHADER_mul_mat_q] = "......f",
    [HTH_SHADER_mul_mat_q_acc] = "......f", [HTH_SHADER_mul_mat_q_cm2] = "......f",
    [HTH_SHADER_mul_mat_q_cm2_acc] = "......f", [HTH_SHADER_rope_store] = ".f......", [HTH_SHADER_attn] = ".....ff.",
    [HTH_SHADER_attn_reduce] = "...f.f..", [HTH_SHADER_copy_page] = ".ff", [HTH_SHADER_act_quantize] = "....f.f.",
    [HTH_SHADER_norm_add] = ".f...", [HTH_SHADER_soft_cap] = ".f",
    [HTH_SHADER_norm_groups] = "....f", [HTH_SHADER_mul_values] = "...f", [HTH_SHADER_copy_values] = "...f",
    [HTH_SHADER_router_rows] = "....f", [HTH_SHADER_route] = "......", [HTH_SHADER_group_pairs] = "...",
    [HTH_SHADER_pack_rows] = "....",
    [HTH_SHADER_conv] = "....ff", [HTH_SHADER_delta_rates] = ".....ff", [HTH_SHADER_delta_net] = "....ff",
    [HTH_SHADER_kda_rates] = "...ff", [HTH_SHADER_kda] = "......ff", [HTH_SHADER_ssm_rates] = ".f",
    [HTH_SHADER_ssm_scan] = "......ff",
    [HTH_SHADER_down_scale] = "...f", [HTH_SHADER_down_q] = ".....",
    [HTH_SHADER_down_scale_sliced] = "...f.", [HTH_SHADER_down_q_sliced] = "......",
    [HTH_SHADER_down_reduce] = ".....f", [HTH_SHADER_down_reduce_acc] = ".....f",
};

static void check_values(const hth_gpu_testcase *t)
{
    const char *name = hth_shader_infos[t->id].name;
    hth_dispatch_args call = {.push = t->push, .consts = t->consts};
    uint8_t *bind[HTH_SHADER_MAX_BIND] = {0};
    memcpy(call.grid, t->grid, sizeof call.grid);
    for (uint32_t i = 0; i < t->n_bind; i++) {
        bind[i] = malloc((size_t)t->bind[i].size);
        call.bind[i] = bind[i], call.size[i] = t->bind[i].size;
    }
    hth_gpu_testcase_fill(t, bind);
    hth_shader_ref_table[t->id](&call);
    for (uint32_t i = 0; i < t->n_bind; i++) {
        bool written = hth_shader_infos[t->id].bindings[i] != 'r';
        for (size_t k = 0; written && floats_of[t->id][i] == 'f' && k < t->bind[i].size / 4; k++) {
            float x = hth_load_f32(bind[i] + 4 * k);
            int kind = fpclassify(x);
            if (kind == FP_NORMAL || kind == FP_ZERO) continue;
            test_fail(__FILE__, __LINE__, "%s: binding %u holds %a at %zu", name, i, (double)x, k);
            break;
        }
    }
    for (uint32_t i = 0; i < t->n_bind; i++) free(bind[i]);
}

TEST(no_test_uses_values_for_which_less_is_guaranteed)
{
    FREED list *l = all_shaders();
    for (size_t i = 0; i < l->n; i++) {
        hth_gpu_testcase t;
        if (CHECK(hth_gpu_testcase_of(l->all[i].id, l->all[i].consts, &t))) check_values(&t);
    }
}

/* ---- memory and errors -------------------------------------------------------------------------------- */

TEST(the_requested_workspace_holds_every_test)
{
    FREED list *l = all_shaders();
    for (size_t i = 0; i < l->n; i++) {
        const wanted *w = &l->all[i];
        const uint32_t *c = w->consts;
        hth_gpu_testcase t;
        uint64_t capacity = hth_gpu_selftest_bytes(HEARTH_KV_F16, 8, 1);
        if (w->id == HTH_SHADER_attn)
            capacity = hth_gpu_selftest_bytes((hearth_kv_type)c[HTH_ATTN_KV], c[HTH_ATTN_D_HEAD], c[HTH_ATTN_SHARED]);
        if (w->id == HTH_SHADER_rope_store)
            capacity = hth_gpu_selftest_bytes((hearth_kv_type)c[HTH_ROPE_KV], c[HTH_ROPE_D_HEAD], 1);
        if (w->id == HTH_SHADER_delta_net) capacity = hth_gpu_selftest_state_bytes(c[HTH_DELTA_NET_D]);
        if (w->id == HTH_SHADER_kda) capacity = hth_gpu_selftest_state_bytes(c[HTH_KDA_D]);
        if (!CHECK(hth_gpu_testcase_of(w->id, w->consts, &t)) || hth_gpu_testcase_bytes(&t) <= capacity) continue;
        test_fail(__FILE__, __LINE__, "%s takes %llu bytes, not %llu", hth_shader_infos[w->id].name,
                  (unsigned long long)hth_gpu_testcase_bytes(&t), (unsigned long long)capacity);
    }
}

TEST(many_rounds_in_little_memory_say_the_same)
{
    FREED list *l = all_shaders();
    hearth_error err;
    uint64_t of_heads = hth_gpu_selftest_bytes(HEARTH_KV_F32, HTH_GPU_MAX_D_HEAD, 2),
             of_states = hth_gpu_selftest_state_bytes(HTH_DELTA_NET_MAX_D), min = of_heads > of_states ? of_heads : of_states;
    CLOSED(hth_device) *d = shaders_open("null");
    CHECK_INT(try(d, l, min, &err), HEARTH_OK);
    CHECK_TEXT(note, "");
    CHECK_INT(try(d, l, 1000, &err), HEARTH_ERROR_MEMORY);
    CHECK(strstr(err.message, "the test of") != NULL);
    shaders_close(d);
    d = open_with_off(HTH_SHADER_soft_cap);
    CHECK_INT(try(d, l, min, &err), HEARTH_OK);
    CHECK_TEXT(note, "soft_cap differs from the CPU");
}

TEST(what_a_device_refuses_is_an_error_of_the_test)
{
    list l = {.n = 0};
    add_rows(&l, HTH_TYPE_Q4_0);
    for (uint64_t n = 1, n_call = 1; n <= n_call; n++) {
        hearth_error why;
        const hth_pipeline *p;
        hth_device *d = shaders_open("null");
        hth_buffer *buffer = OPENED_BY(hth_buffer_new, hth_buffer, d, HTH_MEMORY_DEVICE, MEMORY, "a test");
        CHECK_OK(hth_pipeline_get(d, l.all[0].id, l.all[0].consts, &p, err));
        uint64_t before = hth_device_n_call(d);
        if (n == 1) {
            CHECK_OK(hth_gpu_selftest(d, buffer, notes, err));
            n_call = hth_device_n_call(d) - before;
            CHECK(n_call >= 6); /* up, begin, end, submit, wait, down */
        }
        hth_device_inject_fault(d, n, HEARTH_ERROR_DEVICE);
        CHECK_INT(hth_gpu_selftest(d, buffer, notes, &why), HEARTH_ERROR_DEVICE);
        CHECK_TEXT(note, "");
        hth_buffer_free(buffer);
        shaders_close(d);
    }
}
