/* Records attention: the rotation of queries and keys and their cache; then queries over the cache, for one token
 * split by split. */
#include "forward/gpu/recorder.h"

#include "base/checked_math.h"
#include "forward/gpu/cache.h"

#include <assert.h>

/* Queries and gates lie side by side, head by head. Returns where the queries are then, before keys and values. */
static hth_buffer_range split_gates(hth_recorder *r, const hth_op *op)
{
    const hth_attention *a = &r->g->model->layers[op->layer].attn;
    hth_copy_part part = {.count = a->n_head, .n = a->d_head, .from_step = 2 * a->d_head, .to_step = a->d_head};
    hth_rec_copy_part(r, &part, op->in[0], op->out[0]);
    part.from = a->d_head;
    hth_rec_copy_part(r, &part, op->in[0], op->out[3]);
    hth_rec_barrier(r);
    return r->values[op->out[0].value].at;
}

void hth_rec_norm_in_place(hth_recorder *r, hth_buffer_range x, hth_rows_at rows, uint32_t width,
                           hth_gpu_vector weight)
{
    hth_push_norm_groups push = {.width = width,
                                 .eps = r->g->model->hparams.norm_eps,
                                 .inv_n = 1.0f / (float)width,
                                 .x = rows,
                                 .y = rows};
    const uint32_t consts[] = {HTH_KIND_RMS, HTH_REC_LOCAL};
    const hth_buffer_range none = hth_rec_vector(r, (hth_gpu_vector){0}),
                           bind[] = {r->g->workspace.step, x, hth_rec_vector(r, weight), none, x};
    hth_rec_dispatch(r, HTH_SHADER_norm_groups, consts, bind, &push, 1, r->n_row);
}

static void norm_all_heads(hth_recorder *r, const hth_op *op, hth_buffer_range qkv)
{
    const hth_attention *a = &r->g->model->layers[op->layer].attn;
    const hth_gpu_vector *weights = hth_rec_weights(r, op)->vectors;
    assert(r->g->model->hparams.qkv_limit == 0.0f); /* no architecture has both */
    hth_rec_norm_in_place(r, qkv, hth_rec_rows_at(r, op->out[0]), a->n_head * a->d_head, weights[0]);
    hth_rec_mark_dirty(r, qkv);
    hth_rec_barrier(r); /* the rows of both are interleaved, so their dispatches write the same range */
    if (weights[1].n == 0) return;
    hth_rec_norm_in_place(r, qkv, hth_rec_rows_at(r, op->out[1]), a->n_head_kv * a->d_head, weights[1]);
    hth_rec_mark_dirty(r, qkv);
    hth_rec_barrier(r);
}

/* HTH_ROPE_NORM_* of a layer: norms of all heads are computed before. */
static uint32_t norm_of_heads(const hth_hparams *h, const hth_attention *a)
{
    if (!a->q_norm.weight || h->qk_norm == HTH_QK_NORM_ALL) return HTH_ROPE_NORM_NONE;
    if (h->qk_norm == HTH_QK_NORM_HEAD) return HTH_ROPE_NORM_SHARED;
    return h->qk_norm == HTH_QK_NORM_EACH && h->norm == HTH_NORM_LAYER ? HTH_ROPE_NORM_OWN_LAYER : HTH_ROPE_NORM_OWN;
}

/* Without what the keys and values of a layer that has its own need. */
static hth_push_rope_store heads_push(const hth_recorder *r, const hth_op *op)
{
    const hth_hparams *h = &r->g->model->hparams;
    const hth_layer *l = &r->g->model->layers[op->layer];
    const hth_attention *a = &l->attn;
    uint32_t i_table = hth_fwd_i_table(h, a);
    hth_gpu_rotations places = hth_gpu_rotations_of(h, r->n_row);
    return (hth_push_rope_store){.n_head = a->n_head,
                                 .n_pair = a->rotates ? hth_fwd_n_pair(h, i_table) : 0,
                                 .table_at = i_table * places.of_table,
                                 .sine_at = places.sines,
                                 .factor_at = places.factors,
                                 .d_at = r->g->workspace.q_q8_d_offset,
                                 .head_words = r->g->layers[op->layer].head_words,
                                 .eps = h->norm_eps,
                                 .inv_n = 1.0f / (float)a->d_head,
                                 .limit = h->qkv_limit,
                                 .value_scale = h->value_scale != 0.0f ? h->value_scale : 1.0f,
                                 .kv_class = hth_kv_class_of(l),
                                 .qkv_stride = hth_rec_rows_at(r, op->out[0]).stride,
                                 .d_value = a->d_value > 0 ? a->d_value : a->d_head};
}

