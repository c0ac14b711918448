/* HEADS of latent attention, in the absorbed form: keys and values of all heads are one vector c, of which
 * the cache holds a copy for scores and one for values (DeepSeek-AI 2024, DeepSeek-V2). A head multiplies
 * its queries by k_b before it attends, and its result by v_b afterwards (by_head.c). */
#include "forward/forward_int.h"

#include <string.h>

typedef struct latent_job {
    const hth_step *s;
    const hth_op *op;
} latent_job;

static void rotate(const hth_step *s, size_t t, float *x)
{
    const hth_rope_row angles = hth_fwd_rope_row_of(s, 0, t);
    hth_rope_fn *fn = s->model->hparams.rope.kind == HTH_ROPE_NEOX ? s->k->rope_neox : s->k->rope_interleaved;
    if (angles.n_pair > 0) fn(x, angles.cosine, angles.sine, angles.n_pair);
}

/* Norms, rotates and stores c of a token; rotates its queries' last values. */
static void store_token(void *arg, size_t t, uint32_t i_thread)
{
    const latent_job *job = arg;
    const hth_step *s = job->s;
    const hth_op *op = job->op;
    const hth_attention *a = &s->model->layers[op->layer].attn;
    const hth_latent *l = &s->model->layers[op->layer].latent;
    const hth_latent_sizes *z = &s->model->hparams.latent;
    size_t n_head = a->n_head, d_key = z->d_nope + z->d_rope, d = z->rank + z->d_rope;
    float *key = hth_fwd_row(s, op->out[1], t), *value = hth_fwd_row(s, op->out[2], t),
          *from = hth_fwd_row(s, op->in[0], t), *q = hth_fwd_row(s, op->out[0], t),
          factor = hth_fwd_temperature(s, a, t);
    (void)i_thread;
    s->k->rms_norm(key, l->kv_norm, z->rank, 1.0f / (float)z->rank, s->model->hparams.norm_eps, key);
    if (a->rotates) rotate(s, t, key + z->rank);
    memcpy(value, key, z->rank * sizeof *value);
    memset(value + z->rank, 0, z->d_rope * sizeof *value);
    hth_sequence_store(s->tokens[t].seq, s->k, op->layer, s->tokens[t].position, key, value);
    if (factor != 1.0f) s->k->scale(from, factor, n_head * d_key, from);
    for (size_t i = 0; i < n_head; i++, from += d_key, q += d) {
        memcpy(q + z->rank, from + z->d_nope, z->d_rope * sizeof *q);
        if (a->rotates) rotate(s, t, q + z->rank);
    }
}

hearth_status hth_fwd_heads_latent(hth_step *s, const hth_op *op, hearth_error *err)
{
    latent_job job = {s, op};
    (void)err;
    hth_pool_add(s->pool, store_token, &job, sizeof job, s->n_tok);
    return HEARTH_OK;
}
