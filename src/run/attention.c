/* The attention block of a layer, the rotation of its queries and keys, and the
 * cache that it reads and writes. Called by step.c once per layer. Each head of
 * each row is one unit of work; its bits depend on the positions that it sees. */
#include "run/run_int.h"

#include "base/checked.h"
#include "kernels/math.h"

#include <string.h>

/* ---- the cache ------------------------------------------------------------------------ */

static size_t element_size(hearth_kv_type type) { return type == HEARTH_KV_F16 ? 2 : 4; }

bool hth_kv_size(const hth_model *model, hearth_kv_type type, uint32_t n_ctx, size_t *size)
{
    size_t n_head = 0, n;
    for (uint32_t i = 0; i < model->hparams.n_layer; i++) n_head += model->layers[i].n_head_kv;
    if (!hth_mul_size(n_head, (size_t)model->hparams.d_head * 2 * element_size(type), &n)) return false;
    return hth_mul_size(n, n_ctx, size);
}

hearth_status hth_kv_open(hth_kv *kv, const hth_model *model, hearth_kv_type type, uint32_t n_ctx,
                          hearth_error *err)
{
    uint32_t n_layer = model->hparams.n_layer;
    *kv = (hth_kv){.type = type, .n_ctx = n_ctx, .element_size = element_size(type)};
    if (!hth_kv_size(model, type, n_ctx, &kv->size))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "a context of %u positions overflows; ask for less with -c", n_ctx);
    kv->layer_at = hth_alloc(n_layer, sizeof *kv->layer_at);
    kv->memory = kv->layer_at ? hth_pages_alloc(kv->size) : NULL;
    if (!kv->memory) {
        size_t size = kv->size;
        hth_kv_close(kv);
        return hth_fail(err, HEARTH_ERROR_MEMORY,
                        "out of memory: %zu bytes for a context of %u positions; ask for less with -c", size,
                        n_ctx);
    }
    size_t at = 0;
    for (uint32_t i = 0; i < n_layer; i++) {
        kv->layer_at[i] = at;
        at += (size_t)model->layers[i].n_head_kv * n_ctx * model->hparams.d_head * 2 * kv->element_size;
    }
    return HEARTH_OK;
}

void hth_kv_close(hth_kv *kv)
{
    hth_pages_free(kv->memory, kv->size);
    hth_free(kv->layer_at);
    *kv = (hth_kv){0};
}

/* Where KV head i_head of a layer begins; values lie behind all keys. */
static uint8_t *head_at(const hth_kv *kv, const hth_model *model, uint32_t i_layer, uint32_t i_head,
                        bool values)
{
    size_t head = (size_t)kv->n_ctx * model->hparams.d_head * kv->element_size;
    size_t behind = values ? model->layers[i_layer].n_head_kv * head : 0;
    return kv->memory + kv->layer_at[i_layer] + behind + i_head * head;
}

/* Appends one row's keys or values, head by head. */
static void store_row(const hth_step *s, const hth_row *row, uint32_t i_layer, const float *x, bool values)
{
    size_t d = s->model->hparams.d_head, at = row->position * d;
    for (uint32_t i = 0; i < s->model->layers[i_layer].n_head_kv; i++, x += d) {
        uint8_t *head = head_at(row->kv, s->model, i_layer, i, values);
        if (row->kv->type == HEARTH_KV_F16) {
            s->k->to_f16(x, d, (uint16_t *)(void *)head + at);
        } else {
            memcpy((float *)(void *)head + at, x, d * sizeof *x);
        }
    }
}

/* ---- rotation --------------------------------------------------------------------------- */

static double clamp01(double x) { return x < 0.0 ? 0.0 : x > 1.0 ? 1.0 : x; }

static double ceil_of(double x)
{
    double n = (double)(int64_t)x;
    return n < x ? n + 1.0 : n;
}

/* The pair index whose wavelength fits r times into the original context
 * (Peng et al. 2023, YaRN, section 3.2). */
static double pair_of_rotations(const hth_rope *rope, double r)
{
    const double two_pi = 6.283185307179586477;
    return rope->n_rot * hth_log_d(rope->n_ctx_original / (two_pi * r)) / (2.0 * hth_log_d(rope->base));
}

