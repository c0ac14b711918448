/* Attention shaders as C functions: rope_store, attn, copy_page (shader_params.h; docs/arithmetic.md 4, 5, 7).
 * They define what device/vulkan/shaders states in GLSL, and run on the reference device. Norms, rotation,
 * quantisation and merging are the CPU's own functions; cache.h defines the cache layout. */
#include "forward/gpu/cache.h"
#include "forward/gpu/ref/ref_int.h"

#include "base/bits.h"
#include "kernels/attn/attn.h"
#include "kernels/reduce.h"
#include "model/arch.h"

#include <assert.h>

enum { MAX_D = HTH_GPU_MAX_D_HEAD, BLOCK = HTH_ACT_BLOCK };

static const uint32_t *row_of(const uint32_t *step, uint32_t t)
{
    return step + HTH_STEP_ROWS + (size_t)t * HTH_STEP_ROW_WORDS;
}

/* Where a position of token t's sequence is in the cache of a layer of that class. */
static size_t place_of(const uint32_t *step, uint32_t t, uint32_t kv_class, uint32_t position)
{
    return (size_t)hth_step_page(step, t, kv_class, position) * HTH_KV_PAGE + position % HTH_KV_PAGE;
}

/* ---- rope_store -------------------------------------------------------------------------------------- */

typedef struct rope_run {
    const hth_dispatch_args *call;
    hth_push_rope_store push;
    hth_kernels k;
    uint32_t d;
    hearth_kv_type kv;
} rope_run;

static void limit(const rope_run *r, float *x)
{
    float most = r->push.limit;
    for (uint32_t i = 0; most > 0.0f && i < r->d; i++) x[i] = x[i] > most ? most : x[i] < -most ? -most : x[i];
}

/* Normalises a query or key in place; i_head: its number among both. */
static void norm(const rope_run *r, uint32_t i_head, float *x)
{
    uint32_t kind = r->call->consts[HTH_ROPE_NORM], i_shared = i_head < r->push.n_head ? 0 : 1;
    const float *weight = (const float *)r->call->bind[3] + r->d * (kind == HTH_ROPE_NORM_SHARED ? i_shared : i_head);
    if (kind == HTH_ROPE_NORM_OWN_LAYER) r->k.layer_norm(x, weight, NULL, r->d, r->push.inv_n, r->push.eps, x);
    else if (kind != HTH_ROPE_NORM_NONE) r->k.rms_norm(x, weight, r->d, r->push.inv_n, r->push.eps, x);
}

static void rotate(const rope_run *r, uint32_t t, float *x)
{
    const float *cosine = (const float *)r->call->bind[2] + r->push.table_at + (size_t)t * r->push.n_pair;
    const float *sine = cosine + r->push.sine_at;
    uint32_t kind = r->call->consts[HTH_ROPE_KIND];
    x += r->push.rotated_from;
    if (kind == HTH_ROPE_INTERLEAVED) r->k.rope_interleaved(x, cosine, sine, r->push.n_pair);
    else if (kind == HTH_ROPE_NEOX) r->k.rope_neox(x, cosine, sine, r->push.n_pair);
}

/* Prepares a query or key of token t, in place. */
static void prepare(const rope_run *r, uint32_t t, uint32_t i_head, float *x)
{
    bool after = r->call->consts[HTH_ROPE_NORMS_AFTER];
    limit(r, x);
    if (!after) norm(r, i_head, x);
    rotate(r, t, x);
    if (after) norm(r, i_head, x);
}

/* Prepares value i_kv of token t. */
static void prepare_value(const rope_run *r, uint32_t t, uint32_t i_kv, float *x)
{
    const hth_push_rope_store *p = &r->push;
    size_t at = (size_t)t * p->value_stride + p->value_from + i_kv * p->d_value;
    const float *from = (const float *)r->call->bind[7] + at;
    float ones[MAX_D];
    for (uint32_t i = 0; i < r->d; i++) x[i] = i < p->d_value ? from[i] * p->value_scale : 0.0f, ones[i] = 1.0f;
    limit(r, x);
    if (r->call->consts[HTH_ROPE_NORMS_VALUES]) r->k.rms_norm(x, ones, r->d, p->inv_n, p->eps, x);
}

static uint32_t word_of_bytes(const int8_t *q)
{
    uint32_t word;
    memcpy(&word, q, sizeof word);
    return word;
}

