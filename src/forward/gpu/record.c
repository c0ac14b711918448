/* Records the command lists of a step: the operations of the program that the device has, one after another, once
 * per class of steps (one token, a few, many), and those of the head and of copies of pages. A barrier separates each
 * read from the write before it. */
#include "forward/gpu/recorder.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "forward/gpu/cache.h"

/* ---- operations --------------------------------------------------------------------------------------- */

static void product(hth_recorder *r, const hth_op *op)
{
    const hth_gpu_op *weights = hth_rec_weights(r, op);
    for (uint32_t i = 0; i < weights->n_fused; i++) {
        const hth_gpu_fused_matrix *group = &weights->fused[i];
        hth_gpu_input in = hth_rec_input(r, op->in[0].value, group, false);
        hth_rec_row_range(r, group, 0, group->n_row, false, &in, r->values[op->out[group->i_out].value].at,
                          op->adds);
    }
    hth_rec_barrier(r);
}

static void add(hth_recorder *r, const hth_op *op)
{
    hth_rec_add(r, op->in[0].value, op->in[1].value);
    hth_rec_barrier(r);
}

static void cap(hth_recorder *r, const hth_op *op)
{
    hth_buffer_range x = hth_rec_floats(r, op->in[0].value);
    hth_push_soft_cap push = {op->vector.n, op->vector.factor, 1.0f / op->vector.factor};
    hth_vector_split split =
        hth_rec_vector_split(hth_device_get_info(r->g->device), op->vector.n, HTH_KIND_NONE);
    hth_rec_dispatch(r, HTH_SHADER_soft_cap, &split.local,
                     (const hth_buffer_range[]){r->g->workspace.step, x}, &push, split.n_group, r->n_row);
    hth_rec_mark_dirty(r, x);
    hth_rec_barrier(r);
}

/* The norm behind it reads the rows where they are. */
static void gather(hth_recorder *r, const hth_op *op)
{
    hth_rec_value *y = &r->values[op->out[0].value];
    r->only_wanted = 1;
    y->pending = op, y->from = hth_rec_floats(r, op->in[0].value);
}

/* A kind that op_support.c allows is here, or is FFN (network). */
static hth_rec_op_fn *const kinds[HTH_N_OP] = {
    [HTH_OP_NORM] = hth_rec_norm,     [HTH_OP_PRODUCT] = product,         [HTH_OP_HEADS] = hth_rec_heads,
    [HTH_OP_ATTEND] = hth_rec_attend, [HTH_OP_CONV] = hth_rec_conv,       [HTH_OP_RATES] = hth_rec_rates,
    [HTH_OP_DELTA] = hth_rec_delta,   [HTH_OP_KDA] = hth_rec_kda,         [HTH_OP_SCAN] = hth_rec_scan,
    [HTH_OP_MUL] = hth_rec_mul,       [HTH_OP_EXPERTS] = hth_rec_experts, [HTH_OP_ROUTE] = hth_rec_route,
    [HTH_OP_ADD] = add,               [HTH_OP_BY_HEAD] = hth_rec_by_head, [HTH_OP_SCALE] = hth_rec_scale,
    [HTH_OP_CAP] = cap,               [HTH_OP_COPY] = hth_rec_copy,       [HTH_OP_SETTLE] = hth_rec_settle,
    [HTH_OP_GATHER] = gather};

/* ---- values that are written --------------------------------------------------------------------------- */

static bool overlap(hth_buffer_range a, hth_buffer_range b)
{
    return a.buffer == b.buffer && a.offset < b.offset + b.size && b.offset < a.offset + a.size;
}

static bool any_overlaps(const hth_recorder *r, const hth_view *views, int n, uint32_t but,
                         hth_buffer_range range)
{
    for (int i = 0; i < n; i++)
        if (views[i].value != HTH_NO_VALUE && views[i].value != but &&
            overlap(r->values[views[i].value].at, range))
            return true;
    return false;
}

/* Whether an operation writes what a pending value is computed of: what a norm reads, other than its own value, or the
 * splits of attention. */
static bool overwrites(const hth_recorder *r, const hth_op *op, uint32_t value)
{
    const hth_rec_value *v = &r->values[value];
    if (!v->pending) return false;
    if (v->pending->kind == HTH_OP_ATTEND) return op->kind == HTH_OP_ATTEND && v->pending != op;
    return any_overlaps(r, op->out, HTH_OP_OUT, value, v->from) ||
           any_overlaps(r, op->temp, HTH_OP_TEMP, value, v->from);
}

