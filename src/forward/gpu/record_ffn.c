/* Records the feed-forward network: gate, up, activation and down of the neurons on the device; the device-to-host
 * message with which the CPU computes the others, and the use of its sums; or the chunks of streamed weights. */
#include "forward/gpu/recorder.h"

#include "base/checked_math.h"

#include <string.h>

/* ---- hidden values ------------------------------------------------------------------------------------ */

void hth_rec_activate(hth_recorder *r, const hth_rec_activation *a, const hth_gpu_fused_matrix *group)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    hth_vector_split split = hth_rec_vector_split(hth_device_get_info(r->g->device), a->n, HTH_KIND_NONE);
    hth_push_act_quantize push = {a->n, a->score_stride, a->min_score, a->limit};
    hth_input_form forms[2];
    uint32_t n_form = hth_rec_input_forms(r, group, a->store || (group && group->wants_f32), forms);
    for (uint32_t i = 0; i < n_form; i++) {
        const hth_input_form *f = &forms[i];
        const uint32_t consts[] = {(uint32_t)a->kind, a->gated,  f->block,  f->store,
                                   split.local,       a->select, split.wide};
        const hth_buffer_range bind[] = {ws->step,    a->from, ws->scores, hth_rec_vector(r, a->thresholds),
                                         a->to,       f->q,    f->d,       f->sum};
        hth_rec_dispatch(r, HTH_SHADER_act_quantize, consts, bind, &push, split.n_group, r->n_row);
        hth_rec_mark_form(r, f, a->to);
    }
    r->in_forms = HTH_NO_VALUE;
    hth_rec_barrier(r);
}

/* A network while it is recorded. */
typedef struct network {
    const hth_op *op;
    const hth_gpu_op *weights;
    const hth_gpu_layer *layer;
    const hth_ffn *ffn;
    hth_buffer_range gate_up, hidden; /* floats */
    const hth_rec_ffn_target *to;
} network;

/* Scores of all neurons, including the CPU's. */
static void predict(hth_recorder *r, const network *net)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    if (net->weights->n_fused <= HTH_GPU_PREDICT_IN) return;
    const hth_gpu_fused_matrix *in = &net->weights->fused[HTH_GPU_PREDICT_IN],
                               *out = &net->weights->fused[HTH_GPU_PREDICT_OUT];
    hth_rec_activation relu = {.kind = HTH_ACTIVATION_RELU, .n = in->n_row, .from = ws->rank_out, .to = ws->rank_hidden};
    uint32_t from = r->g->model->predicts_from_residual ? 1 : 0;
    hth_gpu_input x = hth_rec_input(r, net->op->in[from].value, in, false), ranks = ws->input;
    ranks.x = ws->rank_hidden;
    hth_rec_rows(r, in, &x, ws->rank_out, false);
    hth_rec_activate(r, &relu, out);
    hth_rec_rows(r, out, &ranks, ws->scores, false);
}

/* The mask of neurons that may be active: by scores, and with by_half also by their first half. */
static void active_mask(hth_recorder *r, const hth_rec_activation *a, bool by_half, uint32_t stride)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    hth_push_active_mask push = {a->n, stride, a->score_stride, a->min_score};
    const uint32_t consts[] = {(uint32_t)a->kind, a->select, by_half, HTH_REC_LOCAL};
    const hth_buffer_range bind[] = {ws->step, a->from, ws->scores, hth_rec_vector(r, a->thresholds), ws->active_mask};
    hth_rec_barrier(r);
    hth_rec_dispatch(r, HTH_SHADER_active_mask, consts, bind, &push, hth_div_ceil(a->n, HTH_REC_LOCAL), 1);
    hth_rec_mark_dirty(r, ws->active_mask);
    hth_rec_barrier(r);
    r->has_active_mask = true;
}

/* Gate and up. In steps of few tokens only the neurons that nothing has ruled out so far are computed, as on the
 * CPU (forward/ffn.c). Others keep old contents, which the activation sets to zero. */
