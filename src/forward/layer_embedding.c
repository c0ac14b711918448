/* Embeddings of tokens for each layer, and what a layer makes of them after its network (Gemma 3n, Gemma 4). */
#include "forward/forward_int.h"

/* ---- before the first layer ----------------------------------------------------------------------------------- */

/* e = (norm(proj x / sqrt(d_model)) + sqrt(d) row) / sqrt(2), for each layer; the products are there. */
static void join_token(void *arg, size_t t, uint32_t i_thread)
{
    hth_step *s = *(hth_step **)arg;
    const hth_model *m = s->model;
    const hth_hparams *h = &m->hparams;
    size_t d = h->d_layer_embd, n = d * h->n_layer;
    float *e = s->layer_embd.e + t * n, *row = s->layer_embd.rows + i_thread * n;
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

void hth_fwd_embed_layers(hth_step *s)
{
    const hth_model *m = s->model;
    if (m->hparams.d_layer_embd == 0) return;
    hth_output out = {.matrix = &m->layer_proj, .y = s->layer_embd.e};
    hth_product_add(s->k, s->pool, &s->act_q8, s->x, s->n_tok, &out, 1, NULL);
    hth_pool_add(s->pool, join_token, &s, sizeof s, s->n_tok);
}

/* ---- after a layer ---------------------------------------------------------------------------------------------- */

typedef struct multiply_arg {
    const hth_step *s;
    uint32_t i_layer;
    uint64_t unused[2];
} multiply_arg;
_Static_assert(sizeof(multiply_arg) == HTH_PREPARE_SIZE, "what a product prepares with");

static void multiply_token(const void *arg, size_t t)
{
    const multiply_arg *a = arg;
    const hth_step *s = a->s;
    size_t d = s->model->hparams.d_layer_embd, n_layer = s->model->hparams.n_layer;
    float *gate = s->layer_embd.gate + t * d;
    s->k->activate[HTH_ACTIVATION_GELU](gate, s->layer_embd.e + (t * n_layer + a->i_layer) * d, d, gate);
}

void hth_fwd_add_layer_embedding(hth_step *s, uint32_t i_layer)
{
    const hth_layer_embedding *e = &s->model->layers[i_layer].embedding;
    hth_output gate = {.matrix = &e->gate, .y = s->layer_embd.gate}, out = {.matrix = &e->proj, .y = s->block_out};
    multiply_arg arg = {.s = s, .i_layer = i_layer};
    hth_fusion fusion = {.prepare = multiply_token, .prepare_arg = &arg};
    hth_product_add(s->k, s->pool, &s->act_q8, s->x, s->n_tok, &gate, 1, NULL);
    hth_product_add(s->k, s->pool, &s->act_q8, s->layer_embd.gate, s->n_tok, &out, 1, &fusion);
}
