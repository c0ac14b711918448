/* Records the choice of experts: the logits of a router, then the best experts of each token and their weights. */
#include "forward/gpu/recorder.h"

#include "base/checked_math.h"

/* EXPERTS next to a ROUTE with the same input; NULL: there are none. */
static const hth_op *experts_of(const hth_recorder *r, const hth_op *route)
{
    const hth_op *op = hth_gpu_experts_behind(r->g->model->program, route);
    return op && hth_rec_weights(r, op)->is_on_device ? op : NULL;
}

/* The input as floats, and in the forms that the experts read next. */
static hth_buffer_range input_of(hth_recorder *r, const hth_op *op)
{
    const hth_op *experts = experts_of(r, op);
    if (!experts) return hth_rec_floats(r, op->in[0].value);
    const hth_gpu_fused_matrix both = hth_rec_expert_inputs(r, experts);
    return hth_rec_input(r, op->in[0].value, &both, true).x;
}

/* Rows that are multiplied with several tokens: as many as a workgroup may have invocations for. */
static uint32_t tokens_together(const hth_recorder *r)
{
    enum { MAX = 8 };
    const hth_device_info *info = hth_device_get_info(r->g->device);
    uint32_t n = 1;
    while (n < MAX && 2 * n <= r->n_row && 2 * n * HTH_REC_LOCAL <= info->max_workgroup_size) n *= 2;
    return n;
}

/* Entries [first, first + n) of a vector, n_col each. */
static hth_buffer_range part_of(const hth_recorder *r, hth_gpu_vector v, uint32_t first, uint32_t n, uint64_t n_col)
{
    hth_buffer_range all = hth_rec_vector(r, v);
    return v.n > 0 ? (hth_buffer_range){all.buffer, all.offset + first * n_col * sizeof(float), n * n_col * sizeof(float)}
                   : all;
}

/* The logits of n rows from `first` on. */
static void multiply_some(hth_recorder *r, const hth_op *op, uint32_t first, uint32_t n, hth_buffer_range x)
{
    const hth_gpu_vector *vectors = hth_rec_weights(r, op)->vectors;
    uint32_t d = r->g->model->hparams.d_model, n_tok = tokens_together(r);
    hth_push_router_rows push = {.n_row = n,
                                 .n_col = d,
                                 .has_bias = vectors[HTH_GPU_ROUTER_BIAS].n > 0,
                                 .x = hth_rec_rows_at(r, op->in[0]),
                                 .y = hth_rec_rows_at(r, op->temp[0])};
    push.y.at += first;
    const uint32_t consts[] = {n_tok, d % 4 == 0, n_tok * HTH_REC_LOCAL};
    const hth_buffer_range bind[] = {r->g->workspace.step, part_of(r, vectors[HTH_GPU_ROUTER_ROWS], first, n, d), x,
                                     part_of(r, vectors[HTH_GPU_ROUTER_BIAS], first, n, 1),
                                     r->values[op->temp[0].value].at};
    hth_rec_dispatch(r, HTH_SHADER_router_rows, consts, bind, &push, hth_div_ceil(n, HTH_ROUTER_ROWS),
                     hth_div_ceil(r->n_row, n_tok));
    if (r->st == HEARTH_OK) hth_cmdlist_hint_bytes(r->cmdlist, (uint64_t)n * d * sizeof(float));
}

static void multiply(hth_recorder *r, const hth_op *op, uint32_t n_row, hth_buffer_range x)
{
    uint64_t work = hth_rec_row_work(r->g->model->hparams.d_model, r->n_row, HTH_DOT_SCALAR);
    uint32_t step = hth_rec_rows_per_dispatch(r, n_row, work, HTH_REC_ROW_ALIGNMENT);
    for (uint32_t first = 0, n; first < n_row; first += n) {
        n = hth_min_u32(n_row - first, step);
        hth_rec_reserve_work(r, n * work);
        multiply_some(r, op, first, n, x);
    }
    hth_rec_mark_dirty(r, r->values[op->temp[0].value].at);
    hth_rec_barrier(r);
}

