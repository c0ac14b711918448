/* Attention over one split in C: the definition (docs/arithmetic.md 5 and 7). It reads each key from the cache,
 * scores it against every query that sees it, converts the scores to weights, and then sums the values one by
 * one. */
#include "kernels/attn/attn.h"
#include "kernels/isa.h"
#include "kernels/reduce.h"
#include "kernels/vector/vector_math.h"

/* Offsets of query q = i_row * n_head + i_head of the job in its inputs and results. */
static size_t row_of(const hth_attn *job, size_t q) { return q / job->n_head; }
static size_t at_query(const hth_attn *job, size_t q)
{
    return row_of(job, q) * job->q_stride + q % job->n_head * job->d_head;
}
static size_t at_result(const hth_attn *job, size_t q)
{
    return row_of(job, q) * job->out_stride + q % job->n_head;
}

static bool sees(const hth_attn *job, size_t i_split, size_t q, size_t position)
{
    hth_attn_range r = hth_attn_visible_range(job, i_split, row_of(job, q));
    return position >= r.first && position < r.end;
}

/* ---- reading the cache --------------------------------------------------------------- */

static float element(hearth_kv_type type, const uint8_t *group, size_t i)
{
    return type == HEARTH_KV_F16 ? hth_f16_to_f32(hth_load_u16(group + 2 * i)) : hth_load_f32(group + 4 * i);
}

/* The key of a position as floats. For a Q8_0 cache: its integers, followed by the scales. */
static void read_key(hearth_kv_type type, const hth_attn *job, size_t position, float *key)
{
    size_t d = job->d_head, lane = position % HTH_KV_GROUP;
    const uint8_t *group = hth_attn_key_group(job, position, hth_kv_layout_group_size(type, d));
    if (type != HEARTH_KV_Q8_0) {
        for (size_t i = 0; i < d; i++) key[i] = element(type, group, i * HTH_KV_GROUP + lane);
        return;
    }
    const uint8_t *scales = group + HTH_KV_GROUP * d;
    for (size_t i = 0; i < d; i++) key[i] = (int8_t)group[(i / 4 * HTH_KV_GROUP + lane) * 4 + i % 4];
    for (size_t b = 0; b < d / HTH_ACT_BLOCK; b++)
        key[d + b] = hth_bf16_to_f32(hth_load_u16(scales + (b * HTH_KV_GROUP + lane) * 2));
}

static void read_value(hearth_kv_type type, const hth_attn *job, size_t position, float *value)
{
    size_t d = job->d_head, lane = position % HTH_KV_GROUP;
    const uint8_t *group = hth_attn_value_group(job, position, hth_kv_layout_group_size(type, d));
    if (type != HEARTH_KV_Q8_0) {
        for (size_t i = 0; i < d; i++) value[i] = element(type, group, lane * d + i);
        return;
    }
    const uint8_t *scales = group + HTH_KV_GROUP * d + lane * (d / HTH_ACT_BLOCK) * 2;
    for (size_t i = 0; i < d; i++)
        value[i] = hth_bf16_to_f32(hth_load_u16(scales + i / HTH_ACT_BLOCK * 2)) *
                   (float)(int8_t)group[lane * d + i];
}

/* ---- scores, weights, values ----------------------------------------------------------- */

static float score_floats(const float *q, const float *key, size_t d)
{
    float p[8] = {0};
    for (size_t i = 0; i < d; i++) p[i % 8] += q[i] * key[i];
    return hth_reduce8(p);
}

/* Key and query are integers with one scale per 32. Blocks ascend. */
static float score_rounded(const int8_t *q, const float *q_d, const float *key, size_t d)
{
    float score = 0.0f;
    for (size_t b = 0; b < d / HTH_ACT_BLOCK; b++) {
        int32_t sum = 0;
        for (size_t i = b * HTH_ACT_BLOCK; i < (b + 1) * HTH_ACT_BLOCK; i++) sum += (int32_t)key[i] * q[i];
        score += (key[d + b] * q_d[b]) * (float)sum;
    }
    return score;
}