/* Share of pair i that keeps its own frequency under YaRN; the rest is scaled. */
static double yarn_keep(const hth_rope *rope, uint32_t i)
{
    double low = pair_of_rotations(rope, 32.0), high = pair_of_rotations(rope, 1.0);
    low = low < 0.0 ? 0.0 : (double)(int64_t)low;
    high = ceil_of(high);
    if (high > rope->n_rot - 1.0) high = rope->n_rot - 1.0;
    double width = high - low < 0.001 ? 0.001 : high - low;
    return 1.0 - clamp01((i - low) / width);
}

static void fill_frequencies(const hth_rope *rope, const float *factors, double *frequency)
{
    for (uint32_t i = 0; i < rope->n_rot / 2; i++) {
        double theta = hth_pow_d(rope->base, -2.0 * i / rope->n_rot);
        if (factors) theta /= (double)factors[i];
        double keep = rope->scaling == HTH_SCALING_YARN ? yarn_keep(rope, i) : 0.0;
        frequency[i] = keep * theta + (1.0 - keep) * (theta / rope->factor);
    }
}

void hth_run_rope_init(hth_step *s)
{
    const hth_rope *rope = &s->model->hparams.rope;
    size_t n_pair = rope->n_rot / 2;
    const float *factors = s->model->rope_factors, *far = s->model->rope_factors_long;
    fill_frequencies(rope, factors, s->frequency);
    fill_frequencies(rope, far ? far : factors, s->frequency + n_pair);
    if (s->n_table == 2) {
        hth_rope near = *rope;
        near.base = rope->window_base, near.scaling = HTH_SCALING_NONE, near.factor = 1.0;
        fill_frequencies(&near, NULL, s->frequency + 2 * n_pair);
        fill_frequencies(&near, NULL, s->frequency + 3 * n_pair);
    }
    double scale = rope->attn_factor;
    if (rope->scaling == HTH_SCALING_YARN) scale *= 1.0 + 0.1 * hth_log_d(rope->factor);
    s->rope_scale = (float)scale;
}

/* The entries of one row. The length of its cache decides which factors count, so
 * that all its keys are rotated alike. */
static void rope_table_row(void *arg, size_t i_row, uint32_t i_thread)
{
    (void)i_thread;
    hth_step *s = arg;
    const hth_rope *rope = &s->model->hparams.rope;
    const hth_row *row = &s->rows[i_row];
    size_t n_pair = rope->n_rot / 2, far = row->kv->n_ctx > rope->n_ctx_original ? n_pair : 0;
    for (uint32_t t = 0; t < s->n_table; t++) {
        const double *frequency = s->frequency + t * 2 * n_pair + far;
        size_t at = (t * (size_t)s->n_row_max + i_row) * n_pair;
        for (size_t i = 0; i < n_pair; i++) {
            double sin_d, cos_d;
            hth_sincos_d(row->position * frequency[i], &sin_d, &cos_d);
            s->cosine[at + i] = (float)cos_d * s->rope_scale;
            s->sine[at + i] = (float)sin_d * s->rope_scale;
        }
    }
}

void hth_run_rope_tables(hth_step *s)
{
    if (s->model->hparams.rope.n_rot > 0) hth_pool_add(s->pool, rope_table_row, s, 0, s->n_row);
}

/* ---- the block ----------------------------------------------------------------------------- */

typedef struct attention_job {
    hth_step *s;
    const hth_layer *layer;
    uint32_t i_layer;
} attention_job;

