/* Kimi Delta Attention: the delta rule with a decay for each dimension of keys (Kimi Team 2025). step.c calls it once
 * per layer of that kind. Tokens of a sequence follow each other; heads are computed side by side. */
#include "forward/forward_int.h"

#include "kernels/vector/math.h"

typedef struct kda_job {
    hth_step *s;
    const hth_kda *net;
    uint32_t i_layer;
} kda_job;

/* ---- inputs of a token ------------------------------------------------------------------------ */

/* Logarithms of decays, in place of the products. */
static void make_decays(const kda_job *job, float *f)
{
    const hth_kda *n = job->net;
    for (size_t h = 0, at = 0; h < n->n_head; h++)
        for (size_t i = 0; i < n->d; i++, at++)
            f[at] = (float)((double)n->a[h] * hth_softplus_d((double)f[at] + (double)n->dt[at]));
}

static void prepare_row(void *arg, size_t t, uint32_t i_thread)
{
    (void)i_thread;
    const kda_job *job = arg;
    const hth_kda *n = job->net;
    hth_step *s = job->s;
    hth_recurrent_buffers *r = &s->recurrent;
    size_t inner = (size_t)n->n_head * n->d;
    for (size_t c = 0; c < 3; c++) {
        hth_conv_rows conv = {s,
                              &n->conv[c],
                              job->i_layer,
                              r->in + c * s->n_tok * inner,
                              inner,
                              r->conv + c * s->n_tok * inner,
                              c * (n->conv[c].n_tap - 1) * inner};
        float *y = conv.y + t * inner;
        hth_fwd_conv_row(&conv, t);
        s->k->activate[HTH_ACTIVATION_SILU](NULL, y, inner, y);
        for (size_t h = 0; c < 2 && h < n->n_head; h++) /* queries and keys: x / sqrt(sum of squares + eps) */
            s->k->rms_norm(y + h * n->d, s->model->ones, n->d, 1.0f, s->model->hparams.norm_eps,
                           y + h * n->d);
    }
    make_decays(job, r->decay + t * inner);
    s->k->exp(r->decay + t * inner, inner, r->decay + t * inner);
    s->k->sigmoid(r->beta + t * n->n_head, n->n_head, r->beta + t * n->n_head);
}

/* ---- the recurrence ---------------------------------------------------------------------------- */

/* y[d] = x[d] times m[d][d], a row for each x. */
static void multiply(const hth_kernels *k, const float *x, const float *m, size_t d, float *y)
{
    hth_gemm g = {.a = x,
                  .b = m,
                  .y = y,
                  .a_row = d,
                  .a_col = 1,
                  .b_row = d,
                  .y_row = d,
                  .n_row = 1,
                  .n_col = d,
                  .n_in = d};
    k->gemm(&g);
}

/* m = m + x y^T. */
static void add_outer(const hth_kernels *k, const float *x, const float *y, size_t d, float *m)
{
    hth_gemm g = {.a = x,
                  .b = y,
                  .y = m,
                  .a_row = 1,
                  .a_col = 1,
                  .b_row = d,
                  .y_row = d,
                  .n_row = d,
                  .n_col = d,
                  .n_in = 1,
                  .more = true};
    k->gemm(&g);
}

