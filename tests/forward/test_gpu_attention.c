/* The shaders of attention against the CPU's reference, bit for bit: attn_ref.c and the merging of attn.c. The same on the
 * null device and on the first that Vulkan knows. What no shader may write is poison before and after; what no query
 * sees is NaN. */
#include "base/bits.h"
#include "kernels/attn/attn.h"
#include "kernels/kernels.h"
#include "model/arch.h"
#include "forward/gpu/cache.h"
#include "forward/gpu/shader_params.h"
#include "support/device/gpu_cache.h"
#include "support/device/shaders.h"
#include "support/kernels/proof.h"

static hth_device *device;
static bool is_thin; /* only some pipelines are compiled */
static hth_kernels cpu;

static void on_each(void (*promise)(void))
{
    static const char *const names[] = {"null", "vulkan:0"};
    hth_kernels_init(&cpu, HTH_CPU_GENERIC);
    for (int i = 0; i < 2; i++) {
        device = shaders_open(names[i]);
        is_thin = shaders_are_few(names[i]);
        if (device) promise();
        shaders_close(device);
    }
}

#define ON_EACH(NAME)                                                                                        \
    static void NAME##_there(void);                                                                          \
    TEST(NAME) { on_each(NAME##_there); }                                                                    \
    static void NAME##_there(void)

/* ---- attention: a scene ------------------------------------------------------------------------------ */

/* Sequences of 610, 300 and 1 positions in one cache, in pages that are not in order, and one of 90 that shares the
 * first two pages of the first; rows look back from ends of splits, groups and pages, and from between them. The last
 * row is in the step, but not to be computed. */
enum {
    N_SEQUENCE = 4,
    N_PAGE = 32,
    N_CACHE = N_PAGE * HTH_KV_PAGE,
    N_LOOK = 11,
    N_LOOKING = 10,
    N_SPLIT_MAX = 4
};
static const uint32_t lengths[N_SEQUENCE] = {610, 300, 1, 90};
static const gpu_page_table tables[N_SEQUENCE] = {
    {3, 10, 17, 24, 31, 6, 13, 20, 27, 2, 9, 16, 23, 30, 5, 12, 19, 26, 1, 8},
    {15, 22, 29, 4, 11, 18, 25, 0, 7, 14},
    {21},
    {3, 10, 28}};
static const uint32_t look_rows[N_LOOK][2] = {{599, 0}, {255, 0}, {256, 0}, {0, 1},  {299, 1}, {0, 2},
                                              {609, 0}, {80, 3},  {254, 0}, {33, 1}, {100, 0}};

typedef struct attend_shape {
    hearth_kv_type type;
    uint32_t d, n_kv, n_shared, local, n_together; /* tokens of a workgroup that computes all splits */
} attend_shape;

/* What a token sees, and what changes its scores. */
typedef struct attend_form {
    uint32_t window, chunk;
    float cap;
    bool has_sinks, has_slopes;
} attend_form;

typedef struct scene {
    const attend_shape *s;
    size_t n_head, n_out, d_at, n_rounded;
    gpu_cache cpu;
    uint32_t *keys, *values, *rounded;
    float *q; /* [N_LOOK][qkv_stride] */
    size_t stride;
    attend_form form;
    float *terms; /* [2][n_head] */
    /* What the CPU makes of it; of all splits merged, and of each: poison where nothing may be written. */
    float *whole, *by_split, *parts;
} scene;

static void fill_caches(test_random *r, scene *s, proof_kind kind)
{
    float rows[2][HTH_GPU_MAX_D_HEAD];
    bool seen[N_CACHE] = {false};
    for (uint32_t i = 0; i < N_SEQUENCE; i++)
        for (uint32_t k = 0; k < lengths[i]; k++) seen[gpu_place_of(tables, (const uint32_t[]){k, i})] = true;
    for (size_t at = 0; at < N_CACHE; at++) {
        for (size_t h = 0; h < s->cpu.n_kv; h++) {
            for (int i = 0; i < 2; i++) proof_fill_f32(r, kind, rows[i], s->s->d);
            for (size_t i = 0; i < 2 * HTH_GPU_MAX_D_HEAD && !seen[at]; i++)
                rows[i / HTH_GPU_MAX_D_HEAD][i % HTH_GPU_MAX_D_HEAD] = hth_float_of(0x7fc00000u);
            hth_kv_layout_put_key(&cpu, s->s->type, s->cpu.keys + h * s->cpu.head_size, s->s->d, at, rows[0]);
            hth_kv_layout_put_value(&cpu, s->s->type, s->cpu.values + h * s->cpu.head_size, s->s->d, at,
                                    rows[1]);
        }
        gpu_cache_put(&s->cpu, at, s->keys, s->values);
    }
}

static hth_attn job_of(const scene *s, size_t t, size_t i_kv, int8_t *q, float *d, float *scratch)
{
    size_t head = i_kv * s->s->n_shared, n_pos = (size_t)look_rows[t][0] + 1,
           before = s->form.chunk > 0 ? (n_pos - 1) / s->form.chunk * s->form.chunk : 0;
    size_t page_size = HTH_KV_PAGE / HTH_KV_GROUP * hth_kv_layout_group_size(s->s->type, s->s->d);
    static const uint8_t *k_pages[GPU_N_TABLE], *v_pages[GPU_N_TABLE];
    for (size_t i = 0; i <= look_rows[t][0] / HTH_KV_PAGE; i++) {
        size_t at = i_kv * s->cpu.head_size + tables[look_rows[t][1]][i] * page_size;
        k_pages[i] = s->cpu.keys + at, v_pages[i] = s->cpu.values + at;
    }
    return (hth_attn){.k_pages = k_pages + before / HTH_KV_PAGE,
                      .v_pages = v_pages + before / HTH_KV_PAGE,
                      .d_head = s->s->d,
                      .n_row = 1,
                      .n_head = s->s->n_shared,
                      .n_pos = n_pos - before,
                      .window = s->form.window,
                      .q = s->q + t * s->stride + head * s->s->d,
                      .q_q8 = {.q = q + head * s->s->d, .d = d + head * s->s->d / 32},
                      .q_stride = s->n_head * s->s->d,
                      .scale = 0.125f,
                      .cap = s->form.cap,
                      .inverse_cap = s->form.cap != 0.0f ? 1.0f / s->form.cap : 0.0f,
                      .sinks = s->form.has_sinks ? s->terms + head : NULL,
                      .slopes = s->form.has_slopes ? s->terms + s->n_head + head : NULL,
                      .scratch = scratch,
                      .out_stride = s->n_head};
}

static void look_by_cpu(scene *s)
{
    size_t d = s->s->d, n_q = s->n_head * d;
    FREED float *scratch = malloc(hth_attn_scratch(d, s->s->n_shared) * sizeof *scratch);
    for (size_t t = 0; t < N_LOOKING; t++) {
        int8_t *q = (int8_t *)(s->rounded + t * n_q / 4);
        float *scales = (float *)(s->rounded + s->d_at) + t * n_q / 32;
        int32_t sums[256];
        if (s->s->type == HEARTH_KV_Q8_0) cpu.quant_act(s->q + t * s->stride, n_q, q, scales, sums);
        for (size_t i_kv = 0; i_kv < s->s->n_kv; i_kv++) {
            hth_attn job = job_of(s, t, i_kv, q, scales, scratch);
            size_t head = i_kv * s->s->n_shared, first = hth_attn_first_split(&job);
            hth_attn_all_splits(&cpu, s->s->type, &job, NULL, s->whole + (t * s->n_head + head) * d);
            for (size_t i = first; i <= hth_attn_last_split(&job); i++) {
                size_t to = (t * N_SPLIT_MAX + i - first) * s->n_head + head;
                job.values = s->by_split + to * d;
                job.partials = (hth_attn_partial *)(void *)(s->parts + 2 * to);
                cpu.attn[s->s->type](&job, i);
            }
        }
    }
}

static scene new_scene(test_random *r, const attend_shape *shape, proof_kind kind, attend_form form)
{
    scene s = {.s = shape, .n_head = (size_t)shape->n_kv * shape->n_shared, .form = form};
    size_t n_cache = shape->n_kv * hth_gpu_cache_head_words(shape->type, shape->d, N_CACHE);
    size_t n_q = s.n_head * shape->d;
    s.n_out = N_LOOK * n_q;
    s.stride = n_q + 2 * (size_t)shape->n_kv * shape->d;
    s.d_at = N_LOOK * n_q / 4 + 1, s.n_rounded = s.d_at + N_LOOK * n_q / 32;
    s.cpu = gpu_cache_new(shape->type, shape->d, shape->n_kv, N_CACHE);
    s.keys = malloc(n_cache * 4), s.values = malloc(n_cache * 4), s.rounded = calloc(s.n_rounded, 4);
    s.q = gpu_random_floats(r, PROOF_PLAIN, N_LOOK * s.stride);
    s.terms = gpu_random_floats(r, PROOF_PLAIN, 2 * s.n_head);
    if (shape->type == HEARTH_KV_F16) hth_attn_round_queries(s.q, N_LOOK * s.stride);
    s.whole = gpu_poisoned(s.n_out * 4), s.by_split = gpu_poisoned(N_SPLIT_MAX * s.n_out * 4);
    s.parts = gpu_poisoned(N_SPLIT_MAX * N_LOOK * s.n_head * 2 * 4);
    fill_caches(r, &s, kind);
    look_by_cpu(&s);
    return s;
}

static void free_scene(scene *s)
{
    gpu_cache_free(&s->cpu);
    free(s->keys), free(s->values), free(s->rounded), free(s->q), free(s->terms);
    free(s->whole), free(s->by_split), free(s->parts);
}

/* ---- attention: shaders ----------------------------------------------------------------------------- */

/* For n tokens from `first` on. */
static bool run_attend(const scene *s, uint32_t by_split, uint32_t first, uint32_t n, float *out,
                       float *parts)
{
    const attend_shape *a = s->s;
    uint32_t step[HTH_STEP_ROWS + N_LOOK * HTH_STEP_ROW_WORDS + N_SEQUENCE * GPU_N_TABLE],
        kv_class = s->form.window > 0;
    size_t head_words = hth_gpu_cache_head_words(a->type, a->d, N_CACHE);
    uint32_t n_together = by_split ? 1 : a->n_together;
    uint32_t consts[] = {a->d,     a->n_shared, a->type,
                         by_split, a->local,    n_together,
                         !by_split && s->form.has_sinks, s->form.has_slopes};
    hth_push_attn push = {.n_head = (uint32_t)s->n_head,
                          .n_head_kv = a->n_kv,
                          .window = s->form.window,
                          .n_split = N_SPLIT_MAX,
                          .qkv_stride = (uint32_t)s->stride,
                          .d_at = (uint32_t)s->d_at,
                          .head_words = (uint32_t)head_words,
                          .scale = 0.125f,
                          .cap = s->form.cap,
                          .inverse_cap = s->form.cap != 0.0f ? 1.0f / s->form.cap : 0.0f,
                          .first_tok = first,
                          .kv_class = kv_class,
                          .chunk = s->form.chunk};
    gpu_fill_step(step, N_LOOKING, N_LOOK, look_rows, tables, N_SEQUENCE, kv_class);
    shaders_run run = {.id = HTH_SHADER_attn,
                       .consts = consts,
                       .push = &push,
                       .bind = {{step, sizeof step},
                                {s->q, N_LOOK * s->stride * 4},
                                {s->rounded, s->n_rounded * 4},
                                {s->keys, a->n_kv * head_words * 4},
                                {s->values, a->n_kv * head_words * 4},
                                {out, s->n_out * 4 * (by_split ? N_SPLIT_MAX : 1)},
                                {parts, by_split ? N_SPLIT_MAX * N_LOOK * s->n_head * 2 * 4 : 0},
                                {s->terms, 2 * s->n_head * 4}},
                       .grid = {by_split ? N_SPLIT_MAX : 1, a->n_kv, (n + n_together - 1) / n_together}};
    return shaders_do(device, &run);
}

/* The merged rows quantised: blocks of 32 or 256, or none where rows are not of whole blocks. */
typedef struct rounded_rows {
    uint32_t block;
    size_t n; /* of all tokens */
    int8_t *q;
    float *d;
    int32_t *sum;
} rounded_rows;

static rounded_rows new_rounded(const scene *s)
{
    size_t row = s->n_head * s->s->d;
    uint32_t block = row % 256 == 0 && s->s->local % 128 == 0 ? 256 : row % 32 == 0 ? 32 : 0;
    return (rounded_rows){block, s->n_out, gpu_poisoned(s->n_out), gpu_poisoned(s->n_out / 8),
                          gpu_poisoned(s->n_out / 4)};
}

static void free_rounded(rounded_rows *r) { free(r->q), free(r->d), free(r->sum); }

/* Of the tokens that count those that the CPU's kernels make of the same rows. */
static void check_rounded(const scene *s, const rounded_rows *r)
{
    hth_kernels k;
    hth_kernels_init(&k, HTH_CPU_GENERIC);
    size_t n = N_LOOKING * s->n_head * s->s->d,
           n_sum = n / (r->block == 256 ? HTH_ACT_SUBBLOCK : HTH_ACT_BLOCK);
    rounded_rows e = new_rounded(s);
    int16_t *sums = malloc(n * sizeof *sums);
    if (r->block == 32) k.quant_act(s->whole, n, e.q, e.d, e.sum);
    if (r->block == 256) k.quant_act_256(s->whole, n, e.q, e.d, sums);
    for (size_t i = 0; r->block == 256 && i < n_sum; i++) e.sum[i] = sums[i];
    if (r->block > 0)
        CHECK(memcmp(r->q, e.q, n) == 0 && memcmp(r->d, e.d, n / r->block * 4) == 0 &&
              memcmp(r->sum, e.sum, n_sum * 4) == 0);
    free(sums), free_rounded(&e);
}

static bool run_join(const scene *s, float *by_split, float *parts, float *out, rounded_rows *rounded)
{
    enum { LANES = 64 };
    uint32_t step[HTH_STEP_ROWS + N_LOOK * HTH_STEP_ROW_WORDS]; /* no tables */
    const uint32_t consts[] = {s->s->d, rounded->block, 1, LANES, s->form.has_sinks};
    uint32_t n_group = hth_vector_groups((uint32_t)(s->n_head * s->s->d), LANES);
    size_t n_block = rounded->block ? rounded->n / rounded->block : 0,
           n_sum =
               rounded->block ? rounded->n / (rounded->block == 256 ? HTH_ACT_SUBBLOCK : HTH_ACT_BLOCK) : 0;
    hth_push_attn_reduce push = {.n_head = (uint32_t)s->n_head,
                                 .window = s->form.window,
                                 .n_split = N_SPLIT_MAX,
                                 .chunk = s->form.chunk};
    gpu_fill_step(step, N_LOOKING, N_LOOK, look_rows, NULL, 0, 0);
    shaders_run run = {.id = HTH_SHADER_attn_reduce,
                       .consts = consts,
                       .push = &push,
                       .bind = {{step, sizeof step},
                                {by_split, N_SPLIT_MAX * s->n_out * 4},
                                {parts, N_SPLIT_MAX * N_LOOK * s->n_head * 2 * 4},
                                {out, s->n_out * 4},
                                {rounded->q, rounded->block ? rounded->n : 0},
                                {rounded->d, n_block * 4},
                                {rounded->sum, n_sum * 4},
                                {s->terms, 2 * s->n_head * 4}},
                       .grid = {n_group, N_LOOK, 1}};
    return shaders_do(device, &run);
}

static void check_floats(const scene *s, const char *what, const float *expected, const float *got, size_t n)
{
    size_t at = proof_differ_f32(expected, got, n);
    if (at < n)
        test_fail(__FILE__, __LINE__,
                  "%s, %s of %u dims, %u queries, window %u, chunk %u, cap %g, sinks %d, slopes %d: "
                  "at %zu of %zu %a, not %a",
                  what, gpu_kv_name(s->s->type), s->s->d, s->s->n_shared, s->form.window, s->form.chunk,
                  (double)s->form.cap, s->form.has_sinks, s->form.has_slopes, at, n, (double)got[at],
                  (double)expected[at]);
}

/* Where a sum is NaN so are the values, and no largest score is promised; a zero may have either sign. */
static void check_parts(const scene *s, const float *got)
{
    for (size_t i = 0; i < N_SPLIT_MAX * N_LOOK * s->n_head; i++) {
        const float *a = s->parts + 2 * i, *b = got + 2 * i;
        bool broken = a[1] != a[1] && b[1] != b[1];
        if (broken || (a[0] == b[0] && hth_bits_of(a[1]) == hth_bits_of(b[1]))) continue;
        test_fail(__FILE__, __LINE__, "%s of %u dims: part %zu is {%a, %a}, not {%a, %a}",
                  gpu_kv_name(s->s->type), s->s->d, i, (double)b[0], (double)b[1], (double)a[0], (double)a[1]);
        return;
    }
}

static void check_form(test_random *r, const attend_shape *shape, proof_kind kind, attend_form form)
{
    scene s = new_scene(r, shape, kind, form);
    float *out = malloc(s.n_out * 4), *by_split = malloc(N_SPLIT_MAX * s.n_out * 4);
    float *parts = malloc(N_SPLIT_MAX * N_LOOK * s.n_head * 2 * 4);
    if (run_attend(&s, 0, 0, N_LOOK, out, NULL)) check_floats(&s, "whole", s.whole, out, s.n_out);
    if (run_attend(&s, 1, 0, N_LOOK, by_split, parts)) {
        check_floats(&s, "by split", s.by_split, by_split, N_SPLIT_MAX * s.n_out);
        check_parts(&s, parts);
        rounded_rows rounded = new_rounded(&s);
        if (run_join(&s, by_split, parts, out, &rounded)) {
            check_floats(&s, "joined", s.whole, out, s.n_out);
            check_rounded(&s, &rounded);
        }
        free_rounded(&rounded);
    }
    free(out), free(by_split), free(parts), free_scene(&s);
}

static void check_attend(test_random *r, const attend_shape *shape, proof_kind kind, uint32_t window,
                         float cap)
{
    check_form(r, shape, kind, (attend_form){.window = window, .cap = cap});
}

/* Tokens [first, first + n) as by a run for all, and poison beside them; n as far as workgroups go. */
static void check_some(const scene *s, uint32_t first, uint32_t n)
{
    size_t row = s->n_head * s->s->d;
    n = (n + s->s->n_together - 1) / s->s->n_together * s->s->n_together;
    if (n > N_LOOK - first) n = N_LOOK - first;
    float *expected = gpu_poisoned(s->n_out * 4), *out = malloc(s->n_out * 4);
    memcpy(expected + first * row, s->whole + first * row, n * row * 4);
    if (run_attend(s, 0, first, n, out, NULL)) check_floats(s, "some tokens", expected, out, s->n_out);
    free(expected), free(out);
}

ON_EACH(attention_of_some_tokens_has_their_bits_and_leaves_the_others)
{
    static const attend_shape shapes[] = {{HEARTH_KV_F16, 64, 2, 1, 32, 1},
                                          {HEARTH_KV_Q8_0, 96, 1, 3, 64, 1},
                                          {HEARTH_KV_F16, 64, 1, 2, 64, 2}};
    test_random r = proof_random();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        CLEANUP(free_scene) scene s = new_scene(&r, &shapes[i], PROOF_PLAIN, (attend_form){.window = i ? 0 : 300});
        check_some(&s, 0, 1);
        check_some(&s, 3, 4);
        check_some(&s, N_LOOKING - 2, N_LOOK - N_LOOKING + 2);
    }
}

ON_EACH(attention_has_the_bits_of_the_cpu)
{
    static const attend_shape shapes[] = {
        {HEARTH_KV_F16, 64, 2, 1, 32, 1},    {HEARTH_KV_F16, 128, 2, 5, 64, 1},
        {HEARTH_KV_F16, 80, 1, 11, 64, 1},   {HEARTH_KV_F16, 36, 3, 2, 24, 1},
        {HEARTH_KV_F32, 36, 1, 5, 9, 1},     {HEARTH_KV_F32, 128, 2, 2, 128, 3},
        {HEARTH_KV_F16, 128, 1, 4, 256, 4},  {HEARTH_KV_F16, 64, 2, 7, 128, 2},
        {HEARTH_KV_Q8_0, 256, 1, 1, 512, 4}, {HEARTH_KV_Q8_0, 64, 1, 5, 32, 1},
        {HEARTH_KV_Q8_0, 128, 2, 2, 64, 1},  {HEARTH_KV_Q8_0, 96, 2, 1, 256, 1},
        {HEARTH_KV_F16, 256, 1, 1, 64, 1},   {HEARTH_KV_F32, HTH_GPU_MAX_D_HEAD, 1, 8, 256, 1}};
    test_random r = proof_random();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i += is_thin ? 3 : 1) {
        check_attend(&r, &shapes[i], PROOF_PLAIN, 0, 0.0f);
        check_attend(&r, &shapes[i], PROOF_PLAIN, i % 2 ? 300 : 100, i % 3 ? 0.0f : 3.0f);
    }
    static const uint32_t windows[] = {1, 85, 253, 254, 255, 256, 257, 344, 599, 600, 610};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        check_attend(&r, &shapes[3], PROOF_PLAIN, windows[i], 0.5f);
}

