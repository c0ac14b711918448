/* Selective state spaces (Mamba, Mamba-2, PLaMo 2). step.c calls it for each layer that has one.
 *
 * A sequence keeps, for each layer, the last inputs of the convolution (conv.c), then the states of all channels by
 * heads, or by units of channels where each channel has its own rates (hth_ssm_scan). A step reads one copy and writes
 * another. Tokens of a sequence follow one another in a unit, so that any cut of a prompt gives the same bits. */
#include "forward/forward_int.h"

#include <string.h>

/* Channels of a unit without heads: a multiple of HTH_SSM_TILE. */
enum { CHANNELS = 128 };

typedef struct ssm_job {
    hth_conv_rows conv;
    const hth_ssm *net;
} ssm_job;

static size_t n_step_of(const hth_ssm *n) { return n->n_head > 0 ? n->n_head : n->n_inner; }

/* ---- inputs of a token ------------------------------------------------------------------------ */

/* Gates and x of a token, which alternate head by head. */
static void split_row(void *arg, size_t i_row, uint32_t i_thread)
{
    (void)i_thread;
    const ssm_job *job = arg;
    const hth_ssm *n = job->net;
    hth_recurrent_buffers *r = &job->conv.s->recurrent;
    size_t d = n->n_inner / n->n_head;
    const float *from = r->joined + i_row * 2 * n->n_inner;
    float *gate = r->gate + i_row * n->n_inner, *x = r->in + i_row * n->n_inner;
    for (size_t i = 0; i < n->n_head; i++, from += 2 * d) {
        memcpy(gate + i * d, from, d * sizeof *gate);
        memcpy(x + i * d, from + d, d * sizeof *x);
    }
}

static void convolve(const ssm_job *job, size_t i_row)
{
    const hth_conv *c = &job->net->conv;
    const hth_kernels *k = job->conv.s->k;
    float *y = job->conv.y + i_row * c->n_channel;
    hth_fwd_conv_row(&job->conv, i_row);
    if (c->bias) k->add(y, c->bias, c->n_channel, y);
    k->activate[HTH_ACTIVATION_SILU](NULL, y, c->n_channel, y);
}

/* Steps of a token, and the decays of its heads. */
static void make_steps(const ssm_job *job, size_t i_row)
{
    const hth_ssm *n = job->net;
    const hth_kernels *k = job->conv.s->k;
    hth_recurrent_buffers *r = &job->conv.s->recurrent;
    size_t n_step = n_step_of(n);
    float *delta = r->rates + i_row * n_step, *decay = r->decay + i_row * n_step;
    k->softplus(delta, n_step, delta);
    if (n->n_head == 0) return;
    k->mul(delta, n->a, n_step, decay);
    k->exp(decay, n_step, decay);
}

static void norm_low(const hth_step *s, const float *weight, size_t n, float *x)
{
    if (weight) s->k->rms_norm(x, weight, n, 1.0f / (float)n, s->model->hparams.norm_eps, x);
}

static void convolve_row(void *arg, size_t i_row, uint32_t i_thread)
{
    (void)i_thread;
    convolve(arg, i_row);
}

static void prepare_row(void *arg, size_t i_row, uint32_t i_thread)
{
    (void)i_thread;
    convolve(arg, i_row);
    make_steps(arg, i_row);
}

static void norm_row(void *arg, size_t i_row, uint32_t i_thread)
{
    (void)i_thread;
    const ssm_job *job = arg;
    const hth_ssm *n = job->net;
    const hth_step *s = job->conv.s;
    norm_low(s, n->dt_norm, n->dt_rank, s->recurrent.dt_low + i_row * n->dt_rank);
    norm_low(s, n->b_norm, n->d_state, s->recurrent.b + i_row * n->d_state);
    norm_low(s, n->c_norm, n->d_state, s->recurrent.c + i_row * n->d_state);
}

static void steps_row(void *arg, size_t i_row, uint32_t i_thread)
{
    (void)i_thread;
    make_steps(arg, i_row);
}

/* ---- states ------------------------------------------------------------------------------------ */

/* Units of a sequence: its heads, or some channels. */
static size_t n_unit_of(const hth_ssm *n)
{
    return n->n_head > 0 ? n->n_head : (n->n_inner + CHANNELS - 1) / CHANNELS;
}

/* Tokens [first, first + n_tok) of a sequence in a unit. */
static void scan_tokens(const ssm_job *job, size_t unit, size_t first, size_t n_tok, const float *now, float *next)
{
    const hth_ssm *n = job->net;
    const hth_recurrent_buffers *r = &job->conv.s->recurrent;
    size_t n_step = n_step_of(n), width = n->conv.n_channel;
    size_t size = n->n_head > 0 ? n->n_inner / n->n_head : CHANNELS, at = unit * size, left = n->n_inner - at;
    bool low = n->dt_low.n_row > 0;
    size_t i_step = n->n_head > 0 ? unit : at, group = low ? 0 : unit / (n->n_head / n->n_group) * n->d_state;
    const float *x = r->conv + first * width, *rates = r->rates + first * n_step + i_step;
    hth_ssm_scan scan = {
        .n_channel = left < size ? left : size,
        .n_state = n->d_state,
        .n_tok = n_tok,
        .now = now,
        .next = next,
        .x = x + at,
        .delta = rates,
        .decay = r->decay + first * n_step + i_step,
        .a = n->n_head > 0 ? NULL : n->a + at,
        .d = n->d + i_step,
        .b = low ? r->b + first * n->d_state : x + n->n_inner + group,
        .c = low ? r->c + first * n->d_state : x + n->n_inner + (size_t)n->n_group * n->d_state + group,
        .y = r->out + first * n->n_inner + at,
        .x_stride = width,
        .delta_stride = n_step,
        .a_stride = n->n_inner,
        .bc_stride = low ? n->d_state : width,
        .y_stride = n->n_inner};
    job->conv.s->k->ssm_scan(&scan);
}

