/* Records a mixture of experts: the rows of the experts chosen for each token, whose outputs are parts of sums; and
 * those sums, in Q31.32, to floats. Where down is transposed, the parts are sums of neurons, which are computed with
 * the floats: for as many tokens at once as there is room for. Where the device has some of a layer's experts, the host
 * computes the others of the chosen ones meanwhile, or all others pass through the device (expert_stream.c). */
#include "forward/gpu/recorder.h"

#include "base/checked_math.h"

/* The experts of an operation: those that were chosen, or the shared one, as slices. */
typedef struct network {
    const hth_op *op;
    const hth_gpu_op *weights;
    uint32_t d_ff, n_expert, n_used, step; /* step 2: gate and up are one matrix (hth_experts) */
    uint32_t n_slot;             /* for experts on the device; fewer: the host computes those without a slot */
    uint32_t slots_at;           /* word of the step block; 0: all are here */
    bool passes;                 /* experts without a slot pass through */
    uint32_t first_part;         /* of a token's parts */
    bool is_gated, down_transposed;
    float limit;
} network;

static bool passes_experts(const hth_recorder *r, uint32_t i_layer)
{
    const hth_gpu_expert_slots *slots = r->g->layers[i_layer].slots;
    return r->stream && slots && slots->n_chunk > 0;
}

/* Whether the device computes any of the chosen experts of a layer. */
static bool has_chosen(const hth_recorder *r, uint32_t i_layer)
{
    const hth_gpu_expert_slots *slots = r->g->layers[i_layer].slots;
    return !slots || slots->policy.n_slot > 0 || passes_experts(r, i_layer);
}

static network network_of(const hth_recorder *r, const hth_op *op)
{
    const hth_layer *l = &r->g->model->layers[op->layer];
    const hth_experts *e = &l->experts;
    const hth_gpu_expert_slots *slots = r->g->layers[op->layer].slots;
    uint32_t n_slot = slots ? slots->policy.n_slot : e->router.n_expert;
    network net = {.op = op, .weights = hth_rec_weights(r, op)};
    if (op->experts.shared) {
        net.d_ff = e->shared.d_ff, net.n_expert = net.n_used = net.step = net.n_slot = 1;
        net.first_part = has_chosen(r, op->layer) ? e->router.n_used : 0;
        net.is_gated = e->shared.gate.n_row > 0, net.limit = e->shared_limit;
        return net;
    }
    net.d_ff = e->d_ff, net.n_expert = e->router.n_expert, net.n_used = e->router.n_used, net.n_slot = n_slot;
    net.slots_at = slots ? slots->at : 0, net.passes = passes_experts(r, op->layer);
    net.step = e->up.n_row > 0 ? 1 : 2;
    net.is_gated = e->gate.n_row > 0, net.limit = e->limit;
    net.down_transposed = e->down_t.rows.n_row > 0;
    return net;
}

/* Whether the host computes some of the experts. */
static bool is_divided(const hth_recorder *r, const network *net)
{
    return net->n_slot < net->n_expert && !net->passes && !hth_rec_reads_experts(r, net->op->layer);
}

/* The chosen experts of a layer. */
static network chosen_of(const hth_recorder *r, const hth_op *settle)
{
    const hth_op *op = settle - 1;
    while (op->kind != HTH_OP_EXPERTS || op->experts.shared) op--;
    return network_of(r, op);
}

/* Parts of a token: one for each expert that was chosen, if any is on the device, and for the shared one. */
static uint32_t n_part_of(const hth_recorder *r, const hth_op *op)
{
    const hth_experts *e = &r->g->model->layers[op->layer].experts;
    return (has_chosen(r, op->layer) ? e->router.n_used : 0) + (e->shared.d_ff > 0);
}

/* Pairs of a group; 1: pairs are multiplied one by one. Tiles of matrix units get as many as an expert has on average,
 * so that few of their columns are without a pair. */
static uint32_t group_size(const hth_recorder *r, const network *net)
{
    uint32_t of = HTH_GPU_EXPERT_PAIRS, usual = r->n_row * net->n_used / net->n_expert;
    if (r->n_row <= HTH_GPU_FEW_ROWS) return 1;
    while (r->g->coopmat > HTH_COOPMAT_NONE && of < usual && of < HTH_GPU_MAX_EXPERT_PAIRS) of *= 2;
    return of;
}

/* Experts whose weights lie together: those in slots, or those of a chunk. */
typedef struct expert_range {
    const hth_gpu_fused_matrix *fused;
    uint32_t first, n; /* slots */
} expert_range;

