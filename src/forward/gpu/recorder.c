/* Records segments: one command list after another, with their dispatches and barriers. */
#include "forward/gpu/recorder.h"

#include "base/alloc.h"
#include "base/checked_math.h"

#include <assert.h>
#include <string.h>

/* ---- segments ---------------------------------------------------------------------------------------- */

static hearth_status grow_segments(hth_gpu_segments *t, hearth_error *err)
{
    uint32_t capacity = t->capacity ? 2 * t->capacity : 16;
    if (t->n < t->capacity) return HEARTH_OK;
    hth_gpu_segment *grown = hth_realloc(t->segments, capacity, sizeof *grown);
    if (!grown) return hth_fail_memory(err, capacity * sizeof *grown, "command lists");
    t->segments = grown, t->capacity = capacity;
    return HEARTH_OK;
}

void hth_rec_begin(hth_recorder *r)
{
    if (r->st != HEARTH_OK) return;
    r->st = grow_segments(r->segments, r->err);
    if (r->st == HEARTH_OK) r->st = hth_cmdlist_begin(r->g->device, &r->cmdlist, r->err);
    if (r->st == HEARTH_OK)
        r->segments->segments[r->segments->n++] =
            (hth_gpu_segment){.cmdlist = r->cmdlist, .n_host_op = r->segments->n_host_op};
}

void hth_rec_end(hth_recorder *r)
{
    if (r->st != HEARTH_OK) return;
    if (!hth_pipeline_is_deferred(r->g->device)) r->st = hth_cmdlist_end(r->cmdlist, r->err);
    r->segments->segments[r->segments->n - 1].n_d2h = r->n_d2h;
    r->n_dirty = 0; /* later command lists see all writes of earlier ones */
}

void hth_rec_split(hth_recorder *r)
{
    if (r->st != HEARTH_OK) return;
    if (hth_cmdlist_is_empty(r->cmdlist)) { /* it then waits for the added operations too */
        r->segments->segments[r->segments->n - 1].n_host_op = r->segments->n_host_op;
        return;
    }
    hth_rec_end(r);
    hth_rec_begin(r);
}

void hth_rec_host_op(hth_recorder *r, uint32_t what, uint32_t of, uint32_t n_d2h)
{
    if (r->st == HEARTH_OK)
        r->segments->host_ops[r->segments->n_host_op++] = (hth_gpu_host_op){what, of, n_d2h};
}

/* ---- dispatches ------------------------------------------------------------------------------------- */

void hth_rec_mark_dirty(hth_recorder *r, hth_buffer_range s)
{
    assert(r->n_dirty < HTH_REC_MAX_DIRTY);
    r->dirty[r->n_dirty++] = s;
}

void hth_rec_barrier(hth_recorder *r)
{
    if (r->st == HEARTH_OK && r->n_dirty > 0) hth_cmdlist_barrier(r->cmdlist, r->dirty, r->n_dirty);
    r->n_dirty = 0;
}

const hth_pipeline *hth_rec_pipeline(hth_recorder *r, hth_shader_id id, const uint32_t *consts)
{
    const hth_pipeline *p = NULL;
    if (r->st == HEARTH_OK) r->st = hth_pipeline_get(r->g->device, id, consts, &p, r->err);
    return p;
}

void hth_rec_dispatch_3d(hth_recorder *r, hth_shader_id id, const uint32_t *consts,
                         const hth_buffer_range *bind, const void *push, uint32_t gx, uint32_t gy,
                         uint32_t gz)
{
    const hth_pipeline *p = hth_rec_pipeline(r, id, consts);
    if (p) hth_cmdlist_dispatch(r->cmdlist, p, bind, push, gx, gy, gz);
}

void hth_rec_dispatch(hth_recorder *r, hth_shader_id id, const uint32_t *consts, const hth_buffer_range *bind,
                      const void *push, uint32_t gx, uint32_t gy)
{
    hth_rec_dispatch_3d(r, id, consts, bind, push, gx, gy, 1);
}

