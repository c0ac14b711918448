/* Records the transposed down: the scales of clusters of hidden values, the sums of the neurons' rows, and floats of
 * these sums. record_ffn.c has it for a dense network. */
#include "forward/gpu/recorder.h"

#include <string.h>

hth_rec_neurons hth_rec_neurons_of(hth_buffer_range hidden, uint32_t n)
{
    return (hth_rec_neurons){.at = hidden, .n = n, .n_cluster = (uint32_t)hth_n_cluster(n)};
}

/* ---- scales ------------------------------------------------------------------------------------------ */

void hth_rec_down_scales(hth_recorder *r, uint32_t i_layer, const hth_rec_neurons *from)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    const hth_transposed_down *down = hth_layer_transposed_down(&r->g->model->layers[i_layer]);
    const hth_push_down_scale push = {from->n, from->n, hth_axpy_safe_exponent(down->rows.type, down->n_summed)};
    const hth_buffer_range bind[] = {ws->step, from->at, hth_rec_vector(r, r->g->layers[i_layer].scale_max),
                                     ws->down_scales};
    if (from->n == 0) return;
    hth_rec_dispatch(r, HTH_SHADER_down_scale, (const uint32_t[]){HTH_REC_LOCAL}, bind, &push, from->n_cluster,
                     r->n_row);
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
static down_shape down_shape_of(const hth_recorder *r, uint32_t n_tok)
{
    const hth_device_info *info = hth_device_get_info(r->g->device);
    down_shape s = {is_sparse(r) || n_tok == 1 ? 1 : 2, n_tok <= 8 ? 4 : 1};
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
    uint32_t n_out = r->g->model->hparams.d_model;
    down_shape shape = down_shape_of(r, n);
    const hth_push_down push = {.n_neuron = p->n_row,
                                .n_block = n_out / desc->block,
                                .stride = from->n,
                                .n_split = from->n_split,
                                .n_cluster = from->n_cluster,
                                .first = from->first + p->first,
                                .first_split = p->first / HTH_DOWN_SPLIT,
                                .first_tok = first_tok,
                                .at = p->layout.offsets};
    uint32_t consts[HTH_DOWN_N_CONST] = {shape.groups * HTH_REC_LOCAL, shape.cols, shape.groups};
    memcpy(consts + HTH_DOWN_FORMAT, desc, sizeof *desc);
    const hth_buffer_range bind[] = {
        ws->step, {p->weights, p->offset, p->layout.size}, from->at, ws->down_scales, ws->sums};
    hth_rec_dispatch_3d(r, HTH_SHADER_down_q, consts, bind, &push,
                        hth_div_ceil((uint64_t)n_out * desc->low_bits / 128, HTH_REC_LOCAL),
                        hth_div_ceil(p->n_row, HTH_DOWN_SPLIT), hth_div_ceil(n, shape.cols));
}

static void run_floats(hth_recorder *r, const hth_rec_neurons *from, const hth_gpu_matrix *p,
                       uint32_t first_tok, uint32_t n)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    uint32_t n_out = r->g->model->hparams.d_model;
    const hth_push_down_f push = {p->n_row, n_out, from->n, from->n_split, p->first, first_tok};
    const hth_buffer_range bind[] = {ws->step, {p->weights, p->offset, p->layout.size}, from->at, ws->sums};
    hth_rec_dispatch_3d(r, HTH_SHADER_down_f, (const uint32_t[]){HTH_REC_LOCAL, (uint32_t)p->type}, bind, &push,
                        hth_div_ceil(hth_div_ceil(hth_type_row_size(p->type, n_out), 4), HTH_REC_LOCAL),
                        hth_div_ceil(p->n_row, HTH_CLUSTER_NEURONS), n);
}

/* The contribution of some neurons to tokens [first_tok, first_tok + n): integers, or float chains. */
static void run_down(hth_recorder *r, const hth_rec_neurons *from, const hth_gpu_matrix *p,
                     uint32_t first_tok, uint32_t n)
{
    hth_quant_desc desc;
    if (hth_quant_desc_of(p->type, &desc)) run_quantised(r, from, p, &desc, first_tok, n);
    else run_floats(r, from, p, first_tok, n);
}

void hth_rec_down(hth_recorder *r, const hth_rec_neurons *from, const hth_gpu_matrix *p, uint32_t first_tok,
                  uint32_t n)
{
    uint32_t n_out = r->g->model->hparams.d_model;
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