/* Converts a key or value to the words of its position. */
static void to_cache_words(const rope_run *r, const float *x, uint32_t *words)
{
    uint16_t halves[MAX_D];
    int8_t q[MAX_D];
    if (r->kv == HEARTH_KV_F32) {
        memcpy(words, x, r->d * sizeof *words);
    } else if (r->kv == HEARTH_KV_F16) {
        r->k.to_f16(x, r->d, halves);
        for (uint32_t i = 0; i < r->d / 2; i++) words[i] = halves[2 * i] | (uint32_t)halves[2 * i + 1] << 16;
    } else {
        r->k.quant_cache(x, r->d, q, halves);
        for (uint32_t i = 0; i < r->d / 4; i++) words[i] = word_of_bytes(q + 4 * i);
        for (uint32_t b = 0; b < r->d / BLOCK; b++) words[r->d / 4 + b] = (uint32_t)halves[b] << 16;
    }
}

static void store_key(const rope_run *r, size_t at, uint32_t i_kv, const float *x)
{
    uint32_t words[MAX_D], *keys = (uint32_t *)r->call->bind[4] + (size_t)i_kv * r->push.head_words;
    size_t n = hth_gpu_cache_words(r->kv, r->d);
    to_cache_words(r, x, words);
    for (size_t i = 0; i < n; i++) keys[hth_gpu_cache_key_at(n, at, i)] = words[i];
}

static void store_value(const rope_run *r, size_t at, uint32_t i_kv, const float *x)
{
    uint32_t words[MAX_D], *values = (uint32_t *)r->call->bind[5] + (size_t)i_kv * r->push.head_words;
    size_t n = hth_gpu_cache_words(r->kv, r->d);
    to_cache_words(r, x, words);
    for (size_t i = 0; i < n; i++) values[hth_gpu_cache_value_at(n, at, i)] = words[i];
}

/* Stores the query of head i (over all heads of all tokens), quantised by R1. */
static void store_rounded(const rope_run *r, size_t i, const float *x)
{
    uint32_t *rounded = r->call->bind[6];
    int8_t q[MAX_D];
    float scales[MAX_D / BLOCK];
    int32_t sums[MAX_D / BLOCK];
    r->k.quant_act(x, r->d, q, scales, sums);
    memcpy(rounded + i * r->d / 4, q, r->d);
    memcpy(rounded + r->push.d_at + i * r->d / BLOCK, scales, r->d / BLOCK * sizeof *scales);
}

static void store_query(const rope_run *r, uint32_t t, uint32_t i_head, float *x)
{
    prepare(r, t, i_head, x);
    if (r->call->consts[HTH_ROPE_BY_POSITION])
        r->k.scale(x, ((const float *)r->call->bind[2])[r->push.factor_at + t], r->d, x);
    if (r->kv == HEARTH_KV_F16) hth_attn_round_queries(x, r->d);
    if (r->kv == HEARTH_KV_Q8_0) store_rounded(r, (size_t)t * r->push.n_head + i_head, x);
}

/* The keys of a token stay as they are. */
static void store_key_and_value(const rope_run *r, uint32_t t, uint32_t i_kv, const float *key)
{
    const uint32_t *step = r->call->bind[0];
    size_t at = place_of(step, t, r->push.kv_class, row_of(step, t)[HTH_STEP_POSITION]);
    float x[MAX_D];
    memcpy(x, key, r->d * sizeof *x);
    prepare(r, t, r->push.n_head + i_kv, x);
    store_key(r, at, i_kv, x);
    prepare_value(r, t, i_kv, x);
    store_value(r, at, i_kv, x);
}

void hth_ref_rope_store(const hth_dispatch_args *call)
{
    rope_run r = {
        .call = call, .d = call->consts[HTH_ROPE_D_HEAD], .kv = (hearth_kv_type)call->consts[HTH_ROPE_KV]};
    memcpy(&r.push, call->push, sizeof r.push);
    hth_kernels_init(&r.k, HTH_CPU_GENERIC);
    assert(r.d <= MAX_D);
    uint32_t n_head = r.push.n_head, n_row = hth_gpu_tokens(call, 0, call->grid[1]);
    for (uint32_t t = 0; t < n_row; t++) {
        float *q = (float *)call->bind[1] + (size_t)t * r.push.qkv_stride;
        for (uint32_t i = 0; i < n_head; i++) store_query(&r, t, i, q + (size_t)i * r.d);
        for (uint32_t i = 0; i < r.push.n_head_kv; i++) store_key_and_value(&r, t, i, q + (size_t)(n_head + i) * r.d);
    }
}

