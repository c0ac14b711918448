/* The shaders of attention against the CPU's reference, bit for bit: caches word by word against what cache.c
 * puts, results against attn_ref.c and the merging of attn.c. The same on the null device and on the first that
 * Vulkan knows. What no shader may write is poison before and after; what no query sees is NaN. */
#include "base/bits.h"
#include "kernels/attn/attn.h"
#include "kernels/kernels.h"
#include "model/arch.h"
#include "forward/gpu/cache.h"
#include "forward/gpu/shader_params.h"
#include "support/kernels/attn_case.h"
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

static void *poisoned(size_t size)
{
    void *p = malloc(size);
    memset(p, SHADERS_POISON, size);
    return p;
}

static float *random_floats(test_random *r, proof_kind kind, size_t n)
{
    float *x = malloc(n * sizeof *x);
    proof_fill_f32(r, kind, x, n);
    return x;
}

static const char *type_name(hearth_kv_type type)
{
    return (const char *const[]){"F16", "F32", "Q8_0"}[type];
}

/* ---- caches of the CPU and of a device --------------------------------------------------------------- */

/* Keys or values of n_kv heads as the CPU has them, in pages in the order of the device. */
typedef struct caches {
    hearth_kv_type type;
    size_t d, n_kv, n_position, head_size; /* bytes of a head's keys, or values */
    uint8_t *keys, *values;
} caches;

static caches new_caches(hearth_kv_type type, size_t d, size_t n_kv, size_t n_position)
{
    size_t size = attend_cache_size(type, d, n_position);
    return (caches){type, d, n_kv, n_position, size, calloc(n_kv, size), calloc(n_kv, size)};
}

static void free_caches(caches *c) { free(c->keys), free(c->values); }

static uint32_t two_halves(const uint8_t *low, const uint8_t *high)
{
    return hth_load_u16(low) | (uint32_t)hth_load_u16(high) << 16;
}

/* Word i of a position of KV head h: by cache.h of the kernels, what cache.h of the device says. */
static uint32_t key_word(const caches *c, size_t h, size_t at, size_t i)
{
    const uint8_t *group = c->keys + h * c->head_size + at / 16 * hth_kv_layout_group_size(c->type, c->d);
    size_t lane = at % 16;
    if (c->type == HEARTH_KV_F32) return hth_load_u32(group + (i * 16 + lane) * 4);
    if (c->type == HEARTH_KV_F16)
        return two_halves(group + (2 * i * 16 + lane) * 2, group + ((2 * i + 1) * 16 + lane) * 2);
    if (i < c->d / 4) return hth_load_u32(group + (i * 16 + lane) * 4);
    return (uint32_t)hth_load_u16(group + 16 * c->d + ((i - c->d / 4) * 16 + lane) * 2) << 16;
}

static uint32_t value_word(const caches *c, size_t h, size_t at, size_t i)
{
    const uint8_t *group = c->values + h * c->head_size + at / 16 * hth_kv_layout_group_size(c->type, c->d);
    size_t lane = at % 16;
    if (c->type != HEARTH_KV_Q8_0)
        return hth_load_u32(group + lane * c->d * (c->type == HEARTH_KV_F16 ? 2 : 4) + 4 * i);
    if (i < c->d / 4) return hth_load_u32(group + lane * c->d + 4 * i);
    return (uint32_t)hth_load_u16(group + 16 * c->d + (lane * (c->d / 32) + i - c->d / 4) * 2) << 16;
}

/* One position of all KV heads to where it lies on a device. */
static void put_words(const caches *c, size_t at, uint32_t *keys, uint32_t *values)
{
    size_t n_word = hth_gpu_cache_words(c->type, c->d);
    size_t head_words = hth_gpu_cache_head_words(c->type, c->d, c->n_position);
    for (size_t h = 0; h < c->n_kv; h++) {
        for (size_t i = 0; i < n_word; i++) {
            keys[h * head_words + hth_gpu_cache_key_at(n_word, at, i)] = key_word(c, h, at, i);
            values[h * head_words + hth_gpu_cache_value_at(n_word, at, i)] = value_word(c, h, at, i);
        }
    }
}

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

/* ---- rope_store -------------------------------------------------------------------------------------- */

typedef struct rope_shape {
    hearth_kv_type type;
    uint32_t d, kind, norm, local, n_pair, n_head, n_kv;
    /* What few models have: d_value 0: values are d wide, and behind the keys. */
    bool norms_after, norms_values, by_position, values_are_keys;
    float limit, value_scale;
    uint32_t d_value, rotated_from;
} rope_shape;

/* Page tables of up to this many pages. */
enum { N_TABLE = 20 };
typedef uint32_t page_table[N_TABLE];

static size_t place_of(const page_table *tables, const uint32_t row[2])
{
    return tables[row[1]][row[0] / HTH_KV_PAGE] * HTH_KV_PAGE + row[0] % HTH_KV_PAGE;
}

