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

/* k_b and v_b, or one tensor as the model was trained, in which the part for keys is the transpose of k_b. */
static hearth_status bind_keys_and_values(hth_binder *b, uint32_t i, hth_layer *l)
{
    enum { MAX_RANK = 2048 }; /* ten such rows fit into HTH_PRODUCT_SCRATCH (forward/by_head.c) */
    const hth_latent_sizes *z = &b->model->hparams.latent;
    hth_latent *t = &l->latent;
    size_t n_head = l->attn.n_head;
    const hth_gguf_tensor *joined = hth_bind_find_in_layer(b, i, "attn_kv_b.weight"),
                          *keys = hth_bind_find_in_layer(b, i, "attn_k_b.weight");
    if (!joined && !keys)
        return hth_fail(b->err, HEARTH_ERROR_FORMAT,
                        "%s: tensor '%s' is missing, and so is 'blk.%u.attn_kv_b.weight' (one is needed by "
                        "architecture %s)",
                        hth_gguf_path(b->model->file), b->name, b->first_block + i, b->model->hparams.architecture);
    if (!joined || keys) {
        hearth_status st = hth_bind_slices(b, keys, n_head, z->rank, z->d_nope, &t->k_b);
        if (st != HEARTH_OK) return st;
        return hth_bind_slices(b, hth_bind_find_in_layer(b, i, "attn_v_b.weight"), n_head, z->d_value, z->rank,
                               &t->v_b);
    }
    if (z->rank > MAX_RANK)
        return hth_fail(b->err, HEARTH_ERROR_UNSUPPORTED,
                        "%s: tensor 'blk.%u.attn_kv_b.weight' (info at byte %llu) has rows of %u values, supported "
                        "are %d",
                        hth_gguf_part_path(b->model->file, joined->i_part), b->first_block + i,
                        (unsigned long long)joined->info_at, z->rank, MAX_RANK);
    hth_bind_find_in_layer(b, i, "attn_kv_b.weight"); /* sets the name for messages */
    hearth_status st = hth_bind_matrix(b, joined, n_head * (z->d_nope + z->d_value), z->rank, &t->kv_b);
    t->kv_b.n_slice = n_head;
    return st;
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
    hearth_status st = bind_queries(b, i, l);
    if (st == HEARTH_OK)
        st = hth_bind_matrix(b, hth_bind_find_in_layer(b, i, "attn_kv_a_mqa.weight"), z->rank + z->d_rope, d,
                             &t->kv_a);
    if (st == HEARTH_OK)
        st = hth_bind_vector(b, hth_bind_find_in_layer(b, i, "attn_kv_a_norm.weight"), z->rank, &t->kv_norm);
    if (st == HEARTH_OK) st = bind_keys_and_values(b, i, l);
    if (st != HEARTH_OK) return st;
    return hth_bind_matrix(b, hth_bind_find_in_layer(b, i, "attn_output.weight"), d, n_head * z->d_value,
                           &l->attn.o);
}
