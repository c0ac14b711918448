/* Hyper-parameters of latent attention: how its vectors are divided. */
#include "model/hparams_int.h"

#include <stdio.h>

/* Reads the length of a head's keys or values: key NAME_mla, or NAME where a converter wrote attention as it was
 * trained. split: the first was there. */
static hearth_status read_length(hth_hparams_reader *r, const char *name, uint32_t *length, bool *split)
{
    char own[48];
    snprintf(own, sizeof own, "%s_mla", name);
    hearth_status st = hth_hparams_count(r, own, HTH_MAX_D_HEAD, length);
    *split = *length > 0;
    if (st != HEARTH_OK || *split) return st;
    if (!hth_gguf_find(r->file, hth_hparams_key(r, name))) {
        hth_hparams_key(r, own);
        return hth_hparams_missing(r);
    }
    return hth_hparams_size(r, name, 1, HTH_MAX_D_HEAD, length);
}

hearth_status hth_hparams_read_latent(hth_hparams_reader *r, hth_hparams *h)
{
    hth_latent_sizes *z = &h->latent;
    uint32_t d_key = 0;
    bool split, values_split;
    hearth_status st;
    if ((st = hth_hparams_size(r, "attention.kv_lora_rank", 1, HTH_MAX_D_HEAD, &z->rank)) != HEARTH_OK ||
        (st = hth_hparams_count(r, "attention.q_lora_rank", HTH_MAX_D_MODEL, &z->q_rank)) != HEARTH_OK ||
        (st = read_length(r, "attention.key_length", &d_key, &split)) != HEARTH_OK ||
        (st = read_length(r, "attention.value_length", &z->d_value, &values_split)) != HEARTH_OK ||
        (st = hth_hparams_size(r, "rope.dimension_count", 1, HTH_MAX_D_HEAD, &z->d_rope)) != HEARTH_OK)
        return st;
    if (z->d_rope + split > d_key)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                        "%s: %s is %u, but %s.attention.key_length%s, which it is a part of, is %u",
                        hth_gguf_path(r->file), r->key, z->d_rope, r->arch, split ? "_mla" : "", d_key);
    z->d_nope = d_key - z->d_rope;
    h->d_head = h->d_head_window = z->rank + z->d_rope;
    h->score_width = d_key;
    h->n_head_kv = 1;
    return HEARTH_OK;
}
