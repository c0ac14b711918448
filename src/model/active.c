/* Counts the weights of a model that a token uses. inspect and the engine report them. Commands about single neurons
 * refuse mixtures of experts, and layers without a network, by hth_model_check_dense. */
#include "model/model.h"

/* Weights and bytes of the experts of a layer that a token does not use. */
static void count_unused_experts(const hth_experts *e, uint64_t *n_weight, uint64_t *size)
{
    const hth_matrix *all[HTH_EXPERT_MATRICES];
    hth_expert_matrices(e, all);
    for (int i = 0; i < HTH_EXPERT_MATRICES; i++) {
        uint64_t n_row = all[i]->n_row / e->router.n_expert * (e->router.n_expert - e->router.n_used);
        *n_weight += n_row * all[i]->n_col;
        *size += n_row * all[i]->row_size;
    }
}

/* Bytes of a table without the one row that a token reads. */
static uint64_t other_rows(const hth_matrix *table)
{
    return table->n_row > 0 ? (uint64_t)table->row_size * (table->n_row - 1) : 0;
}

hth_active_weights hth_model_count_active(const hth_model *m)
{
    hth_active_weights a = {0};
    uint64_t n_unused = 0, unread = other_rows(&m->position_embd) + (m->tied ? 0 : other_rows(&m->token_embd)) +
                                   other_rows(&m->layer_embd);
    for (uint32_t i = 0; i < m->hparams.n_layer; i++) {
        const hth_router *r = &m->layers[i].experts.router;
        if (!hth_has_experts(m->layers[i].network)) continue;
        if (r->by_token) unread += (uint64_t)(m->hparams.n_vocab - 1) * r->n_used * sizeof *r->by_token;
        count_unused_experts(&m->layers[i].experts, &n_unused, &unread);
        a.n_layer++;
    }
    for (size_t i = 0; i < m->n_binding; i++) {
        const hth_binding *b = &m->bindings[i];
        a.n_weight += b->matrix ? (uint64_t)b->matrix->n_row * b->matrix->n_col : b->n;
        a.size += b->size;
    }
    a.n_active = a.n_weight - n_unused;
    a.read_size = a.size - unread;
    return a;
}

/* The first layer without a dense network, or n_layer. */
static uint32_t find_other(const hth_model *m)
{
    uint32_t i = 0;
    while (i < m->hparams.n_layer && m->layers[i].network == HTH_NETWORK_DENSE) i++;
    return i;
}

bool hth_model_is_dense(const hth_model *m) { return find_other(m) == m->hparams.n_layer; }

hearth_status hth_model_check_dense(const hth_model *m, const char *what, hearth_error *err)
{
    uint32_t i = find_other(m);
    if (i == m->hparams.n_layer) return HEARTH_OK;
    if (m->hparams.experts.n_expert == 0)
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                        "%s: layer %u has no network; %s is for models of dense layers", hth_gguf_path(m->file), i,
                        what);
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                    "%s: its layers are mixtures of %u experts; %s is for models of dense layers",
                    hth_gguf_path(m->file), m->hparams.experts.n_expert, what);
}
