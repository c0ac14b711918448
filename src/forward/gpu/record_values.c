/* Records norms of groups and of parts of values, products of values, and copies. Each reads floats and writes floats. */
#include "forward/gpu/recorder.h"

hth_rows_at hth_rec_rows_at(const hth_recorder *r, hth_view v)
{
    return (hth_rows_at){r->g->model->program->values[v.value].width, v.at};
}

static void norm_groups(hth_recorder *r, const hth_op *op)
{
    const hth_op_norm *n = &op->norm;
    const hth_gpu_vector *vectors = hth_rec_weights(r, op)->vectors;
    hth_buffer_range x = hth_rec_floats(r, op->in[0].value), y = r->values[op->out[0].value].at;
    hth_push_norm_groups push = {.width = n->width,
                                 .own = n->own,
                                 .has_bias = vectors[1].n > 0,
                                 .eps = n->eps,
                                 .inv_n = n->inv_n,
                                 .x = hth_rec_rows_at(r, op->in[0]),
                                 .y = hth_rec_rows_at(r, op->out[0])};
    const uint32_t consts[] = {n->layer ? HTH_KIND_LAYER : HTH_KIND_RMS, HTH_REC_LOCAL};
    const hth_buffer_range bind[] = {r->g->workspace.step, x, hth_rec_vector(r, vectors[0]),
                                     hth_rec_vector(r, vectors[1]), y};
    hth_rec_dispatch(r, HTH_SHADER_norm_groups, consts, bind, &push, n->n_group, r->n_row);
    hth_rec_mark_dirty(r, y);
    hth_rec_barrier(r);
}

void hth_rec_norm(hth_recorder *r, const hth_op *op)
{
    hth_rec_value *y = &r->values[op->out[0].value];
    const hth_rec_value *x = &r->values[op->in[0].value];
    if (!hth_gpu_norm_is_whole(r->g->model->program, op)) {
        norm_groups(r, op);
        return;
    }
    bool gathers = x->pending && x->pending->kind == HTH_OP_GATHER;
    y->from = gathers ? x->from : x == y ? y->at : hth_rec_floats(r, op->in[0].value);
    y->pending = op, y->is_stored = false;
}

void hth_rec_mul(hth_recorder *r, const hth_op *op)
{
    hth_buffer_range a = hth_rec_floats(r, op->in[0].value), b = hth_rec_floats(r, op->in[1].value),
                     y = r->values[op->out[0].value].at;
    hth_push_mul_values push = {op->mul.n, op->mul.by_head, hth_rec_rows_at(r, op->in[0]),
                                hth_rec_rows_at(r, op->in[1]), hth_rec_rows_at(r, op->out[0])};
    const uint32_t consts[] = {(uint32_t)op->mul.form, HTH_REC_LOCAL};
    hth_rec_dispatch(r, HTH_SHADER_mul_values, consts,
                     (const hth_buffer_range[]){r->g->workspace.step, a, b, y}, &push,
                     hth_vector_groups(op->mul.n, HTH_REC_LOCAL), r->n_row);
    hth_rec_mark_dirty(r, y);
    hth_rec_barrier(r);
}

static void copy_values(hth_recorder *r, const hth_push_copy_values *push, hth_view from, hth_view to,
                        hth_gpu_vector by)
{
    hth_push_copy_values one = *push;
    hth_rows_at x = hth_rec_rows_at(r, from), y = hth_rec_rows_at(r, to);
    hth_buffer_range range = r->values[to.value].at;
    one.x.stride = x.stride, one.x.at += x.at, one.y.stride = y.stride, one.y.at += y.at,
    one.has_by = by.n > 0;
    const hth_buffer_range bind[] = {r->g->workspace.step, hth_rec_floats(r, from.value),
                                     hth_rec_vector(r, by), range};
    const uint32_t local = HTH_REC_LOCAL;
    hth_rec_dispatch(r, HTH_SHADER_copy_values, &local, bind, &one,
                     hth_vector_groups(one.count * one.n, local), r->n_row);
    hth_rec_mark_dirty(r, range);
}

void hth_rec_copy_part(hth_recorder *r, const hth_copy_part *p, hth_view from, hth_view to)
{
    const hth_push_copy_values push = {.count = p->count,
                                       .n = p->n,
                                       .factor = 1.0f,
                                       .x.at = p->from,
                                       .y.at = p->to,
                                       .x_step = p->from_step,
                                       .y_step = p->to_step};
    copy_values(r, &push, from, to, (hth_gpu_vector){0});
}

void hth_rec_copy(hth_recorder *r, const hth_op *op)
{
    for (uint32_t i = 0; i < op->copy.n_part; i++)
        hth_rec_copy_part(r, &op->copy.part[i], op->in[0], op->out[op->copy.part[i].i_out]);
    hth_rec_barrier(r);
}

void hth_rec_scale(hth_recorder *r, const hth_op *op)
{
    const hth_push_copy_values push = {.count = 1, .n = op->vector.n, .factor = op->vector.factor};
    copy_values(r, &push, op->in[0], op->out[0], hth_rec_weights(r, op)->vectors[0]);
    hth_rec_barrier(r);
}