hth_buffer_range hth_rec_vector(const hth_recorder *r, hth_gpu_vector v)
{
    return (hth_buffer_range){r->g->vectors, v.offset,
                              v.n > 0 ? (uint64_t)v.n * sizeof(float) : sizeof(float)};
}

hth_vector_split hth_rec_vector_split(const hth_device_info *info, uint32_t n, uint32_t kind)
{
    enum { GRAIN = 64, SMALL = HTH_NORM_SMALL_CHUNK / HTH_NORM_LOADS };
    hth_vector_split s = {.local = GRAIN, .wide = n % 4 == 0};
    if (kind != HTH_KIND_NONE) { /* a row is loaded at once, by as many invocations as there may be */
        uint32_t max = hth_min_u32(info->max_workgroup_size / GRAIN * GRAIN, HTH_VECTOR_MAX_LOCAL);
        s.local = hth_min_u32(hth_div_ceil(n, HTH_NORM_LOADS * GRAIN) * GRAIN, max);
        s.chunk = hth_div_ceil(n, HTH_NORM_LOADS * s.local) * HTH_NORM_LOADS * s.local;
        if (hth_norm_shared_bytes(kind, s.local, s.chunk) > info->max_shared_memory)
            s.local = SMALL, s.chunk = HTH_NORM_SMALL_CHUNK;
    }
    s.n_group = hth_vector_groups(n, s.local);
    return s;
}

/* ---- rows --------------------------------------------------------------------------------------------- */

hth_gpu_matrix hth_rec_rows_of(const hth_gpu_matrix *p, uint64_t n_col, uint32_t first, uint32_t n)
{
    hth_gpu_matrix some = *p;
    assert(first % HTH_REC_ROW_ALIGNMENT == 0);
    some.first += first, some.n_row = n;
    some.offset += hth_soa_layout_offset(p->type, n_col, first, &some.layout);
    if (some.bias.n > 0) some.bias.offset += first * sizeof(float), some.bias.n = n;
    return some;
}

/* Invocations of a row of one token: as many as let the rows occupy a large GPU (132 processors of 1024), as long as
 * each has a group of eight blocks of 32, or a piece of a block of 256. A driver that computes on the CPU pays for each
 * invocation that waits for others. A row of blocks of 16 has eight, as two blocks share a piece. */
static uint32_t row_lanes(const hth_recorder *r, const hth_quant_desc *desc, uint32_t n_row, uint32_t n_block)
{
    enum { BUSY = 132 * 1024, MAX = 32 };
    uint32_t units = desc->block == HTH_ACT_BLOCK_256 ? MAX / 8 : hth_div_ceil(n_block, 8), lanes = 8;
    if (r->n_row > 1 || desc->block == 16 || hth_device_get_info(r->g->device)->kind == HTH_DEVICE_CPU) return lanes;
    while (lanes < MAX && (uint64_t)n_row * 2 * lanes <= BUSY && 2 * lanes / 8 <= units) lanes *= 2;
    return lanes;
}

/* Where each product of a dot product is an instruction, bytes take registers of their own, and more rows save
 * little. */
uint32_t hth_rec_rows_of_many(const hth_device_info *info, bool is_256)
{
    bool is_gpu = hth_device_is_gpu(info);
    if (is_gpu && !(info->features & HTH_FEATURE_FAST_DOT)) return 1;
    return is_256 ? 2 : 4;
}

/* The highest level that is not slow and has a tile; writes the constants of the tile, if any. The columns of a tile
 * divide a group of slices. */
static hth_coopmat_level choose_level(const hth_recorder *r, const hth_rec_slices *slices, const hth_quant_desc *desc,
                                      uint32_t consts[HTH_TILE_N_CONST])
{
    hth_coopmat_level by = r->g->coopmat;
    for (; by > HTH_COOPMAT_NONE; by--) {
        uint32_t tile[HTH_TILE_N_CONST];
        memcpy(tile, consts, sizeof tile);
        by = hth_gpu_choose_tile(hth_device_get_info(r->g->device), desc, by, slices ? slices->of : r->n_row, tile);
        if (r->g->params.slow_levels >> by & 1 || (slices && slices->of % tile[HTH_ROWS_COLS] != 0)) continue;
        memcpy(consts, tile, sizeof tile);
        break;
    }
    return by;
}