static void neurons(hth_recorder *r, const hth_gpu_fused_matrix *group, const hth_rec_activation *a, const hth_gpu_input *in)
{
    bool few = r->n_row <= HTH_GPU_FEW_ROWS, by_score = a->select == HTH_SELECT_PREDICTOR;
    bool looks = r->g->params.selector != HEARTH_SELECTOR_DENSE && hth_activation_is_sparse(a->kind);
    bool by_half = a->gated && (looks || a->select == HTH_SELECT_THRESHOLD);
    if (!few || !(by_score || by_half)) {
        hth_rec_rows(r, group, in, a->from, false);
        return;
    }
    if (by_score) active_mask(r, a, false, group->n_row);
    hth_rec_row_range(r, group, 0, a->n, by_score, in, a->from, false);
    if (by_half) active_mask(r, a, true, group->n_row);
    if (a->gated) hth_rec_row_range(r, group, a->n, 2 * a->n, true, in, a->from, false);
    hth_rec_barrier(r);
}

/* Copies what the host needs for its own neurons: the inputs, and scores. */
static void write_d2h_msg(hth_recorder *r, const network *net, hth_buffer_range x)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    uint32_t d = r->g->model->hparams.d_model, n_score = net->weights->fused[HTH_GPU_PREDICT_OUT].n_row;
    if (r->st != HEARTH_OK) return;
    hth_cmdlist_copy(r->cmdlist, hth_rec_first_rows(x, r->n_row, d), hth_rec_first_rows(ws->d2h_ffn_input, r->n_row, d));
    if (n_score > 0)
        hth_cmdlist_copy(r->cmdlist, hth_rec_first_rows(ws->scores, r->n_row, n_score),
                         hth_rec_first_rows(ws->d2h_scores, r->n_row, n_score));
}

/* Once the network has read what it reads of the residual stream. */
static void add_other(hth_recorder *r, const network *net)
{
    if (net->to->add != HTH_NO_VALUE) hth_rec_add(r, net->op->in[1].value, net->to->add);
}

/* Commands after this need the host's sums. */
static void await_host(hth_recorder *r)
{
    hth_rec_host_op(r, HTH_HOST_OP_COLD_FFN, r->n_split_layer++, r->n_d2h);
    hth_rec_split(r);
}

/* Down of the hidden values, for as many tokens at once as the sums have capacity. With several stages it waits for the
 * host before the first. */
static void down_by_neurons(hth_recorder *r, const network *net)
{
    const hth_gpu_layer *to = net->layer;
    const hth_gpu_workspace *ws = &r->g->workspace;
    const hth_gpu_fused_matrix *down = &net->weights->fused[HTH_GPU_DOWN];
    bool split_layer = to->n_hot < net->ffn->d_ff, in_stages = r->n_row > ws->n_stage;
    bool floats = hth_type_act_block(net->ffn->down_t.rows.type) == 0;
    hth_rec_neurons from = hth_rec_neurons_of(net->hidden, to->n_hot);
    from.n_split = hth_div_ceil(to->n_hot, floats ? HTH_CLUSTER_NEURONS : HTH_DOWN_SPLIT);
    const hth_rec_sums both = {
        ws->sums, from.n_split, from.n_cluster, floats, split_layer, ws->host_sums, to->down_bias};
    if (!floats) hth_rec_down_scales(r, net->op->layer, &from);
    if (split_layer && in_stages) await_host(r);
    for (uint32_t first = 0, n; first < r->n_row; first += n) {
        n = hth_min_u32(r->n_row - first, hth_rec_down_stage(r, &from));
        for (uint32_t i = 0; i < down->n_matrix; i++) hth_rec_down(r, &from, &down->matrices[i], first, n);
        if (from.n > 0) hth_rec_mark_dirty(r, ws->sums);
        hth_rec_barrier(r);
        if (split_layer && !in_stages) await_host(r);
        hth_rec_reduce_sums(r, &both, first, n, net->to->y, net->to->accumulate);
    }
}

