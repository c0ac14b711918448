/* SCAN: selective state spaces (Mamba, Mamba-2, PLaMo 2); and their RATES.
 *
 * A sequence keeps, for each layer, the last inputs of the convolution (conv.c), then the states of all channels by
 * heads, or by units of channels where each channel has its own rates (hth_ssm_scan). A step reads one copy and writes
 * another. Tokens of a sequence follow one another in a unit, so that any cut of a prompt gives the same bits. */
#include "forward/forward_int.h"

#include <string.h>

/* Channels of a unit without heads: a multiple of HTH_SSM_TILE. */
enum { CHANNELS = 128 };

typedef struct ssm_job {
    const hth_step *s;
    const hth_op *op;
} ssm_job;

static size_t n_step_of(const hth_ssm *n) { return n->n_head > 0 ? n->n_head : n->n_inner; }

/* Steps of a token, and the decays of its heads. */
void hth_fwd_rates_ssm(const hth_step *s, const hth_op *op, size_t t)
{
    const hth_ssm *n = &s->model->layers[op->layer].ssm;
    size_t n_step = n_step_of(n);
    float *delta = hth_fwd_row(s, op->out[0], t);
    s->k->softplus(delta, n_step, delta);
    if (n->n_head == 0) return;
    float *decay = hth_fwd_row(s, op->out[1], t);
    s->k->mul(delta, n->a, n_step, decay);
    s->k->exp(decay, n_step, decay);
}

/* ---- states ------------------------------------------------------------------------------------ */

/* Units of a sequence: its heads, or some channels. */
static size_t n_unit_of(const hth_ssm *n)
{
    return n->n_head > 0 ? n->n_head : (n->n_inner + CHANNELS - 1) / CHANNELS;
}

/* Tokens [first, first + n_tok) of a sequence in a unit. */
static void scan_tokens(const ssm_job *job, size_t unit, size_t first, size_t n_tok, const float *now,
                        float *next)
{
    const hth_step *s = job->s;
    const hth_op *op = job->op;
    const hth_ssm *n = &s->model->layers[op->layer].ssm;
    size_t n_step = n_step_of(n), width = n->conv.n_channel;
    size_t size = n->n_head > 0 ? n->n_inner / n->n_head : CHANNELS, at = unit * size, left = n->n_inner - at;
    bool low = n->dt_low.n_row > 0;
    size_t i_step = n->n_head > 0 ? unit : at, group = low ? 0 : unit / (n->n_head / n->n_group) * n->d_state;
    const float *x = hth_fwd_row(s, op->in[0], first), *rates = hth_fwd_row(s, op->in[1], first) + i_step;
    hth_ssm_scan scan = {.n_channel = left < size ? left : size,
                         .n_state = n->d_state,
                         .n_tok = n_tok,
                         .now = now,
                         .next = next,
                         .x = x + at,
                         .delta = rates,
                         .decay = n->n_head > 0 ? hth_fwd_row(s, op->in[2], first) + i_step : NULL,
                         .a = n->n_head > 0 ? NULL : n->a + at,
                         .d = n->d + i_step,
                         .b = low ? hth_fwd_row(s, op->in[3], first) : x + n->n_inner + group,
                         .c = low ? hth_fwd_row(s, op->in[4], first)
                                  : x + n->n_inner + (size_t)n->n_group * n->d_state + group,
                         .y = hth_fwd_row(s, op->out[0], first) + at,
                         .x_stride = width,
                         .delta_stride = n_step,
                         .a_stride = n->n_inner,
                         .bc_stride = low ? n->d_state : width,
                         .y_stride = n->n_inner};
    s->k->ssm_scan(&scan);
}

/* The tokens of a sequence in a unit, up to each of those whose states are kept. */
static void scan_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    (void)i_thread;
    const ssm_job *job = arg;
    const hth_step *s = job->s;
    const hth_ssm *n = &s->model->layers[job->op->layer].ssm;
    size_t n_unit = n_unit_of(n), unit = i_unit % n_unit,
           size = n->n_head > 0 ? n->n_inner / n->n_head : CHANNELS;
    const hth_row_group *run = &s->recurrent.runs[i_unit / n_unit];
    size_t offset =
        (size_t)(n->conv.d_conv - 1) * n->conv.n_channel + unit * hth_ssm_state_size(size, n->d_state);
    size_t end = (size_t)run->first + run->n, n_tok;
    const float *now = hth_sequence_state(s->tokens[run->first].seq, job->op->layer, HTH_STATE_STEP).now;
    for (size_t first = run->first; first < end; first += n_tok) {
        for (n_tok = 1; first + n_tok < end && !s->tokens[first + n_tok - 1].states;) n_tok++;
        float *next = hth_fwd_state_after(s, job->op->layer, first + n_tok - 1);
        scan_tokens(job, unit, first, n_tok, now + offset, next + offset);
        now = next;
    }
}

hearth_status hth_fwd_scan(hth_step *s, const hth_op *op, hearth_error *err)
{
    ssm_job job = {s, op};
    (void)err;
    hth_pool_add(s->pool, scan_unit, &job, sizeof job,
                 s->recurrent.n_run * n_unit_of(&s->model->layers[op->layer].ssm));
    return HEARTH_OK;
}