/* The workgroups that take all tokens, or all groups of pairs, `cols` at a time. */
static uint32_t workgroups_of(const hth_recorder *r, const hth_rec_slices *slices, uint32_t cols)
{
    return slices ? slices->n_group * (slices->of / cols) : hth_div_ceil(r->n_row, cols);
}

static void run_quantised(hth_recorder *r, const hth_gpu_fused_matrix *group, const hth_gpu_matrix *p,
                          const hth_row_range *s, const hth_quant_desc *desc, const hth_gpu_input *in,
                          hth_buffer_range y, bool accumulate)
{
    const hth_rec_slices *slices = s->slices;
    uint32_t cols = hth_min_u32(slices ? slices->of : r->n_row, HTH_GPU_FEW_ROWS);
    bool many = r->n_row > HTH_GPU_FEW_ROWS && cols > 1, is_256 = desc->block == HTH_ACT_BLOCK_256;
    union {
        hth_push_mul_mat_vec_q rows;
        hth_push_mul_mat_vec_q_sparse by_mask;
        hth_push_mul_mat_vec_q_sliced by_slice;
    } push = {.rows = {.n_row = s->n,
                                                   .n_block = group->n_col / desc->block,
                                                   .y_stride = group->y_stride,
                                                   .y_first = group->y_first + p->first + s->first,
                                                   .has_bias = p->bias.n > 0,
                                                   .at = p->layout.offsets}};
    if (s->sparse) push.by_mask.sparse = (hth_push_sparse){s->first, s->neuron};
    if (slices) push.by_slice.sliced = slices->sliced, push.by_slice.sliced.row_first = s->first;
    const hth_device_info *info = hth_device_get_info(r->g->device);
    uint32_t consts[HTH_TILE_N_CONST] = {HTH_REC_LOCAL, cols,
                                         many ? hth_rec_rows_of_many(info, is_256) : 1,
                                         slices ? slices->of : r->only_wanted,
                                         row_lanes(r, desc, s->n, push.rows.n_block)};
    memcpy(consts + HTH_ROWS_FORMAT, desc, sizeof *desc);
    hth_coopmat_level by = many && !s->sparse ? choose_level(r, slices, desc, consts) : HTH_COOPMAT_NONE;
    const hth_buffer_range bind[] = {r->g->workspace.step,
                                     {p->weights, p->offset, p->layout.size},
                                     is_256 ? in->q_256 : in->q,
                                     is_256 ? in->d_256 : in->d,
                                     is_256 ? in->sum_256 : in->sum,
                                     hth_rec_vector(r, p->bias),
                                     y,
                                     slices ? slices->pairs : r->g->workspace.active_mask};
    static const hth_shader_id ids[HTH_N_COOPMAT_LEVEL][3] = {
        {HTH_SHADER_mul_mat_vec_q, HTH_SHADER_mul_mat_vec_q_acc, HTH_SHADER_mul_mat_vec_q_sliced},
        {HTH_SHADER_mul_mat_q, HTH_SHADER_mul_mat_q_acc, HTH_SHADER_mul_mat_q_sliced},
        {HTH_SHADER_mul_mat_q_cm2, HTH_SHADER_mul_mat_q_cm2_acc, HTH_SHADER_mul_mat_q_cm2_sliced}};
    hth_shader_id id = s->sparse ? HTH_SHADER_mul_mat_vec_q_sparse : ids[by][slices ? 2 : accumulate];
    hth_rec_dispatch(r, id, consts, bind, &push, workgroups_of(r, slices, consts[HTH_ROWS_COLS]),
                     hth_div_ceil(s->n, hth_rows_per_workgroup(consts)));
}