static hth_rec_activation hidden_of(const hth_recorder *r, const network *net)
{
    const hth_gpu_layer *to = net->layer;
    hearth_selector selector = r->g->params.selector;
    return (hth_rec_activation){.kind = r->g->model->hparams.activation,
                        .gated = net->ffn->gate.n_row > 0,
                        .store = to->down_transposed,
                        .n = to->down_transposed ? to->n_hot : net->ffn->d_ff,
                        .select = selector == HEARTH_SELECTOR_PREDICTOR   ? HTH_SELECT_PREDICTOR
                                  : selector == HEARTH_SELECTOR_THRESHOLD ? HTH_SELECT_THRESHOLD
                                                                          : HTH_SELECT_ALL,
                        .from = net->gate_up,
                        .to = net->hidden,
                        .score_stride = net->weights->fused[HTH_GPU_PREDICT_OUT].n_row,
                        .thresholds = to->thresholds,
                        .min_score = net->ffn->predictor.threshold};
}

/* ---- streamed weights --------------------------------------------------------------------------------- */

static uint32_t n_streamed(const hth_recorder *r, const hth_gpu_layer *to)
{
    return hth_gpu_n_streamed(to, r->stream);
}

/* The host computes its shares of the chunks up to i, each as soon as it has the layer's inputs. */
static void record_partial_ffn(hth_recorder *r, uint32_t i)
{
    for (; r->n_shared <= i; r->n_shared++)
        if (r->stream->chunks[r->n_shared].cpu_neurons.d_ff > 0)
            hth_rec_host_op(r, HTH_HOST_OP_PARTIAL_FFN, r->n_shared, r->layer_d2h);
}

/* Copies chunk i to its slot as soon as the host has staged it. Before that, the host computes its share for the
 * chunk that used the same staging buffer: there is always a staged chunk that the device need not wait for. */
static void prefetch(hth_recorder *r, uint32_t i)
{
    hth_buffer_range from = r->g->workspace.staging[i % 2], to = r->g->workspace.slots[i % 2];
    from.size = to.size = r->stream->chunks[i].layout.size;
    if (i >= 2) record_partial_ffn(r, i - 2);
    hth_rec_host_op(r, HTH_HOST_OP_STAGE_CHUNK, i, r->copied[i % 2]);
    hth_rec_split(r);
    if (r->st == HEARTH_OK) hth_cmdlist_copy(r->cmdlist, from, to);
    r->copied[i % 2] = ++r->n_d2h; /* its staging buffer is free when this segment is done */
}

/* The next chunk, already in its slot; the copy of the one after it overlaps with its use. */
static hth_gpu_matrix next_chunk(hth_recorder *r, const hth_stream_chunk **chunk)
{
    uint32_t i = r->n_chunk++;
    hth_buffer_range slot = r->g->workspace.slots[i % 2];
    const hth_stream_chunk *p = *chunk = &r->stream->chunks[i];
    if (i == 0) prefetch(r, 0);
    if (i + 1 < r->stream->n_chunk) prefetch(r, i + 1);
    else hth_rec_split(r);
    return (hth_gpu_matrix){.type = p->rows->type,
                          .n_row = p->n_row,
                          .layout = p->layout,
                          .weights = slot.buffer,
                          .offset = slot.offset,
                          .bias = p->bias};
}

/* Computes some rows of a matrix; results begin at the matrix's first index within `all`. */
static void run_part(hth_recorder *r, const network *net, const hth_gpu_fused_matrix *all, const hth_gpu_matrix *p,
                     uint32_t first, uint32_t n)
{
    const hth_row_range some = {.first = first, .n = n};
    hth_gpu_input in = r->g->workspace.input;
    in.x = r->values[net->op->in[0].value].at;
    hth_rec_part(r, all, p, &some, &in, net->gate_up, false);
}

