/* KDA: Kimi Delta Attention, the delta rule with a decay for each dimension of keys (Kimi Team 2025); and
 * its RATES. Tokens of a sequence follow each other; heads are computed side by side. */
#include "forward/forward_int.h"

typedef struct kda_job {
    const hth_step *s;
    const hth_op *op;
} kda_job;

/* ---- rates ------------------------------------------------------------------------------------- */

/* Decays and beta, in place of the products. */
void hth_fwd_rates_kda(const hth_step *s, const hth_op *op, size_t t)
{
    const hth_kda *n = &s->model->layers[op->layer].kda;
    float *beta = hth_fwd_row(s, op->out[0], t), *decay = hth_fwd_row(s, op->out[1], t);
    size_t n_decay = (size_t)n->n_head * n->d;
    s->k->add(decay, n->dt, n_decay, decay);
    s->k->softplus(decay, n_decay, decay);
    for (size_t h = 0; h < n->n_head; h++) s->k->scale(decay + h * n->d, n->a[h], n->d, decay + h * n->d);
    s->k->exp(decay, n_decay, decay);
    s->k->sigmoid(beta, n->n_head, beta);
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
    const hth_step *s = job->s;
    const hth_op *op = job->op;
    const hth_kda *n = &s->model->layers[op->layer].kda;
    const hth_kernels *k = s->k;
    const hth_recurrent_buffers *r = &s->recurrent;
    const hth_row_group *run = &r->runs[i_unit / n->n_head];
    size_t d = n->d, head = i_unit % n->n_head;
    size_t at = hth_kda_conv_state(n) + head * d * d;
    hth_state state = hth_sequence_state(s->tokens[run->first].seq, op->layer, HTH_STATE_STEP);
    const float *from = (const float *)state.now + at;
    float *to, *u = r->scratch + i_thread * r->n_scratch;
    for (size_t t = run->first; t < run->first + run->n; t++, from = to) {
        float *kept = hth_fwd_state_after(s, op->layer, t);
        to = (kept ? kept : (float *)state.next) + at;
        const float *q = hth_fwd_row(s, op->in[0], t) + head * d,
                    *key = hth_fwd_row(s, op->in[1], t) + head * d,
                    *value = hth_fwd_row(s, op->in[2], t) + head * d,
                    *decay = hth_fwd_row(s, op->in[4], t) + head * d;
        float *out = hth_fwd_row(s, op->out[0], t) + head * d;
        for (size_t i = 0; i < d; i++) k->scale(from + i * d, decay[i], d, to + i * d);
        multiply(k, key, to, d, u);
        k->scale(u, -1.0f, d, u);
        k->add(value, u, d, u);
        k->scale(u, hth_fwd_row(s, op->in[3], t)[head], d, u);
        add_outer(k, key, u, d, to);
        multiply(k, q, to, d, out);
        k->scale(out, r->inverse_root, d, out);
    }
}

hearth_status hth_fwd_kda(hth_step *s, const hth_op *op, hearth_error *err)
{
    kda_job job = {s, op};
    (void)err;
    hth_pool_add(s->pool, run_head, &job, sizeof job,
                 (size_t)s->recurrent.n_run * s->model->layers[op->layer].kda.n_head);
    return HEARTH_OK;
}
