/* HEADS and ATTEND of softmax attention. A work unit is a group of tokens at one KV head; in long
 * contexts, one split of its positions. A token's bits depend only on the positions that it sees. */
#include "forward/forward_int.h"

#include "kernels/vector/math.h"

#include <string.h>

/* ---- groups of tokens ------------------------------------------------------------------------ */

/* Maximum tokens of a group: about 64 queries of a KV head in total, and a power of two that divides the 16
 * positions of a cache group. */
size_t hth_fwd_group_queries(const hth_model *model, size_t *n_row)
{
    size_t n_shared = 1;
    for (uint32_t i = 0; i < model->hparams.n_layer; i++) {
        const hth_layer *l = &model->layers[i];
        size_t n = l->attn.n_head_kv > 0 ? l->attn.n_head / l->attn.n_head_kv : 1;
        if (n > n_shared) n_shared = n;
    }
    for (*n_row = HTH_KV_GROUP; *n_row > 1 && *n_row * n_shared > 64;) *n_row /= 2;
    return *n_row * n_shared;
}

void hth_fwd_group(hth_step *s)
{
    s->n_group = 0;
    for (uint32_t i = 0; i < s->n_tok; i++) {
        const hth_batch_token *token = &s->tokens[i];
        bool joins = i > 0 && token->seq == token[-1].seq && token->position == token[-1].position + 1 &&
                     token->position % s->group_rows > 0;
        if (joins) s->groups[s->n_group - 1].n++;
        else s->groups[s->n_group++] = (hth_row_group){i, 1};
    }
}

/* ---- queries, keys and values ------------------------------------------------------------------ */

typedef struct attention_job {
    const hth_step *s;
    const hth_op *op;
    const hth_attention *attn;
    const float *q;              /* [n_tok][q_stride], of which [n_head][d_head] are queries */
    float *y;                    /* [n_tok][n_head][d_head] */
    size_t q_stride;
    size_t first_split, n_split; /* splits of the wave */
    bool is_first, is_last;
} attention_job;

static const hth_attention *attention_of(const hth_step *s, const hth_op *op)
{
    return &s->model->layers[op->layer].attn;
}

static hearth_kv_type kv_type_of(const hth_batch_token *token) { return hth_kv_pool_type(token->seq->pool); }

static void clamp(float *x, size_t n, float limit)
{
    for (size_t i = 0; i < n; i++) x[i] = x[i] > limit ? limit : x[i] < -limit ? -limit : x[i];
}

/* Normalises head i, unless all heads are normalised together. */
static void norm_head(const hth_step *s, const hth_norm *norm, size_t d, uint32_t i, float *x)
{
    const hth_hparams *h = &s->model->hparams;
    float inv_n = 1.0f / (float)d;
    if (!norm->weight || h->qk_norm == HTH_QK_NORM_ALL) return;
    if (h->qk_norm == HTH_QK_NORM_FACTOR) {
        s->k->rms_norm(x, s->model->ones, d, inv_n, h->norm_eps, x);
        if (norm->weight != s->model->ones) s->k->scale(x, norm->weight[i], d, x);
        return;
    }
    const float *weight = norm->weight + (h->qk_norm == HTH_QK_NORM_EACH ? i * d : 0);
    if (h->qk_norm == HTH_QK_NORM_EACH && h->norm == HTH_NORM_LAYER)
        s->k->layer_norm(x, weight, NULL, d, inv_n, h->norm_eps, x);
    else s->k->rms_norm(x, weight, d, inv_n, h->norm_eps, x);
}

/* Normalises and rotates n_head heads of one token, in place. */
static void prepare_heads(const hth_step *s, const hth_attention *a, size_t i_row, const hth_norm *norm,
                          uint32_t n_head, float *x)
{
    const hth_hparams *h = &s->model->hparams;
    const hth_rope_row angles = hth_fwd_rope_row_of(s, hth_fwd_i_table(h, a), i_row);
    size_t d = a->d_head, n_pair = a->rotates ? angles.n_pair : 0;
    if (h->qkv_limit != 0.0f) clamp(x, n_head * d, h->qkv_limit);
    if (norm->weight && h->qk_norm == HTH_QK_NORM_ALL)
        s->k->rms_norm(x, norm->weight, n_head * d, 1.0f / (float)(n_head * d), h->norm_eps, x);
    hth_rope_fn *rotate = h->rope.kind == HTH_ROPE_NEOX ? s->k->rope_neox : s->k->rope_interleaved;
    for (uint32_t i = 0; i < n_head; i++, x += d) {
        if (!h->qk_norm_after) norm_head(s, norm, d, i, x);
        if (n_pair > 0) rotate(x, angles.cosine, angles.sine, n_pair);
        if (h->qk_norm_after) norm_head(s, norm, d, i, x);
    }
}

