/* Token embeddings, and learned position embeddings, to the residual stream, or in place of it what a block that
 * predicts a token further makes of them. step.c calls it first. */
#include "forward/forward_int.h"

/* A tied table may use the panel layout of the output head; block_out, unused at this point, holds an assembled
 * row. */
static void unpack_row(hth_step *s, const hth_matrix *table, size_t i_row, float *x)
{
    s->k->unpack[table->type](hth_matrix_row(table, i_row, (uint8_t *)s->block_out), table->n_col, x);
}

/* Rows of all tokens, in their order. */
static void start_table(hth_step *s, int i_table)
{
    for (uint32_t i = 0; s->rows[i_table] && i < s->n_tok; i++)
        hth_table_rows_start(s->rows[i_table], i, (uint64_t)s->tokens[i].token);
}

void hth_fwd_start_rows(hth_step *s)
{
    for (int i = 0; i < HTH_N_TABLE; i++) start_table(s, i);
}

static hearth_status wait_for_rows(hth_step *s, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    for (int i = 0; i < HTH_N_TABLE; i++) {
        hearth_status of_table = s->rows[i] ? hth_table_rows_wait(s->rows[i], st == HEARTH_OK ? err : NULL) : HEARTH_OK;
        if (st == HEARTH_OK) st = of_table;
    }
    return st;
}

/* Norms the embedding of a token, and what its step has for it, into the halves of a row. */
static void norm_halves(void *step, size_t i, uint32_t i_thread)
{
    (void)i_thread;
    const hth_step *s = step;
    const hth_mtp_input *in = &s->model->mtp;
    size_t d = s->model->hparams.d_model;
    float *row = s->mtp_input + 2 * i * d;
    hth_fwd_norm_row(&(hth_fwd_norm_rows){s, &in->embedding_norm, s->x + i * d, row}, 0);
    hth_fwd_norm_row(&(hth_fwd_norm_rows){s, &in->hidden_norm, s->tokens[i].hidden, row + d}, 0);
}

/* The input of a block that predicts a token further. */
static void join_hidden(hth_step *s)
{
    const hth_output to = {.matrix = &s->model->mtp.proj, .y = s->x};
    hth_pool_add(s->pool, norm_halves, s, 0, s->n_tok);
    hth_product_add(s->k, s->pool, &s->act_q8, s->mtp_input, s->n_tok, &to, 1, NULL);
}

hearth_status hth_fwd_embed(hth_step *s, hearth_error *err)
{
    const hth_model *m = s->model;
    const hth_hparams *h = &m->hparams;
    const hth_table_rows *rows = s->rows[HTH_TABLE_EMBEDDING];
    size_t d = h->d_model;
    hearth_status st = wait_for_rows(s, err);
    if (st != HEARTH_OK) return st;
    for (uint32_t i = 0; i < s->n_tok; i++) {
        float *x = s->x + i * d;
        if (rows) s->k->unpack[m->token_embd.type](hth_table_rows_get(rows, i), d, x);
        else unpack_row(s, &m->token_embd, (size_t)s->tokens[i].token, x);
        if (h->embedding_scale != 1.0f) s->k->scale(x, h->embedding_scale, d, x);
        if (m->position_embd.n_row == 0) continue;
        unpack_row(s, &m->position_embd, (size_t)s->tokens[i].position + h->position_offset, s->x_norm);
        s->k->add(x, s->x_norm, d, x);
    }
    if (m->embedding_norm.weight) hth_fwd_norm(s, &m->embedding_norm, s->x, s->x, s->n_tok);
    if (m->mtp.proj.n_row > 0) join_hidden(s);
    return HEARTH_OK;
}