/* Whether an operation behind this one reads a value before another one writes it. */
static bool is_read_behind(const hth_program *p, const hth_op *op, uint32_t value)
{
    while (++op < p->ops + p->n_op) {
        if (hth_op_reads(op, value)) return true;
        if (hth_op_writes(op, value)) return false;
    }
    return false;
}

/* Computes what is pending, and read behind this operation, before it overwrites what that is computed of. */
static void keep_pending(hth_recorder *r, const hth_op *op)
{
    for (uint32_t i = 0; i < r->g->model->program->n_value; i++) {
        if (!overwrites(r, op, i) || !is_read_behind(r->g->model->program, op, i)) continue;
        hth_rec_floats(r, i);
        r->values[i].pending = NULL;
    }
}

static void forget_overwritten(hth_recorder *r, const hth_op *op)
{
    for (uint32_t i = 0; i < r->g->model->program->n_value; i++) {
        bool is_written = hth_op_writes(op, i);
        if (overwrites(r, op, i)) r->values[i].pending = NULL;
        if (is_written && r->values[i].pending != op) r->values[i].pending = NULL;
        if (is_written && r->in_forms == i) r->in_forms = HTH_NO_VALUE;
    }
}

/* ---- networks ------------------------------------------------------------------------------------------ */

static bool adds(const hth_op *op, const hth_op *end, uint32_t to)
{
    return op < end && op->kind == HTH_OP_ADD && op->in[0].value == to;
}

/* A network, and what of the additions behind it can be done meanwhile: that of the mixer's output in parallel layers,
 * once the network has read its inputs; and that of its own output, as the last product's. Returns the operations
 * recorded. */
static uint32_t network(hth_recorder *r, const hth_op *op, const hth_op *end)
{
    uint32_t x = op->in[1].value, y = op->out[0].value;
    hth_rec_ffn_target to = {r->values[y].at, op->adds, HTH_NO_VALUE};
    const hth_op *next = op + 1,
                 *post = next < end && next->kind == HTH_OP_NORM && next->out[0].value != y ? next : NULL;
    if (post) next++;
    if (!op->adds && op->in[0].value != x && adds(next, end, x) && next->in[1].value != y &&
        (!post || next->in[1].value == post->out[0].value)) {
        if (post) hth_rec_norm(r, post);
        to.add = next->in[1].value;
        next++;
        if (adds(next, end, x) && next->in[1].value == y)
            to.y = r->values[x].at, to.accumulate = true, next++;
    } else next = op + 1;
    for (const hth_op *done = op; done < next; done++) keep_pending(r, done);
    hth_rec_ffn(r, op, &to);
    for (const hth_op *done = op; done < next; done++) forget_overwritten(r, done);
    return (uint32_t)(next - op);
}

/* ---- layers and head ---------------------------------------------------------------------------------- */

/* Shaders read the step block in the device's memory: the host's may be behind a bus, and each workgroup
 * reads it. with_tables: all of it, and the grids and rotations behind it; else what the head reads. */
static void copy_step(hth_recorder *r, bool with_tables)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    hth_buffer_range from = ws->step_from_host, to = ws->step;
    from.size = to.size = with_tables ? ws->table.offset - ws->step.offset +
                                            sizeof(float) * hth_gpu_rotations_of(&r->g->model->hparams, r->n_row).n_word
                                      : sizeof(uint32_t) * ws->runs_at;
    hth_cmdlist_copy(r->cmdlist, from, to);
    hth_rec_mark_dirty(r, to);
}

/* The rows of a value, in memory or in a copy. */
static hth_buffer_range rows_of(const hth_recorder *r, hth_buffer_range in, uint32_t value)
{
    hth_buffer_range all = hth_gpu_value_range(r->g, in, value);
    all.size = hth_gpu_value_row(&r->g->model->program->values[value]) * r->n_row;
    return all;
}

