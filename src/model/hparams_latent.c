/* Hyper-parameters of latent attention: how its vectors are divided. */
#include "base/log.h"
#include "model/hparams_int.h"

/* An indexer chooses the keys that a token attends to. In contexts that it keeps whole, it changes nothing. */
static hearth_status read_indexer(hth_hparams_reader *r, hth_hparams *h)
{
    hearth_status st = hth_hparams_size(r, "attention.indexer.top_k", 1, HTH_MAX_CONTEXT, &h->n_position);
    if (st != HEARTH_OK || h->n_ctx_train <= h->n_position) return st;
    hth_log(HEARTH_LOG_WARN, "%s: %s limits contexts to %u positions: choosing keys in longer ones is not supported",
            hth_gguf_path(r->file), r->key, h->n_position);
    h->n_ctx_train = h->n_position;
    return HEARTH_OK;
}

hearth_status hth_hparams_read_latent(hth_hparams_reader *r, hth_hparams *h)
{
    hth_latent_sizes *z = &h->latent;
    uint32_t d_key = 0;
    hearth_status st;
    if ((st = hth_hparams_size(r, "attention.kv_lora_rank", 1, HTH_MAX_D_HEAD, &z->rank)) != HEARTH_OK ||
        (st = hth_hparams_count(r, "attention.q_lora_rank", HTH_MAX_D_MODEL, &z->q_rank)) != HEARTH_OK ||
        (st = hth_hparams_size(r, "attention.key_length_mla", 1, HTH_MAX_D_HEAD, &d_key)) != HEARTH_OK ||
        (st = hth_hparams_size(r, "attention.value_length_mla", 1, HTH_MAX_D_HEAD, &z->d_value)) !=
            HEARTH_OK ||
        (st = hth_hparams_size(r, "rope.dimension_count", 1, HTH_MAX_D_HEAD, &z->d_rope)) != HEARTH_OK)
        return st;
    if (z->d_rope >= d_key)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                        "%s: %s is %u, but %s.attention.key_length_mla, which it is a part of, is %u",
                        hth_gguf_path(r->file), r->key, z->d_rope, r->arch, d_key);
    z->d_nope = d_key - z->d_rope;
    h->d_head = h->d_head_window = z->rank + z->d_rope;
    h->score_width = d_key;
    h->n_head_kv = 1;
    return h->arch->indexer ? read_indexer(r, h) : HEARTH_OK;
}