static void run_floats(hth_recorder *r, const hth_gpu_fused_matrix *group, const hth_gpu_matrix *p,
                       const hth_row_range *s, const hth_gpu_input *in, hth_buffer_range y, bool accumulate)
{
    const hth_rec_slices *slices = s->slices;
    uint32_t cols = hth_min_u32(slices ? slices->of : r->n_row, HTH_GPU_FEW_ROWS),
             rows = r->n_row > HTH_GPU_FEW_ROWS && cols > 1 ? 4 : 1;
    union {
        hth_push_mul_mat_vec_f rows;
        hth_push_mul_mat_vec_f_sparse by_mask;
        hth_push_mul_mat_vec_f_sliced by_slice;
    } push = {.rows = {.n_row = s->n,
                                                   .n_col = group->n_col,
                                                   .y_stride = group->y_stride,
                                                   .y_first = group->y_first + p->first + s->first,
                                                   .has_bias = p->bias.n > 0,
                                                   .row_words = hth_soa_row_words(p->type, group->n_col)}};
    if (s->sparse) push.by_mask.sparse = (hth_push_sparse){s->first, s->neuron};
    if (slices) push.by_slice.sliced = slices->sliced, push.by_slice.sliced.row_first = s->first;
    const uint32_t consts[] = {HTH_REC_LOCAL, cols, rows, slices ? slices->of : r->only_wanted, 8,
                               (uint32_t)p->type};
    const hth_buffer_range bind[] = {r->g->workspace.step,
                                     {p->weights, p->offset, p->layout.size},
                                     in->x,
                                     hth_rec_vector(r, p->bias),
                                     y,
                                     slices ? slices->pairs : r->g->workspace.active_mask};
    hth_rec_dispatch(r,
                     s->sparse    ? HTH_SHADER_mul_mat_vec_f_sparse
                     : slices     ? HTH_SHADER_mul_mat_vec_f_sliced
                     : accumulate ? HTH_SHADER_mul_mat_vec_f_acc
                                  : HTH_SHADER_mul_mat_vec_f,
                     consts, bind, &push, workgroups_of(r, slices, cols), hth_div_ceil(s->n, hth_rows_per_workgroup(consts)));
}

void hth_rec_hint_bytes(hth_recorder *r, const hth_gpu_matrix *p, const hth_row_range *s)
{
    if (r->st != HEARTH_OK) return;
    if (s->sparse)
        hth_cmdlist_hint_bytes_masked(r->cmdlist, p->layout.size / p->n_row, r->g->workspace.active_mask,
                                      s->neuron, s->n);
    else if (s->slices) /* at most: as if each pair had a slice of its own */
        hth_cmdlist_hint_bytes(r->cmdlist, hth_min_u64(p->layout.size, p->layout.size / p->n_row * s->n * r->n_row *
                                                                           s->slices->sliced.n_used));
    else hth_cmdlist_hint_bytes(r->cmdlist, p->layout.size * s->n / p->n_row);
}

void hth_rec_part(hth_recorder *r, const hth_gpu_fused_matrix *group, const hth_gpu_matrix *p,
                  const hth_row_range *s, const hth_gpu_input *in, hth_buffer_range y, bool accumulate)
{
    hth_quant_desc desc;
    bool quantised = hth_quant_desc_of(p->type, &desc);
    uint32_t n_tok = s->slices ? r->n_row * s->slices->sliced.n_used : r->n_row;
    uint64_t work = hth_rec_row_work(group->n_col, n_tok, quantised ? HTH_DOT_INT8X4 : HTH_DOT_SCALAR);
    uint32_t step = hth_rec_rows_per_dispatch(r, s->n, work, HTH_REC_ROW_ALIGNMENT);
    if (step > HTH_REC_MAX_ROWS) step = HTH_REC_MAX_ROWS;
    for (uint32_t i = 0, n; i < s->n; i += n) {
        n = s->n - i < step ? s->n - i : step;
        hth_row_range now = {s->first + i, n, s->neuron + i, s->sparse, s->slices}, own = now;
        hth_gpu_matrix some = *p;
        if (!s->sparse && !s->slices) some = hth_rec_rows_of(p, group->n_col, now.first, n), own.first = 0;
        hth_rec_reserve_work(r, n * work);
        if (quantised) run_quantised(r, group, &some, &own, &desc, in, y, accumulate);
        else run_floats(r, group, &some, &own, in, y, accumulate);
        hth_rec_hint_bytes(r, p, &now);
    }
}

