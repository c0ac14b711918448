/* Counts multiply-adds and bytes. bench uses them for its shares of the limits. */
#include "measure/op_count.h"

#include "engine/engine.h"

/* part of all: of the rows of a matrix */
static void add_part(hth_op_count *work, const hth_matrix *m, uint64_t part, uint64_t all)
{
    if (m->n_row == 0) return;
    uint64_t n = (uint64_t)m->n_row / all * part * m->n_col;
    const hth_type_info *type = hth_type_find((uint32_t)m->type);
    if (type && type->quantised) work->int8 += n;
    else work->f32 += n;
}

static void add_matrix(hth_op_count *work, const hth_matrix *m) { add_part(work, m, 1, 1); }

hth_op_count hth_op_count_prompt(const hearth_model *model, uint64_t n_token)
{
    hth_op_count work = {0};
    for (uint32_t i = 0; i < model->model->hparams.n_layer; i++) {
        hth_matrix *all[HTH_LAYER_MATRICES];
        hth_layer_matrices(&model->model->layers[i], all);
        const hth_experts *e = &model->model->layers[i].experts;
        for (size_t k = 0; k < HTH_LAYER_MATRICES; k++)
            if (hth_experts_have(e, all[k])) /* slices of others are heads, all of which are used */
                add_part(&work, all[k], e->router.n_used, e->router.n_expert);
            else add_matrix(&work, all[k]);
    }
    work.int8 *= n_token;
    work.f32 *= n_token;
    const hth_model *m = model->model;
    if (n_token > 0) add_matrix(&work, m->tied ? &m->token_embd : &m->output);
    return work;
}

uint64_t hth_op_count_kv_bytes(const hearth_model *model, hearth_kv_type kv, uint64_t position)
{
    enum { N = 1024 }; /* positions of a cache that is only measured, not allocated */
    const hth_model *m = model->model;
    double all = 0.0, seen = 0.0, n = (double)position + 1.0;
    size_t size;
    if (!hth_kv_size(m, kv, N, &size)) return 0;
    for (uint32_t i = 0; i < m->hparams.n_layer; i++) {
        const hth_layer *l = &m->layers[i];
        all += l->attn.n_head_kv;
        seen += l->attn.n_head_kv * (l->attn.window && l->attn.window < n ? l->attn.window : n);
    }
    uint64_t states = 2 * hth_kv_state_size(m, HTH_STATE_STEP) + hth_kv_state_size(m, HTH_STATE_CHUNK);
    return states + (all > 0.0 ? (uint64_t)((double)size / N * seen / all) : 0);
}