/* The tokens of a sequence in a unit, up to each of those whose states are kept. */
static void scan_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    (void)i_thread;
    const ssm_job *job = arg;
    const hth_ssm *n = job->net;
    const hth_step *s = job->conv.s;
    size_t n_unit = n_unit_of(n), unit = i_unit % n_unit, size = n->n_head > 0 ? n->n_inner / n->n_head : CHANNELS;
    const hth_row_group *run = &s->recurrent.runs[i_unit / n_unit];
    size_t offset = (size_t)(n->conv.n_tap - 1) * n->conv.n_channel + unit * hth_ssm_state_size(size, n->d_state);
    size_t end = (size_t)run->first + run->n, n_tok;
    const float *now = hth_sequence_state(s->tokens[run->first].seq, job->conv.i_layer, HTH_STATE_STEP).now;
    for (size_t first = run->first; first < end; first += n_tok) {
        for (n_tok = 1; first + n_tok < end && !s->tokens[first + n_tok - 1].states;) n_tok++;
        float *next = hth_fwd_state_after(s, job->conv.i_layer, first + n_tok - 1);
        scan_tokens(job, unit, first, n_tok, now + offset, next + offset);
        now = next;
    }
}

/* ---- the block --------------------------------------------------------------------------------- */

/* Multiplies the outputs of a token by their gates, then norms them by groups. */
static void gate_row(const void *arg, size_t i_row)
{
    const hth_fwd_layer_arg *g = arg;
    const hth_ssm *n = &g->layer->ssm;
    const hth_kernels *k = g->s->k;
    size_t size = n->n_inner / n->n_group;
    float *y = g->s->recurrent.out + i_row * n->n_inner, eps = g->s->model->hparams.norm_eps;
    k->activate[HTH_ACTIVATION_SILU](g->s->recurrent.gate + i_row * n->n_inner, y, n->n_inner, y);
    for (size_t i = 0; n->norm && i < n->n_group; i++)
        k->rms_norm(y + i * size, n->norm + i * size, size, 1.0f / (float)size, eps, y + i * size);
}

/* Steps, B and C of the convolved inputs. */
static void queue_low(hth_step *s, ssm_job *job)
{
    const hth_ssm *n = job->net;
    hth_recurrent_buffers *r = &s->recurrent;
    hth_output low[] = {{.matrix = &n->dt_low, .y = r->dt_low},
                        {.matrix = &n->b, .y = r->b},
                        {.matrix = &n->c, .y = r->c}};
    hth_output dt = {.matrix = &n->dt, .bias = n->dt_bias, .y = r->rates};
    hth_product_add(s->k, s->pool, &s->act_q8, r->conv, s->n_tok, low, 3, NULL);
    if (n->dt_norm) hth_pool_add(s->pool, norm_row, job, sizeof *job, s->n_tok);
    hth_product_add(s->k, s->pool, &s->act_q8, r->dt_low, s->n_tok, &dt, 1, NULL);
    hth_pool_add(s->pool, steps_row, job, sizeof *job, s->n_tok);
}

hearth_status hth_fwd_ssm(hth_step *s, uint32_t i_layer, float *add_to, hearth_error *err)
{
    (void)err;
    const hth_layer *l = &s->model->layers[i_layer];
    const hth_ssm *n = &l->ssm;
    hth_recurrent_buffers *r = &s->recurrent;
    bool joined = n->gate.n_row == 0, low = n->dt_low.n_row > 0;
    hth_fwd_norm_rows rows = {s, &l->mixer_norm, s->x, s->x_norm};
    hth_fusion fusion = {.prepare = hth_fwd_norm_row, .prepare_arg = &rows};
    hth_output in[3] = {{.matrix = &n->x, .y = joined ? r->joined : r->in}};
    size_t n_in = 1;
    if (!joined) in[n_in++] = (hth_output){.matrix = &n->gate, .y = r->gate};
    if (!low) in[n_in++] = (hth_output){.matrix = &n->dt, .bias = n->dt_bias, .y = r->rates};
    hth_product_add(s->k, s->pool, &s->act_q8, s->x_norm, s->n_tok, in, n_in, &fusion);

    ssm_job job = {{s, &n->conv, i_layer, r->in, n->conv.n_channel, r->conv, 0}, n};
    if (joined) hth_pool_add(s->pool, split_row, &job, sizeof job, s->n_tok);
    hth_pool_add(s->pool, low ? convolve_row : prepare_row, &job, sizeof job, s->n_tok);
    if (low) queue_low(s, &job);
    hth_pool_add(s->pool, scan_unit, &job, sizeof job, r->n_run * n_unit_of(n));

    hth_output out = {.matrix = &n->out, .y = s->block_out, .add_to = add_to};
    hth_fwd_layer_arg g = {.s = s, .layer = l};
    hth_fusion gated = {.prepare = gate_row, .prepare_arg = &g};
    hth_product_add(s->k, s->pool, &s->act_q8, r->out, s->n_tok, &out, 1, &gated);
    return HEARTH_OK;
}
