/* Counts multiply-adds and bytes. bench uses them for its shares of the limits. */
#include "measure/op_count.h"

#include "engine/engine.h"
#include "model/program.h"

static void add_op(hth_op_count *work, const hth_model *m, const hth_op *op)
{
    const hth_op_weights w = hth_op_weights_of(m, op);
    for (uint32_t i = 0; i < w.n; i++) {
        uint64_t n = (uint64_t)w.matrix[i]->n_row / w.n_slice * w.n_used * w.matrix[i]->n_col;
        const hth_type_info *type = hth_type_find((uint32_t)w.matrix[i]->type);
        if (type && type->quantised) work->int8 += n;
        else work->f32 += n;
    }
}

hth_op_count hth_op_count_prompt(const hearth_model *model, uint64_t n_token)
{
    hth_op_count work = {0};
    const hth_model *m = model->model;
    const hth_program *p = m->program;
    uint32_t end = p->first_of_layer[m->hparams.n_layer];
    for (uint32_t i = p->first_of_layer[0]; i < end; i++) add_op(&work, m, &p->ops[i]);
    work.int8 *= n_token;
    work.f32 *= n_token;
    for (uint32_t i = end; i < p->n_op && n_token > 0; i++)
        add_op(&work, m, &p->ops[i]); /* computed for the last token alone */
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
