/* Binds the tensors of compressed attention and of connections between streams. */
#include "model/bind_int.h"

#include <stdio.h>

/* The slices of groups of heads, in three dimensions or in two. */
static hearth_status bind_groups(hth_binder *b, uint32_t i, size_t n_col, hth_matrix *m)
{
    const hth_compressed_sizes *z = &b->model->hparams.compressed;
    const hth_gguf_tensor *t = hth_bind_find_in_layer(b, i, "attn_output_a.weight");
    bool together = t && t->dim[2] == 1;
    if (!together) return hth_bind_slices(b, t, z->n_group, z->out_rank, n_col, m);
    hearth_status st = hth_bind_matrix(b, t, (size_t)z->n_group * z->out_rank, n_col, m);
    m->n_slice = z->n_group;
    return st;
}

static hearth_status bind_blocks(hth_binder *b, uint32_t i, size_t d_head, hth_compressed *c)
{
    size_t d = b->model->hparams.d_model, n = c->overlaps ? 2 * d_head : d_head;
    hearth_status st = hth_bind_matrix(b, hth_bind_find_in_layer(b, i, "attn_compressor_kv.weight"), n, d, &c->values);
    if (st == HEARTH_OK)
        st = hth_bind_matrix(b, hth_bind_find_in_layer(b, i, "attn_compressor_gate.weight"), n, d, &c->scores);
    if (st == HEARTH_OK)
        st = hth_bind_vectors(b, hth_bind_find_in_layer(b, i, "attn_compressor_ape.weight"), n, c->n_tok, &c->position);
    if (st != HEARTH_OK) return st;
    return hth_bind_vector(b, hth_bind_find_in_layer(b, i, "attn_compressor_norm.weight"), d_head, &c->norm);
}

hearth_status hth_bind_compressed(hth_binder *b, uint32_t i, uint32_t n_tok, hth_layer *l)
{
    const hth_hparams *h = &b->model->hparams;
    const hth_compressed_sizes *z = &h->compressed;
    hth_compressed *c = &l->compressed;
    size_t d = h->d_model, d_head = l->attn.d_head, n_q = l->attn.n_head * d_head;
    l->mixer = HTH_MIXER_COMPRESSED;
    c->n_tok = n_tok, c->overlaps = n_tok == 4;
    const hth_bind_named matrices[] = {{"attn_q_a.weight", z->q_rank, d, &c->q_a},
                                       {"attn_q_b.weight", n_q, z->q_rank, &c->q_b},
                                       {"attn_kv.weight", d_head, d, &c->kv},
                                       {"attn_output_b.weight", d, (size_t)z->n_group * z->out_rank, &l->attn.o}};
    hearth_status st = hth_bind_matrices(b, i, matrices, 4);
    if (st != HEARTH_OK || (st = bind_groups(b, i, n_q / z->n_group, &c->o_a)) != HEARTH_OK ||
        (st = hth_bind_vector(b, hth_bind_find_in_layer(b, i, "attn_q_a_norm.weight"), z->q_rank, &c->q_norm)) !=
            HEARTH_OK ||
        (st = hth_bind_vector(b, hth_bind_find_in_layer(b, i, "attn_kv_a_norm.weight"), d_head, &c->kv_norm)) !=
            HEARTH_OK ||
        (st = hth_bind_vector(b, hth_bind_find_in_layer(b, i, "attn_sinks.weight"), l->attn.n_head, &l->attn.sinks)) !=
            HEARTH_OK)
        return st;
    l->state_sizes[HTH_STATE_STEP] = hth_compressed_state(c, d_head) * sizeof(float);
    return n_tok > 0 ? bind_blocks(b, i, d_head, c) : HEARTH_OK;
}

/* A part of a connection: PREFIX_NAME.weight, of a layer or of the head. */
static const hth_gguf_tensor *find_part(hth_binder *b, uint32_t i, const char *prefix, const char *name)
{
    char full[48];
    snprintf(full, sizeof full, "%s_%s.weight", prefix, name);
    return i == UINT32_MAX ? hth_bind_find(b, full) : hth_bind_find_in_layer(b, i, full);
}

static hearth_status bind_connection(hth_binder *b, uint32_t i, const char *prefix, hth_hyper_connection *c)
{
    const hth_hparams *h = &b->model->hparams;
    size_t n = h->n_stream, n_out = c->is_head ? n : (2 + n) * n;
    hearth_status st = hth_bind_vectors(b, find_part(b, i, prefix, "fn"), n * h->d_model, n_out, &c->weight);
    if (st == HEARTH_OK) st = hth_bind_vector(b, find_part(b, i, prefix, "base"), n_out, &c->base);
    if (st != HEARTH_OK) return st;
    return hth_bind_vector(b, find_part(b, i, prefix, "scale"), c->is_head ? 1 : 3, &c->scale);
}

hearth_status hth_bind_connections(hth_binder *b, uint32_t i, hth_layer *l)
{
    hearth_status st = bind_connection(b, i, "hc_attn", &l->mixer_connection);
    return st == HEARTH_OK ? bind_connection(b, i, "hc_ffn", &l->ffn_connection) : st;
}

hearth_status hth_bind_output_connection(hth_binder *b)
{
    b->model->output_connection.is_head = true;
    return bind_connection(b, UINT32_MAX, "output_hc", &b->model->output_connection);
}