/* Replaces the scores by exp(score - max), rounded for an F16 cache: products with its values are exact. */
static hth_attn_partial weigh(const hth_attn *job, hearth_kv_type type, float *x, size_t n)
{
    hth_attn_partial part = {.max = 0.0f, .sum = 0.0f};
    float p[8] = {0};
    if (job->cap != 0.0f)
        for (size_t j = 0; j < n; j++) x[j] = v8_tanh(v8_set(x[j] * job->inverse_cap))[0] * job->cap;
    part.max = x[0];
    for (size_t j = 1; j < n; j++) part.max = x[j] > part.max ? x[j] : part.max;
    for (size_t j = 0; j < n; j++) {
        x[j] = one_exp(x[j] - part.max);
        if (type == HEARTH_KV_F16) x[j] = hth_round_to_13_bits(x[j]);
        p[j % 8] += x[j];
    }
    part.sum = hth_reduce8(p);
    return part;
}

static void attend(const hth_attn *job, size_t i_split, hearth_kv_type type)
{
    size_t d = job->d_head, n_query = job->n_row * job->n_head, start = i_split * HTH_ATTN_SPLIT;
    size_t end = hth_attn_visible_range(job, i_split, job->n_row - 1).end;
    float *weights = job->scratch, *read = weights + n_query * HTH_ATTN_SPLIT;
    for (size_t position = hth_attn_visible_range(job, i_split, 0).first; position < end; position++) {
        read_key(type, job, position, read);
        for (size_t q = 0; q < n_query; q++) {
            if (!sees(job, i_split, q, position)) continue;
            size_t at = at_query(job, q);
            float score =
                type != HEARTH_KV_Q8_0
                    ? score_floats(job->q + at, read, d)
                    : score_rounded(job->q_q8.q + at, job->q_q8.d + at / HTH_ACT_BLOCK, read, d);
            weights[q * HTH_ATTN_SPLIT + position - start] = score * job->scale;
        }
    }
    for (size_t q = 0; q < n_query; q++) {
        hth_attn_range r = hth_attn_visible_range(job, i_split, row_of(job, q));
        size_t at = at_result(job, q);
        job->partials[at] = (hth_attn_partial){0};
        memset(job->values + at * d, 0, d * sizeof(float));
        float *x = weights + q * HTH_ATTN_SPLIT + (r.first - start);
        if (job->slopes && r.first < r.end)
            hth_attn_add_slope(job, q % job->n_head, row_of(job, q), r.first, x, r.end - r.first);
        if (r.first < r.end) job->partials[at] = weigh(job, type, x, r.end - r.first);
    }
    for (size_t position = hth_attn_visible_range(job, i_split, 0).first; position < end; position++) {
        read_value(type, job, position, read);
        for (size_t q = 0; q < n_query; q++) {
            if (!sees(job, i_split, q, position)) continue;
            float w = weights[q * HTH_ATTN_SPLIT + position - start];
            float *values = job->values + at_result(job, q) * d;
            for (size_t i = 0; i < d; i++) values[i] += w * read[i];
        }
    }
}

static void attend_f16(const hth_attn *job, size_t i_split) { attend(job, i_split, HEARTH_KV_F16); }
static void attend_f32(const hth_attn *job, size_t i_split) { attend(job, i_split, HEARTH_KV_F32); }
static void attend_q8_0(const hth_attn *job, size_t i_split) { attend(job, i_split, HEARTH_KV_Q8_0); }

void hth_kernels_attn_ref(hth_kernels *k)
{
    k->attn[HEARTH_KV_F16] = attend_f16;
    k->attn[HEARTH_KV_F32] = attend_f32;
    k->attn[HEARTH_KV_Q8_0] = attend_q8_0;
}
