/* Binds the tensors of latent attention. */
#include "model/bind_int.h"

static hearth_status bind_queries(hth_binder *b, uint32_t i, hth_layer *l)
{
    const hth_hparams *h = &b->model->hparams;
    const hth_latent_sizes *z = &h->latent;
    hth_latent *t = &l->latent;
    size_t n = (size_t)l->attn.n_head * (z->d_nope + z->d_rope);
    const hth_gguf_tensor *whole = hth_bind_find_in_layer(b, i, "attn_q.weight");
    if (z->q_rank == 0 || whole) return hth_bind_matrix(b, whole, n, h->d_model, &t->q_a);
    hearth_status st =
        hth_bind_matrix(b, hth_bind_find_in_layer(b, i, "attn_q_a.weight"), z->q_rank, h->d_model, &t->q_a);
    if (st == HEARTH_OK)
        st = hth_bind_vector(b, hth_bind_find_in_layer(b, i, "attn_q_a_norm.weight"), z->q_rank, &t->q_norm);
    if (st != HEARTH_OK) return st;
    return hth_bind_matrix(b, hth_bind_find_in_layer(b, i, "attn_q_b.weight"), n, z->q_rank, &t->q_b);
}

/* Old converters wrote k_b and v_b as one tensor, whose part for keys would have to be transposed. */
static hearth_status check_converter(hth_binder *b, uint32_t i)
{
    const hth_gguf_tensor *t = hth_bind_find_in_layer(b, i, "attn_kv_b.weight");
    if (!t || hth_bind_find_in_layer(b, i, "attn_k_b.weight")) return HEARTH_OK;
    return hth_fail(
        b->err, HEARTH_ERROR_UNSUPPORTED,
        "%s: tensor 'blk.%u.attn_kv_b.weight' (info at byte %llu) is of an old converter, and there is no "
        "attn_k_b.weight: convert the model again",
        hth_gguf_part_path(b->model->file, t->i_part), i, (unsigned long long)t->info_at);
}

hearth_status hth_bind_latent(hth_binder *b, uint32_t i, hth_layer *l)
{
    const hth_hparams *h = &b->model->hparams;
    const hth_latent_sizes *z = &h->latent;
    hth_latent *t = &l->latent;
    size_t d = h->d_model, n_head = l->attn.n_head;
    l->mixer = HTH_MIXER_LATENT;
    l->attn.n_head_kv = 1;
    if (n_head != h->n_head)
        return hth_fail(b->err, HEARTH_ERROR_UNSUPPORTED,
                        "%s: layer %u has %zu heads, others %u: latent attention has the same in all layers",
                        hth_gguf_path(b->model->file), i, n_head, h->n_head);
    hearth_status st = check_converter(b, i);
    if (st == HEARTH_OK) st = bind_queries(b, i, l);
    if (st == HEARTH_OK)
        st = hth_bind_matrix(b, hth_bind_find_in_layer(b, i, "attn_kv_a_mqa.weight"), z->rank + z->d_rope, d,
                             &t->kv_a);
    if (st == HEARTH_OK)
        st = hth_bind_vector(b, hth_bind_find_in_layer(b, i, "attn_kv_a_norm.weight"), z->rank, &t->kv_norm);
    if (st == HEARTH_OK)
        st = hth_bind_slices(b, hth_bind_find_in_layer(b, i, "attn_k_b.weight"), n_head, z->rank, z->d_nope,
                             &t->k_b);
    if (st == HEARTH_OK)
        st = hth_bind_slices(b, hth_bind_find_in_layer(b, i, "attn_v_b.weight"), n_head, z->d_value, z->rank,
                             &t->v_b);
    if (st != HEARTH_OK) return st;
    return hth_bind_matrix(b, hth_bind_find_in_layer(b, i, "attn_output.weight"), d, n_head * z->d_value,
                           &l->attn.o);
}
