/* Says which parts of a model can be offloaded, and how many bytes they take on the device: from shapes and types alone, so
 * that a placement can be chosen, or rejected, before anything is loaded. */
#include "forward/gpu/cache.h"
#include "forward/gpu/gpu_int.h"

uint32_t hth_gpu_positions(uint32_t n_ctx)
{
    uint32_t n_page = hth_kv_n_page(n_ctx), max = UINT32_MAX / HTH_KV_PAGE;
    return (n_page < max ? n_page : max) * HTH_KV_PAGE;
}

uint32_t hth_gpu_batch_size(const hth_device_info *info, uint32_t n_batch, uint32_t n_ctx)
{
    enum { MAX_POSITIONS = 32768 };
    if (n_batch == HEARTH_BATCH_AUTO || n_batch == HEARTH_BATCH_NONE) n_batch = HTH_DEFAULT_BATCH;
    if (info->kind == HTH_DEVICE_CPU && n_ctx > MAX_POSITIONS) return 1;
    return n_batch < n_ctx ? n_batch : n_ctx;
}

uint32_t hth_gpu_split_granularity(const hth_model *model, uint32_t i_layer)
{
    const hth_program *p = model->program;
    const hth_op *op = p->ffn_of_layer[i_layer] == UINT32_MAX ? NULL : &p->ops[p->ffn_of_layer[i_layer]];
    /* The host takes the inputs of a divided network as those of a norm. */
    bool has_norm = op && op->in[0].value != op->in[1].value;
    if (hth_layer_divides_experts(&model->layers[i_layer])) return 1;
    return has_norm && model->layers[i_layer].ffn.down_t.rows.n_row > 0 ? HTH_CLUSTER_NEURONS : 0;
}

uint64_t hth_gpu_router_floats(const hth_model *model, const hth_op *op)
{
    const hth_experts *e = &model->layers[op->layer].experts;
    uint64_t n_row = op->experts.shared ? e->shared_gate != NULL : e->router.n_expert;
    return n_row * model->hparams.d_model;
}

/* Bytes of the weights of operations [first, end) that are on a device. */
static bool ops_bytes(const hth_model *model, uint64_t max, const hth_offload_params *params, uint32_t first,
                      uint32_t end, uint32_t n_hot, uint64_t *bytes)
{
    hth_gpu_fused_src sources[HTH_GPU_OP_FUSED];
    uint64_t one;
    *bytes = 0;
    for (uint32_t i = first; i < end; i++) {
        const hth_op *op = &model->program->ops[i];
        uint32_t n = hth_gpu_op_srcs(model, op, n_hot, params->selector, sources);
        bool is_route = op->kind == HTH_OP_ROUTE;
        if ((n > 0 || is_route) && hth_gpu_op_lacks(model, params, op)) {
            if (!params->crosses) return false;
            continue;
        }
        if (is_route) *bytes += hth_gpu_router_floats(model, op) * sizeof(float);
        for (uint32_t k = 0; k < n; k++) {
            if (!hth_gpu_fused_matrix_bytes(&sources[k], max, &one)) return false;
            *bytes += one;
        }
    }
    return true;
}

bool hth_gpu_layer_bytes(const hth_model *model, uint64_t max, const hth_offload_params *params,
                         uint32_t i_layer, uint32_t n_hot, uint64_t *bytes)
{
    const uint32_t *first = model->program->first_of_layer;
    return ops_bytes(model, max, params, first[i_layer], first[i_layer + 1], n_hot, bytes);
}

uint32_t hth_gpu_max_units(const hth_model *model, uint64_t max, const hth_offload_params *params, uint32_t i_layer)
{
    uint32_t n = hth_layer_n_unit(&model->layers[i_layer]), fits = 0, beyond = n;
    uint64_t bytes;
    if (!hth_layer_divides_experts(&model->layers[i_layer]) || hth_gpu_layer_bytes(model, max, params, i_layer, n, &bytes))
        return n;
    while (beyond - fits > 1) {
        uint32_t middle = fits + (beyond - fits) / 2;
        if (hth_gpu_layer_bytes(model, max, params, i_layer, middle, &bytes)) fits = middle;
        else beyond = middle;
    }
    return fits;
}

uint64_t hth_gpu_idle_bytes(const hth_model *model, uint64_t max, const hth_offload_params *params, uint32_t i_layer)
{
    const hth_program *p = model->program;
    uint64_t idle = 0, all;
    for (uint32_t i = p->first_of_layer[i_layer]; i < p->first_of_layer[i_layer + 1]; i++) {
        hth_op_weights w = hth_op_weights_of(model, &p->ops[i]);
        if (w.n_used < w.n_slice && ops_bytes(model, max, params, i, i + 1, UINT32_MAX, &all))
            idle += all / w.n_slice * (w.n_slice - w.n_used);
    }
    return idle;
}

bool hth_gpu_head_bytes(const hth_model *model, uint64_t max, const hth_offload_params *params,
                        uint64_t *bytes)
{
    return ops_bytes(model, max, params, model->program->output_norm, model->program->n_op, 0, bytes);
}