/* Computes rows [first, first + n) of a resident group; results begin at index `to` of `all`. */
static void run_resident(hth_recorder *r, const network *net, const hth_gpu_fused_matrix *all, uint32_t first,
                         uint32_t n, uint32_t to)
{
    const hth_gpu_fused_matrix *group = &net->weights->fused[HTH_GPU_GATE_UP];
    for (uint32_t i = 0; i < group->n_matrix; i++) {
        hth_gpu_matrix p = group->matrices[i];
        uint32_t from = first > p.first ? first : p.first, end = p.first + p.n_row, skipped = from - p.first;
        if (end > first + n) end = first + n;
        p.first += to - first;
        if (from < end) run_part(r, net, all, &p, skipped, end - from);
    }
}

/* Gate, or up, of the neurons computed on the device: the resident ones, and all chunks of the matrix. */
static void run_half(hth_recorder *r, const network *net, const hth_gpu_fused_matrix *all, uint32_t half)
{
    const hth_gpu_layer *to = net->layer;
    uint32_t n_cold = n_streamed(r, to), first = half * (to->n_hot + n_cold);
    run_resident(r, net, all, half * to->n_hot, to->n_hot, first);
    for (uint32_t n = 0; n < n_cold;) {
        const hth_stream_chunk *chunk;
        hth_gpu_matrix p = next_chunk(r, &chunk);
        p.first = first + chunk->neuron;
        run_part(r, net, all, &p, 0, p.n_row);
        n += p.n_row;
    }
    hth_rec_mark_dirty(r, net->gate_up);
}

/* Adds sums of n tokens from first_tok on, or the host's sums, to the 64-bit sums. */
static void add_sums(hth_recorder *r, const hth_push_down_accumulate *push, bool host, uint32_t n)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    hth_rec_dispatch(r, HTH_SHADER_down_accumulate, (const uint32_t[]){HTH_REC_LOCAL, host},
                (const hth_buffer_range[]){ws->step, ws->sums, ws->acc64, ws->host_sums, ws->down_scales}, push,
                hth_div_ceil(push->n_out, HTH_REC_LOCAL), n);
    hth_rec_mark_dirty(r, ws->acc64);
    hth_rec_barrier(r);
}

/* Adds the sums of a matrix's neurons, of which the first is number `neuron` of n_neuron, to the 64-bit sums. */
static void accumulate_matrix(hth_recorder *r, const network *net, const hth_gpu_matrix *p, uint32_t neuron,
                              uint32_t n_neuron, bool start)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    uint32_t n_out = r->g->model->hparams.d_model;
    hth_rec_neurons from = hth_rec_neurons_of(net->hidden, n_neuron);
    from.first = neuron, from.n_split = hth_div_ceil(p->n_row, HTH_DOWN_SPLIT);
    uint64_t capacity = ws->sums.size / ((uint64_t)from.n_split * n_out * sizeof(int32_t));
    for (uint32_t first = 0, n; first < r->n_row; first += n) {
        n = r->n_row - first < capacity ? r->n_row - first : (uint32_t)capacity;
        hth_push_down_accumulate push = {n_out, from.n_split, first, start, neuron, from.n_cluster};
        hth_rec_down(r, &from, p, first, n);
        hth_rec_mark_dirty(r, ws->sums);
        hth_rec_barrier(r);
        add_sums(r, &push, false, n);
    }
}

/* Adds the sums of the host's share, once all of them have arrived. */
static void accumulate_share(hth_recorder *r)
{
    hth_push_down_accumulate push = {.n_out = r->g->model->hparams.d_model};
    record_partial_ffn(r, r->n_chunk - 1);
    hth_rec_split(r);
    add_sums(r, &push, true, r->n_row);
}