/* Where the values of a layer are before they are stored. */
static hth_view values_in(const hth_op *op, const hth_attention *a)
{
    return a->values_are_keys ? op->out[1] : op->in[2];
}

void hth_rec_rope_store(hth_recorder *r, uint32_t i_layer, const uint32_t *consts, const hth_push_rope_store *push,
                        hth_buffer_range qkv, hth_buffer_range values)
{
    const hth_gpu_layer *to = &r->g->layers[i_layer];
    const hth_gpu_workspace *ws = &r->g->workspace;
    const hth_buffer_range bind[] = {ws->step, qkv,        ws->table, hth_rec_vector(r, to->head_norms),
                                     to->keys, to->values, ws->q_q8,  values};
    hth_rec_dispatch(r, HTH_SHADER_rope_store, consts, bind, push, push->n_head + 2 * push->n_head_kv, r->n_row);
    hth_rec_mark_dirty(r, qkv), hth_rec_mark_dirty(r, to->keys), hth_rec_mark_dirty(r, to->values),
        hth_rec_mark_dirty(r, ws->q_q8);
    hth_rec_barrier(r);
}

static void plain_heads(hth_recorder *r, const hth_op *op)
{
    const hth_hparams *h = &r->g->model->hparams;
    const hth_attention *a = &r->g->model->layers[op->layer].attn;
    hth_buffer_range qkv = a->q_has_gate ? split_gates(r, op) : hth_rec_floats(r, op->in[0].value);
    if (a->q_norm.weight && h->qk_norm == HTH_QK_NORM_ALL) norm_all_heads(r, op, qkv);
    hth_push_rope_store push = heads_push(r, op);
    hth_buffer_range values = qkv;
    if (a->kv_layer == op->layer) {
        hth_rows_at rows = hth_rec_rows_at(r, values_in(op, a));
        push.n_head_kv = a->n_head_kv, push.value_stride = rows.stride, push.value_from = rows.at;
        if (a->d_value > 0) values = hth_rec_floats(r, op->in[2].value);
    }
    const uint32_t consts[] = {a->d_head,
                               (uint32_t)h->rope.kind,
                               norm_of_heads(h, a),
                               (uint32_t)r->g->params.kv,
                               HTH_REC_LOCAL,
                               h->qk_norm_after,
                               h->norms_values,
                               h->temperature_scale != 0.0f && a->has_temperature};
    hth_rec_rope_store(r, op->layer, consts, &push, qkv, values);
}

void hth_rec_heads(hth_recorder *r, const hth_op *op)
{
    if (r->g->model->layers[op->layer].mixer == HTH_MIXER_LATENT) hth_rec_heads_latent(r, op);
    else plain_heads(r, op);
}

/* Returns the work of one token in a sequence of n positions. */
static uint64_t work_of_attention(const hth_layer *l, uint64_t n)
{
    uint32_t most = l->attn.chunk > 0 ? l->attn.chunk : l->attn.window;
    if (most > 0 && most < n) n = most;
    return 2 * n * l->attn.n_head * l->attn.d_head * HTH_DOT_SCALAR;
}

/* Returns the same at the maximum number of positions. */
static uint64_t attend_work(const hth_recorder *r, const hth_layer *l)
{
    return work_of_attention(l, r->n_position);
}

/* Bytes of shared memory that attn uses (shaders/values/attn.comp): queries, weights, parts of scores or maxima; sums,
 * totals and merging factors of each head; pages. */
static uint32_t attn_shared_bytes(uint32_t d_head, uint32_t n_group, uint32_t n_tok, uint32_t local)
{
    const uint32_t n_max = 16, vec = 4 * sizeof(float), pages = HTH_ATTN_SPLIT / HTH_KV_PAGE + 3;
    uint32_t n_vec =
        n_group * (d_head + HTH_ATTN_SPLIT) + (local > n_max * n_group ? local : n_max * n_group);
    return n_vec * vec + HTH_ATTN_GROUP_HEADS * n_group * (8 + 2 + 2) * (uint32_t)sizeof(float) +
           n_tok * pages * (uint32_t)sizeof(uint32_t);
}

/* LOCAL and TOKENS of attn. With few workgroups each has as many invocations as are of use, so that the GPU's
 * processors have work; with many, neighbouring tokens share a workgroup, because they read the same keys, as long
 * as GPUs of 128 processors get four workgroups each, and as a submission holds them. A driver that computes on the
 * CPU pays for each invocation that waits for others. */