/* ---- attn -------------------------------------------------------------------------------------------- */

typedef struct attend_run {
    const hth_dispatch_args *call;
    hth_push_attn push;
    hth_kernels k;
    uint32_t d;
    hearth_kv_type kv;
    size_t n_word; /* words of a position */
} attend_run;

/* A query head of a token, and the positions it sees. */
typedef struct attn_query {
    uint32_t t, head;
    hth_attn sees; /* positions, and the sink and the slope of the head */
    const uint32_t *keys, *values; /* of its KV head */
} attn_query;

static attn_query query_of(const attend_run *r, uint32_t t, uint32_t head)
{
    const uint32_t *row = row_of(r->call->bind[0], t);
    size_t at = (size_t)(head / r->call->consts[HTH_ATTN_SHARED]) * r->push.head_words;
    const float *terms = r->call->bind[7];
    uint32_t position = row[HTH_STEP_POSITION];
    return (attn_query){.t = t,
                     .head = head,
                     .sees = {.n_row = 1,
                              .n_pos = (size_t)position + 1,
                              .window = hth_attn_window(position, r->push.window, r->push.chunk),
                              .sinks = r->call->consts[HTH_ATTN_SINKS] ? terms + head : NULL,
                              .slopes = r->call->consts[HTH_ATTN_SLOPES] ? terms + r->push.n_head + head : NULL},
                     .keys = (const uint32_t *)r->call->bind[3] + at,
                     .values = (const uint32_t *)r->call->bind[4] + at};
}

static float half_of_word(uint32_t word, size_t i) { return hth_f16_to_f32((uint16_t)(word >> i % 2 * 16)); }
static int32_t byte_of_word(uint32_t word, size_t i) { return (int8_t)(word >> i % 4 * 8); }

static float score_floats(const attend_run *r, const attn_query *l, size_t at)
{
    const float *q = (const float *)r->call->bind[1] + (size_t)l->t * r->push.qkv_stride + l->head * r->d;
    float p[8] = {0};
    for (size_t i = 0; i < r->d; i++) {
        bool halves = r->kv == HEARTH_KV_F16;
        uint32_t word = l->keys[hth_gpu_cache_key_at(r->n_word, at, halves ? i / 2 : i)];
        p[i % 8] += q[i] * (halves ? half_of_word(word, i) : hth_float_of(word));
    }
    return hth_reduce8(p);
}

static float score_rounded(const attend_run *r, const attn_query *l, size_t at)
{
    const uint32_t *rounded = r->call->bind[2];
    size_t first = ((size_t)l->t * r->push.n_head + l->head) * r->d;
    float score = 0.0f;
    for (size_t b = 0; b < r->d / BLOCK; b++) {
        int32_t sum = 0;
        for (size_t i = b * BLOCK; i < (b + 1) * BLOCK; i++)
            sum += byte_of_word(l->keys[hth_gpu_cache_key_at(r->n_word, at, i / 4)], i) *
                   byte_of_word(rounded[(first + i) / 4], i);
        float d_key = hth_float_of(l->keys[hth_gpu_cache_key_at(r->n_word, at, r->d / 4 + b)]);
        score += (d_key * hth_float_of(rounded[r->push.d_at + first / BLOCK + b])) * (float)sum;
    }
    return score;
}

/* Converts scores of n positions to their weights. */
static hth_attn_partial weigh(const attend_run *r, float *x, size_t n)
{
    float p[8] = {0};
    if (r->push.cap != 0.0f) r->k.soft_cap(x, r->push.cap, r->push.inverse_cap, n, x);
    hth_attn_partial part = {.max = x[0]};
    for (size_t j = 1; j < n; j++) part.max = x[j] > part.max ? x[j] : part.max;
    for (size_t j = 0; j < n; j++) x[j] -= part.max;
    r->k.exp(x, n, x);
    for (size_t j = 0; r->kv == HEARTH_KV_F16 && j < n; j++) x[j] = hth_round_to_13_bits(x[j]);
    for (size_t j = 0; j < n; j++) p[j % 8] += x[j];
    part.sum = hth_reduce8(p);
    return part;
}

static void add_value(const attend_run *r, const attn_query *l, size_t at, float weight, float *y)
{
    const uint32_t *words = l->values + hth_gpu_cache_value_at(r->n_word, at, 0);
    for (size_t i = 0; i < r->d; i++) {
        if (r->kv == HEARTH_KV_F16) y[i] += weight * half_of_word(words[i / 2], i);
        else if (r->kv == HEARTH_KV_F32) y[i] += weight * hth_float_of(words[i]);
        else
            y[i] +=
                weight * (hth_float_of(words[r->d / 4 + i / BLOCK]) * (float)byte_of_word(words[i / 4], i));
    }
}

