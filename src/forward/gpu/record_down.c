/* Records the transposed down: the scales of clusters of hidden values, the sums of the neurons' rows, and floats of
 * these sums. record_ffn.c has it for a dense network, record_experts.c for the experts that were chosen for each token. */
#include "forward/gpu/recorder.h"

#include "base/checked_math.h"

#include <string.h>

hth_rec_neurons hth_rec_neurons_of(hth_buffer_range hidden, uint32_t n)
{
    return (hth_rec_neurons){.at = hidden, .n = n, .n_cluster = (uint32_t)hth_n_cluster(n)};
}

static bool is_sliced(const hth_rec_neurons *from) { return from->n_used > 0; }

/* Floats from a token's hidden values to the next one's. */
static uint32_t stride_of(const hth_rec_neurons *from)
{
    return is_sliced(from) ? from->n_used * from->n : from->n;
}

/* ---- scales ------------------------------------------------------------------------------------------ */

void hth_rec_down_scales(hth_recorder *r, uint32_t i_layer, const hth_rec_neurons *from)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    const hth_transposed_down *down = hth_layer_transposed_down(&r->g->model->layers[i_layer]);
    const hth_push_down_scale_sliced push = {
        {from->n, stride_of(from), hth_axpy_safe_exponent(down->rows.type, down->n_summed)}, from->n_used};
    const hth_buffer_range bind[] = {ws->step, from->at, hth_rec_vector(r, r->g->layers[i_layer].scale_max),
                                     ws->down_scales, from->pairs};
    if (from->n == 0) return;
    hth_rec_dispatch(r, is_sliced(from) ? HTH_SHADER_down_scale_sliced : HTH_SHADER_down_scale,
                     (const uint32_t[]){HTH_REC_LOCAL}, bind, &push, from->n_cluster, r->n_row);
    hth_rec_mark_dirty(r, ws->down_scales);
    hth_rec_barrier(r);
}

/* ---- sums -------------------------------------------------------------------------------------------- */

/* Whether most hidden values are zero. */
static bool is_sparse(const hth_recorder *r)
{
    hearth_selector selector = r->g->params.selector;
    return hth_activation_is_sparse(r->g->model->hparams.activation) ||
           selector == HEARTH_SELECTOR_PREDICTOR || selector == HEARTH_SELECTOR_THRESHOLD;
}

/* How down_q divides its work: tokens that an invocation computes, with 16 to 64 sums of each in registers, and groups
 * of invocations that divide the neurons of a split. */
typedef struct down_shape {
    uint32_t cols, groups;
} down_shape;

/* A neuron's weights serve two tokens, unless few neurons fire: then most would be computed for one in vain. Few tokens
 * have too few workgroups to fill a GPU, which waits for memory then: groups load more rows at a time. */
static down_shape down_shape_of(const hth_recorder *r, bool one, uint32_t n_tok)
{
    const hth_device_info *info = hth_device_get_info(r->g->device);
    down_shape s = {one || n_tok == 1 ? 1 : 2, n_tok <= 8 ? 4 : 1};
    for (; s.groups > 1; s.groups /= 2) {
        /* The shader's shared memory: sixteen sums of each lane and group; the split's neurons; a table of values. */
        uint32_t words = 16 * s.groups * (HTH_REC_LOCAL + 1) + 3 * HTH_DOWN_SPLIT + 32;
        if (s.groups * HTH_REC_LOCAL <= info->max_workgroup_size && 4 * words <= info->max_shared_memory)
            break;
    }
    return s;
}

static void run_quantised(hth_recorder *r, const hth_rec_neurons *from, const hth_gpu_matrix *p,
                          const hth_quant_desc *desc, uint32_t first_tok, uint32_t n)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    bool sliced = is_sliced(from);
    uint32_t n_out = r->g->model->hparams.d_model;
    down_shape shape = down_shape_of(r, sliced || is_sparse(r), n);
    const hth_push_down_sliced push = {{.n_neuron = sliced ? from->n : p->n_row,
                                        .n_block = n_out / desc->block,
                                        .stride = stride_of(from),
                                        .n_split = from->n_split,
                                        .n_cluster = from->n_cluster,
                                        .first = from->first + p->first,
                                        .first_split = p->first / HTH_DOWN_SPLIT,
                                        .first_tok = first_tok,
                                        .at = p->layout.offsets},
                                       from->n_used};
    uint32_t consts[HTH_DOWN_N_CONST] = {shape.groups * HTH_REC_LOCAL, shape.cols, shape.groups};
    memcpy(consts + HTH_DOWN_FORMAT, desc, sizeof *desc);
    const hth_buffer_range bind[] = {
        ws->step, {p->weights, p->offset, p->layout.size}, from->at, ws->down_scales, ws->sums, from->pairs};
    hth_rec_dispatch_3d(r, sliced ? HTH_SHADER_down_q_sliced : HTH_SHADER_down_q, consts, bind, &push,
                        hth_div_ceil((uint64_t)n_out * desc->low_bits / 128, HTH_REC_LOCAL),
                        sliced ? from->n_split : hth_div_ceil(p->n_row, HTH_DOWN_SPLIT),
                        hth_div_ceil(n, shape.cols));
}

