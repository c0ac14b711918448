/* DELTA: gated DeltaNet in chunks of HTH_CHUNK positions; and its RATES.
 *
 * Let S be a head's state at the start of its chunk, and G_t the sum of the decays g of the chunk's tokens up to t.
 * The recurrence of hth_delta_net unrolls to
 *     u_t = beta_t (v_t - e^(G_t) S^T k_t - sum over i < t of e^(G_t - G_i) (k_i . k_t) u_i)
 *     o_t = (e^(G_t) S^T q_t + sum over i <= t of e^(G_t - G_i) (k_i . q_t) u_i) / sqrt(d)
 * and at the end of the chunk S becomes e^(G) S + sum of e^(G - G_i) k_i u_i^T (Yang et al. 2024, the WY form). A
 * token's sums have the same terms in the same order, alone or beside others of its chunk (docs/arithmetic.md 12). */
#include "forward/forward_int.h"

#include <string.h>

/* The state of one key head: keys[d][HTH_CHUNK], transposed, and then a part for each of its heads. */
typedef struct head_part {
    float *state; /* [d][d]: keys, values */
    float *u;     /* [HTH_CHUNK][d] */
    float *decay; /* [HTH_CHUNK] G */
} head_part;

static head_part part_of(const hth_delta_net *n, float *keys, size_t i_shared)
{
    size_t d = n->d, size = d * d + d * HTH_CHUNK + HTH_CHUNK;
    float *part = keys + d * HTH_CHUNK + i_shared * size;
    return (head_part){part, part + d * d, part + d * d + d * HTH_CHUNK};
}

static size_t head_of(const hth_delta_net *n, size_t i_key, size_t i_shared)
{
    size_t n_shared = n->n_head / n->n_head_key;
    return n->key_head_interleaved ? i_shared * n->n_head_key + i_key : i_key * n_shared + i_shared;
}

/* ---- rates ------------------------------------------------------------------------------------ */

/* beta and g of all heads. */
void hth_fwd_rates_delta(const hth_step *s, const hth_op *op, size_t t)
{
    const hth_delta_net *n = &s->model->layers[op->layer].delta_net;
    size_t n_head = n->n_head, n_shared = n_head / n->n_head_key;
    bool joined = n->decay.n_row == 0;
    const float *beta = hth_fwd_row(s, op->in[0], t),
                *decay = joined ? beta + n_shared : hth_fwd_row(s, op->in[1], t);
    float *to = hth_fwd_row(s, op->out[0], t), *g = hth_fwd_row(s, op->out[1], t);
    for (size_t i = 0; i < n_head; i++) {
        size_t at = joined ? i / n_shared * 2 * n_shared + i % n_shared : i;
        to[i] = beta[at];
        g[i] = decay[at] + n->dt[i];
    }
    s->k->softplus(g, n_head, g);
    s->k->mul(g, n->a, n_head, g);
    s->k->sigmoid(to, n_head, to);
}

/* ---- tokens of a chunk ------------------------------------------------------------------------ */

typedef struct delta_job {
    const hth_step *s;
    const hth_op *op;
} delta_job;

/* Tokens [first, first + n) of the step, which are [at, at + n) of a chunk, at one head of keys. */
typedef struct piece {
    const hth_step *s;
    const hth_op *op;
    const hth_delta_net *net;
    size_t first, at, n, i_key;
    float *keys;                    /* keys of the chunk, followed by the heads' parts */
    float *by_key, *by_query;       /* [n][HTH_CHUNK] products with the chunk's keys */
    float *state_key, *state_query; /* [n][d] products with the state */
    float *factors;                 /* [HTH_CHUNK] */
    float *weighted;                /* [d][HTH_CHUNK] keys of the chunk times factors */
} piece;

/* Row t of the piece, of an input. */
static const float *row_of(const piece *p, int i_in, size_t t)
{
    return hth_fwd_row(p->s, p->op->in[i_in], p->first + t);
}

/* Queries or keys of row t, at the piece's head of keys; values at one of its heads. in[0] has them all. */
static const float *query_of(const piece *p, size_t t) { return row_of(p, 0, t) + p->i_key * p->net->d; }
static const float *key_of(const piece *p, size_t t)
{
    return query_of(p, t) + p->net->n_head_key * p->net->d;
}
static const float *value_of(const piece *p, size_t t, size_t i_head)
{
    return row_of(p, 0, t) + (2 * p->net->n_head_key + i_head) * p->net->d;
}