/* A part of the chosen experts among these, by pair: gate and up to halves, down to parts of outputs. */
static void multiply(hth_recorder *r, const network *net, const expert_range *e, int part, const hth_gpu_input *in)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    bool is_down = part == HTH_GPU_EXPERT_DOWN, is_up = part == HTH_GPU_EXPERT_UP;
    hth_gpu_fused_matrix to = e->fused[is_up && net->step == 2 ? HTH_GPU_EXPERT_GATE : part];
    uint32_t d = r->g->model->hparams.d_model, n_row = is_down ? d : net->d_ff, n_pair = r->n_row * net->n_used,
             of = group_size(r, net), n_half = net->n_used * net->d_ff, n_gate = net->is_gated ? n_half : 0;
    const hth_rec_slices slices = {of > 1 ? ws->expert_groups : r->values[net->op->in[1].value].at,
                                   of > 1 ? hth_max_groups(net->n_expert, n_pair, of) : n_pair,
                                   of,
                                   {.slice_rows = n_row,
                                    .slice_step = is_down ? 1 : net->step,
                                    .slice_first = is_up ? net->step - 1 : 0,
                                    .n_used = net->n_used,
                                    .x_by_pair = is_down || net->op->experts.is_weighed,
                                    .y_pair = n_row,
                                    .weighs = is_down && !net->op->experts.is_weighed,
                                    .n_slot = e->n,
                                    .slot_first = e->first,
                                    .slots_at = net->slots_at}};
    /* Gate and up of the shared expert are matrices as others. */
    const hth_row_range rows = {.n = n_row, .slices = net->op->experts.shared && !is_down ? NULL : &slices};
    to.y_stride = is_down ? n_part_of(r, net->op) * d : n_half + n_gate;
    to.y_first = is_down ? net->first_part * d : is_up ? n_gate : 0;
    hth_rec_part(r, &to, &to.matrices[0], &rows, in, is_down ? ws->expert_parts : ws->expert_halves, false);
}

/* Down, or gate and up. */
static void multiply_parts(hth_recorder *r, const network *net, const expert_range *e, bool is_down, const hth_gpu_input *in)
{
    if (is_down) multiply(r, net, e, HTH_GPU_EXPERT_DOWN, in);
    if (!is_down && net->is_gated) multiply(r, net, e, HTH_GPU_EXPERT_GATE, in);
    if (!is_down) multiply(r, net, e, HTH_GPU_EXPERT_UP, in);
}

/* Multiplies the experts that pass through, chunk by chunk. The host waits for a message behind each chunk: its buffer is
 * free then. */
static void multiply_chunks(hth_recorder *r, const network *net, bool is_down, const hth_gpu_input *in)
{
    const hth_gpu_expert_slots *slots = r->g->layers[net->op->layer].slots;
    for (uint32_t i = slots->first_chunk; i < slots->first_chunk + slots->n_chunk; i++) {
        const hth_expert_chunk *c = &r->g->passing.chunks[i];
        const expert_range e = {c->fused, net->n_slot + c->first, c->n};
        if (c->is_down != is_down) continue;
        hth_rec_host_op(r, HTH_HOST_OP_PASS_CHUNK, i, r->passed[i % 2]);
        hth_rec_split(r);
        multiply_parts(r, net, &e, is_down, in);
        r->passed[i % 2] = ++r->n_d2h;
        hth_rec_split(r);
    }
}

static void multiply_all(hth_recorder *r, const network *net, bool is_down, const hth_gpu_input *in)
{
    const expert_range in_slots = {net->weights->fused, 0, net->n_slot};
    if (net->n_slot > 0) multiply_parts(r, net, &in_slots, is_down, in);
    if (net->passes) multiply_chunks(r, net, is_down, in);
    hth_rec_mark_dirty(r, is_down ? r->g->workspace.expert_parts : r->g->workspace.expert_halves);
    hth_rec_barrier(r);
}

/* Gate, up and down as any of an operation's experts have them: all have the same types. */
static const hth_gpu_fused_matrix *fused_of(const hth_recorder *r, const hth_op *op, bool is_down)
{
    const hth_gpu_expert_slots *slots = r->g->layers[op->layer].slots;
    if (op->experts.shared || !passes_experts(r, op->layer)) return hth_rec_weights(r, op)->fused;
    return r->g->passing.chunks[slots->first_chunk + (is_down ? slots->n_chunk - 1 : 0)].fused;
}