/* Heads in groups that are whole and that are not, for each type of cache. */
static const attend_shape form_shapes[] = {{HEARTH_KV_F16, 64, 2, 1, 32, 1},   {HEARTH_KV_F16, 64, 1, 7, 128, 2},
                                           {HEARTH_KV_F16, 36, 1, 11, 64, 1},  {HEARTH_KV_F32, 36, 1, 5, 9, 1},
                                           {HEARTH_KV_F32, 128, 2, 2, 128, 3}, {HEARTH_KV_Q8_0, 64, 1, 6, 64, 1}};
enum { N_FORM_SHAPE = sizeof form_shapes / sizeof *form_shapes };

ON_EACH(scores_without_values_end_attention_as_on_the_cpu)
{
    test_random r = proof_random();
    for (size_t i = 0; i < N_FORM_SHAPE; i += is_thin ? 2 : 1) {
        check_form(&r, &form_shapes[i], PROOF_PLAIN, (attend_form){.has_sinks = true});
        check_form(&r, &form_shapes[i], PROOF_PLAIN, (attend_form){.has_sinks = true, .window = 100, .cap = 3.0f});
    }
    for (int kind = PROOF_ZEROS; kind < PROOF_N_KIND; kind++)
        check_form(&r, &form_shapes[3], (proof_kind)kind, (attend_form){.has_sinks = true});
}