/* Invocations for n experts: a power of two. */
static uint32_t choice_local(const hth_recorder *r, uint32_t n)
{
    enum { MAX = 256 };
    const hth_device_info *info = hth_device_get_info(r->g->device);
    uint32_t local = HTH_REC_LOCAL;
    if (info->kind == HTH_DEVICE_CPU) return local;
    while (local < n && local < MAX && 2 * local <= info->max_workgroup_size) local *= 2;
    return local;
}

/* Where the experts of a layer's tokens are given; 0: they are not. */
static uint32_t given_at(const hth_recorder *r, const hth_op *op)
{
    const hth_gpu_workspace *ws = &r->g->workspace;
    return r->g->params.has_given_experts && !op->experts.shared ? ws->given_at + op->layer * ws->given_words : 0;
}

static void choose(hth_recorder *r, const hth_op *op, const hth_router *router, uint32_t score, hth_buffer_range logits)
{
    const hth_gpu_vector *vectors = hth_rec_weights(r, op)->vectors;
    hth_buffer_range pairs = r->values[op->out[0].value].at;
    bool has_logits = score != HTH_ROUTE_CONSTANT, places = !op->experts.shared && hth_rec_reads_experts(r, op->layer);
    const hth_gpu_expert_slots *slots = places ? r->g->layers[op->layer].slots : NULL;
    const hth_push_route push = {.n_used = router->n_used,
                                 .n_group = router->n_group,
                                 .n_group_used = router->n_group_used,
                                 .has_select_bias = vectors[HTH_GPU_SELECT_BIAS].n > 0,
                                 .has_expert_scale = vectors[HTH_GPU_EXPERT_SCALE].n > 0,
                                 .normalises = router->normalise,
                                 .scale = router->scale,
                                 .x = has_logits ? hth_rec_rows_at(r, op->temp[0]) : (hth_rows_at){0},
                                 .y = hth_rec_rows_at(r, op->out[0]),
                                 .given_at = given_at(r, op),
                                 .slots_at = places ? slots->at : 0,
                                 .spares_at = places ? hth_gpu_spares_at(slots) : 0,
                                 .reads_at = places ? slots->jobs_at : 0};
    const uint32_t consts[] = {score, router->n_expert, choice_local(r, router->n_expert), places};
    const hth_buffer_range bind[] = {r->g->workspace.step, logits, hth_rec_vector(r, vectors[HTH_GPU_SELECT_BIAS]),
                                     hth_rec_vector(r, vectors[HTH_GPU_EXPERT_SCALE]), pairs,
                                     places ? (hth_buffer_range){r->g->moves.reads, 0, hth_buffer_size(r->g->moves.reads)}
                                            : hth_rec_vector(r, (hth_gpu_vector){0})};
    hth_rec_dispatch(r, HTH_SHADER_route, consts, bind, &push, r->n_row, 1);
    hth_rec_mark_dirty(r, pairs);
    /* Written where it places; synchronisation validation counts what the shader could write. */
    hth_rec_mark_dirty(r, bind[5]), hth_rec_mark_dirty(r, bind[0]);
    hth_rec_barrier(r);
    if (places) hth_rec_read_experts(r, op->layer);
}

/* The expert that all tokens use, with the weight of the architecture, or the sigmoid of a row. */
static void route_shared(hth_recorder *r, const hth_op *op)
{
    const hth_experts *e = &r->g->model->layers[op->layer].experts;
    hth_router one = {.n_expert = 1, .n_used = 1, .n_group = 1, .n_group_used = 1, .scale = e->shared_weight};
    if (!e->shared_gate) {
        choose(r, op, &one, HTH_ROUTE_CONSTANT, hth_rec_vector(r, (hth_gpu_vector){0}));
        return;
    }
    multiply(r, op, 1, hth_rec_floats(r, op->in[0].value));
    one.scale = 1.0f;
    choose(r, op, &one, HTH_SCORE_SIGMOID, r->values[op->temp[0].value].at);
}

void hth_rec_route(hth_recorder *r, const hth_op *op)
{
    const hth_router *router = &r->g->model->layers[op->layer].experts.router;
    if (op->experts.shared) {
        route_shared(r, op);
        return;
    }
    multiply(r, op, router->n_expert, input_of(r, op));
    choose(r, op, router, (uint32_t)router->score, r->values[op->temp[0].value].at);
}