hth_gpu_fused_matrix hth_rec_expert_inputs(const hth_recorder *r, const hth_op *op)
{
    const hth_gpu_fused_matrix *fused = fused_of(r, op, false), *gate = &fused[HTH_GPU_EXPERT_GATE],
                               *up = &fused[HTH_GPU_EXPERT_UP];
    return (hth_gpu_fused_matrix){.wants_32 = gate->wants_32 || up->wants_32,
                                  .wants_256 = gate->wants_256 || up->wants_256,
                                  .wants_f32 = gate->wants_f32 || up->wants_f32};
}

/* Rows of an expert are read once for several tokens. */
static void group_pairs(hth_recorder *r, const network *net)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    const hth_push_group_pairs push = {net->n_used, net->slots_at};
    const uint32_t consts[] = {net->n_expert + 1, group_size(r, net), HTH_REC_LOCAL};
    const hth_buffer_range bind[] = {ws->step, r->values[net->op->in[1].value].at, ws->expert_groups};
    if (r->n_row <= HTH_GPU_FEW_ROWS) return;
    hth_rec_dispatch(r, HTH_SHADER_group_pairs, consts, bind, &push, hth_div_ceil(net->n_expert + 1, HTH_REC_LOCAL), 1);
    hth_rec_mark_dirty(r, ws->expert_groups);
}

/* Copies what the host needs for its own experts. */
static void write_d2h_msg(hth_recorder *r, const network *net)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    const hth_value *values = r->g->model->program->values;
    uint32_t x = net->op->in[0].value, pairs = net->op->in[1].value;
    hth_buffer_range floats = hth_rec_floats(r, x);
    if (r->st == HEARTH_OK)
        hth_cmdlist_copy(r->cmdlist, hth_rec_first_rows(floats, r->n_row, values[x].width),
                         hth_rec_first_rows(ws->d2h_ffn_input, r->n_row, values[x].width));
    if (r->st == HEARTH_OK)
        hth_cmdlist_copy(r->cmdlist, hth_rec_first_rows(r->values[pairs].at, r->n_row, values[pairs].width),
                         hth_rec_first_rows(ws->d2h_pairs, r->n_row, values[pairs].width));
    r->n_d2h++;
    hth_rec_split(r);
}

/* Copies choices for the policy. */
static void copy_sample(hth_recorder *r, const network *net)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    uint32_t pairs = net->op->in[1].value, n = hth_min_u32(r->n_row, HTH_GPU_SAMPLED_ROWS);
    hth_buffer_range from = hth_rec_first_rows(r->values[pairs].at, n, r->g->model->program->values[pairs].width),
                     to = {ws->sampled_pairs.buffer, ws->sampled_pairs.offset + 4 * (uint64_t)ws->sample_words * net->op->layer,
                           from.size};
    if (r->st == HEARTH_OK) hth_cmdlist_copy(r->cmdlist, from, to);
}

static void run_network(hth_recorder *r, const network *net)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    const hth_op *op = net->op;
    const hth_gpu_fused_matrix both = hth_rec_expert_inputs(r, op);
    group_pairs(r, net);
    hth_gpu_input in = hth_rec_input(r, op->in[0].value, &both, false);
    hth_rec_barrier(r);
    multiply_all(r, net, false, &in);
    const hth_rec_activation hidden = {.kind = r->g->model->hparams.activation,
                                       .gated = net->is_gated,
                                       .store = net->down_transposed,
                                       .n = net->n_used * net->d_ff,
                                       .limit = net->limit,
                                       .from = ws->expert_halves,
                                       .to = ws->expert_hidden};
    hth_rec_activate(r, &hidden, net->down_transposed ? NULL : &fused_of(r, op, true)[HTH_GPU_EXPERT_DOWN]);
    if (net->down_transposed) return;
    in.x = ws->expert_hidden;
    multiply_all(r, net, true, &in);
}

void hth_rec_experts(hth_recorder *r, const hth_op *op)
{
    const network net = network_of(r, op);
    if (is_divided(r, &net)) write_d2h_msg(r, &net);
    if (net.passes) copy_sample(r, &net);
    if (net.n_slot > 0 || net.passes) run_network(r, &net);
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
    const network net = chosen_of(r, op);
    if (net.down_transposed) {
        settle_neurons(r, op, &net);
        return;
    }
    const hth_rec_sums sums = {.parts = ws->expert_parts,
                               .n_part = n_part_of(r, op),
                               .floats = true,
                               .has_acc64 = is_divided(r, &net),
                               .acc64 = ws->host_sums};
    if (is_divided(r, &net)) {
        hth_rec_host_op(r, HTH_HOST_OP_EXPERTS, (uint32_t)(net.op - r->g->model->program->ops), r->n_d2h);
        hth_rec_split(r);
    }
    hth_rec_reduce_sums(r, &sums, 0, r->n_row, r->values[op->out[0].value].at, op->adds);
}
