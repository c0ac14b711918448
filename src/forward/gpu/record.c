/* Records the command lists of a step: each layer's shaders in the order of a token's computation, once per
 * class of steps (one token, a few, many), and those of the head and of copies of pages. A barrier separates
 * each read from the write before it. */
#include "forward/gpu/recorder.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "kernels/vector/math.h"
#include "forward/gpu/cache.h"

#include <string.h>

/* ---- attention ---------------------------------------------------------------------------------------- */

static void rope_store(hth_recorder *r, const hth_layer *l, const hth_gpu_layer *to)
{
    const hth_hparams *h = &r->g->model->hparams;
    const hth_gpu_workspace *ws = &r->g->workspace;
    hth_gpu_rotations places = hth_gpu_rotations_of(h, r->n_row);
    hth_push_rope_store push = {.n_head = l->attn.n_head,
                                .n_head_kv = l->attn.n_head_kv,
                                .n_pair = h->rope.n_rot / 2,
                                .table_at = hth_fwd_i_table(h, &l->attn) * places.of_table,
                                .sine_at = places.sines,
                                .d_at = ws->q_q8_d_offset,
                                .head_words = to->head_words,
                                .eps = h->norm_eps,
                                .inv_n = 1.0f / (float)h->d_head,
                                .kv_class = hth_kv_class_of(l)};
    const uint32_t consts[] = {h->d_head, (uint32_t)h->rope.kind, to->head_norms.n > 0,
                               (uint32_t)r->g->params.kv, HTH_REC_LOCAL};
    const hth_buffer_range bind[] = {ws->step, ws->qkv,    ws->table, hth_rec_vector(r, to->head_norms),
                                     to->keys, to->values, ws->q_q8};
    hth_rec_dispatch(r, HTH_SHADER_rope_store, consts, bind, &push, l->attn.n_head + 2 * l->attn.n_head_kv,
                     r->n_row);
    hth_rec_mark_dirty(r, ws->qkv), hth_rec_mark_dirty(r, to->keys), hth_rec_mark_dirty(r, to->values),
        hth_rec_mark_dirty(r, ws->q_q8);
    hth_rec_barrier(r);
}

/* Of one token in a sequence of n positions. */
static uint64_t work_of_attention(const hth_gpu *g, const hth_layer *l, uint64_t n)
{
    if (l->attn.window > 0 && l->attn.window < n) n = l->attn.window;
    return 2 * n * l->attn.n_head * g->model->hparams.d_head * HTH_DOT_SCALAR;
}

/* The same, at the maximum number of positions. */
static uint64_t attend_work(const hth_recorder *r, const hth_layer *l)
{
    return work_of_attention(r->g, l, r->n_position);
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
    uint32_t d = r->g->model->hparams.d_head, shared = consts[HTH_ATTN_SHARED], n_tok = 1;
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
                                           hth_gpu_cache_words(r->g->params.kv, r->g->model->hparams.d_head));
    hth_rec_mark_dirty(r, ws->splits), hth_rec_mark_dirty(r, ws->split_partials);
    hth_rec_barrier(r);
}

/* The splits of a token in the forms that the output matrix needs. */
static hth_gpu_input reduce(hth_recorder *r, const hth_layer *l, const hth_gpu_fused_matrix *o)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    uint32_t d = r->g->model->hparams.d_head, n = l->attn.n_head * d;
    hth_vector_split split = hth_rec_vector_split(hth_device_get_info(r->g->device), n, HTH_KIND_NONE);
    const hth_push_attn_reduce push = {
        .n_head = l->attn.n_head, .window = l->attn.window, .n_split = ws->n_split};
    hth_gpu_input in = ws->input;
    hth_input_form forms[2];
    uint32_t n_form = hth_rec_input_forms(r, o, o->wants_f32, forms);
    in.x = ws->attn_out;
    for (uint32_t i = 0; i < n_form; i++) {
        const hth_input_form *f = &forms[i];
        const uint32_t consts[] = {d, f->block, f->store, split.local};
        const hth_buffer_range bind[] = {ws->step, ws->splits, ws->split_partials, in.x, f->q, f->d, f->sum};
        hth_rec_dispatch(r, HTH_SHADER_attn_reduce, consts, bind, &push, split.n_group, 1);
        hth_rec_mark_form(r, f, in.x);
    }
    hth_rec_barrier(r);
    return in;
}

