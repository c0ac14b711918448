/* Records recurrent mixers: convolutions along tokens, gated DeltaNet, Kimi Delta Attention and selective state spaces,
 * whose states are in copies of the device (hth_gpu_op.state). */
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

/* ---- rates ---------------------------------------------------------------------------------------------- */

static void rates_of_delta_net(hth_recorder *r, const hth_op *op)
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

static void rates_of_kda(hth_recorder *r, const hth_op *op)
{
    const hth_kda *n = &r->g->model->layers[op->layer].kda;
    const hth_gpu_vector *vectors = hth_rec_weights(r, op)->vectors;
    const hth_push_kda_rates push = {n->n_head, n->d, hth_rec_rows_at(r, op->out[0]), hth_rec_rows_at(r, op->out[1])};
    hth_buffer_range beta = hth_rec_floats(r, op->in[0].value), decay = hth_rec_floats(r, op->in[1].value);
    const hth_buffer_range bind[] = {r->g->workspace.step, hth_rec_vector(r, vectors[0]), hth_rec_vector(r, vectors[1]), beta,
                                     decay};
    hth_rec_dispatch(r, HTH_SHADER_kda_rates, (const uint32_t[]){HTH_REC_LOCAL}, bind, &push,
                     hth_div_ceil((uint64_t)n->n_head * n->d, HTH_REC_LOCAL), r->n_row);
    hth_rec_mark_dirty(r, beta), hth_rec_mark_dirty(r, decay);
    hth_rec_barrier(r);
}

/* Decays of heads, the other output, are found by SCAN's shader, and nothing else reads them. */
static void rates_of_ssm(hth_recorder *r, const hth_op *op)
{
    const hth_ssm *n = &r->g->model->layers[op->layer].ssm;
    const hth_push_ssm_rates push = {n->n_head > 0 ? n->n_head : n->n_inner, hth_rec_rows_at(r, op->out[0])};
    hth_buffer_range delta = hth_rec_floats(r, op->in[0].value);
    hth_rec_dispatch(r, HTH_SHADER_ssm_rates, (const uint32_t[]){HTH_REC_LOCAL},
                     (const hth_buffer_range[]){r->g->workspace.step, delta}, &push,
                     hth_div_ceil(push.n, HTH_REC_LOCAL), r->n_row);
    hth_rec_mark_dirty(r, delta);
    hth_rec_barrier(r);
}

void hth_rec_rates(hth_recorder *r, const hth_op *op)
{
    switch (r->g->model->layers[op->layer].mixer) {
    case HTH_MIXER_DELTA_NET: rates_of_delta_net(r, op); break;
    case HTH_MIXER_KDA: rates_of_kda(r, op); break;
    default: rates_of_ssm(r, op);
    }
}

/* ---- recurrences ------------------------------------------------------------------------------------------ */

/* A shader that goes through the tokens of each run, `work` for each token; tokens: those of a dispatch, in push. */
typedef struct recurrence {
    hth_shader_id id;
    const uint32_t *consts;
    const hth_buffer_range *bind;
    void *push;
    hth_token_range *tokens;
    uint64_t work;
    uint32_t n_group;
    hth_buffer_range y, state;
} recurrence;

/* In as many dispatches as submissions need. */
static void go_through_tokens(hth_recorder *r, const recurrence *s)
{
    uint32_t step = hth_rec_rows_per_dispatch(r, r->n_row, s->work, 1);
    for (s->tokens->first = 0; s->tokens->first < r->n_row; s->tokens->first += step) {
        s->tokens->n = hth_min_u32(r->n_row - s->tokens->first, step);
        hth_rec_reserve_work(r, s->work * s->tokens->n);
        hth_rec_dispatch(r, s->id, s->consts, s->bind, s->push, s->n_group, hth_rec_n_run(r));
        hth_rec_mark_dirty(r, s->y), hth_rec_mark_dirty(r, s->state);
        hth_rec_barrier(r);
    }
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
    go_through_tokens(r, &(recurrence){.id = HTH_SHADER_delta_net,
                                       .consts = (const uint32_t[]){n->d, HTH_REC_LOCAL},
                                       .bind = bind,
                                       .push = &push,
                                       .tokens = &push.tokens,
                                       .work = (uint64_t)n->n_head * n->d * (2 * n->d + 4 * HTH_CHUNK) * HTH_DOT_SCALAR,
                                       .n_group = n->n_head_key,
                                       .y = y,
                                       .state = own->state});
}

/* Columns of a state that a workgroup has: as many as its shared memory holds. */
static uint32_t columns_of_kda(const hth_device_info *info, uint32_t d)
{
    uint32_t local = HTH_KDA_MAX_LOCAL;
    while (local > 4 && hth_kda_shared_bytes(d, local) > info->max_shared_memory) local /= 2;
    return local;
}