/* rows: position and sequence of each. The tables of the other class are somewhere else. */
static void fill_step(uint32_t *step, uint32_t n_tok, uint32_t n_row, const uint32_t (*rows)[2],
                      const page_table *tables, uint32_t n_sequence, uint32_t kv_class)
{
    const uint32_t table_at = HTH_STEP_ROWS + n_row * HTH_STEP_ROW_WORDS;
    memset(step, 0, table_at * sizeof *step);
    if (n_sequence > 0) memcpy(step + table_at, tables, n_sequence * sizeof *tables);
    step[HTH_STEP_N_TOK] = n_tok;
    for (uint32_t i = 0; i < n_row; i++) {
        step[HTH_STEP_ROWS + i * HTH_STEP_ROW_WORDS + HTH_STEP_POSITION] = rows[i][0];
        step[HTH_STEP_ROWS + i * HTH_STEP_ROW_WORDS + HTH_STEP_TABLE + kv_class] =
            table_at + rows[i][1] * N_TABLE;
    }
}

/* Rows beyond N_TOK are in the step, but not to be computed. */
enum { N_ROW = 11, N_TOK = 9, N_POSITION = 5 * HTH_KV_PAGE };

/* Two sequences: ends and beginnings of groups and pages, order of no matter. */
static const page_table rope_tables[2] = {{3, 0, 4}, {1, 2}};
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
static void rope_by_cpu(const rope_shape *s, float *qkv, const float *in, const float *norms, const float *table,
                        size_t sine_at, const float *factors, uint32_t *keys, uint32_t *values, uint32_t *rounded,
                        size_t d_at)
{
    CLEANUP(free_caches) caches c = new_caches(s->type, s->d, s->n_kv, N_POSITION);
    int32_t sums[64];
    float x[HTH_GPU_MAX_D_HEAD];
    for (size_t t = 0; t < N_TOK; t++) {
        size_t at = place_of(rope_tables, rope_rows[t]), n_q = (size_t)s->n_head * s->d;
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
        put_words(&c, at, keys, values);
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
    size_t n_qkv = N_ROW * n_qkv_row(s), n_q = (size_t)s->n_head * s->d, n_norm = (s->n_head + s->n_kv) * (size_t)s->d;
    size_t head_words = hth_gpu_cache_head_words(s->type, s->d, N_POSITION), n_cache = s->n_kv * head_words;
    size_t d_at = N_ROW * n_q / 4 + 3, n_rounded = d_at + N_ROW * n_q / 32;
    size_t table_at = N_ROW * s->n_pair, sine_at = 2 * table_at, factor_at = 2 * sine_at, n_table = factor_at + N_ROW;
    size_t n_in = s->d_value > 0 ? N_ROW * values_stride(s) : n_qkv;
    uint32_t step[HTH_STEP_ROWS + N_ROW * HTH_STEP_ROW_WORDS + 2 * N_TABLE], kv_class = s->n_kv % 2;
    float *qkv = random_floats(r, kind == EDGES ? PROOF_PLAIN : (proof_kind)kind, n_qkv),
          *expected = malloc(n_qkv * sizeof *qkv);
    float *norms = random_floats(r, PROOF_PLAIN, n_norm), *table = random_floats(r, PROOF_PLAIN, n_table),
          *narrow = random_floats(r, kind == EDGES ? PROOF_PLAIN : (proof_kind)kind, n_in),
          *in = s->d_value > 0 ? narrow : qkv;
    uint32_t *cache[4], *rounded[2]; /* the CPU's keys, values; the device's */
    fill_step(step, N_TOK, N_ROW, rope_rows, rope_tables, 2, kv_class);
    if (kind == EDGES) fill_with_edges(r, s->type, qkv, n_qkv);
    memcpy(expected, qkv, n_qkv * sizeof *qkv);
    for (int i = 0; i < 4; i++) cache[i] = poisoned(n_cache * 4);
    for (int i = 0; i < 2; i++) rounded[i] = poisoned(n_rounded * 4);
    rope_by_cpu(s, expected, in, norms, table + table_at, sine_at, table + factor_at, cache[0], cache[1], rounded[0],
                d_at);

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
                      type_name(s->type), s->d, kind == EDGES ? "edges" : proof_kind_name((proof_kind)kind),
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
        {HEARTH_KV_F16, 80, HTH_ROPE_NEOX, HTH_ROPE_NORM_NONE, 32, 40, 5, 1, .by_position = true, .limit = 0.5f},
        {HEARTH_KV_F16, 64, HTH_ROPE_NEOX, HTH_ROPE_NORM_SHARED, 64, 16, 2, 2, .norms_values = true,
         .values_are_keys = true},
        {HEARTH_KV_Q8_0, 96, HTH_ROPE_NEOX, HTH_ROPE_NORM_NONE, 64, 48, 2, 2, .value_scale = 0.7f, .d_value = 64,
         .limit = 0.25f},
        {HEARTH_KV_F32, 128, HTH_ROPE_NEOX, HTH_ROPE_NORM_OWN, 128, 64, 2, 1, .norms_values = true, .value_scale = 3.0f,
         .d_value = 100},
        {HEARTH_KV_F16, 72, HTH_ROPE_INTERLEAVED, HTH_ROPE_NORM_NONE, 64, 4, 3, 1, .d_value = 64, .rotated_from = 64},
        {HEARTH_KV_F16, 72, HTH_ROPE_NEOX, HTH_ROPE_NORM_NONE, 64, 16, 3, 0, .rotated_from = 40},
        {HEARTH_KV_Q8_0, 64, HTH_ROPE_NEOX, HTH_ROPE_NORM_NONE, 64, 16, 0, 2, .values_are_keys = true,
         .rotated_from = 32}};
    test_random r = proof_random();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind <= EDGES; kind++) check_rope(&r, &shapes[i], kind);
}

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
static const page_table tables[N_SEQUENCE] = {
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
    caches cpu;
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
        for (uint32_t k = 0; k < lengths[i]; k++) seen[place_of(tables, (const uint32_t[]){k, i})] = true;
    for (size_t at = 0; at < N_CACHE; at++) {
        for (size_t h = 0; h < s->cpu.n_kv; h++) {
            for (int i = 0; i < 2; i++) proof_fill_f32(r, kind, rows[i], s->s->d);
            for (size_t i = 0; i < 2 * HTH_GPU_MAX_D_HEAD && !seen[at]; i++)
                rows[i / HTH_GPU_MAX_D_HEAD][i % HTH_GPU_MAX_D_HEAD] = hth_float_of(0x7fc00000u);
            hth_kv_layout_put_key(&cpu, s->s->type, s->cpu.keys + h * s->cpu.head_size, s->s->d, at, rows[0]);
            hth_kv_layout_put_value(&cpu, s->s->type, s->cpu.values + h * s->cpu.head_size, s->s->d, at,
                                    rows[1]);
        }
        put_words(&s->cpu, at, s->keys, s->values);
    }
}