static void set_attn_size(const hth_recorder *r, const hth_layer *l, bool by_split,
                          uint32_t consts[HTH_ATTN_N_CONST])
{
    enum { MIN = 64, USUAL = 256, MAX = 512, MANY = 512, MAX_TOKENS = 4, MAX_GROUPS = 4 };
    const hth_device_info *info = hth_device_get_info(r->g->device);
    uint32_t d = l->attn.d_head, shared = consts[HTH_ATTN_SHARED], n_tok = 1;
    uint64_t n_workgroup = (uint64_t)r->n_row * l->attn.n_head_kv;
    uint32_t n_submitted = hth_rec_rows_per_dispatch(r, r->n_row, attend_work(r, l), 1);
    bool many = !by_split && n_workgroup >= MANY;
    consts[HTH_ATTN_LOCAL] = MIN, consts[HTH_ATTN_TOKENS] = 1;
    if (info->kind == HTH_DEVICE_CPU) return;
    while (many && 2 * n_tok <= MAX_TOKENS && 2 * n_tok <= n_submitted &&
           n_workgroup >= (uint64_t)2 * n_tok * MANY && hth_attn_groups(shared, 2 * n_tok) <= MAX_GROUPS &&
           attn_shared_bytes(d, hth_attn_groups(shared, 2 * n_tok), 2 * n_tok, USUAL) <=
               info->max_shared_memory)
        n_tok *= 2;
    uint32_t n_group = hth_attn_groups(shared, n_tok), n_head = HTH_ATTN_GROUP_HEADS * n_group;
    if (many) n_head = n_group;
    else if (n_head > shared) n_head = shared;
    uint32_t lanes = d / 2 * n_head, local = many ? MIN : USUAL;
    while (local < lanes && local < (many ? USUAL : MAX)) local *= 2;
    while (local > MIN && (local > info->max_workgroup_size ||
                           attn_shared_bytes(d, n_group, n_tok, local) > info->max_shared_memory))
        local /= 2;
    consts[HTH_ATTN_LOCAL] = local, consts[HTH_ATTN_TOKENS] = n_tok;
}

/* The least of Vulkan, 16 KiB, is not enough for large heads that share a KV head. */
static void check_attn_size(hth_recorder *r, const uint32_t consts[HTH_ATTN_N_CONST])
{
    const hth_device_info *info = hth_device_get_info(r->g->device);
    uint32_t n_tok = consts[HTH_ATTN_TOKENS], d = consts[HTH_ATTN_D_HEAD];
    uint32_t n_group = hth_attn_groups(consts[HTH_ATTN_SHARED], n_tok);
    uint32_t size = attn_shared_bytes(d, n_group, n_tok, consts[HTH_ATTN_LOCAL]);
    if (r->st == HEARTH_OK && size > info->max_shared_memory)
        r->st = hth_fail(
            r->err, HEARTH_ERROR_UNSUPPORTED,
            "%s: attention with heads of %u takes %u bytes of a workgroup's shared memory, it has %u",
            info->name, d, size, info->max_shared_memory);
}

/* All splits of tokens in one dispatch. */
static void attend_whole(hth_recorder *r, const hth_layer *l, const uint32_t *consts,
                         const hth_buffer_range *bind, hth_push_attn *push)
{
    uint64_t work = attend_work(r, l);
    uint32_t n_together = consts[HTH_ATTN_TOKENS],
             step = hth_rec_tokens_per_dispatch(r, r->n_row, work, n_together, l->attn.n_head_kv);
    for (uint32_t first = 0, n; first < r->n_row; first += n) {
        n = r->n_row - first < step ? r->n_row - first : step;
        push->first_tok = first;
        hth_rec_reserve_work(r, n * work);
        hth_rec_dispatch_3d(r, HTH_SHADER_attn, consts, bind, push, 1, l->attn.n_head_kv,
                            hth_div_ceil(n, n_together));
    }
}

/* The splits of one token in parallel, then their reduction. */
static void attend_by_split(hth_recorder *r, uint32_t i_layer, const uint32_t *consts,
                            const hth_buffer_range *bind, const hth_push_attn *push)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    hth_buffer_range grid = {ws->grids.buffer, ws->grids.offset + 16 * i_layer, 12};
    hth_rec_reserve_work(r, attend_work(r, &r->g->model->layers[i_layer]));
    const hth_pipeline *p = hth_rec_pipeline(r, HTH_SHADER_attn, consts);
    if (!p) return;
    hth_cmdlist_dispatch_indirect(r->cmdlist, p, bind, push, grid);
    /* Upper bound: keys and values of one split. */
    hth_cmdlist_hint_bytes(r->cmdlist, 2 * HTH_ATTN_SPLIT * sizeof(uint32_t) *
                                           hth_gpu_cache_words(r->g->params.kv, consts[HTH_ATTN_D_HEAD]));
    hth_rec_mark_dirty(r, ws->splits), hth_rec_mark_dirty(r, ws->split_partials);
    hth_rec_barrier(r);
}

