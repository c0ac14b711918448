/* EMBED: rows of tables. The embeddings of tokens, with those of their positions; what a step has of
 * tokens that a block predicts from; the embeddings of tokens for each layer (Gemma 3n, Gemma 4). */
#include "forward/forward_int.h"

#include <string.h>

/* A tied table may use the panel layout of the output head. */
static void unpack_row(hth_step *s, const hth_matrix *table, size_t i_row, float *x)
{
    s->k->unpack[table->type](hth_matrix_row(table, i_row, s->table_row), table->n_col, x);
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
        hearth_status of_table =
            s->rows[i] ? hth_table_rows_wait(s->rows[i], st == HEARTH_OK ? err : NULL) : HEARTH_OK;
        if (st == HEARTH_OK) st = of_table;
    }
    return st;
}

static hearth_status embed_tokens(hth_step *s, const hth_op *op, hearth_error *err)
{
    const hth_model *m = s->model;
    const hth_hparams *h = &m->hparams;
    const hth_table_rows *rows = s->rows[HTH_TABLE_EMBEDDING];
    size_t d = h->d_model;
    hearth_status st = wait_for_rows(s, err);
    if (st != HEARTH_OK) return st;
    for (uint32_t i = 0; i < s->n_tok; i++) {
        float *x = hth_fwd_row(s, op->out[0], i);
        if (rows) s->k->unpack[m->token_embd.type](hth_table_rows_get(rows, i), d, x);
        else unpack_row(s, &m->token_embd, (size_t)s->tokens[i].token, x);
        if (h->embedding_scale != 1.0f) s->k->scale(x, h->embedding_scale, d, x);
        if (m->position_embd.n_row == 0) continue;
        unpack_row(s, &m->position_embd, (size_t)s->tokens[i].position + h->position_offset, s->position_row);
        s->k->add(x, s->position_row, d, x);
    }
    return HEARTH_OK;
}

static void copy_hidden(hth_step *s, const hth_op *op)
{
    for (uint32_t i = 0; i < s->n_tok; i++)
        memcpy(hth_fwd_row(s, op->out[0], i), s->tokens[i].hidden, s->model->hparams.d_model * sizeof(float));
}

/* ---- embeddings for layers ----------------------------------------------------------------------------- */

typedef struct layers_job {
    const hth_step *s;
    const hth_op *op;
} layers_job;

/* e = (norm(proj x / sqrt(d_model)) + sqrt(d) row) / sqrt(2), for each layer; the products are there. */
static void join_token(void *arg, size_t t, uint32_t i_thread)
{
    const layers_job *job = arg;
    const hth_step *s = job->s;
    const hth_model *m = s->model;
    const hth_hparams *h = &m->hparams;
    size_t d = h->d_layer_embd, n = d * h->n_layer;
    float *e = hth_fwd_row(s, job->op->out[0], t), *row = s->layer_embd.rows + i_thread * n;
    uint8_t *bytes = s->layer_embd.bytes + i_thread * m->layer_embd.row_size;
    const hth_table_rows *rows = s->rows[HTH_TABLE_LAYER_EMBEDDING];
    const uint8_t *from = rows ? hth_table_rows_get(rows, (uint32_t)t)
                               : hth_matrix_row(&m->layer_embd, (size_t)s->tokens[t].token, bytes);
    s->k->unpack[m->layer_embd.type](from, n, row);
    s->k->scale(row, s->layer_embd.root, n, row);
    s->k->scale(e, s->layer_embd.inverse_root_model, n, e);
    for (size_t i = 0; i < n; i += d)
        s->k->rms_norm(e + i, m->layer_proj_norm, d, 1.0f / (float)d, h->norm_eps, e + i);
    s->k->add(e, row, n, e);
    s->k->scale(e, 0x1.6a09e6p-1f, n, e); /* 1 / sqrt(2) */
}

hearth_status hth_fwd_embed(hth_step *s, const hth_op *op, hearth_error *err)
{
    layers_job job = {s, op};
    if (op->table == HTH_EMBED_TOKENS) return embed_tokens(s, op, err);
    if (op->table == HTH_EMBED_HIDDEN) copy_hidden(s, op);
    else hth_pool_add(s->pool, join_token, &job, sizeof job, s->n_tok);
    return HEARTH_OK;
}
