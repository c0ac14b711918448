/* The attention block of a layer, and the rotation (RoPE) of its queries and keys. step.c calls it once per layer.
 * A work unit is a group of tokens at one KV head; in long contexts, one split of its positions. A token's bits
 * depend only on the positions that it sees. */
#include "forward/forward_int.h"

#include "kernels/vector/math.h"

#include <assert.h>
#include <string.h>

/* ---- rotation --------------------------------------------------------------------------- */

static double clamp01(double x) { return x < 0.0 ? 0.0 : x > 1.0 ? 1.0 : x; }

static double ceil_of(double x)
{
    double n = (double)(int64_t)x;
    return n < x ? n + 1.0 : n;
}

/* The pair index whose wavelength fits r times into the original context (Peng et al. 2023, YaRN, section 3.2). */
static double pair_of_rotations(const hth_rope *rope, double r)
{
    const double two_pi = 6.283185307179586477;
    return rope->n_rot * hth_log_d(rope->n_ctx_original / (two_pi * r)) / (2.0 * hth_log_d(rope->base));
}

/* Weight of pair i's unscaled frequency under YaRN, 0 to 1; the rest is scaled. */
static double yarn_keep(const hth_rope *rope, uint32_t i)
{
    double low = pair_of_rotations(rope, rope->beta_fast), high = pair_of_rotations(rope, rope->beta_slow);
    low = low < 0.0 ? 0.0 : (double)(int64_t)low;
    high = ceil_of(high);
    if (high > rope->n_rot - 1.0) high = rope->n_rot - 1.0;
    double width = high - low < 0.001 ? 0.001 : high - low;
    return 1.0 - clamp01((i - low) / width);
}

/* Whether pair i has the position of the text. */
static bool has_position(const hth_rope *rope, uint32_t i)
{
    const uint32_t *n = rope->sections;
    uint32_t all = n[0] + n[1] + n[2] + n[3];
    if (rope->section_rule == HTH_SECTIONS_NONE || all == 0) return true;
    uint32_t at = i % all;
    if (rope->section_rule == HTH_SECTIONS_BLOCKS) return at < n[0] + n[1] + n[2];
    return at < 3 * n[at % 3];
}

static void fill_frequencies(const hth_rope *rope, const float *factors, double *frequency)
{
    for (uint32_t i = 0; i < rope->n_rot / 2; i++) {
        double theta = has_position(rope, i) ? hth_pow_d(rope->base, -2.0 * i / rope->n_rot) : 0.0;
        if (factors) theta /= (double)factors[i];
        double keep = rope->scaling == HTH_SCALING_YARN ? yarn_keep(rope, i) : 0.0;
        frequency[i] = keep * theta + (1.0 - keep) * (theta / rope->factor);
    }
}

void hth_fwd_rope_init(hth_step *s)
{
    const hth_rope *rope = &s->model->hparams.rope;
    size_t n_pair = hth_fwd_max_pair(&s->model->hparams);
    const float *factors = s->model->rope_factors, *far = s->model->rope_factors_long;
    fill_frequencies(rope, factors, s->frequency);
    fill_frequencies(rope, far ? far : factors, s->frequency + n_pair);
    if (s->n_table == 2) {
        hth_rope near = *rope;
        near.n_rot = rope->window_n_rot;
        bool unscaled = s->model->hparams.rope.window_unscaled;
        if (rope->window_base > 0.0) near.base = rope->window_base;
        if (unscaled) near.scaling = HTH_SCALING_NONE, near.factor = 1.0, factors = far = NULL;
        fill_frequencies(&near, factors, s->frequency + 2 * n_pair);
        fill_frequencies(&near, far ? far : factors, s->frequency + 3 * n_pair);
    }
    s->rope_scale = (float)rope->magnitude;
}

/* The table entries of one token. The length of its cache selects the frequency factors, so that all its keys
 * rotate alike. */
static void rope_table_row(void *arg, size_t i_row, uint32_t i_thread)
{
    (void)i_thread;
    hth_step *s = arg;
    const hth_rope *rope = &s->model->hparams.rope;
    const hth_batch_token *token = &s->tokens[i_row];
    size_t max_pair = hth_fwd_max_pair(&s->model->hparams),
           far = token->seq->options.n_ctx > rope->n_ctx_original ? max_pair : 0;
    for (uint32_t t = 0; t < s->n_table; t++) {
        size_t n_pair = (t > 0 ? rope->window_n_rot : rope->n_rot) / 2;
        const double *frequency = s->frequency + t * 2 * max_pair + far;
        float scale = t > 0 && s->model->hparams.rope.window_unscaled ? 1.0f : s->rope_scale;
        size_t at = (t * (size_t)s->n_tok_max + i_row) * max_pair;
        for (size_t i = 0; i < n_pair; i++) {
            double sin_d, cos_d;
            hth_sincos_d(token->position * frequency[i], &sin_d, &cos_d);
            s->cosine[at + i] = (float)cos_d * scale;
            s->sine[at + i] = (float)sin_d * scale;
        }
    }
}

