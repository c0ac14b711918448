/* The shader that prepares queries, keys and values against the CPU's reference, bit for bit: caches word by word against
 * what kv_layout.c puts. The same on the null device and on the first that Vulkan knows. What no shader may write is
 * poison before and after. */
#include "base/bits.h"
#include "forward/gpu/cache.h"
#include "forward/gpu/shader_params.h"
#include "kernels/attn/attn.h"
#include "kernels/kernels.h"
#include "model/arch.h"
#include "support/device/gpu_cache.h"
#include "support/device/shaders.h"
#include "support/kernels/proof.h"

static hth_device *device;
static hth_kernels cpu;

static void on_each(void (*promise)(void))
{
    static const char *const names[] = {"null", "vulkan:0"};
    hth_kernels_init(&cpu, HTH_CPU_GENERIC);
    for (int i = 0; i < 2; i++) {
        device = shaders_open(names[i]);
        if (device) promise();
        shaders_close(device);
    }
}

#define ON_EACH(NAME)                                                                                        \
    static void NAME##_there(void);                                                                          \
    TEST(NAME) { on_each(NAME##_there); }                                                                    \
    static void NAME##_there(void)

/* A NaN is any NaN, in words that hold floats, or halves. */
static uint32_t one_nan(hearth_kv_type type, uint32_t word)
{
    if (type == HEARTH_KV_F32) return (word & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : word;
    if (type != HEARTH_KV_F16) return word;
    if ((word & 0x7fffu) > 0x7c00u) word = (word & 0xffff0000u) | 0x7e00u;
    if ((word & 0x7fff0000u) > 0x7c000000u) word = (word & 0xffffu) | 0x7e000000u;
    return word;
}

static size_t differ_words(hearth_kv_type type, const uint32_t *a, const uint32_t *b, size_t n)
{
    size_t i = 0;
    while (i < n && one_nan(type, a[i]) == one_nan(type, b[i])) i++;
    return i;
}

typedef struct rope_shape {
    hearth_kv_type type;
    uint32_t d, kind, norm, local, n_pair, n_head, n_kv;
    /* What few models have: d_value 0: values are d wide, and behind the keys. */
    bool norms_after, norms_values, by_position, values_are_keys;
    float limit, value_scale;
    uint32_t d_value, rotated_from;
} rope_shape;

/* Rows beyond N_TOK are in the step, but not to be computed. */
enum { N_ROW = 11, N_TOK = 9, N_POSITION = 5 * HTH_KV_PAGE };

/* Two sequences: ends and beginnings of groups and pages, order of no matter. */
static const gpu_page_table rope_tables[2] = {{3, 0, 4}, {1, 2}};
static const uint32_t rope_rows[N_ROW][2] = {{0, 0},  {1, 0}, {15, 0}, {16, 0}, {79, 0}, {0, 1},
                                             {17, 1}, {2, 1}, {63, 1}, {40, 1}, {41, 0}};

static void limit(const rope_shape *s, float *x)
{
    for (uint32_t i = 0; s->limit > 0.0f && i < s->d; i++)
        x[i] = x[i] > s->limit ? s->limit : x[i] < -s->limit ? -s->limit : x[i];
}

/* i: the number of the head among queries and keys. */
static void norm_head(const rope_shape *s, uint32_t i, const float *norms, float *x)
{
    const float *own = norms + i * s->d, *shared = norms + (i < s->n_head ? 0 : s->d);
    float inv_n = 1.0f / (float)s->d;
    if (s->norm == HTH_ROPE_NORM_SHARED) cpu.rms_norm(x, shared, s->d, inv_n, 1e-5f, x);
    if (s->norm == HTH_ROPE_NORM_OWN) cpu.rms_norm(x, own, s->d, inv_n, 1e-5f, x);
    if (s->norm == HTH_ROPE_NORM_OWN_LAYER) cpu.layer_norm(x, own, NULL, s->d, inv_n, 1e-5f, x);
}

static void prepare(const rope_shape *s, uint32_t i, float *x, const float *norms, const float *cosine,
                    const float *sine)
{
    limit(s, x);
    if (!s->norms_after) norm_head(s, i, norms, x);
    if (s->kind == HTH_ROPE_INTERLEAVED) cpu.rope_interleaved(x + s->rotated_from, cosine, sine, s->n_pair);
    if (s->kind == HTH_ROPE_NEOX) cpu.rope_neox(x + s->rotated_from, cosine, sine, s->n_pair);
    if (s->norms_after) norm_head(s, i, norms, x);
}

static void prepare_value(const rope_shape *s, const float *from, float *x)
{
    uint32_t n = s->d_value > 0 ? s->d_value : s->d;
    float ones[HTH_GPU_MAX_D_HEAD];
    for (uint32_t i = 0; i < s->d; i++) x[i] = i < n ? from[i] : 0.0f, ones[i] = 1.0f;
    if (s->value_scale != 0.0f) cpu.scale(x, s->value_scale, s->d, x);
    limit(s, x);
    if (s->norms_values) cpu.rms_norm(x, ones, s->d, 1.0f / (float)s->d, 1e-5f, x);
}

/* Where a token's values are. */
static size_t n_key_row(const rope_shape *s) { return (s->n_head + (size_t)s->n_kv) * s->d; }
static size_t n_qkv_row(const rope_shape *s)
{
    bool apart = s->d_value > 0 || s->values_are_keys;
    return n_key_row(s) + (apart ? 0 : s->n_kv * (size_t)s->d);
}
static size_t values_from(const rope_shape *s)
{
    return s->d_value > 0 ? 3 : s->values_are_keys ? s->n_head * (size_t)s->d : n_key_row(s);
}
static size_t values_stride(const rope_shape *s)
{
    return s->d_value > 0 ? 3 + s->n_kv * (size_t)s->d_value : n_qkv_row(s);
}

/* What the CPU makes of the rows: queries in place, words of caches and of rounded queries. */
static void rope_by_cpu(const rope_shape *s, float *qkv, const float *in, const float *norms,
                        const float *table, size_t sine_at, const float *factors, uint32_t *keys,
                        uint32_t *values, uint32_t *rounded, size_t d_at)
{
    CLEANUP(gpu_cache_free) gpu_cache c = gpu_cache_new(s->type, s->d, s->n_kv, N_POSITION);
    int32_t sums[64];
    float x[HTH_GPU_MAX_D_HEAD];
    for (size_t t = 0; t < N_TOK; t++) {
        size_t at = gpu_place_of(rope_tables, rope_rows[t]), n_q = (size_t)s->n_head * s->d;
        float *row = qkv + t * n_qkv_row(s), *k = row + n_q;
        const float *cosine = table + t * s->n_pair, *sine = cosine + sine_at;
        const float *v = in + t * values_stride(s) + values_from(s);
        for (uint32_t h = 0; h < s->n_head; h++) prepare(s, h, row + h * s->d, norms, cosine, sine);
        if (s->by_position) cpu.scale(row, factors[t], n_q, row);
        for (uint32_t h = 0; h < s->n_kv; h++) {
            memcpy(x, k + h * s->d, s->d * sizeof *x);
            prepare(s, s->n_head + h, x, norms, cosine, sine);
            hth_kv_layout_put_key(&cpu, s->type, c.keys + h * c.head_size, s->d, at, x);
            prepare_value(s, v + h * (s->d_value > 0 ? s->d_value : s->d), x);
            hth_kv_layout_put_value(&cpu, s->type, c.values + h * c.head_size, s->d, at, x);
        }
        gpu_cache_put(&c, at, keys, values);
        if (s->type == HEARTH_KV_F16) hth_attn_round_queries(row, n_q);
        if (s->type == HEARTH_KV_Q8_0)
            cpu.quant_act(row, n_q, (int8_t *)(rounded + t * n_q / 4),
                          (float *)(rounded + d_at) + t * n_q / 32, sums);
    }
}

/* What is stored meets every edge of the rounding of its type: halves between two, scales at their limits. */
enum { EDGES = PROOF_N_KIND };

/* Between two neighbouring halves, or beside that. */
static float edge_of_halves(test_random *r)
{
    static const uint32_t ends[] = {0, 1, 0x3ff, 0x400, 0x7bff}; /* of subnormals, and of all */
    uint32_t h = test_random_below(r, 0x7c00), sign = test_random_below(r, 2) << 31;
    if (test_random_below(r, 4) == 0) h = ends[test_random_below(r, 5)];
    float above = h == 0x7bff ? 65536.0f : hth_f16_to_f32((uint16_t)(h + 1));
    float middle = 0.5f * (hth_f16_to_f32((uint16_t)h) + above);
    return hth_float_of(sign | (hth_bits_of(middle) + test_random_below(r, 3) - 1));
}

static void fill_with_edges(test_random *r, hearth_kv_type type, float *x, size_t n)
{
    float amax = 0.0f;
    for (size_t i = 0; i < n; i++) {
        if (i % 32 == 0)
            amax = hth_float_of((i % 64 ? 0x5d800000u : 0x21800000u) + test_random_below(r, 3) - 1);
        if (type == HEARTH_KV_Q8_0) x[i] = i % 32 == 0 ? amax : amax * test_random_float(r);
        else x[i] = edge_of_halves(r);
    }
}

static void check_rope(test_random *r, const rope_shape *s, int kind)
{
    size_t n_qkv = N_ROW * n_qkv_row(s), n_q = (size_t)s->n_head * s->d,
           n_norm = (s->n_head + s->n_kv) * (size_t)s->d;
    size_t head_words = hth_gpu_cache_head_words(s->type, s->d, N_POSITION), n_cache = s->n_kv * head_words;
    size_t d_at = N_ROW * n_q / 4 + 3, n_rounded = d_at + N_ROW * n_q / 32;
    size_t table_at = N_ROW * s->n_pair, sine_at = 2 * table_at, factor_at = 2 * sine_at,
           n_table = factor_at + N_ROW;
    size_t n_in = s->d_value > 0 ? N_ROW * values_stride(s) : n_qkv;
    uint32_t step[HTH_STEP_ROWS + N_ROW * HTH_STEP_ROW_WORDS + 2 * GPU_N_TABLE], kv_class = s->n_kv % 2;
    float *qkv = gpu_random_floats(r, kind == EDGES ? PROOF_PLAIN : (proof_kind)kind, n_qkv),
          *expected = malloc(n_qkv * sizeof *qkv);
    float *norms = gpu_random_floats(r, PROOF_PLAIN, n_norm),
          *table = gpu_random_floats(r, PROOF_PLAIN, n_table),
          *narrow = gpu_random_floats(r, kind == EDGES ? PROOF_PLAIN : (proof_kind)kind, n_in),
          *in = s->d_value > 0 ? narrow : qkv;
    uint32_t *cache[4], *rounded[2]; /* the CPU's keys, values; the device's */
    gpu_fill_step(step, N_TOK, N_ROW, rope_rows, rope_tables, 2, kv_class);
    if (kind == EDGES) fill_with_edges(r, s->type, qkv, n_qkv);
    memcpy(expected, qkv, n_qkv * sizeof *qkv);
    for (int i = 0; i < 4; i++) cache[i] = gpu_poisoned(n_cache * 4);
    for (int i = 0; i < 2; i++) rounded[i] = gpu_poisoned(n_rounded * 4);
    rope_by_cpu(s, expected, in, norms, table + table_at, sine_at, table + factor_at, cache[0], cache[1],
                rounded[0], d_at);

    hth_push_rope_store push = {.n_head = s->n_head,
                                .n_head_kv = s->n_kv,
                                .n_pair = s->n_pair,
                                .table_at = (uint32_t)table_at,
                                .sine_at = (uint32_t)sine_at,
                                .factor_at = (uint32_t)factor_at,
                                .d_at = (uint32_t)d_at,
                                .head_words = (uint32_t)head_words,
                                .eps = 1e-5f,
                                .inv_n = 1.0f / (float)s->d,
                                .limit = s->limit,
                                .value_scale = s->value_scale != 0.0f ? s->value_scale : 1.0f,
                                .kv_class = kv_class,
                                .qkv_stride = (uint32_t)n_qkv_row(s),
                                .value_stride = (uint32_t)values_stride(s),
                                .value_from = (uint32_t)values_from(s),
                                .d_value = s->d_value > 0 ? s->d_value : s->d,
                                .rotated_from = s->rotated_from};
    uint32_t consts[] = {s->d,     s->kind,        s->norm,         s->type,
                         s->local, s->norms_after, s->norms_values, s->by_position};
    shaders_run run = {.id = HTH_SHADER_rope_store,
                       .consts = consts,
                       .push = &push,
                       .bind = {{step, sizeof step},
                                {qkv, n_qkv * 4},
                                {table, n_table * 4},
                                {norms, n_norm * 4},
                                {cache[2], n_cache * 4},
                                {cache[3], n_cache * 4},
                                {rounded[1], n_rounded * 4},
                                {in, n_in * 4}},
                       .grid = {s->n_head + 2 * s->n_kv, N_ROW, 1}};
    if (shaders_do(device, &run)) {
        size_t at = proof_differ_f32(expected, qkv, n_qkv);
        size_t key = differ_words(s->type, cache[0], cache[2], n_cache);
        size_t value = differ_words(s->type, cache[1], cache[3], n_cache);
        size_t round = differ_words(HEARTH_KV_Q8_0, rounded[0], rounded[1], n_rounded);
        if (at < n_qkv || key < n_cache || value < n_cache || round < n_rounded)
            test_fail(__FILE__, __LINE__,
                      "%s, %u dims, %s: qkv %zu of %zu, keys %zu, values %zu of %zu, "
                      "rounded %zu of %zu",
                      gpu_kv_name(s->type), s->d, kind == EDGES ? "edges" : proof_kind_name((proof_kind)kind),
                      at, n_qkv, key, value, n_cache, round, n_rounded);
    }
    for (int i = 0; i < 4; i++) free(cache[i]);
    free(rounded[0]), free(rounded[1]), free(qkv), free(expected), free(norms), free(table), free(narrow);
}

ON_EACH(heads_are_normed_rotated_and_stored_as_on_the_cpu)
{
    static const rope_shape shapes[] = {{HEARTH_KV_F16, 64, HTH_ROPE_INTERLEAVED, 0, 64, 32, 4, .n_kv = 2},
                                        {HEARTH_KV_F16, 80, HTH_ROPE_NEOX, 1, 32, 40, 5, .n_kv = 1},
                                        {HEARTH_KV_F16, 36, HTH_ROPE_NEOX, 0, 7, 0, 2, .n_kv = 2},
                                        {HEARTH_KV_F32, 36, HTH_ROPE_INTERLEAVED, 1, 24, 7, 3, .n_kv = 3},
                                        {HEARTH_KV_F32, 128, HTH_ROPE_NEOX, 0, 128, 64, 2, .n_kv = 1},
                                        {HEARTH_KV_Q8_0, 128, HTH_ROPE_NEOX, 1, 128, 33, 4, .n_kv = 2},
                                        {HEARTH_KV_Q8_0, 96, HTH_ROPE_NONE, 0, 5, 48, 3, .n_kv = 1}};
    test_random r = proof_random();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind <= EDGES; kind++) check_rope(&r, &shapes[i], kind);
}

ON_EACH(heads_of_other_forms_are_prepared_and_stored_as_on_the_cpu)
{
    static const rope_shape shapes[] = {
        {HEARTH_KV_F16, 64, HTH_ROPE_NEOX, HTH_ROPE_NORM_OWN, 64, 32, 4, 2, .norms_after = true},
        {HEARTH_KV_Q8_0, 64, HTH_ROPE_INTERLEAVED, HTH_ROPE_NORM_SHARED, 64, 32, 3, 1, .norms_after = true,
         .by_position = true},
        {HEARTH_KV_F32, 36, HTH_ROPE_INTERLEAVED, HTH_ROPE_NORM_OWN_LAYER, 24, 18, 3, .n_kv = 3},
        {HEARTH_KV_F16, 80, HTH_ROPE_NEOX, HTH_ROPE_NORM_NONE, 32, 40, 5, 1, .by_position = true,
         .limit = 0.5f},
        {HEARTH_KV_F16, 64, HTH_ROPE_NEOX, HTH_ROPE_NORM_SHARED, 64, 16, 2, 2, .norms_values = true,
         .values_are_keys = true},
        {HEARTH_KV_Q8_0, 96, HTH_ROPE_NEOX, HTH_ROPE_NORM_NONE, 64, 48, 2, 2, .value_scale = 0.7f,
         .d_value = 64, .limit = 0.25f},
        {HEARTH_KV_F32, 128, HTH_ROPE_NEOX, HTH_ROPE_NORM_OWN, 128, 64, 2, 1, .norms_values = true,
         .value_scale = 3.0f, .d_value = 100},
        {HEARTH_KV_F16, 72, HTH_ROPE_INTERLEAVED, HTH_ROPE_NORM_NONE, 64, 4, 3, 1, .d_value = 64,
         .rotated_from = 64},
        {HEARTH_KV_F16, 72, HTH_ROPE_NEOX, HTH_ROPE_NORM_NONE, 64, 16, 3, 0, .rotated_from = 40},
        {HEARTH_KV_Q8_0, 64, HTH_ROPE_NEOX, HTH_ROPE_NORM_NONE, 64, 16, 0, 2, .values_are_keys = true,
         .rotated_from = 32}};
    test_random r = proof_random();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind <= EDGES; kind++) check_rope(&r, &shapes[i], kind);
}