void hth_rec_row_range(hth_recorder *r, const hth_gpu_fused_matrix *group, uint32_t from, uint32_t end,
                       bool sparse, const hth_gpu_input *in, hth_buffer_range y, bool accumulate)
{
    for (uint32_t i = 0; i < group->n_matrix; i++) {
        const hth_gpu_matrix *p = &group->matrices[i];
        uint32_t first = from > p->first ? from : p->first,
                 last = end < p->first + p->n_row ? end : p->first + p->n_row;
        if (first >= last) continue;
        hth_row_range s = {first - p->first, last - first, first - from, sparse, NULL};
        hth_rec_part(r, group, p, &s, in, y, accumulate);
    }
    hth_rec_mark_dirty(r, y);
}

void hth_rec_rows(hth_recorder *r, const hth_gpu_fused_matrix *group, const hth_gpu_input *in,
                  hth_buffer_range y, bool accumulate)
{
    hth_rec_row_range(r, group, 0, group->n_row, false, in, y, accumulate);
    hth_rec_barrier(r);
}

/* ---- inputs -------------------------------------------------------------------------------------------- */

uint32_t hth_rec_input_forms(const hth_recorder *r, const hth_gpu_fused_matrix *group, bool store,
                             hth_input_form out[2])
{
    const hth_gpu_input *in = &r->g->workspace.input;
    uint32_t n = 0;
    if (group && group->wants_32) out[n++] = (hth_input_form){HTH_ACT_BLOCK, false, in->q, in->d, in->sum};
    if (group && group->wants_256)
        out[n++] = (hth_input_form){HTH_ACT_BLOCK_256, false, in->q_256, in->d_256, in->sum_256};
    if (n == 0 && store) out[n++] = (hth_input_form){0, false, in->q, in->d, in->sum};
    out[0].store = n > 0 && store;
    return n;
}

void hth_rec_mark_form(hth_recorder *r, const hth_input_form *form, hth_buffer_range stored)
{
    if (form->store) hth_rec_mark_dirty(r, stored);
    if (form->block == 0) return;
    hth_rec_mark_dirty(r, form->q), hth_rec_mark_dirty(r, form->d), hth_rec_mark_dirty(r, form->sum);
}

/* HTH_KIND_* of a NORM, or of none. */
static uint32_t kind_of(const hth_op *norm, const hth_gpu_vector weight[2])
{
    if (!norm) return HTH_KIND_NONE;
    return norm->norm.layer ? HTH_KIND_LAYER : weight[1].n > 0 ? HTH_KIND_RMS_BIAS : HTH_KIND_RMS;
}