/* Returns the input of the output matrix. */
static hth_gpu_input attend(hth_recorder *r, uint32_t i_layer, const hth_layer *l, const hth_gpu_layer *to)
{
    const hth_hparams *h = &r->g->model->hparams;
    const hth_gpu_workspace *ws = &r->g->workspace;
    bool by_split = r->n_row == 1;
    hth_push_attn push = {.n_head = l->attn.n_head,
                          .n_head_kv = l->attn.n_head_kv,
                          .window = l->attn.window,
                          .n_split = ws->n_split,
                          .qkv_stride = to->qkv.n_row,
                          .d_at = ws->q_q8_d_offset,
                          .head_words = to->head_words,
                          .scale = h->score_scale,
                          .cap = h->attn_softcap,
                          .inverse_cap = h->attn_softcap != 0.0f ? 1.0f / h->attn_softcap : 0.0f,
                          .kv_class = hth_kv_class_of(l)};
    uint32_t consts[HTH_ATTN_N_CONST] = {h->d_head, l->attn.n_head / l->attn.n_head_kv,
                                         (uint32_t)r->g->params.kv, by_split};
    set_attn_size(r, l, by_split, consts);
    check_attn_size(r, consts);
    const hth_buffer_range bind[] = {ws->step,          ws->qkv,    ws->q_q8,
                                     to->keys,          to->values, by_split ? ws->splits : ws->attn_out,
                                     ws->split_partials};
    if (by_split) {
        attend_by_split(r, i_layer, consts, bind, &push);
        return reduce(r, l, &to->o);
    }
    attend_whole(r, l, consts, bind, &push);
    hth_rec_mark_dirty(r, ws->attn_out);
    hth_rec_barrier(r);
    return hth_rec_plain_input(r, ws->attn_out, &to->o);
}

static void attention(hth_recorder *r, uint32_t i_layer, hth_buffer_range y, bool accumulate)
{
    const hth_layer *l = &r->g->model->layers[i_layer];
    const hth_gpu_layer *to = &r->g->layers[i_layer];
    hth_rec_normed_input(r, to->attn_norm, r->g->workspace.x, &to->qkv, false);
    hth_rec_rows(r, &to->qkv, &r->g->workspace.input, r->g->workspace.qkv, false);
    rope_store(r, l, to);
    hth_gpu_input in = attend(r, i_layer, l, to);
    hth_rec_rows(r, &to->o, &in, y, accumulate);
}

/* ---- layers and head ---------------------------------------------------------------------------------- */

void hth_rec_add_to_stream(hth_recorder *r, hth_buffer_range block, const hth_gpu_vector post[2])
{
    uint32_t n = r->g->model->hparams.d_model;
    hth_push_norm_quantize push = {n, post[1].n > 0, r->g->model->hparams.norm_eps, 1.0f / (float)n};
    uint32_t kind = post[0].n > 0 ? hth_rec_norm_kind(r) : HTH_KIND_NONE;
    hth_vector_split split = hth_rec_vector_split(hth_device_get_info(r->g->device), n, kind);
    const uint32_t consts[] = {kind, split.local, split.chunk, split.wide};
    const hth_buffer_range bind[] = {r->g->workspace.step, r->g->workspace.x, block,
                                     hth_rec_vector(r, post[0]), hth_rec_vector(r, post[1])};
    hth_rec_dispatch(r, HTH_SHADER_norm_add, consts, bind, &push, split.n_group, r->n_row);
    hth_rec_mark_dirty(r, r->g->workspace.x);
}

