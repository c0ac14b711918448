/* Hyper-parameters of latent attention: how its vectors are divided. */
#include "model/hparams_int.h"

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
    return HEARTH_OK;
}