void hth_rec_kda(hth_recorder *r, const hth_op *op)
{
    const hth_kda *n = &r->g->model->layers[op->layer].kda;
    const hth_gpu_op *own = hth_rec_weights(r, op);
    const uint32_t consts[] = {n->d, columns_of_kda(hth_device_get_info(r->g->device), n->d)};
    hth_buffer_range y = r->values[op->out[0].value].at;
    hth_push_kda push = {.n_head = n->n_head,
                         .runs_at = r->g->workspace.runs_at,
                         .inverse_root = (float)(1.0 / hth_sqrt_d((double)n->d)),
                         .query = hth_rec_rows_at(r, op->in[0]),
                         .key = hth_rec_rows_at(r, op->in[1]),
                         .value = hth_rec_rows_at(r, op->in[2]),
                         .beta = hth_rec_rows_at(r, op->in[3]),
                         .decay = hth_rec_rows_at(r, op->in[4]),
                         .y = hth_rec_rows_at(r, op->out[0])};
    const hth_buffer_range bind[] = {r->g->workspace.step,
                                     hth_rec_floats(r, op->in[0].value),
                                     hth_rec_floats(r, op->in[1].value),
                                     hth_rec_floats(r, op->in[2].value),
                                     hth_rec_floats(r, op->in[3].value),
                                     hth_rec_floats(r, op->in[4].value),
                                     own->state,
                                     y};
    /* For each token each value of a state is decayed, added to, and multiplied twice. */
    go_through_tokens(r, &(recurrence){.id = HTH_SHADER_kda,
                                       .consts = consts,
                                       .bind = bind,
                                       .push = &push,
                                       .tokens = &push.tokens,
                                       .work = 4 * (uint64_t)n->n_head * n->d * n->d * HTH_DOT_SCALAR,
                                       .n_group = n->n_head * hth_div_ceil(n->d, consts[HTH_KDA_LOCAL]),
                                       .y = y,
                                       .state = own->state});
}

/* B and C: values of their own, or behind the channels, those of all groups. */
static hth_rows_at rows_of_group(const hth_recorder *r, const hth_op *op, int i_in, uint32_t behind)
{
    bool is_own = op->in[i_in].value != HTH_NO_VALUE;
    hth_rows_at rows = hth_rec_rows_at(r, is_own ? op->in[i_in] : op->in[0]);
    if (!is_own) rows.at += behind;
    return rows;
}

void hth_rec_scan(hth_recorder *r, const hth_op *op)
{
    const hth_ssm *n = &r->g->model->layers[op->layer].ssm;
    const hth_gpu_op *own = hth_rec_weights(r, op);
    uint32_t n_part = n->n_head > 0 ? n->n_head : 1, size = n->n_inner / n_part;
    bool is_low = op->in[3].value != HTH_NO_VALUE;
    hth_buffer_range x = hth_rec_floats(r, op->in[0].value), y = r->values[op->out[0].value].at;
    hth_push_ssm_scan push = {.n_part = n_part,
                              .size = size,
                              .n_state = n->d_state,
                              .n_shared = is_low ? n_part : n_part / n->n_group,
                              .d_at = n->n_head > 0 ? n->n_head : n->d_state * n->n_inner,
                              .runs_at = r->g->workspace.runs_at,
                              .x = hth_rec_rows_at(r, op->in[0]),
                              .delta = hth_rec_rows_at(r, op->in[1]),
                              .b = rows_of_group(r, op, 3, n->n_inner),
                              .c = rows_of_group(r, op, 4, n->n_inner + n->n_group * n->d_state),
                              .y = hth_rec_rows_at(r, op->out[0])};
    const hth_buffer_range bind[] = {r->g->workspace.step,
                                     x,
                                     hth_rec_floats(r, op->in[1].value),
                                     hth_rec_vector(r, own->vectors[0]),
                                     is_low ? hth_rec_floats(r, op->in[3].value) : x,
                                     is_low ? hth_rec_floats(r, op->in[4].value) : x,
                                     own->state,
                                     y};
    /* For each token each state is decayed, added to and multiplied; a decay of its own takes ten products. */
    go_through_tokens(r, &(recurrence){.id = HTH_SHADER_ssm_scan,
                                       .consts = (const uint32_t[]){n->n_head == 0, HTH_REC_LOCAL},
                                       .bind = bind,
                                       .push = &push,
                                       .tokens = &push.tokens,
                                       .work = (n->n_head > 0 ? 3 : 13) * (uint64_t)n->n_inner * n->d_state * HTH_DOT_SCALAR,
                                       .n_group = hth_div_ceil(n_part * (uint64_t)hth_ssm_quads(size), HTH_REC_LOCAL),
                                       .y = y,
                                       .state = own->state});
}
