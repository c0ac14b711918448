/* Causal convolutions of recurrent mixers along the tokens of a sequence. Inputs before the step's come from the
 * state, which holds the last d_conv - 1 inputs, the oldest first. */
#include "forward/forward_int.h"

#include <string.h>

void hth_fwd_find_runs(hth_step *s)
{
    hth_recurrent_buffers *r = &s->recurrent;
    r->n_run = 0;
    for (uint32_t i = 0; r->runs && i < s->n_tok; i++) {
        const hth_batch_token *token = &s->tokens[i];
        if (i > 0 && token->seq == token[-1].seq) r->runs[r->n_run - 1].n++;
        else r->runs[r->n_run++] = (hth_row_group){i, 1};
        r->run_of[i] = r->n_run - 1;
    }
}

void *hth_fwd_state_after(const hth_step *s, uint32_t i_layer, size_t i_row)
{
    const hth_row_group *run = &s->recurrent.runs[s->recurrent.run_of[i_row]];
    const hth_batch_token *token = &s->tokens[i_row];
    if (i_row + 1 == (size_t)run->first + run->n)
        return hth_sequence_state(token->seq, i_layer, HTH_STATE_STEP).next;
    if (!token->states) return NULL;
    return token->states + hth_kv_pool_layer(token->seq->pool, i_layer)->states[HTH_STATE_STEP];
}

/* A convolution of a token, whose inputs before its run come from the layer's state. */
typedef struct conv_rows {
    const hth_conv *conv;
    const hth_row_group *run;
    const float *x, *now; /* x: input of the run's first token; now: inputs of the d_conv - 1 tokens before it */
    size_t stride; /* floats of x from token to token */
} conv_rows;

/* The input at token `at` of the run; below 0: before its first one. */
static const float *input_at(const conv_rows *c, int64_t at)
{
    return at >= 0 ? c->x + (size_t)at * c->stride
                   : c->now + (size_t)((int64_t)c->conv->d_conv - 1 + at) * c->conv->n_channel;
}

void hth_fwd_conv_row(const hth_step *s, const hth_op *op, size_t t)
{
    const hth_conv *c = op->conv.conv;
    const hth_row_group *run = &s->recurrent.runs[s->recurrent.run_of[t]];
    hth_state state = hth_sequence_state(s->tokens[t].seq, op->layer, HTH_STATE_STEP);
    const conv_rows from = {c, run, hth_fwd_row(s, op->in[0], run->first),
                            (const float *)state.now + op->conv.state_at, hth_fwd_width(s, op->in[0])};
    const float *rows[HTH_MAX_TAP];
    float *y = hth_fwd_row(s, op->out[0], t), *next = hth_fwd_state_after(s, op->layer, t);
    int64_t at = (int64_t)(t - run->first), n_before = (int64_t)c->d_conv - 1;
    for (int64_t j = 0; j <= n_before; j++) rows[j] = input_at(&from, at - n_before + j);
    s->k->conv(rows, c->taps, c->d_conv, c->n_channel, y);
    if (c->bias) s->k->add(y, c->bias, c->n_channel, y);
    if (op->conv.silu) s->k->activate[HTH_ACTIVATION_SILU](NULL, y, c->n_channel, y);
    if (!next) return;
    next += op->conv.state_at;
    for (int64_t j = 1; j <= n_before; j++, next += c->n_channel)
        memcpy(next, rows[j], c->n_channel * sizeof *next);
}