/* The device waits for the host's operations of a run, if there are any. */
static void host_run(hth_recorder *r, uint32_t i_run)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    const hth_gpu_host_run *run = &r->g->crossings.runs[i_run];
    const hth_op *ops = r->g->model->program->ops;
    for (uint32_t i = run->first; i < run->end; i++) keep_pending(r, &ops[i]);
    for (uint32_t i = 0; i < run->n_to_host; i++) hth_rec_floats(r, run->to_host[i]);
    for (uint32_t i = 0; i < run->n_to_host && r->st == HEARTH_OK; i++)
        hth_cmdlist_copy(r->cmdlist, rows_of(r, ws->values, run->to_host[i]),
                         rows_of(r, ws->values_to_host, run->to_host[i]));
    if (run->end > run->first) {
        if (r->st == HEARTH_OK && !hth_cmdlist_is_empty(r->cmdlist)) r->n_d2h++, hth_rec_split(r);
        hth_rec_host_op(r, HTH_HOST_OP_RUN, i_run, r->n_d2h);
        hth_rec_split(r);
    }
    for (uint32_t i = run->first; i < run->end; i++) forget_overwritten(r, &ops[i]);
    for (uint32_t i = 0; i < run->n_to_device && r->st == HEARTH_OK; i++) {
        hth_buffer_range to = rows_of(r, ws->values, run->to_device[i]);
        hth_cmdlist_copy(r->cmdlist, rows_of(r, ws->values_from_host, run->to_device[i]), to);
        hth_rec_mark_dirty(r, to);
        if (r->n_dirty == HTH_REC_MAX_DIRTY) hth_rec_barrier(r);
    }
    hth_rec_barrier(r);
}

static void device_ops(hth_recorder *r, uint32_t first, uint32_t end)
{
    const hth_op *ops = r->g->model->program->ops;
    for (uint32_t i = first; i < end && r->st == HEARTH_OK;) {
        if (ops[i].kind == HTH_OP_FFN) {
            i += network(r, &ops[i], ops + end);
            continue;
        }
        keep_pending(r, &ops[i]);
        kinds[ops[i].kind](r, &ops[i]);
        forget_overwritten(r, &ops[i++]);
    }
}

static void layers(hth_recorder *r)
{
    const hth_gpu_crossings *c = &r->g->crossings;
    copy_step(r, true);
    for (uint32_t i = 0; i < c->n_run; i++) {
        if (i > 0) device_ops(r, c->runs[i - 1].end, c->runs[i].first);
        host_run(r, i);
    }
    hth_rec_copy_reads(r);
}

static void head(hth_recorder *r)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    const hth_program *p = r->g->model->program;
    uint64_t n_vocab = r->g->model->hparams.n_vocab;
    uint32_t end = p->output_norm;
    copy_step(r, false);
    hth_rec_barrier(r);
    while (end < p->n_op && r->g->ops[end].is_on_device) end++;
    device_ops(r, p->output_norm - 1, end);
    if (r->st == HEARTH_OK)
        hth_cmdlist_copy(r->cmdlist, hth_rec_first_rows(ws->logits, r->n_row, n_vocab),
                         hth_rec_first_rows(ws->result, r->n_row, n_vocab));
}

/* A copy of the states of each kind, in all layers. */
static void copy_states(hth_recorder *r)
{
    const hth_program *p = r->g->model->program;
    for (uint32_t i = 0; i < p->n_op; i++) {
        hth_buffer_range state = r->g->ops[i].state;
        if (!state.buffer) continue;
        /* All copies have less than 2^32 words (hth_gpu_cache_bytes). */
        uint32_t n_word = (uint32_t)hth_gpu_state_words(r->g->model, &p->ops[i]),
                 kind = p->ops[i].kind == HTH_OP_DELTA ? HTH_STATE_CHUNK : HTH_STATE_STEP;
        hth_push_copy_page push = {HTH_STEP_COPY + 2 * (HTH_STEP_COPY_STATES + kind), 0, n_word, 0};
        hth_rec_dispatch(r, HTH_SHADER_copy_page, NULL,
                         (const hth_buffer_range[]){r->g->workspace.step_from_host, state, state}, &push,
                         hth_div_ceil(n_word, HTH_REC_LOCAL), 1);
        if (r->st == HEARTH_OK) hth_cmdlist_hint_bytes(r->cmdlist, (uint64_t)4 * n_word);
    }
}

/* A page of each class, in all layers. */
static void copy_pages(hth_recorder *r)
{
    for (uint32_t i = r->g->params.first_layer; i < r->g->params.end_layer; i++) {
        const hth_layer *l = &r->g->model->layers[i];
        const hth_gpu_layer *to = &r->g->layers[i];
        if (!to->keys.buffer || l->attn.kv_layer != i) continue;
        uint32_t n_word = (uint32_t)hth_gpu_cache_head_words(r->g->params.kv, l->attn.d_head, HTH_KV_PAGE);
        hth_push_copy_page push = {HTH_STEP_COPY + 2 * hth_kv_class_of(l), to->head_words, n_word, n_word};
        hth_rec_dispatch(r, HTH_SHADER_copy_page, NULL,
                         (const hth_buffer_range[]){r->g->workspace.step_from_host, to->keys, to->values},
                         &push, hth_div_ceil(n_word, HTH_REC_LOCAL), l->attn.n_head_kv);
        if (r->st == HEARTH_OK) hth_cmdlist_hint_bytes(r->cmdlist, (uint64_t)8 * n_word * l->attn.n_head_kv);
    }
    copy_states(r);
}

