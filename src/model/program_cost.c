/* The weights of operations, and what a token costs by them. Counts and plans add them up. */
#include "model/program.h"

static void add(hth_op_weights *w, const hth_matrix *m)
{
    if (m->n_row > 0) w->matrix[w->n++] = m;
}

static void add_ffn(hth_op_weights *w, const hth_ffn *f)
{
    add(w, &f->gate), add(w, &f->up), add(w, &f->down), add(w, &f->down_t.rows);
}

static void add_experts(hth_op_weights *w, const hth_experts *e)
{
    add(w, &e->gate), add(w, &e->up), add(w, &e->down), add(w, &e->down_t.rows);
    w->n_used = e->router.n_used, w->n_slice = e->router.n_expert;
}

hth_op_weights hth_op_weights_of(const hth_model *m, const hth_op *op)
{
    hth_op_weights w = {.n_used = 1, .n_slice = 1};
    switch (op->kind) {
    case HTH_OP_PRODUCT:
        for (uint32_t i = 0; i < op->product.n; i++) add(&w, op->product.matrix[i]);
        break;
    case HTH_OP_BY_HEAD: add(&w, op->by_head.matrix); break;
    case HTH_OP_FFN: add_ffn(&w, &m->layers[op->layer].ffn); break;
    case HTH_OP_EXPERTS:
        if (op->experts.shared) add_ffn(&w, &m->layers[op->layer].experts.shared);
        else add_experts(&w, &m->layers[op->layer].experts);
        break;
    default: break;
    }
    return w;
}

hth_op_cost hth_op_cost_of(const hth_model *m, const hth_op *op)
{
    const hth_op_weights w = hth_op_weights_of(m, op);
    hth_op_cost cost = {0};
    for (uint32_t i = 0; i < w.n; i++) {
        uint64_t n_row = w.matrix[i]->n_row / w.n_slice * w.n_used;
        if (op->kind == HTH_OP_BY_HEAD && op->by_head.form == HTH_BY_HEAD_ROWS)
            n_row = (uint64_t)op->by_head.n_head * op->by_head.d_in;
        cost.size += n_row * w.matrix[i]->row_size;
        cost.multiply_adds += n_row * w.matrix[i]->n_col;
    }
    if (op->kind == HTH_OP_ROUTE) {
        const hth_experts *e = &m->layers[op->layer].experts;
        uint64_t n_row = op->experts.shared ? e->shared_gate != NULL : e->router.n_expert,
                 n = n_row * m->hparams.d_model;
        cost.size += n * sizeof(float), cost.multiply_adds += n;
    }
    return cost;
}