void hth_fwd_rope_tables(hth_step *s)
{
    if (s->model->hparams.rope.n_rot > 0) hth_pool_add(s->pool, rope_table_row, s, 0, s->n_tok);
}

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

/* ---- the attention block ------------------------------------------------------------------- */

typedef struct attention_job {
    hth_step *s;
    const hth_attention *attn;
    uint32_t i_layer;
    size_t first_split, n_split; /* of the wave */
    bool is_first, is_last;
} attention_job;

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
static void prepare_heads(const attention_job *job, size_t i_row, const hth_norm *norm, uint32_t n_head,
                          float *x)
{
    hth_step *s = job->s;
    const hth_hparams *h = &s->model->hparams;
    uint32_t i_table = hth_fwd_i_table(h, job->attn);
    size_t d = job->attn->d_head, n_pair = (i_table > 0 ? h->rope.window_n_rot : h->rope.n_rot) / 2;
    size_t at = (i_table * (size_t)s->n_tok_max + i_row) * hth_fwd_max_pair(h);
    if (!job->attn->rotates) n_pair = 0;
    if (h->qkv_limit != 0.0f) clamp(x, n_head * d, h->qkv_limit);
    if (norm->weight && h->qk_norm == HTH_QK_NORM_ALL)
        s->k->rms_norm(x, norm->weight, n_head * d, 1.0f / (float)(n_head * d), h->norm_eps, x);
    hth_rope_fn *rotate = h->rope.kind == HTH_ROPE_NEOX ? s->k->rope_neox : s->k->rope_interleaved;
    for (uint32_t i = 0; i < n_head; i++, x += d) {
        if (!h->qk_norm_after) norm_head(s, norm, d, i, x);
        if (n_pair > 0) rotate(x, s->cosine + at, s->sine + at, n_pair);
        if (h->qk_norm_after) norm_head(s, norm, d, i, x);
    }
}

/* A token's queries and gates, which alternate head by head. */
static void split_gate(hth_step *s, const hth_attention *a, size_t i_row)
{
    size_t d = a->d_head, n_q = a->n_head * d;
    const float *from = s->q_gate + i_row * 2 * n_q;
    float *q = s->q + i_row * n_q, *gate = s->attn_gate + i_row * n_q;
    for (size_t i = 0; i < a->n_head; i++, from += 2 * d) {
        memcpy(q + i * d, from, d * sizeof *q);
        memcpy(gate + i * d, from + d, d * sizeof *gate);
    }
}

void hth_fwd_quantize_queries(hth_step *s, const hth_attention *a, size_t i_row)
{
    size_t n_q = a->n_head * a->d_head, at = i_row * n_q, block = at / HTH_ACT_BLOCK;
    s->k->quant_act(s->q + at, n_q, s->q_q8 + at, s->q_d + block, s->q_sum + block);
}

