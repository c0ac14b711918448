/* Records latent attention (forward/latent.c), and the products of its heads with matrices of their own. Its keys and
 * values are those of one head, and its heads are slices, which each token has in their order. */
#include "forward/gpu/recorder.h"

/* ---- products by head ---------------------------------------------------------------------------------- */

/* d_in values of each of n heads from `first` on, side by side. */
static void gather_heads(hth_recorder *r, const hth_op *op, hth_buffer_range x, uint32_t first, uint32_t n)
{
    const hth_op_by_head *p = &op->by_head;
    hth_rows_at from = hth_rec_rows_at(r, op->in[0]);
    from.at += first * p->from_head;
    const hth_push_copy_values push = {.count = n,
                                       .n = p->d_in,
                                       .factor = 1.0f,
                                       .x = from,
                                       .y = {n * p->d_in, 0},
                                       .x_step = p->from_head,
                                       .y_step = p->d_in};
    const hth_buffer_range to = r->g->workspace.head_inputs,
                           bind[] = {r->g->workspace.step, x, hth_rec_vector(r, (hth_gpu_vector){0}), to};
    const uint32_t local = HTH_REC_LOCAL;
    hth_rec_dispatch(r, HTH_SHADER_copy_values, &local, bind, &push, hth_vector_groups(n * p->d_in, local), r->n_row);
    hth_rec_mark_dirty(r, to);
    hth_rec_barrier(r);
}

static void multiply_heads(hth_recorder *r, const hth_op *op, uint32_t first, uint32_t n)
{
    const hth_op_by_head *p = &op->by_head;
    const hth_gpu_fused_matrix *matrix = &hth_rec_weights(r, op)->fused[0];
    hth_gpu_fused_matrix to = *matrix;
    hth_gpu_input in = r->g->workspace.input;
    hth_buffer_range y = r->values[op->out[0].value].at;
    const hth_rec_slices slices = {hth_rec_vector(r, r->g->head_numbers),
                                   r->n_row * n,
                                   1,
                                   {.slice_rows = (uint32_t)(p->matrix->n_row / p->matrix->n_slice),
                                    .slice_step = 1,
                                    .slice_first = first,
                                    .n_used = n,
                                    .x_by_pair = true,
                                    .y_pair = p->to_head,
                                    .n_slot = n}};
    const hth_row_range rows = {.n = p->d_out, .slices = &slices};
    hth_rows_at at = hth_rec_rows_at(r, op->out[0]);
    to.y_stride = at.stride, to.y_first = at.at + first * p->to_head;
    in.x = r->g->workspace.head_inputs;
    hth_rec_part(r, &to, &matrix->matrices[0], &rows, &in, y, false);
    hth_rec_mark_dirty(r, y);
    hth_rec_barrier(r);
}

void hth_rec_by_head(hth_recorder *r, const hth_op *op)
{
    const hth_op_by_head *p = &op->by_head;
    hth_buffer_range x = hth_rec_floats(r, op->in[0].value);
    uint32_t n = hth_gpu_heads_at_once(r->g->model, &r->g->params);
    for (uint32_t first = 0; first < p->n_head; first += n) {
        gather_heads(r, op, x, first, n);
        hth_rec_quantize(r, r->g->workspace.head_inputs, n * p->d_in, &hth_rec_weights(r, op)->fused[0]);
        multiply_heads(r, op, first, n);
    }
}

/* ---- queries and keys ------------------------------------------------------------------------------------ */

/* rope_store of queries or of the key, whose last values rotate. */
static hth_push_rope_store push_of(const hth_recorder *r, const hth_op *op, hth_view x)
{
    const hth_hparams *h = &r->g->model->hparams;
    const hth_layer *l = &r->g->model->layers[op->layer];
    hth_gpu_rotations places = hth_gpu_rotations_of(h, r->n_row);
    return (hth_push_rope_store){.n_pair = l->attn.rotates ? hth_fwd_n_pair(h, 0) : 0,
                                 .sine_at = places.sines,
                                 .factor_at = places.factors,
                                 .d_at = r->g->workspace.q_q8_d_offset,
                                 .head_words = r->g->layers[op->layer].head_words,
                                 .value_scale = 1.0f,
                                 .kv_class = hth_kv_class_of(l),
                                 .qkv_stride = hth_rec_rows_at(r, x).stride,
                                 .rotated_from = h->latent.rank};
}

/* Whole queries, before any part of them is used. */
static void scale_queries(hth_recorder *r, const hth_op *op)
{
    const hth_hparams *h = &r->g->model->hparams;
    hth_buffer_range q = hth_rec_floats(r, op->in[0].value);
    hth_push_rope_store push = push_of(r, op, op->in[0]);
    const uint32_t consts[] = {h->latent.d_nope + h->latent.d_rope, (uint32_t)h->rope.kind, HTH_ROPE_NORM_NONE,
                               HEARTH_KV_F32, HTH_REC_LOCAL, 0, 0, 1};
    push.n_head = r->g->model->layers[op->layer].attn.n_head, push.n_pair = 0;
    hth_rec_rope_store(r, op->layer, consts, &push, q, q);
}

/* The key is normalised, then stored rotated, and as a value without what rotates. */
static void store_key(hth_recorder *r, const hth_op *op)
{
    const hth_hparams *h = &r->g->model->hparams;
    hth_buffer_range key = hth_rec_floats(r, op->in[1].value);
    hth_push_rope_store push = push_of(r, op, op->in[1]);
    const uint32_t consts[] = {r->g->model->layers[op->layer].attn.d_head, (uint32_t)h->rope.kind, HTH_ROPE_NORM_NONE,
                               (uint32_t)r->g->params.kv, HTH_REC_LOCAL, 0, 0, 0};
    hth_rec_norm_in_place(r, key, hth_rec_rows_at(r, op->in[1]), h->latent.rank, hth_rec_weights(r, op)->vectors[0]);
    hth_rec_mark_dirty(r, key);
    hth_rec_barrier(r);
    push.n_head_kv = 1, push.value_stride = push.qkv_stride, push.d_value = h->latent.rank;
    hth_rec_rope_store(r, op->layer, consts, &push, key, key);
}

void hth_rec_heads_latent(hth_recorder *r, const hth_op *op)
{
    const hth_hparams *h = &r->g->model->hparams;
    const hth_attention *a = &r->g->model->layers[op->layer].attn;
    const hth_latent_sizes *z = &h->latent;
    const hth_copy_part rotated = {.count = a->n_head,
                                   .n = z->d_rope,
                                   .from = z->d_nope,
                                   .from_step = z->d_nope + z->d_rope,
                                   .to = z->rank,
                                   .to_step = a->d_head};
    if (h->temperature_scale != 0.0f && a->has_temperature) scale_queries(r, op);
    hth_rec_copy_part(r, &rotated, op->in[0], op->out[0]);
    store_key(r, op);
}

void hth_rec_queries_latent(hth_recorder *r, const hth_op *op)
{
    const hth_attention *a = &r->g->model->layers[op->layer].attn;
    hth_buffer_range q = hth_rec_floats(r, op->in[0].value);
    hth_push_rope_store push = push_of(r, op, op->in[0]);
    const uint32_t consts[] = {a->d_head, (uint32_t)r->g->model->hparams.rope.kind, HTH_ROPE_NORM_NONE,
                               (uint32_t)r->g->params.kv, HTH_REC_LOCAL, 0, 0, 0};
    push.n_head = a->n_head;
    hth_rec_rope_store(r, op->layer, consts, &push, q, q);
}