static void add_output(hth_recorder *r, const hth_gpu_vector post[2])
{
    hth_rec_add_to_stream(r, r->g->workspace.out, post);
    hth_rec_barrier(r);
}

static void layer(hth_recorder *r, uint32_t i_layer)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    const hth_gpu_layer *l = &r->g->layers[i_layer];
    bool parallel = r->g->model->hparams.parallel, accumulate = !parallel && l->attn_post[0].n == 0;
    attention(r, i_layer, parallel ? ws->attn_saved : accumulate ? ws->x : ws->out, accumulate);
    r->attn_is_apart = parallel;
    if (!parallel && !accumulate) add_output(r, l->attn_post);
    accumulate = l->ffn_post[0].n == 0;
    hth_rec_ffn(r, i_layer, accumulate ? ws->x : ws->out, accumulate);
    if (!accumulate) add_output(r, l->ffn_post);
}

/* Shaders read the step block in the device's memory: the host's may be behind a bus, and each workgroup
 * reads it. with_tables: also the grids and rotations behind it. */
static void copy_step(hth_recorder *r, bool with_tables)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    hth_buffer_range from = ws->step_from_host, to = ws->step;
    if (with_tables)
        from.size = to.size = ws->table.offset - ws->step.offset +
                              sizeof(float) * hth_gpu_rotations_of(&r->g->model->hparams, r->n_row).n_word;
    hth_cmdlist_copy(r->cmdlist, from, to);
    hth_rec_mark_dirty(r, to);
}

static void layers(hth_recorder *r)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    uint64_t d = r->g->model->hparams.d_model;
    copy_step(r, true);
    hth_cmdlist_copy(r->cmdlist, hth_rec_first_rows(ws->embedded, r->n_row, d),
                     hth_rec_first_rows(ws->x, r->n_row, d));
    hth_rec_mark_dirty(r, ws->x);
    hth_rec_barrier(r);
    for (uint32_t i = r->g->params.first_layer; i < r->g->params.end_layer; i++) layer(r, i);
    if (!r->g->params.head && r->st == HEARTH_OK)
        hth_cmdlist_copy(r->cmdlist, hth_rec_first_rows(ws->x, r->n_row, d),
                         hth_rec_first_rows(ws->result, r->n_row, d));
}

static void head(hth_recorder *r)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    const hth_hparams *h = &r->g->model->hparams;
    r->only_wanted = 1;
    copy_step(r, false);
    hth_rec_barrier(r);
    hth_rec_normed_input(r, r->g->output_norm, ws->x, &r->g->head, false);
    hth_rec_rows(r, &r->g->head, &ws->input, ws->logits, false);
    if (h->logit_softcap != 0.0f) {
        hth_push_soft_cap push = {h->n_vocab, h->logit_softcap, 1.0f / h->logit_softcap};
        hth_vector_split split =
            hth_rec_vector_split(hth_device_get_info(r->g->device), h->n_vocab, HTH_KIND_NONE);
        hth_rec_dispatch(r, HTH_SHADER_soft_cap, &split.local,
                         (const hth_buffer_range[]){ws->step, ws->logits}, &push, split.n_group, r->n_row);
        hth_rec_mark_dirty(r, ws->logits);
        hth_rec_barrier(r);
    }
    if (r->st == HEARTH_OK)
        hth_cmdlist_copy(r->cmdlist, hth_rec_first_rows(ws->logits, r->n_row, h->n_vocab),
                         hth_rec_first_rows(ws->result, r->n_row, h->n_vocab));
}

