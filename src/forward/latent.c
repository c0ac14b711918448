/* Latent attention, in the absorbed form: keys and values of all heads are one vector c, of which the cache holds a
 * copy for scores and one for values (DeepSeek-AI 2024, DeepSeek-V2). A head multiplies its queries by k_b before it
 * attends, and its result by v_b afterwards. step.c calls it once per layer of that kind. */
#include "forward/forward_int.h"

#include <string.h>

typedef struct latent_job {
    hth_step *s;
    const hth_layer *layer;
    uint32_t i_layer;
} latent_job;

static void rotate(const hth_step *s, size_t t, float *x)
{
    const hth_rope *rope = &s->model->hparams.rope;
    size_t n_pair = rope->n_rot / 2, at = t * n_pair;
    hth_rope_fn *fn = rope->kind == HTH_ROPE_NEOX ? s->k->rope_neox : s->k->rope_interleaved;
    if (n_pair > 0) fn(x, s->cosine + at, s->sine + at, n_pair);
}

/* Norms, rotates and stores c of a token; rotates its queries' last values. */
static void store_token(void *arg, size_t t, uint32_t i_thread)
{
    const latent_job *job = arg;
    hth_step *s = job->s;
    const hth_latent *l = &job->layer->latent;
    const hth_latent_sizes *z = &s->model->hparams.latent;
    size_t n_head = job->layer->attn.n_head, d_key = z->d_nope + z->d_rope, d = z->rank + z->d_rope;
    float *key = s->kv + t * d, *value = s->kv + (s->n_tok + t) * d, *from = s->latent.q + t * n_head * d_key,
          *q = s->q + t * n_head * d;
    (void)i_thread;
    s->k->rms_norm(key, l->kv_norm, z->rank, 1.0f / (float)z->rank, s->model->hparams.norm_eps, key);
    if (job->layer->attn.rotates) rotate(s, t, key + z->rank);
    memcpy(value, key, z->rank * sizeof *value);
    memset(value + z->rank, 0, z->d_rope * sizeof *value);
    hth_sequence_store(s->tokens[t].seq, s->k, job->i_layer, s->tokens[t].position, key, value);
    float factor = hth_fwd_temperature(s, &job->layer->attn, t);
    if (factor != 1.0f) s->k->scale(from, factor, n_head * d_key, from);
    for (size_t i = 0; i < n_head; i++, from += d_key, q += d) {
        memcpy(q + z->rank, from + z->d_nope, z->d_rope * sizeof *q);
        if (job->layer->attn.rotates) rotate(s, t, q + z->rank);
    }
}

/* Q8_0 caches read quantised queries. */
static void quantize_queries(void *arg, size_t t, uint32_t i_thread)
{
    const latent_job *job = arg;
    hth_step *s = job->s;
    (void)i_thread;
    if (hth_kv_pool_type(s->tokens[t].seq->pool) == HEARTH_KV_Q8_0)
        hth_fwd_quantize_queries(s, &job->layer->attn, t);
}

hearth_status hth_fwd_latent(hth_step *s, uint32_t i_layer, float *add_to, hearth_error *err)
{
    (void)err;
    const hth_layer *layer = &s->model->layers[i_layer];
    const hth_latent *l = &layer->latent;
    const hth_attention *a = &layer->attn;
    hth_latent_buffers *b = &s->latent;
    bool low_rank = l->q_b.n_row > 0;
    hth_fwd_norm_rows rows = {s, &layer->mixer_norm, s->x, s->x_norm};
    hth_fusion fusion = {.prepare = hth_fwd_norm_row, .prepare_arg = &rows};
    hth_output in[] = {{.matrix = &l->q_a, .y = low_rank ? b->q_a : b->q},
                       {.matrix = &l->kv_a, .y = s->kv}};
    hth_product_add(s->k, s->pool, &s->act_q8, s->x_norm, s->n_tok, in, 2, &fusion);
    if (low_rank) {
        hth_output q = {.matrix = &l->q_b, .y = b->q};
        hth_fwd_low_norm norm = {s, l->q_norm, b->q_a, l->q_a.n_row};
        hth_fusion normed = {.prepare = hth_fwd_low_norm_row, .prepare_arg = &norm};
        hth_product_add(s->k, s->pool, &s->act_q8, b->q_a, s->n_tok, &q, 1, &normed);
    }
    latent_job job = {s, layer, i_layer};
    hth_pool_add(s->pool, store_token, &job, sizeof job, s->n_tok);
    hth_fwd_multiply_heads(s, &b->queries, &l->k_b);
    hth_pool_add(s->pool, quantize_queries, &job, sizeof job, s->n_tok);
    hth_fwd_attend(s, a, i_layer);
    hth_fwd_multiply_heads(s, &b->values, &l->v_b);

    hth_output o = {.matrix = &a->o, .y = s->block_out, .add_to = add_to};
    hth_product_add(s->k, s->pool, &s->act_q8, b->out, s->n_tok, &o, 1, NULL);
    return HEARTH_OK;
}
