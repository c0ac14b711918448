/* Gated short convolutions. step.c calls it once per layer of that kind. */
#include "forward/forward_int.h"

typedef struct conv_job {
    hth_conv_rows conv;
} conv_job;

/* x of a token becomes b x. */
static void gate_input(void *arg, size_t i_row, uint32_t i_thread)
{
    (void)i_thread;
    const conv_job *job = arg;
    size_t d = job->conv.conv->n_channel;
    float *in = job->conv.s->recurrent.in + i_row * 3 * d;
    job->conv.s->k->mul(in, in + 2 * d, d, in + 2 * d);
}

static void convolve(void *arg, size_t i_row, uint32_t i_thread)
{
    (void)i_thread;
    const conv_job *job = arg;
    size_t d = job->conv.conv->n_channel;
    float *y = job->conv.y + i_row * d;
    hth_fwd_conv_row(&job->conv, i_row);
    job->conv.s->k->mul(job->conv.s->recurrent.in + i_row * 3 * d + d, y, d, y);
}

hearth_status hth_fwd_short_conv(hth_step *s, uint32_t i_layer, float *add_to, hearth_error *err)
{
    (void)err;
    const hth_layer *l = &s->model->layers[i_layer];
    const hth_short_conv *c = &l->short_conv;
    hth_fwd_norm_rows rows = {s, &l->mixer_norm, s->x, s->x_norm};
    hth_fusion fusion = {.prepare = hth_fwd_norm_row, .prepare_arg = &rows};
    hth_output in = {.matrix = &c->in, .y = s->recurrent.in};
    hth_product_add(s->k, s->pool, &s->act_q8, s->x_norm, s->n_tok, &in, 1, &fusion);

    size_t d = c->conv.n_channel;
    conv_job job = {{s, &c->conv, i_layer, s->recurrent.in + 2 * d, 3 * d, s->recurrent.conv, 0}};
    hth_pool_add(s->pool, gate_input, &job, sizeof job, s->n_tok);
    hth_pool_add(s->pool, convolve, &job, sizeof job, s->n_tok);

    hth_output out = {.matrix = &c->out, .y = s->block_out, .add_to = add_to};
    hth_product_add(s->k, s->pool, &s->act_q8, s->recurrent.conv, s->n_tok, &out, 1, NULL);
    return HEARTH_OK;
}