float hth_fwd_temperature(const hth_step *s, const hth_attention *a, size_t i_row)
{
    const hth_hparams *h = &s->model->hparams;
    if (h->temperature_scale == 0.0f || !a->has_temperature) return 1.0f;
    double n = (double)((s->tokens[i_row].position + h->temperature_offset) / h->temperature_length);
    return (float)(1.0 + (double)h->temperature_scale * hth_log_d(n + 1.0));
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
static void store_token(const attention_job *job, size_t i_row, float *k, float *v)
{
    hth_step *s = job->s;
    const hth_hparams *h = &s->model->hparams;
    const hth_attention *a = job->attn;
    const hth_batch_token *token = &s->tokens[i_row];
    size_t d = a->d_head, n_kv = a->n_head_kv * d;
    if (a->values_are_keys) memcpy(v, k, n_kv * sizeof *v);
    if (a->d_value > 0) widen(v, s->attn_out + i_row * a->v.n_row, a->n_head_kv, d, a->d_value);
    if (h->value_scale != 0.0f) s->k->scale(v, h->value_scale, n_kv, v);
    prepare_heads(job, i_row, &a->k_norm, a->n_head_kv, k);
    if (h->qkv_limit != 0.0f) clamp(v, n_kv, h->qkv_limit);
    for (size_t i = 0; h->norms_values && i < n_kv; i += d)
        s->k->rms_norm(v + i, s->model->ones, d, 1.0f / (float)d, h->norm_eps, v + i);
    hth_sequence_store(token->seq, s->k, job->i_layer, token->position, k, v);
}

/* Prepares the queries and keys of a group of tokens, and stores its keys and values in the cache. */
static void rotate_and_store(void *arg, size_t i_group, uint32_t i_thread)
{
    (void)i_thread;
    const attention_job *job = arg;
    hth_step *s = job->s;
    const hth_attention *a = job->attn;
    const hth_row_group *group = &s->groups[i_group];
    size_t d = a->d_head, n_kv = a->n_head_kv * d, n_q = a->n_head * d;
    bool own = a->kv_layer == job->i_layer;
    for (size_t i = group->first; i < group->first + group->n; i++) {
        float *k = s->kv + i * n_kv, *v = s->kv + (s->n_tok + i) * n_kv, *q = s->q + i * n_q;
        if (a->q_has_gate) split_gate(s, a, i);
        prepare_heads(job, i, &a->q_norm, a->n_head, q);
        float factor = hth_fwd_temperature(s, a, i);
        if (factor != 1.0f) s->k->scale(q, factor, n_q, q);
        if (own) store_token(job, i, k, v);
        if (kv_type_of(&s->tokens[i]) == HEARTH_KV_Q8_0) hth_fwd_quantize_queries(s, a, i);
    }
}

/* Where the chunk of a token begins: what comes before does not exist for it. Groups lie within chunks. */
static uint32_t first_position(const hth_attention *a, const hth_batch_token *token)
{
    return a->chunk > 0 ? token->position / a->chunk * a->chunk : 0;
}

/* Query heads that read a KV head. */
static uint32_t n_shared_of(const attention_job *job) { return job->attn->n_head / job->attn->n_head_kv; }

/* Query heads of a unit, all of one KV head. Few tokens are divided further, for all threads: latent attention has one
 * KV head. */
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
    hth_step *s = job->s;
    const hth_hparams *h = &s->model->hparams;
    const hth_batch_token *token = &s->tokens[group->first];
    uint32_t i_kv = i_unit / n_unit_of_kv(job), n_shared = n_shared_of(job), size = n_head_of_unit(job),
             i_shared = i_unit % n_unit_of_kv(job) * size;
    hth_kv_head kv = hth_sequence_head(token->seq, job->attn->kv_layer, i_kv);
    size_t d = job->attn->d_head, n_head = job->attn->n_head, i_head = i_kv * n_shared + i_shared;
    size_t at = (group->first * n_head + i_head) * d, first = first_position(job->attn, token);
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
        .q = s->q + at,
        .q_q8 = {.q = s->q_q8 + at, .d = s->q_d + at / HTH_ACT_BLOCK, .sum = s->q_sum + at / HTH_ACT_BLOCK},
        .q_stride = n_head * d,
        .scale = h->score_scale,
        .cap = h->attn_softcap,
        .inverse_cap = h->attn_softcap != 0.0f ? 1.0f / h->attn_softcap : 0.0f,
        .slopes = job->attn->slopes ? job->attn->slopes + i_head : NULL,
        .sinks = job->attn->sinks ? job->attn->sinks + i_head : NULL,
        .scratch = s->scratch + i_thread * s->n_scratch,
        .out_stride = n_head};
}

/* All splits at once: for many tokens, or few positions. */
static void attend_group(void *arg, size_t i_unit, uint32_t i_thread)
{
    const attention_job *job = arg;
    hth_step *s = job->s;
    uint32_t n_unit = n_unit_of_group(job);
    const hth_row_group *group = &s->groups[i_unit / n_unit];
    hth_attn attend = attend_job(job, group, (uint32_t)(i_unit % n_unit), i_thread);
    hth_attn_all_splits(s->k, kv_type_of(&s->tokens[group->first]), &attend, NULL, s->attn_out + (attend.q - s->q));
}

/* ---- one split at a time ------------------------------------------------------------------- */

