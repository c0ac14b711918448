/* Token embeddings, and learned position embeddings, to the residual stream. step.c calls it first. */
#include "forward/forward_int.h"

/* A tied table may use the panel layout of the output head; block_out, unused at this point, holds an assembled
 * row. */
static void unpack_row(hth_step *s, const hth_matrix *table, size_t i_row, float *x)
{
    s->k->unpack[table->type](hth_matrix_row(table, i_row, (uint8_t *)s->block_out), table->n_col, x);
}

void hth_fwd_embed(hth_step *s)
{
    const hth_model *m = s->model;
    const hth_hparams *h = &m->hparams;
    size_t d = h->d_model;
    for (uint32_t i = 0; i < s->n_tok; i++) {
        float *x = s->x + i * d;
        unpack_row(s, &m->token_embd, (size_t)s->tokens[i].token, x);
        if (h->embedding_scale != 1.0f) s->k->scale(x, h->embedding_scale, d, x);
        if (m->position_embd.n_row == 0) continue;
        unpack_row(s, &m->position_embd, (size_t)s->tokens[i].position + h->arch->position_offset, s->x_norm);
        s->k->add(x, s->x_norm, d, x);
    }
    if (m->embedding_norm.weight) hth_fwd_norm(s, &m->embedding_norm, s->x, s->x, s->n_tok);
}