static void down_streamed(hth_recorder *r, const network *net)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    const hth_gpu_layer *to = net->layer;
    const hth_gpu_fused_matrix *down = &net->weights->fused[HTH_GPU_DOWN];
    uint32_t n_cold = n_streamed(r, to), n_gpu = to->n_hot + n_cold;
    const hth_rec_neurons hidden = hth_rec_neurons_of(net->hidden, n_gpu);
    hth_rec_down_scales(r, net->op->layer, &hidden);
    for (uint32_t i = 0; i < down->n_matrix; i++) {
        hth_gpu_matrix p = down->matrices[i];
        uint32_t neuron = p.first;
        p.first = 0;
        accumulate_matrix(r, net, &p, neuron, n_gpu, i == 0);
    }
    for (uint32_t n = 0; n < n_cold;) {
        const hth_stream_chunk *chunk;
        hth_gpu_matrix p = next_chunk(r, &chunk);
        accumulate_matrix(r, net, &p, chunk->neuron, n_gpu, chunk->neuron == 0);
        n += p.n_row;
    }
    if (n_cold < to->cold.d_ff) accumulate_share(r);
    const hth_rec_sums all = {
        .parts = ws->sums, .n_cluster = hidden.n_cluster, .has_acc64 = true, .acc64 = ws->acc64, .bias = to->down_bias};
    hth_rec_reduce_sums(r, &all, 0, r->n_row, net->to->y, net->to->accumulate);
}

/* Adds the input representations that a type needs. */
static void add_wants(hth_gpu_fused_matrix *group, hth_type type)
{
    group->wants_32 |= hth_type_act_block(type) == HTH_ACT_BLOCK;
    group->wants_256 |= hth_type_act_block(type) == HTH_ACT_BLOCK_256;
}

/* A layer's neurons from streamed chunks, except for the host's share. The results are bit-identical to those of a
 * fully resident layer. */
static void ffn_streamed(hth_recorder *r, const network *net)
{
    const hth_gpu_layer *to = net->layer;
    uint32_t n_gpu = to->n_hot + n_streamed(r, to), half = net->ffn->gate.n_row > 0;
    bool shared = n_gpu < net->ffn->d_ff;
    hth_gpu_fused_matrix all = {.n_row = (1 + half) * n_gpu, .n_col = r->g->model->hparams.d_model};
    hth_rec_activation hidden = hidden_of(r, net);
    all.y_stride = all.n_row, hidden.n = n_gpu;
    if (half) add_wants(&all, net->ffn->gate.type);
    add_wants(&all, net->ffn->up.type);
    predict(r, net);
    hth_gpu_input in = hth_rec_input(r, net->op->in[0].value, &all, shared);
    if (shared) write_d2h_msg(r, net, in.x);
    if (shared) r->layer_d2h = ++r->n_d2h, hth_rec_split(r);
    add_other(r, net);
    if (half) run_half(r, net, &all, 0);
    run_half(r, net, &all, half);
    hth_rec_barrier(r);
    hth_rec_activate(r, &hidden, NULL);
    down_streamed(r, net);
}

void hth_rec_ffn(hth_recorder *r, const hth_op *op, const hth_rec_ffn_target *to)
{
    const hth_gpu_layer *layer = &r->g->layers[op->layer];
    const network net = {.op = op,
                         .weights = layer->ffn,
                         .layer = layer,
                         .ffn = &r->g->model->layers[op->layer].ffn,
                         .gate_up = r->values[op->temp[1].value].at,
                         .hidden = r->values[op->temp[2].value].at,
                         .to = to};
    const hth_gpu_fused_matrix *fused = net.weights->fused;
    bool split_layer = layer->n_hot < net.ffn->d_ff;
    hth_rec_activation hidden = hidden_of(r, &net);
    r->has_active_mask = false;
    if (split_layer && r->stream) {
        ffn_streamed(r, &net);
        return;
    }
    predict(r, &net);
    hth_gpu_input in = hth_rec_input(r, op->in[0].value, &fused[HTH_GPU_GATE_UP], split_layer);
    if (split_layer) write_d2h_msg(r, &net, in.x);
    if (split_layer) r->n_d2h++, hth_rec_split(r);
    add_other(r, &net);
    if (hidden.n > 0) {
        neurons(r, &fused[HTH_GPU_GATE_UP], &hidden, &in);
        hth_rec_activate(r, &hidden, layer->down_transposed ? NULL : &fused[HTH_GPU_DOWN]);
    }
    if (layer->down_transposed) {
        down_by_neurons(r, &net);
        return;
    }
    in.x = net.hidden;
    hth_rec_rows(r, &fused[HTH_GPU_DOWN], &in, to->y, to->accumulate);
}