/* A page of each class, in all layers. */
static void copy_pages(hth_recorder *r)
{
    const hth_hparams *h = &r->g->model->hparams;
    uint32_t n_word = (uint32_t)hth_gpu_cache_head_words(r->g->params.kv, h->d_head, HTH_KV_PAGE);
    for (uint32_t i = r->g->params.first_layer; i < r->g->params.end_layer; i++) {
        const hth_layer *l = &r->g->model->layers[i];
        const hth_gpu_layer *to = &r->g->layers[i];
        hth_push_copy_page push = {HTH_STEP_COPY + 2 * hth_kv_class_of(l), to->head_words, n_word};
        hth_rec_dispatch(r, HTH_SHADER_copy_page, NULL,
                         (const hth_buffer_range[]){r->g->workspace.step_from_host, to->keys, to->values},
                         &push, hth_div_ceil(n_word, HTH_REC_LOCAL), l->attn.n_head_kv);
        if (r->st == HEARTH_OK) hth_cmdlist_hint_bytes(r->cmdlist, (uint64_t)8 * n_word * l->attn.n_head_kv);
    }
}

/* ---- classes ------------------------------------------------------------------------------------------- */

uint32_t hth_gpu_bucket_size(const hth_gpu *g, int class)
{
    /* Drivers that compute on the CPU take longer to compile rows for two and four tokens than those save. */
    static const uint32_t rows[] = {1, 2, 4, HTH_GPU_FEW_ROWS}, rows_on_cpu[] = {1, 1, 1, HTH_GPU_FEW_ROWS};
    bool on_cpu = hth_device_get_info(g->device)->kind == HTH_DEVICE_CPU;
    uint32_t max = g->params.n_row;
    return class == HTH_GPU_MANY ? max : hth_min_u32((on_cpu ? rows_on_cpu : rows)[class], max);
}

static hearth_status record_with(hth_recorder *r)
{
    uint32_t n_op = r->stream ? 2 * r->stream->n_chunk : r->g->n_split_layer;
    r->segments->host_ops = hth_alloc(n_op, sizeof *r->segments->host_ops);
    if (!r->segments->host_ops)
        return hth_fail_memory(r->err, n_op * sizeof *r->segments->host_ops, "command lists");
    hth_rec_begin(r);
    if (r->st == HEARTH_OK) layers(r);
    hth_rec_end(r);
    return r->st;
}

static hearth_status record(hth_gpu *g, uint32_t n_row, uint32_t n_position, hth_gpu_segments *segments,
                            hearth_error *err)
{
    hth_recorder r = {.g = g, .segments = segments, .n_row = n_row, .n_position = n_position, .err = err};
    return record_with(&r);
}

/* Whether n_row tokens of so long a sequence are too much for a submission, in any layer. */
static bool divides_attention(const hth_gpu *g, uint32_t n_position)
{
    for (uint32_t i = g->params.first_layer; i < g->params.end_layer; i++)
        if (work_of_attention(g, &g->model->layers[i], n_position) > g->params.max_work / g->params.n_row) return true;
    return false;
}

static hearth_status record_short(hth_gpu *g, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    for (int i = 0; st == HEARTH_OK && i < HTH_GPU_N_SHORT; i++) {
        uint32_t n = hth_gpu_short_positions(i), next = hth_min_u32(4 * n, g->params.n_position);
        if (n < g->params.n_position && g->params.n_row > HTH_GPU_FEW_ROWS && divides_attention(g, next))
            st = record(g, g->params.n_row, n, &g->short_segments[i], err);
    }
    return st;
}

const hth_gpu_segments *hth_gpu_segments_for(const hth_gpu *g, const hth_step *s, uint32_t first, uint32_t n)
{
    int c = HTH_GPU_ONE;
    uint32_t last = 0;
    while (hth_gpu_bucket_size(g, c) < n) c++;
    for (uint32_t i = first; i < first + n; i++)
        if (s->tokens[i].position > last) last = s->tokens[i].position;
    for (int i = 0; c == HTH_GPU_MANY && i < HTH_GPU_N_SHORT; i++)
        if (g->short_segments[i].n > 0 && last < hth_gpu_short_positions(i)) return &g->short_segments[i];
    return &g->segments[c];
}

static hearth_status record_stream(hth_gpu *g, hth_weight_stream *p, hearth_error *err)
{
    hth_recorder r = {.g = g,
                      .segments = &p->segments,
                      .n_row = p->n_row,
                      .n_position = g->params.n_position,
                      .stream = p,
                      .err = err};
    return record_with(&r);
}

