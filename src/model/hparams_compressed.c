/* Hyper-parameters of compressed attention, and of the streams of the residual stream that come with it. */
#include "model/hparams_int.h"

/* Which layers have blocks of how many positions. */
static hearth_status read_blocks(hth_hparams_reader *r, hth_hparams *h, hth_layer_sizes *sizes)
{
    const hth_gguf_value *v = hth_gguf_find(r->file, hth_hparams_key(r, "attention.compress_ratios"));
    if (!v) return hth_hparams_missing(r);
    if (v->type != HTH_GGUF_ARRAY || !hth_gguf_is_integer(v->element_type) || v->n_element < h->n_layer)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT, "%s: %s at %llu is not an array of %u numbers, one for each layer",
                        hth_gguf_path(r->file), r->key, (unsigned long long)v->offset, h->n_layer);
    for (uint32_t i = 0; i < h->n_layer; i++) {
        uint64_t n = hth_gguf_element_uint(v, i);
        if (n != 0 && n != 4 && n != 128)
            return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED,
                            "%s: %s at %llu is %llu for layer %u; supported: 0 (none), 4, 128", hth_gguf_path(r->file),
                            r->key, (unsigned long long)v->offset, (unsigned long long)n, i);
        sizes[i].block = (uint32_t)n;
        if (n > 0) h->compressed.n_tok[n == 4 ? 0 : 1] = (uint32_t)n;
    }
    return HEARTH_OK;
}

hearth_status hth_hparams_read_compressed(hth_hparams_reader *r, hth_hparams *h, hth_layer_sizes *sizes)
{
    hth_compressed_sizes *z = &h->compressed;
    double eps = 1e-6;
    hearth_status st;
    if ((st = hth_hparams_size(r, "attention.q_lora_rank", 1, HTH_MAX_D_MODEL, &z->q_rank)) != HEARTH_OK ||
        (st = hth_hparams_size(r, "attention.output_group_count", 1, h->n_head, &z->n_group)) != HEARTH_OK)
        return st;
    if (h->n_head % z->n_group != 0)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT, "%s: %s is %u, which does not divide the %u heads",
                        hth_gguf_path(r->file), r->key, z->n_group, h->n_head);
    if ((st = hth_hparams_size(r, "attention.output_lora_rank", 1, HTH_MAX_D_MODEL, &z->out_rank)) != HEARTH_OK ||
        (st = hth_hparams_size(r, "hyper_connection.count", 1, HTH_MAX_STREAM, &h->n_stream)) != HEARTH_OK ||
        (st = hth_hparams_size(r, "hyper_connection.sinkhorn_iterations", 1, 1000, &h->n_sinkhorn)) != HEARTH_OK ||
        (st = hth_hparams_float(r, "hyper_connection.epsilon", 0.0, 1.0, &eps, NULL)) != HEARTH_OK)
        return st;
    h->stream_eps = (float)eps;
    h->n_head_kv = 1;
    for (uint32_t i = 0; i < h->n_layer; i++) {
        sizes[i].n_head_kv = 1;
        if (sizes[i].n_head == h->n_head) continue;
        return hth_fail(r->err, HEARTH_ERROR_UNSUPPORTED,
                        "%s: layer %u has %u heads, others %u: compressed attention has the same in all layers",
                        hth_gguf_path(r->file), i, sizes[i].n_head, h->n_head);
    }
    return read_blocks(r, h, sizes);
}