ON_EACH(scores_fall_with_distance_as_on_the_cpu)
{
    test_random r = proof_random();
    for (size_t i = 0; i < N_FORM_SHAPE; i += is_thin ? 2 : 1) {
        check_form(&r, &form_shapes[i], PROOF_PLAIN, (attend_form){.has_slopes = true});
        check_form(&r, &form_shapes[i], PROOF_PLAIN,
                   (attend_form){.has_slopes = true, .has_sinks = i % 2 > 0, .window = 300, .cap = 2.0f});
    }
}

ON_EACH(attention_in_chunks_sees_those_of_the_cpu)
{
    static const uint32_t sizes[] = {HTH_ATTN_SPLIT, 2 * HTH_ATTN_SPLIT, 4 * HTH_ATTN_SPLIT};
    test_random r = proof_random();
    for (size_t i = 0; i < N_FORM_SHAPE; i += is_thin ? 2 : 1)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            check_form(&r, &form_shapes[i], PROOF_PLAIN, (attend_form){.chunk = sizes[k], .has_slopes = k == 1});
}

ON_EACH(what_is_not_finite_or_too_small_goes_through_attention_as_on_the_cpu)
{
    static const attend_shape shapes[] = {
        {HEARTH_KV_F16, 36, 3, 2, 24, 1}, {HEARTH_KV_F32, 36, 1, 5, 9, 1}, {HEARTH_KV_Q8_0, 64, 1, 5, 32, 2}};
    test_random r = proof_random();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int kind = PROOF_ZEROS; kind < PROOF_N_KIND; kind++) {
            check_attend(&r, &shapes[i], (proof_kind)kind, 0, 0.0f);
            check_attend(&r, &shapes[i], (proof_kind)kind, 3, kind % 2 ? 30.0f : 0.0f);
        }
    }
}