/* A token's queries and gates, which alternate head by head. */
static void split_gate(const hth_attention *a, const float *from, float *q, float *gate)
{
    size_t d = a->d_head;
    for (size_t i = 0; i < a->n_head; i++, from += 2 * d) {
        memcpy(q + i * d, from, d * sizeof *q);
        memcpy(gate + i * d, from + d, d * sizeof *gate);
    }
}

void hth_fwd_round_queries(const hth_step *s, hth_view q, size_t n_q, size_t i_row)
{
    size_t at = i_row * hth_fwd_width(s, q), block = at / HTH_ACT_BLOCK;
    float *x = hth_fwd_row(s, q, i_row);
    switch (kv_type_of(&s->tokens[i_row])) {
    case HEARTH_KV_F16: hth_attn_round_queries(x, n_q); break;
    case HEARTH_KV_F32: break;
    case HEARTH_KV_Q8_0: s->k->quant_act(x, n_q, s->q_q8 + at, s->q_d + block, s->q_sum + block); break;
    }
}

float hth_fwd_position_factor(const hth_hparams *h, uint32_t position)
{
    double n = (double)((position + h->temperature_offset) / h->temperature_length);
    return (float)(1.0 + (double)h->temperature_scale * hth_log_d(n + 1.0));
}

float hth_fwd_temperature(const hth_step *s, const hth_attention *a, size_t i_row)
{
    const hth_hparams *h = &s->model->hparams;
    bool has = h->temperature_scale != 0.0f && a->has_temperature;
    return has ? hth_fwd_position_factor(h, s->tokens[i_row].position) : 1.0f;
}

/* Values of n_head heads behind one another become as long as keys. */
static void widen(float *to, const float *from, size_t n_head, size_t d, size_t d_value)
{
    for (size_t i = 0; i < n_head; i++, to += d, from += d_value) {
        memcpy(to, from, d_value * sizeof *to);
        memset(to + d_value, 0, (d - d_value) * sizeof *to);
    }
}

/* Prepares a token's keys and values, and stores them in the cache. */
static void store_token(const hth_step *s, const hth_op *op, const hth_attention *a, size_t i_row)
{
    const hth_hparams *h = &s->model->hparams;
    const hth_batch_token *token = &s->tokens[i_row];
    float *k = hth_fwd_row(s, op->out[1], i_row), *v = hth_fwd_row(s, op->out[2], i_row);
    size_t d = a->d_head, n_kv = a->n_head_kv * d;
    if (a->values_are_keys) memcpy(v, k, n_kv * sizeof *v);
    if (a->d_value > 0) widen(v, hth_fwd_row(s, op->in[2], i_row), a->n_head_kv, d, a->d_value);
    if (h->value_scale != 0.0f) s->k->scale(v, h->value_scale, n_kv, v);
    prepare_heads(s, a, i_row, &a->k_norm, a->n_head_kv, k);
    if (h->qkv_limit != 0.0f) clamp(v, n_kv, h->qkv_limit);
    for (size_t i = 0; h->norms_values && i < n_kv; i += d)
        s->k->rms_norm(v + i, s->model->ones, d, 1.0f / (float)d, h->norm_eps, v + i);
    hth_sequence_store(token->seq, s->k, op->layer, token->position, k, v);
}

typedef struct heads_job {
    const hth_step *s;
    const hth_op *op;
} heads_job;

/* Prepares the queries and keys of a group of tokens, and stores its keys and values in the cache. */
static void rotate_and_store(void *arg, size_t i_group, uint32_t i_thread)
{
    (void)i_thread;
    const heads_job *job = arg;
    const hth_step *s = job->s;
    const hth_op *op = job->op;
    const hth_attention *a = attention_of(s, op);
    const hth_row_group *group = &s->groups[i_group];
    size_t n_q = a->n_head * a->d_head;
    for (size_t i = group->first; i < group->first + group->n; i++) {
        float *q = hth_fwd_row(s, op->out[0], i), factor = hth_fwd_temperature(s, a, i);
        if (a->q_has_gate) split_gate(a, hth_fwd_row(s, op->in[0], i), q, hth_fwd_row(s, op->out[3], i));
        prepare_heads(s, a, i, &a->q_norm, a->n_head, q);
        if (factor != 1.0f) s->k->scale(q, factor, n_q, q);
        if (hth_fwd_has(op->out[1])) store_token(s, op, a, i);
        hth_fwd_round_queries(s, op->out[0], n_q, i);
    }
}