/* y[n][n_col] = x, the first of the piece's queries or keys, and those behind it, times m[d][n_col]. */
static void multiply_rows(const piece *p, const float *x, const float *m, size_t n_col, float *y)
{
    const hth_delta_net *n = p->net;
    hth_gemm g = {.a = x,
                  .b = m,
                  .y = y,
                  .a_row = n->conv.n_channel,
                  .a_col = 1,
                  .b_row = n_col,
                  .y_row = n_col,
                  .n_row = p->n,
                  .n_col = n_col,
                  .n_in = n->d};
    p->s->k->gemm(&g);
}

/* y[d] = y + the sum of factors[i] u[i] over n tokens. */
static void add_tokens(const piece *p, const head_part *h, size_t n, float *y)
{
    size_t d = p->net->d;
    hth_gemm g = {.a = p->factors,
                  .b = h->u,
                  .y = y,
                  .a_row = HTH_CHUNK,
                  .a_col = 1,
                  .b_row = d,
                  .y_row = d,
                  .n_row = 1,
                  .n_col = d,
                  .n_in = n,
                  .more = true};
    p->s->k->gemm(&g);
}

/* factors[i] = e^(G_t - G_i) products[i] for tokens up to t; products NULL: 1. */
static void make_factors(const piece *p, const head_part *h, size_t t, const float *products)
{
    const hth_kernels *k = p->s->k;
    for (size_t i = 0; i <= t; i++) p->factors[i] = h->decay[t] - h->decay[i];
    k->exp(p->factors, t + 1, p->factors);
    if (products) k->mul(p->factors, products, t + 1, p->factors);
}

static float exp_of(const hth_kernels *k, float x)
{
    k->exp(&x, 1, &x);
    return x;
}

static void run_token(const piece *p, const head_part *h, size_t t, size_t i_head)
{
    const hth_delta_net *n = p->net;
    const hth_step *s = p->s;
    const hth_kernels *k = s->k;
    size_t d = n->d, at = p->at + t;
    float *u = h->u + at * d, *out = hth_fwd_row(s, p->op->out[0], p->first + t) + i_head * d;
    float beta = row_of(p, 1, t)[i_head], g = row_of(p, 2, t)[i_head];
    h->decay[at] = at > 0 ? h->decay[at - 1] + g : g;
    float decay = exp_of(k, h->decay[at]);

    k->scale(p->state_key + t * d, -decay, d, u);
    k->add(value_of(p, t, i_head), u, d, u);
    make_factors(p, h, at, p->by_key + t * HTH_CHUNK);
    k->scale(p->factors, -1.0f, at, p->factors);
    add_tokens(p, h, at, u);
    k->scale(u, beta, d, u);

    k->scale(p->state_query + t * d, decay, d, out);
    make_factors(p, h, at, p->by_query + t * HTH_CHUNK);
    add_tokens(p, h, at + 1, out);
    k->scale(out, s->recurrent.inverse_root, d, out);
}

/* The state after the chunk; to may be h->state. */
static void end_chunk(const piece *p, const head_part *h, float *to)
{
    size_t d = p->net->d, last = HTH_CHUNK - 1;
    const hth_kernels *k = p->s->k;
    k->scale(h->state, exp_of(k, h->decay[last]), d * d, to);
    make_factors(p, h, last, NULL);
    for (size_t i = 0; i < d; i++)
        k->mul(p->keys + i * HTH_CHUNK, p->factors, HTH_CHUNK, p->weighted + i * HTH_CHUNK);
    hth_gemm g = {.a = p->weighted,
                  .b = h->u,
                  .y = to,
                  .a_row = HTH_CHUNK,
                  .a_col = 1,
                  .b_row = d,
                  .y_row = d,
                  .n_row = d,
                  .n_col = d,
                  .n_in = HTH_CHUNK,
                  .more = true};
    k->gemm(&g);
}

static void run_piece(piece *p, float *next)
{
    const hth_delta_net *n = p->net;
    const float *q = query_of(p, 0), *key = key_of(p, 0);
    size_t d = n->d, n_shared = n->n_head / n->n_head_key;
    for (size_t t = 0; t < p->n; t++) {
        const float *of_token = key_of(p, t);
        for (size_t i = 0; i < d; i++) p->keys[i * HTH_CHUNK + p->at + t] = of_token[i];
    }
    multiply_rows(p, key, p->keys, HTH_CHUNK, p->by_key);
    multiply_rows(p, q, p->keys, HTH_CHUNK, p->by_query);
    for (size_t j = 0; j < n_shared; j++) {
        head_part h = part_of(n, p->keys, j);
        multiply_rows(p, key, h.state, d, p->state_key);
        multiply_rows(p, q, h.state, d, p->state_query);
        for (size_t t = 0; t < p->n; t++) run_token(p, &h, t, head_of(n, p->i_key, j));
        if (p->at + p->n == HTH_CHUNK) end_chunk(p, &h, part_of(n, next, j).state);
    }
    if (p->at + p->n < HTH_CHUNK) return;
    memset(next, 0, d * HTH_CHUNK * sizeof *next);
    for (size_t j = 0; j < n_shared; j++) {
        head_part h = part_of(n, next, j);
        memset(h.u, 0, (d + 1) * HTH_CHUNK * sizeof *h.u);
    }
}