/* ---- copies of pages -------------------------------------------------------------------------------------------- */

ON_EACH(a_page_is_copied_in_all_heads_and_nothing_else)
{
    enum { N_HEAD = 3, N_WORD = 96, N_PAGES = 4, HEAD_WORDS = N_PAGES * N_WORD, N = N_HEAD * HEAD_WORDS };
    static const uint32_t pairs[][2] = {{0, 3}, {2, 1}, {3, 3}, {1, 0}};
    uint32_t step[HTH_STEP_ROWS] = {0}, before[2][N], after[2][N], copy_at = HTH_STEP_COPY + 2;
    test_random r = proof_random();
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const hth_push_copy_page push = {copy_at, HEAD_WORDS, N_WORD, N_WORD};
        for (uint32_t k = 0; k < 2 * N; k++) before[k / N][k % N] = test_random_below(&r, UINT32_MAX);
        memcpy(after, before, sizeof after);
        memcpy(step + copy_at, pairs[i], sizeof pairs[i]);
        shaders_run run = {
            .id = HTH_SHADER_copy_page,
            .push = &push,
            .bind = {{step, sizeof step}, {after[0], sizeof after[0]}, {after[1], sizeof after[1]}},
            .grid = {i % 2 + 1, N_HEAD, 1}};
        if (!shaders_do(device, &run)) return;
        for (uint32_t k = 0; k < 2 * N_HEAD; k++) {
            uint32_t *head = before[k / N_HEAD] + k % N_HEAD * HEAD_WORDS;
            memmove(head + pairs[i][1] * N_WORD, head + pairs[i][0] * N_WORD, N_WORD * sizeof *head);
        }
        CHECK_BYTES(after, before, sizeof after);
    }
}
