/* Records recurrent mixers: convolutions along tokens and gated DeltaNet, whose states are in copies of the device
 * (hth_gpu_op.state). */
#include "forward/gpu/recorder.h"

#include "base/checked_math.h"
#include "kernels/vector/math.h"

void hth_rec_conv(hth_recorder *r, const hth_op *op)
{
    const hth_conv *c = op->conv.conv;
    const hth_gpu_op *own = hth_rec_weights(r, op);
    hth_buffer_range x = hth_rec_floats(r, op->in[0].value), y = r->values[op->out[0].value].at;
    hth_push_conv push = {.n_channel = c->n_channel,
                          .d_conv = c->d_conv,
                          .has_bias = own->vectors[1].n > 0,
                          .silu = op->conv.silu,
                          .runs_at = r->g->workspace.runs_at,
                          .x = hth_rec_rows_at(r, op->in[0]),
                          .y = hth_rec_rows_at(r, op->out[0])};
    const hth_buffer_range bind[] = {
        r->g->workspace.step, x, hth_rec_vector(r, own->vectors[0]), hth_rec_vector(r, own->vectors[1]),
        own->state,           y};
    hth_rec_dispatch(r, HTH_SHADER_conv, (const uint32_t[]){HTH_REC_LOCAL}, bind, &push,
                     hth_div_ceil(c->n_channel, HTH_REC_LOCAL), hth_rec_n_run(r));
    hth_rec_mark_dirty(r, y), hth_rec_mark_dirty(r, own->state);
    hth_rec_barrier(r);
}

void hth_rec_rates(hth_recorder *r, const hth_op *op)
{
    const hth_delta_net *n = &r->g->model->layers[op->layer].delta_net;
    const hth_gpu_vector *vectors = hth_rec_weights(r, op)->vectors;
    bool is_joined = op->in[1].value == HTH_NO_VALUE;
    const hth_view decay = is_joined ? op->in[0] : op->in[1];
    hth_push_delta_rates push = {n->n_head,
                                 n->n_head / n->n_head_key,
                                 is_joined,
                                 hth_rec_rows_at(r, op->in[0]),
                                 hth_rec_rows_at(r, decay),
                                 hth_rec_rows_at(r, op->out[0]),
                                 hth_rec_rows_at(r, op->out[1])};
    hth_buffer_range to[] = {r->values[op->out[0].value].at, r->values[op->out[1].value].at};
    const hth_buffer_range bind[] = {r->g->workspace.step,
                                     hth_rec_floats(r, op->in[0].value),
                                     hth_rec_floats(r, decay.value),
                                     hth_rec_vector(r, vectors[0]),
                                     hth_rec_vector(r, vectors[1]),
                                     to[0],
                                     to[1]};
    hth_rec_dispatch(r, HTH_SHADER_delta_rates, (const uint32_t[]){HTH_REC_LOCAL}, bind, &push,
                     hth_div_ceil(n->n_head, HTH_REC_LOCAL), r->n_row);
    hth_rec_mark_dirty(r, to[0]), hth_rec_mark_dirty(r, to[1]);
    hth_rec_barrier(r);
}

void hth_rec_delta(hth_recorder *r, const hth_op *op)
{
    const hth_delta_net *n = &r->g->model->layers[op->layer].delta_net;
    const hth_gpu_op *own = hth_rec_weights(r, op);
    hth_buffer_range y = r->values[op->out[0].value].at;
    hth_push_delta_net push = {.n_head_key = n->n_head_key,
                               .n_shared = n->n_head / n->n_head_key,
                               .interleaved = n->key_head_interleaved,
                               .runs_at = r->g->workspace.runs_at,
                               .inverse_root = (float)(1.0 / hth_sqrt_d((double)n->d)),
                               .x = hth_rec_rows_at(r, op->in[0]),
                               .beta = hth_rec_rows_at(r, op->in[1]),
                               .decay = hth_rec_rows_at(r, op->in[2]),
                               .y = hth_rec_rows_at(r, op->out[0])};
    const hth_buffer_range bind[] = {r->g->workspace.step,
                                     hth_rec_floats(r, op->in[0].value),
                                     hth_rec_floats(r, op->in[1].value),
                                     hth_rec_floats(r, op->in[2].value),
                                     own->state,
                                     y};
    /* For each token a head reads its state twice, and the values of a chunk. */
    uint64_t work = (uint64_t)n->n_head * n->d * (2 * n->d + 4 * HTH_CHUNK) * HTH_DOT_SCALAR;
    uint32_t step = hth_rec_rows_per_dispatch(r, r->n_row, work, 1);
    for (push.first_tok = 0; push.first_tok < r->n_row; push.first_tok += step) {
        push.n_tok = hth_min_u32(r->n_row - push.first_tok, step);
        hth_rec_reserve_work(r, work * push.n_tok);
        hth_rec_dispatch(r, HTH_SHADER_delta_net, (const uint32_t[]){n->d, HTH_REC_LOCAL}, bind, &push,
                         n->n_head_key, hth_rec_n_run(r));
        hth_rec_mark_dirty(r, y), hth_rec_mark_dirty(r, own->state);
        hth_rec_barrier(r);
    }
}