/* ---- classes ------------------------------------------------------------------------------------------- */

uint32_t hth_gpu_bucket_size(const hth_gpu *g, int class)
{
    /* Drivers that compute on the CPU take longer to compile rows for two and four tokens than those save. */
    static const uint32_t rows[] = {1, 2, 4, HTH_GPU_FEW_ROWS, HTH_GPU_SOME_ROWS},
                          rows_on_cpu[] = {1, 1, 1, HTH_GPU_FEW_ROWS, HTH_GPU_FEW_ROWS};
    bool on_cpu = hth_device_get_info(g->device)->kind == HTH_DEVICE_CPU;
    uint32_t max = g->params.n_row;
    if (class == HTH_GPU_SOME && max < 4 * HTH_GPU_SOME_ROWS) class = HTH_GPU_FEW;
    return class == HTH_GPU_MANY ? max : hth_min_u32((on_cpu ? rows_on_cpu : rows)[class], max);
}

/* Where the values are, of which those of the head are for rows that want logits. */
static bool open_values(hth_recorder *r)
{
    const hth_program *p = r->g->model->program;
    r->values = hth_alloc(p->n_value, sizeof *r->values);
    r->in_forms = HTH_NO_VALUE;
    for (uint32_t i = 0; r->values && i < p->n_value; i++)
        if (p->values[i].domain == HTH_ROWS_TOKENS)
            r->values[i].at = hth_gpu_value_range(r->g, r->g->workspace.values, i);
    if (r->values) r->values[p->logits.value].at = r->g->workspace.logits;
    if (r->values) r->values[p->ops[p->output_norm].out[0].value].at = r->g->workspace.wanted;
    return r->values != NULL;
}

/* Records a part of a step with n_host_op operations of the host at most. */
static hearth_status record_part(hth_recorder r, uint32_t n_host_op, void (*part)(hth_recorder *))
{
    r.segments->host_ops = hth_alloc(n_host_op, sizeof *r.segments->host_ops);
    if (!open_values(&r) || !r.segments->host_ops) {
        hth_free(r.values);
        return hth_fail_memory(r.err, n_host_op * sizeof *r.segments->host_ops, "command lists");
    }
    hth_rec_begin(&r);
    if (r.st == HEARTH_OK) part(&r);
    hth_rec_end(&r);
    hth_free(r.values);
    return r.st;
}

static hearth_status record_layers(hth_recorder r)
{
    uint32_t n_ffn = r.stream ? 2 * r.stream->n_chunk + r.g->passing.n_chunk : r.g->n_split_layer;
    return record_part(r, r.g->crossings.n_run + r.g->n_divided_mixture + n_ffn, layers);
}

static hearth_status record(hth_gpu *g, uint32_t n_row, uint32_t n_position, hth_gpu_segments *segments,
                            hearth_error *err)
{
    hth_recorder r = {.g = g, .segments = segments, .n_row = n_row, .n_position = n_position, .err = err};
    return record_layers(r);
}

static hearth_status record_short(hth_gpu *g, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    for (int i = 0; st == HEARTH_OK && i < HTH_GPU_N_SHORT; i++) {
        uint32_t n = hth_gpu_short_positions(i), next = hth_min_u32(4 * n, g->params.n_position);
        if (n < g->params.n_position && g->params.n_row > HTH_GPU_FEW_ROWS &&
            hth_rec_divides_attention(g, next))
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
    return record_layers(r);
}

static hearth_status record_alone(hth_gpu *g, uint32_t n_row, void (*part)(hth_recorder *),
                                  hth_gpu_segments *segments, hearth_error *err)
{
    hth_recorder r = {.g = g, .segments = segments, .n_row = n_row, .err = err};
    return record_part(r, 0, part);
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
    if (st == HEARTH_OK && g->params.head) st = record_alone(g, 1, head, &g->head_segments[0], err);
    if (st == HEARTH_OK && g->params.head) st = record_alone(g, rows, head, &g->head_segments[1], err);
    if (st == HEARTH_OK) st = record_alone(g, 1, copy_pages, &g->copy_segment, err);
    if (st == HEARTH_OK) st = hth_gpu_record_moves(g, err);
    if (st == HEARTH_OK) st = hth_gpu_record_passing(g, err);
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
    hth_gpu_free_move_lists(g);
    hth_gpu_free_passing_lists(g);
}