/* Dispatches of norm_quantize, one for each form that a group needs of n values from x; norm NULL: as they are. */
static void norm_quantize(hth_recorder *r, const hth_op *norm, hth_buffer_range x, uint32_t n,
                          const hth_gpu_fused_matrix *group, bool store, hth_buffer_range stored)
{
    static const hth_gpu_vector none[2];
    const hth_gpu_vector *weight = norm ? hth_rec_weights(r, norm)->vectors : none;
    uint32_t kind = kind_of(norm, weight);
    /* A row of a norm is read by several workgroups, and may be another token's. */
    assert(!store || stored.buffer != x.buffer || stored.offset != x.offset);
    assert(!group || (uint64_t)n * r->n_row <= r->g->workspace.input.q.size);
    hth_vector_split split = hth_rec_vector_split(hth_device_get_info(r->g->device), n, kind);
    hth_push_norm_quantize push = {n, weight[1].n > 0, norm ? norm->norm.eps : r->g->model->hparams.norm_eps,
                                   norm ? norm->norm.inv_n : 1.0f / (float)n};
    hth_input_form forms[2];
    uint32_t n_form = hth_rec_input_forms(r, group, store, forms);
    for (uint32_t i = 0; i < n_form; i++) {
        const hth_input_form *f = &forms[i];
        const uint32_t consts[] = {
            kind,        f->block,    f->store,  kind == HTH_KIND_NONE ? 0 : r->only_wanted,
            split.local, split.chunk, split.wide};
        const hth_buffer_range bind[] = {r->g->workspace.step,
                                         x,
                                         hth_rec_vector(r, weight[0]),
                                         hth_rec_vector(r, weight[1]),
                                         stored,
                                         f->q,
                                         f->d,
                                         f->sum};
        hth_rec_dispatch(r, HTH_SHADER_norm_quantize, consts, bind, &push, split.n_group, r->n_row);
        hth_rec_mark_form(r, f, stored);
    }
    hth_rec_barrier(r);
}

void hth_rec_quantize(hth_recorder *r, hth_buffer_range x, uint32_t n, const hth_gpu_fused_matrix *group)
{
    r->in_forms = HTH_NO_VALUE;
    norm_quantize(r, NULL, x, n, group, false, x);
}

static bool has_forms(const hth_recorder *r, uint32_t value, const hth_gpu_fused_matrix *group)
{
    return r->in_forms == value && (r->has_32 || !group->wants_32) && (r->has_256 || !group->wants_256);
}

hth_gpu_input hth_rec_input(hth_recorder *r, uint32_t value, const hth_gpu_fused_matrix *group, bool store)
{
    hth_rec_value *v = &r->values[value];
    const hth_op *pending = v->pending;
    hth_gpu_input in = r->g->workspace.input;
    assert(!pending || pending->kind != HTH_OP_GATHER); /* a norm follows it */
    bool stores = pending && !v->is_stored && (store || (group && group->wants_f32));
    in.x = v->at;
    hth_rec_barrier(r);
    if (!stores && (!group || has_forms(r, value, group))) return in;
    if (pending && pending->kind == HTH_OP_ATTEND) hth_rec_reduce(r, pending, group, stores, v->at);
    else
        norm_quantize(r, pending, pending ? v->from : v->at, r->g->model->program->values[value].width, group, stores,
                      v->at);
    v->is_stored |= stores;
    if (group) r->in_forms = value, r->has_32 = group->wants_32, r->has_256 = group->wants_256;
    return in;
}

hth_buffer_range hth_rec_floats(hth_recorder *r, uint32_t value) { return hth_rec_input(r, value, NULL, true).x; }

void hth_rec_add(hth_recorder *r, uint32_t x, uint32_t block)
{
    static const hth_gpu_vector none[2];
    const hth_op *norm = r->values[block].pending;
    if (norm && norm->kind != HTH_OP_NORM) norm = NULL;
    hth_buffer_range from = norm ? r->values[block].from : hth_rec_floats(r, block), to = hth_rec_floats(r, x);
    const hth_gpu_vector *post = norm ? hth_rec_weights(r, norm)->vectors : none;
    uint32_t n = r->g->model->program->values[x].width,
             kind = kind_of(norm, post);
    hth_push_norm_quantize push = {n, post[1].n > 0, norm ? norm->norm.eps : r->g->model->hparams.norm_eps,
                                   norm ? norm->norm.inv_n : 1.0f / (float)n};
    hth_vector_split split = hth_rec_vector_split(hth_device_get_info(r->g->device), n, kind);
    const uint32_t consts[] = {kind, split.local, split.chunk, split.wide};
    const hth_buffer_range bind[] = {r->g->workspace.step, to, from, hth_rec_vector(r, post[0]),
                                     hth_rec_vector(r, post[1])};
    hth_rec_dispatch(r, HTH_SHADER_norm_add, consts, bind, &push, split.n_group, r->n_row);
    hth_rec_mark_dirty(r, to);
}