/* A part of its own, without host operations: the head, or copies of pages. */
static hearth_status record_part(hth_gpu *g, uint32_t n_row, void (*part)(hth_recorder *),
                                 hth_gpu_segments *segments, hearth_error *err)
{
    hth_recorder r = {.g = g, .segments = segments, .n_row = n_row, .err = err};
    hth_rec_begin(&r);
    if (r.st == HEARTH_OK) part(&r);
    hth_rec_end(&r);
    return r.st;
}

/* Allocates the submissions of a step, including those of the head. */
static hearth_status alloc_submits(hth_gpu *g, hearth_error *err)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < g->n_stream; i++) n = hth_max_u64(n, g->streams[i].segments.n);
    for (int c = 0; c < HTH_GPU_N_CLASS; c++) n = hth_max_u64(n, g->segments[c].n);
    for (int i = 0; i < HTH_GPU_N_SHORT; i++) n = hth_max_u64(n, g->short_segments[i].n);
    n += hth_max_u64(g->head_segments[0].n, g->head_segments[1].n);
    hth_submit_info *submits = hth_realloc(g->submits, n, sizeof *submits);
    if (submits) g->submits = submits;
    hth_fence *fences = hth_realloc(g->fences, n, sizeof *fences);
    if (fences) g->fences = fences;
    return submits && fences ? HEARTH_OK : hth_fail_memory(err, n * sizeof *submits, "command lists");
}

static hearth_status record_all(hth_gpu *g, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    uint32_t rows = g->params.n_row < HTH_GPU_HEAD_ROWS ? g->params.n_row : HTH_GPU_HEAD_ROWS;
    for (int c = 0; st == HEARTH_OK && c < HTH_GPU_N_CLASS; c++)
        if (c == 0 || hth_gpu_bucket_size(g, c) > hth_gpu_bucket_size(g, c - 1))
            st = record(g, hth_gpu_bucket_size(g, c), g->params.n_position, &g->segments[c], err);
    if (st == HEARTH_OK) st = record_short(g, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < g->n_stream; i++) st = record_stream(g, &g->streams[i], err);
    if (st == HEARTH_OK && g->params.head) st = record_part(g, 1, head, &g->head_segments[0], err);
    if (st == HEARTH_OK && g->params.head) st = record_part(g, rows, head, &g->head_segments[1], err);
    if (st == HEARTH_OK) st = record_part(g, 1, copy_pages, &g->copy_segment, err);
    return st;
}

/* Twice where pipelines are compiled: to see which are wanted, then with all of them. */
hearth_status hth_gpu_record(hth_gpu *g, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    if (hth_pipeline_defer(g->device, true)) {
        st = record_all(g, err);
        hth_pipeline_defer(g->device, false);
        hth_gpu_segments_free(g);
        if (st == HEARTH_OK) st = hth_pipeline_compile(g->device, g->params.n_thread, err);
    }
    if (st == HEARTH_OK) st = record_all(g, err);
    return st == HEARTH_OK ? alloc_submits(g, err) : st;
}

static void free_segments(hth_gpu_segments *segments)
{
    for (uint32_t i = 0; i < segments->n; i++) hth_cmdlist_free(segments->segments[i].cmdlist);
    hth_free(segments->segments);
    hth_free(segments->host_ops);
    *segments = (hth_gpu_segments){0};
}

void hth_gpu_segments_free(hth_gpu *g)
{
    for (int c = 0; c < HTH_GPU_N_CLASS; c++) free_segments(&g->segments[c]);
    for (int i = 0; i < HTH_GPU_N_SHORT; i++) free_segments(&g->short_segments[i]);
    for (uint32_t i = 0; i < g->n_stream; i++) free_segments(&g->streams[i].segments);
    for (int i = 0; i < 2; i++) free_segments(&g->head_segments[i]);
    free_segments(&g->copy_segment);
}
