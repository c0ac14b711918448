/* Causal convolutions of recurrent mixers along the tokens of a sequence. Inputs before the step's come from the
 * state, which holds the last n_tap - 1 inputs, the oldest first. */
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

/* The input at token `at` of the run; below 0: before its first one. */
static const float *input_at(const hth_conv_rows *job, const hth_row_group *run, const float *now, int64_t at)
{
    const hth_conv *c = job->conv;
    return at >= 0 ? job->x + (run->first + (size_t)at) * job->stride
                   : now + (size_t)((int64_t)c->n_tap - 1 + at) * c->n_channel;
}

void hth_fwd_conv_row(const hth_conv_rows *job, size_t i_row)
{
    hth_step *s = job->s;
    const hth_conv *c = job->conv;
    const hth_row_group *run = &s->recurrent.runs[s->recurrent.run_of[i_row]];
    hth_state state = hth_sequence_state(s->tokens[i_row].seq, job->i_layer, HTH_STATE_STEP);
    const float *rows[HTH_MAX_TAP];
    const float *now = (const float *)state.now + job->state_at;
    int64_t at = (int64_t)(i_row - run->first), n_before = (int64_t)c->n_tap - 1;
    for (int64_t j = 0; j <= n_before; j++) rows[j] = input_at(job, run, now, at - n_before + j);
    s->k->conv(rows, c->taps, c->n_tap, c->n_channel, job->y + i_row * c->n_channel);
    float *next = hth_fwd_state_after(s, job->i_layer, i_row);
    if (!next) return;
    next += job->state_at;
    for (int64_t j = 1; j <= n_before; j++, next += c->n_channel)
        memcpy(next, rows[j], c->n_channel * sizeof *next);
}
