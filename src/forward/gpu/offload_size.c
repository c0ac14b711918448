/* What of a model can be offloaded, and how many bytes it takes on the device: from shapes and types alone, so
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
    if (info->kind == HTH_DEVICE_CPU && n_ctx > MAX_POSITIONS) return 1;
    return n_batch < n_ctx ? n_batch : n_ctx;
}

static bool group_has_programs(const hth_gpu_fused_src *source)
{
    uint64_t bytes;
    return hth_gpu_fused_matrix_bytes(source, UINT32_MAX, &bytes);
}

/* What the shaders do not compute; NULL: they compute the model's layers. */
static const char *missing_in_shaders(const hth_hparams *h)
{
    const hth_arch *a = h->arch;
    if (h->alibi != 0.0f) return "no shader has scores that fall with distance (ALiBi)";
    if (h->qkv_limit != 0.0f) return "no shader limits queries, keys and values";
    if (h->residual_scale != 1.0f || h->logit_scale != 1.0f) return "no shader scales outputs of blocks or logits";
    if (h->activation > HTH_ACTIVATION_DRELU) return "no shader has its activation";
    if (a->attn_gate != HTH_ATTN_GATE_NONE) return "no shader has gates of heads";
    if (a->attn_sinks) return "no shader has attention sinks";
    if (a->no_pre_norms || a->norm_params != HTH_PARAMS_BY_KIND) return "no shader has norms of its kind";
    if (h->parallel && a->parallel == HTH_PARALLEL_BY_KEY) return "no shader has norms of its kind";
    if (a->qk_norm_after || a->qk_norm == HTH_QK_NORM_EACH || a->qk_norm == HTH_QK_NORM_ALL)
        return "no shader has norms of queries and keys of its kind";
    return a->swa.unscaled && h->rope.window_base == 0.0 ? "no shader rotates layers with a window in its way" : NULL;
}

const char *hth_gpu_unsupported_reason(const hth_model *model, const hth_offload_params *params,
                                       uint32_t i_layer)
{
    const hth_hparams *h = &model->hparams;
    hth_gpu_fused_src groups[HTH_GPU_N_FUSED];
    const char *missing = missing_in_shaders(h);
    if (missing) return missing;
    if (i_layer == h->n_layer) {
        hth_gpu_fused_src head = hth_gpu_head_src(model);
        return group_has_programs(&head) ? NULL : "no shader supports its type";
    }
    const hth_layer *l = &model->layers[i_layer];
    if (l->mixer != HTH_MIXER_ATTENTION || l->network != HTH_NETWORK_DENSE)
        return "no shader supports its kind of mixer or network";
    if (!l->attn.rotates && h->rope.n_rot > 0) return "no shader leaves single layers unrotated";
    if (h->d_head % 4 > 0) return "its heads are no multiple of 4 values";
    if (params->kv == HEARTH_KV_Q8_0 && h->d_head % HTH_ACT_BLOCK > 0)
        return "its heads are no multiple of 32 values, as a Q8_0 cache is";
    if (h->d_head > HTH_GPU_MAX_D_HEAD) return "its heads are too large";
    hth_gpu_fused_srcs(model, i_layer, l->ffn.d_ff, params->selector, groups);
    for (int i = 0; i < HTH_GPU_N_FUSED; i++)
        if (!group_has_programs(&groups[i])) return "no shader supports a type of its weights";
    return NULL;
}

uint32_t hth_gpu_split_granularity(const hth_model *model, uint32_t i_layer)
{
    return model->layers[i_layer].ffn.down_t.rows.n_row > 0 ? HTH_CLUSTER_NEURONS : 0;
}

bool hth_gpu_layer_bytes(const hth_model *model, uint64_t max, const hth_offload_params *params,
                         uint32_t i_layer, uint32_t n_hot, uint64_t *bytes)
{
    hth_gpu_fused_src groups[HTH_GPU_N_FUSED];
    uint64_t one;
    *bytes = 0;
    hth_gpu_fused_srcs(model, i_layer, n_hot, params->selector, groups);
    for (int i = 0; i < HTH_GPU_N_FUSED; i++) {
        if (!hth_gpu_fused_matrix_bytes(&groups[i], max, &one)) return false;
        *bytes += one;
    }
    return true;
}

bool hth_gpu_head_bytes(const hth_model *model, uint64_t max, uint64_t *bytes)
{
    hth_gpu_fused_src head = hth_gpu_head_src(model);
    return hth_gpu_fused_matrix_bytes(&head, max, bytes);
}
