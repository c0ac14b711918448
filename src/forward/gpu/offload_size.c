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
    if (n_batch == HEARTH_BATCH_AUTO || n_batch == HEARTH_BATCH_NONE) n_batch = HTH_DEFAULT_BATCH;
    if (info->kind == HTH_DEVICE_CPU && n_ctx > MAX_POSITIONS) return 1;
    return n_batch < n_ctx ? n_batch : n_ctx;
}

#define WITHOUT_SHADER(TYPE)                                                                                 \
    case HTH_TYPE_##TYPE: return "no shader supports " #TYPE;

static const char *group_unsupported(const hth_gpu_fused_src *source)
{
    uint64_t bytes;
    if (hth_gpu_fused_matrix_bytes(source, UINT32_MAX, &bytes)) return NULL;
    for (uint32_t i = 0; i < source->n; i++) {
        if (source->n_row[i] == 0) continue;
        switch (source->matrix[i]->type) {
            WITHOUT_SHADER(IQ1_S)
            WITHOUT_SHADER(IQ1_M)
            WITHOUT_SHADER(IQ2_XXS)
            WITHOUT_SHADER(IQ2_XS)
            WITHOUT_SHADER(IQ2_S)
            WITHOUT_SHADER(IQ3_XXS)
            WITHOUT_SHADER(IQ3_S)
            WITHOUT_SHADER(TQ1_0)
            WITHOUT_SHADER(TQ2_0)
            WITHOUT_SHADER(NVFP4)
        default: break;
        }
    }
    return "no shader supports a type of its weights";
}

/* What the shaders of attention and of the residual stream lack. */
static const char *layer_unsupported(const hth_hparams *h, const hth_layer *l)
{
    const hth_attention *a = &l->attn;
    bool scales_apart = a->window > 0 && h->rope.window_unscaled && h->rope.window_base == 0.0;
    if (l->mixer != HTH_MIXER_ATTENTION || l->parallel_mixer != HTH_MIXER_NONE) return "no shader supports its kind of mixer";
    if (l->network == HTH_NETWORK_EXPERTS) return "no shader computes experts";
    if (l->network != HTH_NETWORK_DENSE) return "no shader supports its kind of network";
    if (a->d_head != h->d_head || a->k.n_row == 0 || a->v.n_row == 0 || h->norms_values || a->d_value > 0 ||
        h->value_scale != 0.0f)
        return "no shader supports its heads of keys and values";
    if (l->embedding.gate.n_row > 0 || l->output_scale || l->embedding_scale) return "no shader has embeddings or factors of layers";
    if (a->chunk > 0) return "no shader supports attention in chunks";
    if (h->temperature_scale != 0.0f) return "no shader scales queries by position";
    if (a->slopes) return "no shader supports scores that fall with distance";
    if (a->sinks) return "no shader supports scores without values";
    if (h->qkv_limit != 0.0f) return "no shader limits queries, keys and values";
    if (h->norm_bias && h->norm == HTH_NORM_RMS) return "no shader has norms with a bias";
    if ((a->q_norm.weight || a->k_norm.weight) && (h->qk_norm != HTH_QK_NORM_HEAD || h->qk_norm_after))
        return "no shader supports its norm of queries and keys";
    if ((h->rope.n_rot > 0 && !a->rotates) || scales_apart) return "no shader supports its rotation";
    if (h->no_pre_norms) return "no shader supports a layer without norms of its inputs";
    if (h->attn_gate != HTH_ATTN_GATE_NONE) return "no shader has gates of heads";
    if (h->activation > HTH_ACTIVATION_DRELU) return "no shader has its activation";
    if (h->post_norm_eps != 0.0) return "no shader has two epsilons of norms";
    if (h->residual_scale != 1.0f) return "no shader scales what is added to the residual stream";
    return NULL;
}

const char *hth_gpu_unsupported_reason(const hth_model *model, const hth_offload_params *params,
                                       uint32_t i_layer)
{
    const hth_hparams *h = &model->hparams;
    hth_gpu_fused_src groups[HTH_GPU_N_FUSED];
    if (i_layer == h->n_layer) {
        hth_gpu_fused_src head = hth_gpu_head_src(model);
        if (h->logit_scale != 1.0f) return "no shader scales logits";
        return group_unsupported(&head);
    }
    const hth_layer *l = &model->layers[i_layer];
    const char *lacks = layer_unsupported(h, l);
    if (lacks) return lacks;
    if (h->d_head % 4 > 0) return "its heads are no multiple of 4 values";
    if (params->kv == HEARTH_KV_Q8_0 && h->d_head % HTH_ACT_BLOCK > 0)
        return "its heads are no multiple of 32 values, as a Q8_0 cache is";
    if (h->d_head > HTH_GPU_MAX_D_HEAD) return "its heads are too large";
    hth_gpu_fused_srcs(model, i_layer, l->ffn.d_ff, params->selector, groups);
    for (int i = 0; i < HTH_GPU_N_FUSED && !lacks; i++) lacks = group_unsupported(&groups[i]);
    return lacks;
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