/* One split, to y[d]. */
static hth_attn_partial attend_split(const attend_run *r, const attn_query *l, size_t i_split, float *y)
{
    hth_attn_range seen = hth_attn_visible_range(&l->sees, i_split, 0);
    float weights[HTH_ATTN_SPLIT] = {0};
    size_t n = seen.end - seen.first, places[HTH_ATTN_SPLIT];
    for (size_t j = 0; j < n; j++) {
        places[j] = place_of(r->call->bind[0], l->t, r->push.kv_class, (uint32_t)(seen.first + j));
        float score = r->kv == HEARTH_KV_Q8_0 ? score_rounded(r, l, places[j]) : score_floats(r, l, places[j]);
        weights[j] = score * r->push.scale;
    }
    if (l->sees.slopes) hth_attn_add_slope(&l->sees, 0, 0, seen.first, weights, n);
    hth_attn_partial part = weigh(r, weights, n);
    memset(y, 0, r->d * sizeof *y);
    for (size_t j = 0; j < n; j++) add_value(r, l, places[j], weights[j], y);
    return part;
}

/* Writes each split to its own slot, up to the grid size. */
static void attend_by_split(const attend_run *r, const attn_query *l)
{
    size_t first = hth_attn_first_split(&l->sees), n = hth_attn_last_split(&l->sees) + 1 - first;
    for (size_t i = 0; i < n && i < r->call->grid[0]; i++) {
        size_t to = ((size_t)l->t * r->push.n_split + i) * r->push.n_head + l->head;
        hth_attn_partial part = attend_split(r, l, first + i, (float *)r->call->bind[5] + to * r->d);
        memcpy((float *)r->call->bind[6] + 2 * to, &part, sizeof part);
    }
}

static void attend_whole(const attend_run *r, const attn_query *l)
{
    float values[MAX_D];
    float *y = (float *)r->call->bind[5] + ((size_t)l->t * r->push.n_head + l->head) * r->d;
    size_t last = hth_attn_last_split(&l->sees);
    hth_attn_partial total = {0};
    for (size_t i = hth_attn_first_split(&l->sees); i <= last; i++) {
        hth_attn_partial part = attend_split(r, l, i, values);
        hth_attn_merge(&total, y, &part, values, r->d);
    }
    hth_attn_finalize(&total, y, r->d, l->sees.sinks);
}

void hth_ref_attn(const hth_dispatch_args *call)
{
    attend_run r = {.call = call,
                    .d = call->consts[HTH_ATTN_D_HEAD],
                    .kv = (hearth_kv_type)call->consts[HTH_ATTN_KV]};
    memcpy(&r.push, call->push, sizeof r.push);
    hth_kernels_init(&r.k, HTH_CPU_GENERIC);
    assert(r.d <= MAX_D);
    r.n_word = hth_gpu_cache_words(r.kv, r.d);
    uint32_t n_head = hth_min_u32(call->grid[1] * call->consts[HTH_ATTN_SHARED], r.push.n_head);
    uint32_t n_row = hth_gpu_tokens(call, r.push.first_tok, (uint64_t)call->grid[2] * call->consts[HTH_ATTN_TOKENS]);
    for (uint32_t i = 0; i < n_row; i++) {
        for (uint32_t head = 0; head < n_head; head++) {
            attn_query l = query_of(&r, r.push.first_tok + i, head);
            if (call->consts[HTH_ATTN_BY_SPLIT]) attend_by_split(&r, &l);
            else attend_whole(&r, &l);
        }
    }
}

/* ---- copy_page ---------------------------------------------------------------------------------------- */

void hth_ref_copy_page(const hth_dispatch_args *call)
{
    hth_push_copy_page push;
    memcpy(&push, call->push, sizeof push);
    const uint32_t *copy = (const uint32_t *)call->bind[0] + push.copy_at;
    const size_t n_word[] = {push.n_word, push.n_value_word};
    for (uint32_t head = 0; copy[0] != copy[1] && head < call->grid[1]; head++)
        for (int i = 0; i < 2; i++) {
            uint32_t *words = (uint32_t *)call->bind[i + 1] + (size_t)head * push.head_words;
            memcpy(words + copy[1] * n_word[i], words + copy[0] * n_word[i], n_word[i] * sizeof *words);
        }
}