/* The tokens of a sequence at one head of keys. */
static void run_head(void *arg, size_t i_unit, uint32_t i_thread)
{
    const delta_job *job = arg;
    const hth_step *s = job->s;
    const hth_delta_net *n = &s->model->layers[job->op->layer].delta_net;
    const hth_recurrent_buffers *r = &s->recurrent;
    const hth_row_group *run = &r->runs[i_unit / n->n_head_key];
    const hth_batch_token *token = &s->tokens[run->first];
    hth_state state = hth_sequence_state(token->seq, job->op->layer, HTH_STATE_CHUNK);
    size_t d = n->d, i_key = i_unit % n->n_head_key, at = token->position % HTH_CHUNK;
    float *scratch = r->scratch + i_thread * r->n_scratch,
          *now = (float *)state.now + i_key * hth_delta_net_state(n),
          *next = (float *)state.next + i_key * hth_delta_net_state(n);
    piece p = {.s = s, .op = job->op, .net = n, .i_key = i_key, .keys = now};
    p.by_key = scratch, p.by_query = p.by_key + HTH_CHUNK * HTH_CHUNK;
    p.state_key = p.by_query + HTH_CHUNK * HTH_CHUNK, p.state_query = p.state_key + HTH_CHUNK * d;
    p.weighted = p.state_query + HTH_CHUNK * d, p.factors = p.weighted + HTH_CHUNK * d;
    for (size_t done = 0; done < run->n; done += p.n) {
        p.first = run->first + done, p.at = (at + done) % HTH_CHUNK;
        p.n = run->n - done < HTH_CHUNK - p.at ? run->n - done : HTH_CHUNK - p.at;
        run_piece(&p, next);
        if (p.at + p.n == HTH_CHUNK) p.keys = next;
    }
}

size_t hth_fwd_delta_net_scratch(const hth_delta_net *n)
{
    return HTH_CHUNK * (2 * HTH_CHUNK + 3 * (size_t)n->d + 1);
}

/* Tokens [at, at + n_tok) of the chunk. */
static void clear_tokens(const hth_delta_net *n, float *keys, size_t at, size_t n_tok)
{
    for (size_t i = 0; i < n->d; i++) memset(keys + i * HTH_CHUNK + at, 0, n_tok * sizeof *keys);
    for (size_t j = 0; j < n->n_head / n->n_head_key; j++) {
        head_part h = part_of(n, keys, j);
        memset(h.u + at * n->d, 0, n_tok * n->d * sizeof *h.u);
        memset(h.decay + at, 0, n_tok * sizeof *h.decay);
    }
}

void hth_sequence_clear_chunk(hth_sequence *s, uint32_t first, uint32_t n_tok)
{
    const hth_model *m = hth_kv_pool_model(s->pool);
    for (uint32_t i = 0; i < m->hparams.n_layer; i++) {
        const hth_delta_net *n = &m->layers[i].delta_net;
        if (m->layers[i].mixer != HTH_MIXER_DELTA_NET) continue;
        float *now = (float *)hth_sequence_state(s, i, HTH_STATE_CHUNK).now;
        for (size_t k = 0; k < n->n_head_key; k++)
            clear_tokens(n, now + k * hth_delta_net_state(n), first % HTH_CHUNK, n_tok);
    }
}

void hth_fwd_delta_net_undo(hth_step *s)
{
    for (uint32_t r = 0; r < s->recurrent.n_run; r++) {
        const hth_batch_token *token = &s->tokens[s->recurrent.runs[r].first];
        hth_sequence_clear_chunk(token->seq, token->position, HTH_CHUNK - token->position % HTH_CHUNK);
    }
}

hearth_status hth_fwd_delta(hth_step *s, const hth_op *op, hearth_error *err)
{
    delta_job job = {s, op};
    (void)err;
    hth_pool_add(s->pool, run_head, &job, sizeof job,
                 (size_t)s->recurrent.n_run * s->model->layers[op->layer].delta_net.n_head_key);
    return HEARTH_OK;
}