void hth_rec_reduce(hth_recorder *r, const hth_op *attend, const hth_gpu_fused_matrix *group, bool store,
                    hth_buffer_range stored)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    const hth_attention *a = &r->g->model->layers[attend->layer].attn;
    hth_buffer_range terms = hth_rec_vector(r, r->g->layers[attend->layer].head_terms);
    hth_vector_split split =
        hth_rec_vector_split(hth_device_get_info(r->g->device), a->n_head * a->d_head, HTH_KIND_NONE);
    const hth_push_attn_reduce push = {
        .n_head = a->n_head, .window = a->window, .n_split = ws->n_split, .chunk = a->chunk};
    hth_input_form forms[2];
    uint32_t n_form = hth_rec_input_forms(r, group, store, forms);
    for (uint32_t i = 0; i < n_form; i++) {
        const hth_input_form *f = &forms[i];
        const uint32_t consts[] = {a->d_head, f->block, f->store, split.local, a->sinks != NULL};
        const hth_buffer_range bind[] = {ws->step, ws->splits, ws->split_partials, stored, f->q, f->d, f->sum, terms};
        hth_rec_dispatch(r, HTH_SHADER_attn_reduce, consts, bind, &push, split.n_group, 1);
        hth_rec_mark_form(r, f, stored);
    }
    hth_rec_barrier(r);
}

void hth_rec_attend(hth_recorder *r, const hth_op *op)
{
    const hth_hparams *h = &r->g->model->hparams;
    const hth_layer *l = &r->g->model->layers[op->layer];
    const hth_gpu_layer *to = &r->g->layers[op->layer];
    const hth_gpu_workspace *ws = &r->g->workspace;
    hth_rec_value *y = &r->values[op->out[0].value];
    hth_buffer_range q = hth_rec_floats(r, op->in[0].value);
    bool by_split = r->n_row == 1;
    if (l->mixer == HTH_MIXER_LATENT) hth_rec_queries_latent(r, op);
    hth_push_attn push = {.n_head = l->attn.n_head,
                          .n_head_kv = l->attn.n_head_kv,
                          .window = l->attn.window,
                          .n_split = ws->n_split,
                          .qkv_stride = r->g->model->program->values[op->in[0].value].width,
                          .d_at = ws->q_q8_d_offset,
                          .head_words = to->head_words,
                          .scale = h->score_scale,
                          .cap = h->attn_softcap,
                          .inverse_cap = h->attn_softcap != 0.0f ? 1.0f / h->attn_softcap : 0.0f,
                          .kv_class = hth_kv_class_of(l),
                          .chunk = l->attn.chunk};
    uint32_t consts[HTH_ATTN_N_CONST] = {l->attn.d_head, l->attn.n_head / l->attn.n_head_kv,
                                         (uint32_t)r->g->params.kv, by_split};
    consts[HTH_ATTN_SINKS] = !by_split && l->attn.sinks, consts[HTH_ATTN_SLOPES] = l->attn.slopes != NULL;
    set_attn_size(r, l, by_split, consts);
    check_attn_size(r, consts);
    const hth_buffer_range bind[] = {ws->step,
                                     q,
                                     ws->q_q8,
                                     to->keys,
                                     to->values,
                                     by_split ? ws->splits : y->at,
                                     ws->split_partials,
                                     hth_rec_vector(r, to->head_terms)};
    if (by_split) {
        attend_by_split(r, op->layer, consts, bind, &push);
        y->pending = op, y->is_stored = false;
        return;
    }
    attend_whole(r, l, consts, bind, &push);
    hth_rec_mark_dirty(r, y->at);
    hth_rec_barrier(r);
}

bool hth_rec_divides_attention(const hth_gpu *g, uint32_t n_position)
{
    for (uint32_t i = 0; i < g->model->program->n_op; i++) {
        const hth_op *op = &g->model->program->ops[i];
        if (op->kind == HTH_OP_ATTEND && g->ops[i].is_on_device &&
            work_of_attention(&g->model->layers[op->layer], n_position) >
                g->params.max_work / g->params.n_row)
            return true;
    }
    return false;
}