static void run_floats(hth_recorder *r, const hth_rec_neurons *from, const hth_gpu_matrix *p,
                       uint32_t first_tok, uint32_t n)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    bool sliced = is_sliced(from);
    uint32_t n_out = r->g->model->hparams.d_model;
    const hth_push_down_f_sliced push = {
        {sliced ? from->n : p->n_row, n_out, stride_of(from), from->n_split, p->first, first_tok},
        from->n_used};
    const hth_buffer_range bind[] = {
        ws->step, {p->weights, p->offset, p->layout.size}, from->at, ws->sums, from->pairs};
    hth_rec_dispatch_3d(r, sliced ? HTH_SHADER_down_f_sliced : HTH_SHADER_down_f,
                        (const uint32_t[]){HTH_REC_LOCAL, (uint32_t)p->type}, bind, &push,
                        hth_div_ceil(hth_div_ceil(hth_type_row_size(p->type, n_out), 4), HTH_REC_LOCAL),
                        sliced ? from->n_split : hth_div_ceil(p->n_row, HTH_CLUSTER_NEURONS), n);
}

/* The contribution of some neurons to tokens [first_tok, first_tok + n): integers, or float chains. */
static void run_down(hth_recorder *r, const hth_rec_neurons *from, const hth_gpu_matrix *p,
                     uint32_t first_tok, uint32_t n)
{
    hth_quant_desc desc;
    if (hth_quant_desc_of(p->type, &desc)) run_quantised(r, from, p, &desc, first_tok, n);
    else run_floats(r, from, p, first_tok, n);
}

/* Returns the work of the experts of a token. */
static uint64_t work_of_token(const hth_recorder *r, const hth_rec_neurons *from)
{
    return from->n * hth_rec_row_work(r->g->model->hparams.d_model, from->n_used, HTH_DOT_SCALAR);
}

uint32_t hth_rec_down_stage(const hth_recorder *r, const hth_rec_neurons *from)
{
    uint32_t n = hth_min_u32(r->n_row, r->g->workspace.n_stage);
    return is_sliced(from) ? hth_min_u32(n, hth_rec_rows_per_dispatch(r, r->n_row, work_of_token(r, from), 1))
                           : n;
}

/* Hints the bytes that chosen experts read: at most as if each pair had an expert of its own. */
static void hint_bytes(hth_recorder *r, const hth_rec_neurons *from, const hth_gpu_matrix *p, uint32_t n)
{
    uint64_t of_pairs = p->layout.size / p->n_row * from->n * from->n_used * n;
    if (r->st == HEARTH_OK) hth_cmdlist_hint_bytes(r->cmdlist, hth_min_u64(p->layout.size, of_pairs));
}

void hth_rec_down(hth_recorder *r, const hth_rec_neurons *from, const hth_gpu_matrix *p, uint32_t first_tok,
                  uint32_t n)
{
    uint32_t n_out = r->g->model->hparams.d_model;
    if (is_sliced(from)) {
        hth_rec_reserve_work(r, n * work_of_token(r, from));
        run_down(r, from, p, first_tok, n);
        hint_bytes(r, from, p, n);
        return;
    }
    uint64_t work = hth_rec_row_work(n_out, n, HTH_DOT_SCALAR);
    uint32_t step = hth_rec_rows_per_dispatch(r, p->n_row, work, HTH_CLUSTER_NEURONS);
    for (uint32_t i = 0, k; i < p->n_row; i += k) {
        k = p->n_row - i < step ? p->n_row - i : step;
        const hth_gpu_matrix some = hth_rec_rows_of(p, n_out, i, k);
        hth_rec_reserve_work(r, k * work);
        run_down(r, from, &some, first_tok, n);
        hth_rec_hint_bytes(r, p, &(hth_row_range){i, k, p->first + i, r->has_active_mask, NULL});
    }
}

/* ---- floats ------------------------------------------------------------------------------------------ */

void hth_rec_reduce_sums(hth_recorder *r, const hth_rec_sums *p, uint32_t first_tok, uint32_t n,
                         hth_buffer_range y, bool accumulate)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    uint32_t n_out = r->g->model->hparams.d_model;
    hth_push_down_reduce push = {n_out, p->n_part, p->bias.n > 0, first_tok, p->floats ? 0 : p->n_cluster};
    hth_buffer_range acc64 = p->has_acc64 ? p->acc64 : hth_rec_vector(r, p->bias);
    const hth_buffer_range bind[] = {ws->step, p->parts, ws->down_scales, acc64, hth_rec_vector(r, p->bias),
                                     y};
    enum { OUTPUTS = 32, MAX_GROUPS = 8 }; /* of a workgroup */
    uint32_t groups = MAX_GROUPS;
    while (groups * OUTPUTS > hth_device_get_info(r->g->device)->max_workgroup_size) groups /= 2;
    hth_rec_dispatch(r, accumulate ? HTH_SHADER_down_reduce_acc : HTH_SHADER_down_reduce,
                     (const uint32_t[]){groups * OUTPUTS, p->floats, p->has_acc64, groups}, bind, &push,
                     hth_div_ceil(n_out, OUTPUTS), n);
    hth_rec_mark_dirty(r, y);
    hth_rec_barrier(r);
}