hearth_status hth_fwd_heads(hth_step *s, const hth_op *op, hearth_error *err)
{
    heads_job job = {s, op};
    switch (s->model->layers[op->layer].mixer) {
    case HTH_MIXER_LATENT: return hth_fwd_heads_latent(s, op, err);
    case HTH_MIXER_COMPRESSED: return hth_fwd_heads_compressed(s, op, err);
    default: hth_pool_add(s->pool, rotate_and_store, &job, sizeof job, s->n_group); return HEARTH_OK;
    }
}

/* ---- attention -------------------------------------------------------------------------------------- */

/* The first position that a token attends to in chunked attention: the beginning of its chunk. A group lies within one
 * chunk. */
static uint32_t first_position(const hth_attention *a, const hth_batch_token *token)
{
    return a->chunk > 0 ? token->position / a->chunk * a->chunk : 0;
}

/* Query heads that read a KV head. */
static uint32_t n_shared_of(const attention_job *job) { return job->attn->n_head / job->attn->n_head_kv; }

/* Query heads of a unit, all of one KV head. Few tokens are divided further, for all threads: latent
 * attention has one KV head. */
static uint32_t n_head_of_unit(const attention_job *job)
{
    uint32_t n = n_shared_of(job);
    return job->s->n_tok > HTH_SPLIT_ROWS || n < HTH_UNIT_HEADS ? n : HTH_UNIT_HEADS;
}

/* Units of a KV head, and of a group of tokens. */
static uint32_t n_unit_of_kv(const attention_job *job)
{
    return (n_shared_of(job) + n_head_of_unit(job) - 1) / n_head_of_unit(job);
}
static uint32_t n_unit_of_group(const attention_job *job) { return n_unit_of_kv(job) * job->attn->n_head_kv; }

/* The attention arguments of a group of tokens at the query heads of a unit. */
static hth_attn attend_job(const attention_job *job, const hth_row_group *group, uint32_t i_unit,
                           uint32_t i_thread)
{
    const hth_step *s = job->s;
    const hth_hparams *h = &s->model->hparams;
    const hth_batch_token *token = &s->tokens[group->first];
    uint32_t i_kv = i_unit / n_unit_of_kv(job), n_shared = n_shared_of(job), size = n_head_of_unit(job),
             i_shared = i_unit % n_unit_of_kv(job) * size;
    hth_kv_head kv = hth_sequence_head(token->seq, job->attn->kv_layer, i_kv);
    size_t d = job->attn->d_head, i_head = i_kv * n_shared + i_shared,
           at = group->first * job->q_stride + i_head * d, first = first_position(job->attn, token);
    const uint8_t *const *pages = kv.pages + first / HTH_KV_PAGE;
    return (hth_attn){
        .k_pages = pages,
        .v_pages = pages,
        .k_offset = kv.offset,
        .v_offset = kv.offset + kv.values_offset,
        .d_head = d,
        .n_row = group->n,
        .n_head = n_shared - i_shared < size ? n_shared - i_shared : size,
        .n_pos = (size_t)token->position + 1 - first,
        .window = job->attn->window,
        .q = job->q + at,
        .q_q8 = {.q = s->q_q8 + at, .d = s->q_d + at / HTH_ACT_BLOCK, .sum = s->q_sum + at / HTH_ACT_BLOCK},
        .q_stride = job->q_stride,
        .scale = h->score_scale,
        .cap = h->attn_softcap,
        .inverse_cap = h->attn_softcap != 0.0f ? 1.0f / h->attn_softcap : 0.0f,
        .slopes = job->attn->slopes ? job->attn->slopes + i_head : NULL,
        .sinks = job->attn->sinks ? job->attn->sinks + i_head : NULL,
        .scratch = s->scratch + i_thread * s->n_scratch,
        .out_stride = job->attn->n_head};
}

/* The first head of these arguments, among those of all tokens. */
static size_t i_head_of(const attention_job *job, const hth_attn *attend)
{
    size_t at = (size_t)(attend->q - job->q);
    return at / job->q_stride * job->attn->n_head + at % job->q_stride / attend->d_head;
}

/* All splits at once: for many tokens, or few positions. */
static void attend_group(void *arg, size_t i_unit, uint32_t i_thread)
{
    const attention_job *job = arg;
    const hth_step *s = job->s;
    uint32_t n_unit = n_unit_of_group(job);
    const hth_row_group *group = &s->groups[i_unit / n_unit];
    hth_attn attend = attend_job(job, group, (uint32_t)(i_unit % n_unit), i_thread);
    hth_attn_all_splits(s->k, kv_type_of(&s->tokens[group->first]), &attend, NULL,
                        job->y + i_head_of(job, &attend) * attend.d_head);
}

/* ---- one split at a time ------------------------------------------------------------------- */

