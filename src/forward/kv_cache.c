/* The KV cache of a sequence: memory for all positions at once, one stream of keys and one of values per layer and
 * KV head. Sessions open it; attention.c writes and reads it. kernels/attn/kv_layout.h defines the layout of a
 * head's stream. */
#include "forward/forward_int.h"

#include "base/format_bytes.h"
#include "base/checked_math.h"

static bool head_size(const hth_model *model, hearth_kv_type type, uint32_t n_ctx, size_t *size)
{
    size_t d = model->hparams.d_head;
    if ((uint32_t)type >= HTH_N_KV_TYPE || (type == HEARTH_KV_Q8_0 && d % HTH_ACT_BLOCK > 0)) return false;
    return hth_mul_size(hth_kv_layout_n_group(n_ctx), hth_kv_layout_group_size(type, d), size);
}

bool hth_kv_size(const hth_model *model, hearth_kv_type type, uint32_t n_ctx, size_t *size)
{
    size_t n_head = 0, n;
    for (uint32_t i = 0; i < model->hparams.n_layer; i++) n_head += model->layers[i].attn.n_head_kv;
    return head_size(model, type, n_ctx, &n) && hth_mul_size(n, 2 * n_head, size);
}

static hearth_status check_type(const hth_model *model, hearth_kv_type type, hearth_error *err)
{
    if ((uint32_t)type >= HTH_N_KV_TYPE)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "KV cache of type %d: 0 (F16), 1 (F32) and 2 (Q8_0) exist", (int)type);
    if (type == HEARTH_KV_Q8_0 && model->hparams.d_head % HTH_ACT_BLOCK > 0)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "KV cache q8_0: heads of %u values are not whole blocks of %d; ask for --kv f16",
                        model->hparams.d_head, HTH_ACT_BLOCK);
    return HEARTH_OK;
}

hearth_status hth_kv_open(hth_kv *kv, const hth_model *model, hearth_kv_type type, uint32_t n_ctx,
                          hearth_error *err)
{
    uint32_t n_layer = model->hparams.n_layer;
    *kv = (hth_kv){.type = type, .n_ctx = n_ctx};
    hearth_status st = check_type(model, type, err);
    if (st != HEARTH_OK) return st;
    if (!hth_kv_size(model, type, n_ctx, &kv->size))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "a context of %u positions overflows; ask for less with -c", n_ctx);
    kv->layer_offset = hth_alloc(n_layer, sizeof *kv->layer_offset);
    kv->memory = kv->layer_offset ? hth_pages_alloc(kv->size) : NULL;
    if (!kv->memory) {
        size_t size = kv->size;
        hth_kv_close(kv);
        return hth_fail(err, HEARTH_ERROR_MEMORY,
                        "out of memory: %s for a context of %u positions; ask for less with -c",
                        hth_format_bytes(size).text, n_ctx);
    }
    (void)head_size(model, type, n_ctx, &kv->head_size); /* cannot overflow: the total size did not */
    size_t at = 0;
    for (uint32_t i = 0; i < n_layer; i++) {
        kv->layer_offset[i] = at;
        at += 2 * model->layers[i].attn.n_head_kv * kv->head_size;
    }
    return HEARTH_OK;
}

void hth_kv_close(hth_kv *kv)
{
    hth_pages_free(kv->memory, kv->size);
    hth_free(kv->layer_offset);
    *kv = (hth_kv){0};
}

/* Stream i of a layer: keys of all KV heads, then values of all. */
static uint8_t *stream_at(const hth_kv *kv, uint32_t i_layer, size_t i)
{
    return kv->memory + kv->layer_offset[i_layer] + i * kv->head_size;
}

const uint8_t *hth_kv_keys(const hth_kv *kv, uint32_t i_layer, uint32_t i_head)
{
    return stream_at(kv, i_layer, i_head);
}

const uint8_t *hth_kv_values(const hth_kv *kv, const hth_model *model, uint32_t i_layer, uint32_t i_head)
{
    return stream_at(kv, i_layer, (size_t)model->layers[i_layer].attn.n_head_kv + i_head);
}

void hth_kv_store(hth_kv *kv, const hth_model *model, const hth_kernels *k, uint32_t i_layer,
                  uint32_t position, const float *key, const float *value)
{
    size_t d = model->hparams.d_head, n_head = model->layers[i_layer].attn.n_head_kv;
    for (size_t i = 0; i < n_head; i++) {
        hth_kv_layout_put_key(k, kv->type, stream_at(kv, i_layer, i), d, position, key + i * d);
        hth_kv_layout_put_value(k, kv->type, stream_at(kv, i_layer, n_head + i), d, position, value + i * d);
    }
}
