/* Records a mixture of experts: the rows of the experts chosen for each token, whose outputs are parts of sums; and
 * those sums, in Q31.32, to floats. Where down is transposed, the parts are sums of neurons, which are computed with
 * the floats: for as many tokens at once as there is room for. */
#include "forward/gpu/recorder.h"

#include "base/checked_math.h"

/* The experts of an operation: those that were chosen, or the shared one, as slices. */
typedef struct network {
    const hth_op *op;
    const hth_gpu_op *weights;
    uint32_t d_ff, n_used, step; /* step 2: gate and up are one matrix (hth_experts) */
    uint32_t first_part;         /* of a token's parts */
    bool is_gated, down_transposed;
    float limit;
} network;

static network network_of(const hth_recorder *r, const hth_op *op)
{
    const hth_experts *e = &r->g->model->layers[op->layer].experts;
    network net = {.op = op, .weights = hth_rec_weights(r, op)};
    if (op->experts.shared) {
        net.d_ff = e->shared.d_ff, net.n_used = net.step = 1, net.first_part = e->router.n_used;
        net.is_gated = e->shared.gate.n_row > 0, net.limit = e->shared_limit;
        return net;
    }
    net.d_ff = e->d_ff, net.n_used = e->router.n_used, net.step = e->up.n_row > 0 ? 1 : 2;
    net.is_gated = e->gate.n_row > 0, net.limit = e->limit;
    net.down_transposed = e->down_t.rows.n_row > 0;
    return net;
}

/* Parts of a token: one for each expert that was chosen, and for the shared one. */
static uint32_t n_part_of(const hth_recorder *r, const hth_op *op)
{
    const hth_experts *e = &r->g->model->layers[op->layer].experts;
    return e->router.n_used + (e->shared.d_ff > 0);
}

/* Rows of slices as a matrix whose results begin at y_first. */
static void multiply(hth_recorder *r, const network *net, const hth_gpu_fused_matrix *from,
                     uint32_t slice_first, uint32_t y_stride, uint32_t y_first, const hth_gpu_input *in,
                     hth_buffer_range y)
{
    hth_gpu_fused_matrix to = *from;
    bool is_down = from == &net->weights->fused[HTH_GPU_EXPERT_DOWN];
    uint32_t n_row = is_down ? r->g->model->hparams.d_model : net->d_ff;
    const hth_rec_slices slices = {r->values[net->op->in[1].value].at,
                                   {.slice_rows = n_row,
                                    .slice_step = is_down ? 1 : net->step,
                                    .slice_first = slice_first,
                                    .n_used = net->n_used,
                                    .x_by_pair = is_down || net->op->experts.is_weighed,
                                    .y_pair = n_row,
                                    .weighs = is_down && !net->op->experts.is_weighed}};
    const hth_row_range rows = {.n = n_row, .slices = &slices};
    to.y_stride = y_stride, to.y_first = y_first;
    hth_rec_part(r, &to, &from->matrices[0], &rows, in, y, false);
}

void hth_rec_experts(hth_recorder *r, const hth_op *op)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    const network net = network_of(r, op);
    const hth_gpu_fused_matrix *fused = net.weights->fused, *gate = &fused[HTH_GPU_EXPERT_GATE],
                               *up = net.step == 2 ? gate : &fused[HTH_GPU_EXPERT_UP];
    uint32_t n = net.n_used * net.d_ff, half = net.is_gated ? n : 0, d = r->g->model->hparams.d_model;
    const hth_gpu_fused_matrix both = {.wants_32 = gate->wants_32 || up->wants_32,
                                       .wants_256 = gate->wants_256 || up->wants_256,
                                       .wants_f32 = gate->wants_f32 || up->wants_f32};
    hth_gpu_input in = hth_rec_input(r, op->in[0].value, &both, false);
    if (net.is_gated) multiply(r, &net, gate, 0, n + half, 0, &in, ws->expert_halves);
    multiply(r, &net, up, net.step - 1, n + half, half, &in, ws->expert_halves);
    hth_rec_mark_dirty(r, ws->expert_halves);
    hth_rec_barrier(r);
    const hth_rec_activation hidden = {.kind = r->g->model->hparams.activation,
                                       .gated = net.is_gated,
                                       .store = net.down_transposed,
                                       .n = n,
                                       .limit = net.limit,
                                       .from = ws->expert_halves,
                                       .to = ws->expert_hidden};
    hth_rec_activate(r, &hidden, net.down_transposed ? NULL : &fused[HTH_GPU_EXPERT_DOWN]);
    if (net.down_transposed) return;
    in.x = ws->expert_hidden;
    multiply(r, &net, &fused[HTH_GPU_EXPERT_DOWN], 0, n_part_of(r, op) * d, net.first_part * d, &in,
             ws->expert_parts);
    hth_rec_mark_dirty(r, ws->expert_parts);
    hth_rec_barrier(r);
}

/* The transposed down of the experts, and its sums to floats. */
static void settle_neurons(hth_recorder *r, const hth_op *op, const network *net)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    const hth_gpu_matrix *down = &net->weights->fused[HTH_GPU_EXPERT_DOWN].matrices[0];
    bool floats = hth_type_act_block(down->type) == 0;
    uint32_t n_cluster = net->n_used * hth_down_clusters(net->d_ff),
             n_split = floats ? n_cluster : n_cluster * (HTH_CLUSTER_NEURONS / HTH_DOWN_SPLIT);
    const hth_rec_neurons from = {.at = ws->expert_hidden,
                                  .n = net->d_ff,
                                  .n_cluster = n_cluster,
                                  .n_split = n_split,
                                  .n_used = net->n_used,
                                  .pairs = r->values[net->op->in[1].value].at};
    const hth_rec_sums sums = {.parts = ws->sums, .n_part = n_split, .n_cluster = n_cluster, .floats = floats};
    if (!floats) hth_rec_down_scales(r, op->layer, &from);
    for (uint32_t first = 0, n; first < r->n_row; first += n) {
        n = hth_min_u32(r->n_row - first, hth_rec_down_stage(r, &from));
        hth_rec_down(r, &from, down, first, n);
        hth_rec_mark_dirty(r, ws->sums);
        hth_rec_barrier(r);
        hth_rec_reduce_sums(r, &sums, first, n, r->values[op->out[0].value].at, op->adds);
    }
}

void hth_rec_settle(hth_recorder *r, const hth_op *op)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    const network last = network_of(r, op - 1);
    if (last.down_transposed) {
        settle_neurons(r, op, &last);
        return;
    }
    const hth_rec_sums sums = {.parts = ws->expert_parts, .n_part = n_part_of(r, op), .floats = true};
    hth_rec_reduce_sums(r, &sums, 0, r->n_row, r->values[op->out[0].value].at, op->adds);
}