/* One split of a group at the heads of a unit. Splits run in waves, limited by the capacity for their results. */
static void attend_split(void *arg, size_t i_unit, uint32_t i_thread)
{
    const attention_job *job = arg;
    const hth_step *s = job->s;
    uint32_t n_unit = n_unit_of_group(job);
    size_t i_wave = i_unit % job->n_split, i_heads = i_unit / job->n_split;
    const hth_row_group *group = &s->groups[i_heads / n_unit];
    hth_attn attend = attend_job(job, group, (uint32_t)(i_heads % n_unit), i_thread);
    size_t i_split = job->first_split + i_wave, at = i_head_of(job, &attend);
    at += i_wave * s->n_tok * job->attn->n_head;
    attend.values = s->split_values + at * attend.d_head;
    attend.partials = s->split_partials + at;
    if (i_split >= hth_attn_first_split(&attend) && i_split <= hth_attn_last_split(&attend)) {
        s->k->attn[kv_type_of(&s->tokens[group->first])](&attend, i_split);
        return;
    }
    for (size_t i = 0; i < group->n; i++)
        memset(attend.partials + i * attend.out_stride, 0, attend.n_head * sizeof *attend.partials);
}

/* Merges the splits of a wave, ascending, into the result of earlier waves, for one head of one token. */
static void merge_wave(void *arg, size_t i_head, uint32_t i_thread)
{
    (void)i_thread;
    const attention_job *job = arg;
    const hth_step *s = job->s;
    size_t d = job->attn->d_head, n_head = (size_t)s->n_tok * job->attn->n_head;
    float *y = job->y + i_head * d;
    hth_attn_partial *total = &s->split_totals[i_head];
    if (job->is_first) *total = (hth_attn_partial){0};
    for (size_t i = 0, at = i_head; i < job->n_split; i++, at += n_head)
        hth_attn_merge(total, y, &s->split_partials[at], s->split_values + at * d, d);
    if (job->is_last)
        hth_attn_finalize(total, y, d,
                          job->attn->sinks ? job->attn->sinks + i_head % job->attn->n_head : NULL);
}

/* The splits that any token of the step sees, [first, end). */
static void find_splits(const attention_job *job, size_t *first, size_t *end)
{
    const hth_step *s = job->s;
    *first = SIZE_MAX, *end = 0;
    for (uint32_t i = 0; i < s->n_group; i++) {
        const hth_row_group *group = &s->groups[i];
        const hth_batch_token *token = &s->tokens[group->first];
        hth_attn seen = {.n_pos = (size_t)token->position + 1 - first_position(job->attn, token),
                         .n_row = group->n,
                         .window = job->attn->window};
        size_t a = hth_attn_first_split(&seen), b = hth_attn_last_split(&seen) + 1;
        if (a < *first) *first = a;
        if (b > *end) *end = b;
    }
}

static void attend_all(attention_job *job)
{
    const hth_step *s = job->s;
    size_t first, end, n_unit = (size_t)s->n_group * n_unit_of_group(job);
    find_splits(job, &first, &end);
    if (s->n_tok > HTH_SPLIT_ROWS || end - first == 1) {
        hth_pool_add(s->pool, attend_group, job, sizeof *job, n_unit);
        return;
    }
    size_t capacity = HTH_SPLIT_SCRATCH / s->n_tok;
    for (size_t at = first; at < end; at += job->n_split) {
        job->first_split = at;
        job->n_split = end - at < capacity ? end - at : capacity;
        job->is_first = at == first;
        job->is_last = at + job->n_split == end;
        hth_pool_add(s->pool, attend_split, job, sizeof *job, n_unit * job->n_split);
        hth_pool_add(s->pool, merge_wave, job, sizeof *job, (size_t)s->n_tok * job->attn->n_head);
    }
}

/* Rounds the queries of a token in place, or quantises them: latent attention has made them since HEADS. No other
 * operation may read them. */
static void round_row(void *arg, size_t t, uint32_t i_thread)
{
    const attention_job *job = arg;
    (void)i_thread;
    hth_fwd_round_queries(job->s, job->op->in[0], (size_t)job->attn->n_head * job->attn->d_head, t);
}

hearth_status hth_fwd_attend(hth_step *s, const hth_op *op, hearth_error *err)
{
    const hth_attention *a = attention_of(s, op);
    attention_job job = {.s = s,
                         .op = op,
                         .attn = a,
                         .q = hth_fwd_row(s, op->in[0], 0),
                         .y = hth_fwd_row(s, op->out[0], 0),
                         .q_stride = hth_fwd_width(s, op->in[0])};
    hth_mixer_kind kind = s->model->layers[op->layer].mixer;
    if (kind == HTH_MIXER_COMPRESSED) return hth_fwd_attend_compressed(s, op, err);
    if (kind == HTH_MIXER_LATENT) hth_pool_add(s->pool, round_row, &job, sizeof job, s->n_tok);
    attend_all(&job);
    return HEARTH_OK;
}