/* One split of a group at the heads of a unit. Splits run in waves, limited by the capacity for their results. */
static void attend_split(void *arg, size_t i_unit, uint32_t i_thread)
{
    const attention_job *job = arg;
    hth_step *s = job->s;
    uint32_t n_unit = n_unit_of_group(job);
    size_t i_wave = i_unit % job->n_split, i_heads = i_unit / job->n_split;
    const hth_row_group *group = &s->groups[i_heads / n_unit];
    hth_attn attend = attend_job(job, group, (uint32_t)(i_heads % n_unit), i_thread);
    size_t i_split = job->first_split + i_wave, at = (size_t)(attend.q - s->q) / attend.d_head;
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
    hth_step *s = job->s;
    size_t d = job->attn->d_head, n_head = (size_t)s->n_tok * job->attn->n_head;
    float *y = s->attn_out + i_head * d;
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
    hth_step *s = job->s;
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

/* Multiplies the results of a token's heads y[n_head][d_head] by their gates. */
static void gate_heads(const hth_step *s, const hth_attention *a, size_t i_row, float *y)
{
    size_t d = a->d_head, n = a->n_head * d, n_gate = a->q_has_gate ? n : a->gate.n_row;
    float *gate = s->attn_gate + i_row * n_gate;
    bool softplus = s->model->hparams.gate_softplus;
    if (softplus) s->k->softplus(gate, n_gate, gate);
    if (softplus && n_gate == n) {
        s->k->mul(gate, y, n, y);
        return;
    }
    if (n_gate == n) {
        s->k->gate_sigmoid(gate, y, n, y);
        return;
    }
    if (!softplus) s->k->sigmoid(gate, n_gate, gate);
    for (size_t h = 0; h < n_gate; h++) s->k->scale(y + h * d, gate[h], d, y + h * d);
}

static void gate_row(const void *arg, size_t t)
{
    const hth_fwd_layer_arg *g = arg;
    const hth_attention *a = &g->layer->attn;
    gate_heads(g->s, a, t, g->s->attn_out + t * a->n_head * a->d_head);
}

/* Puts the results of heads together, whose ends are zero where values are narrow. Queries are no longer needed. */
static void narrow_row(const void *arg, size_t t)
{
    const hth_fwd_layer_arg *g = arg;
    const hth_attention *a = &g->layer->attn;
    size_t n_head = a->n_head, d = a->d_head, d_value = a->d_value;
    const float *from = g->s->attn_out + t * n_head * d;
    float *to = g->s->q + t * n_head * d_value;
    for (size_t i = 0; i < n_head; i++) memcpy(to + i * d_value, from + i * d, d_value * sizeof *to);
}

void hth_fwd_attend(hth_step *s, const hth_attention *a, uint32_t i_layer)
{
    attention_job job = {.s = s, .attn = a, .i_layer = i_layer};
    attend_all(&job);
}

hearth_status hth_fwd_attention(hth_step *s, uint32_t i_layer, float *add_to, hearth_error *err)
{
    (void)err;
    const hth_layer *l = &s->model->layers[i_layer];
    const hth_attention *a = &l->attn;
    size_t n_kv = (size_t)a->n_head_kv * a->d_head;
    const hth_norm *norm = l->mixer_norm.weight ? &l->mixer_norm : &l->ffn_norm;
    hth_fwd_norm_rows rows = {s, norm, s->x, s->x_norm};
    hth_fusion fusion = {.prepare = hth_fwd_norm_row, .prepare_arg = &rows};
    bool is_gated = a->q_has_gate || a->gate.n_row > 0, is_narrow = a->d_value > 0;
    const hth_output all[] = {{.matrix = &a->q, .bias = a->q_bias, .y = a->q_has_gate ? s->q_gate : s->q},
                              {.matrix = &a->k, .bias = a->k_bias, .y = s->kv},
                              {.matrix = &a->v, .bias = a->v_bias, .y = is_narrow ? s->attn_out : s->kv + s->n_tok * n_kv},
                              {.matrix = &a->gate, .y = s->attn_gate}};
    hth_output outputs[4];
    size_t n_output = 0;
    for (int i = 0; i < 4; i++)
        if (all[i].matrix->n_row > 0) outputs[n_output++] = all[i];
    hth_product_add(s->k, s->pool, &s->act_q8, s->x_norm, s->n_tok, outputs, n_output, &fusion);

    /* All new keys must be in the cache before any token reads it. */
    attention_job job = {.s = s, .attn = a, .i_layer = i_layer};
    hth_pool_add(s->pool, rotate_and_store, &job, sizeof job, s->n_group);
    attend_all(&job);

    hth_output o = {.matrix = &a->o, .bias = a->o_bias, .y = s->block_out, .add_to = add_to};
    assert(!(is_gated && is_narrow)); /* no architecture has both */
    hth_fwd_layer_arg g = {.s = s, .layer = l};
    hth_fusion prepared = {.prepare = is_narrow ? narrow_row : gate_row, .prepare_arg = &g};
    hth_product_add(s->k, s->pool, &s->act_q8, is_narrow ? s->q : s->attn_out, s->n_tok, &o, 1,
                    is_gated || is_narrow ? &prepared : NULL);
    return HEARTH_OK;
}