/* The tokens of a sequence at one head. */
static void run_head(void *arg, size_t i_unit, uint32_t i_thread)
{
    const kda_job *job = arg;
    const hth_kda *n = job->net;
    hth_step *s = job->s;
    const hth_kernels *k = s->k;
    const hth_recurrent_buffers *r = &s->recurrent;
    const hth_row_group *run = &r->runs[i_unit / n->n_head];
    size_t d = n->d, head = i_unit % n->n_head, inner = n->n_head * d, all = s->n_tok * inner;
    size_t at = hth_kda_conv_state(n) + head * d * d;
    hth_state state = hth_sequence_state(s->tokens[run->first].seq, job->i_layer, HTH_STATE_STEP);
    const float *from = (const float *)state.now + at;
    float *to, *u = r->scratch + i_thread * r->n_scratch;
    for (size_t t = run->first; t < run->first + run->n; t++, from = to) {
        float *kept = hth_fwd_state_after(s, job->i_layer, t);
        to = (kept ? kept : (float *)state.next) + at;
        const float *q = r->conv + t * inner + head * d, *key = q + all, *value = key + all;
        const float *decay = r->decay + t * inner + head * d;
        float *out = r->out + t * inner + head * d;
        for (size_t i = 0; i < d; i++) k->scale(from + i * d, decay[i], d, to + i * d);
        multiply(k, key, to, d, u);
        k->scale(u, -1.0f, d, u);
        k->add(value, u, d, u);
        k->scale(u, r->beta[t * n->n_head + head], d, u);
        add_outer(k, key, u, d, to);
        multiply(k, q, to, d, out);
        k->scale(out, r->inverse_root, d, out);
    }
}

/* ---- the block --------------------------------------------------------------------------------- */

static void gate_row(const void *arg, size_t t)
{
    const hth_fwd_layer_arg *g = arg;
    const hth_kda *n = &g->layer->kda;
    const hth_kernels *k = g->s->k;
    size_t d = n->d, inner = n->n_head * d;
    float *y = g->s->recurrent.out + t * inner;
    for (size_t h = 0; h < n->n_head; h++)
        k->rms_norm(y + h * d, n->norm, d, 1.0f / (float)d, g->s->model->hparams.norm_eps, y + h * d);
    k->gate_sigmoid(g->s->recurrent.gate + t * inner, y, inner, y);
}

hearth_status hth_fwd_kda(hth_step *s, uint32_t i_layer, float *add_to, hearth_error *err)
{
    (void)err;
    const hth_layer *l = &s->model->layers[i_layer];
    const hth_kda *n = &l->kda;
    hth_recurrent_buffers *r = &s->recurrent;
    size_t all = (size_t)s->n_tok * n->n_head * n->d;
    hth_fwd_norm_rows rows = {s, &l->mixer_norm, s->x, s->x_norm};
    hth_fusion fusion = {.prepare = hth_fwd_norm_row, .prepare_arg = &rows};
    hth_output qkv[] = {{.matrix = &n->q, .y = r->in},
                        {.matrix = &n->k, .y = r->in + all},
                        {.matrix = &n->v, .y = r->in + 2 * all},
                        {.matrix = &n->beta, .y = r->beta}};
    hth_output low[] = {{.matrix = &n->decay_a, .y = r->low},
                        {.matrix = &n->gate_a, .y = r->low + s->n_tok * n->d}};
    hth_output decay = {.matrix = &n->decay_b, .y = r->decay}, gate = {.matrix = &n->gate_b, .y = r->gate};
    hth_product_add(s->k, s->pool, &s->act_q8, s->x_norm, s->n_tok, qkv, 4, &fusion);
    hth_product_add(s->k, s->pool, &s->act_q8, s->x_norm, s->n_tok, low, 2, NULL);
    hth_product_add(s->k, s->pool, &s->act_q8, low[0].y, s->n_tok, &decay, 1, NULL);
    hth_product_add(s->k, s->pool, &s->act_q8, low[1].y, s->n_tok, &gate, 1, NULL);

    kda_job job = {s, n, i_layer};
    hth_pool_add(s->pool, prepare_row, &job, sizeof job, s->n_tok);
    hth_pool_add(s->pool, run_head, &job, sizeof job, (size_t)r->n_run * n->n_head);

    hth_output out = {.matrix = &n->out, .y = s->block_out, .add_to = add_to};
    hth_fwd_layer_arg g = {.s = s, .layer = l};
    hth_fusion gated = {.prepare = gate_row, .prepare_arg = &g};
    hth_product_add(s->k, s->pool, &s->act_q8, r->out, s->n_tok, &out, 1, &gated);
    return HEARTH_OK;
}