static hth_attn job_of(const scene *s, size_t t, size_t i_kv, int8_t *q, float *d, float *scratch)
{
    size_t head = i_kv * s->s->n_shared, n_pos = (size_t)look_rows[t][0] + 1,
           before = s->form.chunk > 0 ? (n_pos - 1) / s->form.chunk * s->form.chunk : 0;
    size_t page_size = HTH_KV_PAGE / HTH_KV_GROUP * hth_kv_layout_group_size(s->s->type, s->s->d);
    static const uint8_t *k_pages[N_TABLE], *v_pages[N_TABLE];
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
    s.cpu = new_caches(shape->type, shape->d, shape->n_kv, N_CACHE);
    s.keys = malloc(n_cache * 4), s.values = malloc(n_cache * 4), s.rounded = calloc(s.n_rounded, 4);
    s.q = random_floats(r, PROOF_PLAIN, N_LOOK * s.stride);
    s.terms = random_floats(r, PROOF_PLAIN, 2 * s.n_head);
    if (shape->type == HEARTH_KV_F16) hth_attn_round_queries(s.q, N_LOOK * s.stride);
    s.whole = poisoned(s.n_out * 4), s.by_split = poisoned(N_SPLIT_MAX * s.n_out * 4);
    s.parts = poisoned(N_SPLIT_MAX * N_LOOK * s.n_head * 2 * 4);
    fill_caches(r, &s, kind);
    look_by_cpu(&s);
    return s;
}

static void free_scene(scene *s)
{
    free_caches(&s->cpu);
    free(s->keys), free(s->values), free(s->rounded), free(s->q), free(s->terms);
    free(s->whole), free(s->by_split), free(s->parts);
}

/* ---- attention: shaders ----------------------------------------------------------------------------- */

/* For n tokens from `first` on. */
static bool run_attend(const scene *s, uint32_t by_split, uint32_t first, uint32_t n, float *out,
                       float *parts)
{
    const attend_shape *a = s->s;
    uint32_t step[HTH_STEP_ROWS + N_LOOK * HTH_STEP_ROW_WORDS + N_SEQUENCE * N_TABLE],
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
    fill_step(step, N_LOOKING, N_LOOK, look_rows, tables, N_SEQUENCE, kv_class);
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
    return (rounded_rows){block, s->n_out, poisoned(s->n_out), poisoned(s->n_out / 8),
                          poisoned(s->n_out / 4)};
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
    fill_step(step, N_LOOKING, N_LOOK, look_rows, NULL, 0, 0);
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
                  what, type_name(s->s->type), s->s->d, s->s->n_shared, s->form.window, s->form.chunk,
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
                  type_name(s->s->type), s->s->d, i, (double)b[0], (double)b[1], (double)a[0], (double)a[1]);
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
    float *expected = poisoned(s->n_out * 4), *out = malloc(s->n_out * 4);
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