/* Norm and rotation of n_head heads of one row, in place. */
static void prepare_heads(const attention_job *job, size_t i_row, const hth_norm *norm, uint32_t n_head,
                          float *x)
{
    hth_step *s = job->s;
    const hth_hparams *h = &s->model->hparams;
    size_t d = h->d_head, n_pair = h->rope.n_rot / 2;
    bool own_table = s->n_table == 2 && job->layer->window > 0;
    size_t at = ((own_table ? s->n_row_max : 0) + i_row) * n_pair;
    hth_rope_fn *rotate = h->rope.kind == HTH_ROPE_HALVES ? s->k->rope_halves : s->k->rope_neighbours;
    for (uint32_t i = 0; i < n_head; i++, x += d) {
        if (norm->weight) s->k->rms_norm(x, norm->weight, d, 1.0f / (float)d, h->norm_eps, x);
        if (n_pair > 0) rotate(x, s->cosine + at, s->sine + at, n_pair);
    }
}

/* Prepares one row's queries and keys and puts keys and values into the cache. */
static void rotate_and_store(void *arg, size_t i_row, uint32_t i_thread)
{
    (void)i_thread;
    const attention_job *job = arg;
    hth_step *s = job->s;
    const hth_layer *l = job->layer;
    size_t d = s->model->hparams.d_head, n_kv = l->n_head_kv * d;
    float *k = s->kv + i_row * n_kv, *v = s->kv + (s->n_row + i_row) * n_kv;
    prepare_heads(job, i_row, &l->q_norm, l->n_head, s->q + i_row * l->n_head * d);
    prepare_heads(job, i_row, &l->k_norm, l->n_head_kv, k);
    store_row(s, &s->rows[i_row], job->i_layer, k, false);
    store_row(s, &s->rows[i_row], job->i_layer, v, true);
}

static void attend_head(void *arg, size_t i_unit, uint32_t i_thread)
{
    const attention_job *job = arg;
    hth_step *s = job->s;
    uint32_t n_head = job->layer->n_head, i_head = (uint32_t)(i_unit % n_head);
    const hth_row *row = &s->rows[i_unit / n_head];
    uint32_t i_kv = i_head / (n_head / job->layer->n_head_kv);
    const hth_hparams *h = &s->model->hparams;
    size_t d = h->d_head, n_pos = (size_t)row->position + 1, window = job->layer->window;
    hth_attend attend = {.q = s->q + i_unit * d,
                         .k = head_at(row->kv, s->model, job->i_layer, i_kv, false),
                         .v = head_at(row->kv, s->model, job->i_layer, i_kv, true),
                         .first = window > 0 && n_pos > window ? n_pos - window : 0,
                         .n_pos = n_pos,
                         .d_head = d,
                         .scale = (float)(1.0 / hth_sqrt_d((double)h->score_width)),
                         .cap = h->score_cap,
                         .inverse_cap = h->score_cap != 0.0f ? 1.0f / h->score_cap : 0.0f,
                         .scratch = s->scratch + i_thread * d,
                         .y = s->heads + i_unit * d};
    if (row->kv->type == HEARTH_KV_F16) {
        s->k->attend_f16(&attend);
    } else {
        s->k->attend_f32(&attend);
    }
}

void hth_run_attention(hth_step *s, uint32_t i_layer)
{
    const hth_layer *l = &s->model->layers[i_layer];
    size_t n_kv = (size_t)l->n_head_kv * s->model->hparams.d_head;
    const hth_norm *norm = l->attn_norm.weight ? &l->attn_norm : &l->ffn_norm;
    hth_run_norm(s, norm, s->x, s->normed, s->n_row);
    hth_output qkv[] = {{.matrix = &l->q, .bias = l->q_bias, .y = s->q},
                        {.matrix = &l->k, .bias = l->k_bias, .y = s->kv},
                        {.matrix = &l->v, .bias = l->v_bias, .y = s->kv + s->n_row * n_kv}};
    hth_product_add(s->k, s->pool, &s->rounding, s->normed, s->n_row, qkv, 3);

    /* All new keys must be in the cache before any row looks back. */
    attention_job job = {s, l, i_layer};
    hth_pool_add(s->pool, rotate_and_store, &job, sizeof job, s->n_row);
    hth_pool_add(s->pool, attend_head, &job, sizeof job, (size_t)s->n_row * l->n_head);

    hth_output o = {.matrix = &l->o, .bias = l->o_bias, .y = s->out};
    hth_product_add(s->k, s->pool, &s->rounding, s->heads, s->n_row, &o, 1);
}
