/* Allocates the KV caches, and the workspace of a step: one device-local buffer, one that the host fills before a step,
 * one that it reads afterwards. Sizes follow from shapes alone, so they are known before anything is loaded. */
#include "forward/gpu/gpu_int.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "forward/gpu/cache.h"

enum { ALIGNMENT = 256 }; /* an alignment that every device accepts */

typedef struct bump {
    uint64_t used, max_binding;
    bool overflow; /* too large for a binding, or overflow */
} bump;

static hth_buffer_range bump_alloc(bump *c, uint64_t n, uint64_t size)
{
    uint64_t bytes = 0;
    c->overflow |= __builtin_mul_overflow(n, size, &bytes) || bytes > c->max_binding || c->used > UINT64_MAX / 2;
    if (bytes < 4) bytes = 4;
    hth_buffer_range s = {NULL, c->used, c->overflow ? 4 : bytes};
    c->used += (s.size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return s;
}

/* Values, each of which has a binding of its own. */
static hth_buffer_range bump_values(bump *c, const hth_offload_params *p, uint64_t words)
{
    bump one = {.max_binding = UINT64_MAX};
    hth_buffer_range s = bump_alloc(&one, hth_gpu_padded_rows(p->n_row), words * 4);
    c->overflow |= one.overflow;
    s.offset = c->used;
    c->used += one.used;
    return s;
}

typedef struct sizes {
    bump from_host, to_host, memory;
} sizes;

/* Words of a layer's slots: one for each expert, and for one more; then spare slots. */
static uint32_t words_of_slots(const hth_model *m)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->hparams.n_layer; i++) {
        const hth_router *r = &m->layers[i].experts.router;
        if (hth_layer_divides_experts(&m->layers[i])) n = hth_max_u32(n, r->n_expert + 1 + r->n_used);
    }
    return n;
}

/* Words of the experts that are given for a layer. */
static uint32_t words_of_given(const hth_model *m, const hth_offload_params *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; p->has_given_experts && i < m->hparams.n_layer; i++)
        n = hth_max_u32(n, p->n_row * m->layers[i].experts.router.n_used);
    return n;
}

/* Finds the places in the step block. Returns its words: all sequences together reserve pages for n_position at most. */
static uint64_t lay_out_step(const hth_model *m, const hth_offload_params *p, hth_gpu_workspace *r)
{
    r->runs_at = HTH_STEP_ROWS + HTH_STEP_ROW_WORDS * p->n_row;
    r->table_at = r->runs_at + HTH_RUN_WORDS * hth_gpu_max_run(m, p);
    r->slots_at = r->table_at + HTH_N_KV_POSITION_CLASS * (p->n_position / HTH_KV_PAGE);
    r->slot_words = words_of_slots(m);
    r->given_at = r->slots_at + m->hparams.n_layer * r->slot_words;
    r->given_words = words_of_given(m, p);
    return r->given_at + (uint64_t)m->hparams.n_layer * r->given_words;
}

/* Allocates what a step copies first, at the same distances in both buffers. */
static void alloc_step(bump *c, const hth_model *m, const hth_offload_params *p, uint64_t n_word,
                       hth_buffer_range *step, hth_buffer_range *grids, hth_buffer_range *table)
{
    const hth_hparams *h = &m->hparams;
    *step = bump_alloc(c, n_word, 4);
    *grids = bump_alloc(c, h->n_layer, 16);
    uint64_t rotations = 2 * (uint64_t)hth_fwd_n_table(h) * hth_fwd_max_pair(h);
    *table = bump_alloc(c, (rotations + (h->temperature_scale != 0.0f)) * p->n_row, 4);
}

/* Words of a token in the message to the host of a layer whose experts may be divided, at most. */
typedef struct message_sizes {
    uint64_t n_input, n_pair;
} message_sizes;

static message_sizes sizes_of_message(const hth_model *m, const hth_offload_params *p)
{
    const hth_value *values = m->program->values;
    message_sizes all = {0};
    for (uint32_t i = 0; i < m->program->n_op; i++) {
        const hth_op *op = &m->program->ops[i];
        if (op->kind != HTH_OP_EXPERTS || op->experts.shared || !hth_layer_divides_experts(&m->layers[op->layer]) ||
            hth_gpu_op_lacks(m, p, op))
            continue;
        all.n_input = hth_max_u64(all.n_input, values[op->in[0].value].width);
        all.n_pair = hth_max_u64(all.n_pair, values[op->in[1].value].width);
    }
    return all;
}

static void alloc_from_host(bump *c, const hth_model *m, const hth_offload_params *p, hth_gpu_workspace *r)
{
    const hth_hparams *h = &m->hparams;
    alloc_step(c, m, p, lay_out_step(m, p, r), &r->step_from_host, &r->grids_from_host, &r->table_from_host);
    r->values_from_host = bump_values(c, p, hth_gpu_crossing_words(m, p));
    bool has_sums = m->down_transposed || sizes_of_message(m, p).n_pair > 0;
    r->host_sums = bump_alloc(c, HTH_HOST_SUMS + (has_sums ? (uint64_t)p->n_row * h->d_model * 2 : 0), 4);
    for (int i = 0; i < 2; i++)
        r->staging[i] = bump_alloc(c, p->streams[0].n_tok > 0 ? hth_gpu_slot_bytes(m) : 0, 1);
}

/* The host's part of a split layer begins with the device-to-host message. */
static void alloc_to_host(bump *c, const hth_model *m, const hth_offload_params *p, hth_gpu_workspace *r)
{
    const hth_hparams *h = &m->hparams;
    bool predicts = p->selector == HEARTH_SELECTOR_PREDICTOR;
    r->values_to_host = bump_values(c, p, hth_gpu_crossing_words(m, p));
    r->result = bump_alloc(c, p->head ? (uint64_t)HTH_GPU_HEAD_ROWS * h->n_vocab : 0, 4);
    message_sizes experts = sizes_of_message(m, p);
    r->d2h_ffn_input = bump_alloc(c, p->n_row * hth_max_u64(m->down_transposed ? h->d_model : 0, experts.n_input), 4);
    r->d2h_pairs = bump_alloc(c, p->n_row * experts.n_pair, 4);
    r->sample_words = p->streams[0].n_tok > 0 ? (uint32_t)(HTH_GPU_SAMPLED_ROWS * experts.n_pair) : 0;
    r->sampled_pairs = bump_alloc(c, (uint64_t)h->n_layer * r->sample_words, 4);
    r->d2h_scores = bump_alloc(c, m->down_transposed && predicts ? (uint64_t)p->n_row * h->d_ff : 0, 4);
}

/* Values of the experts of a token, at most: hidden ones, and parts of outputs; words of the groups of all pairs. */
typedef struct expert_sizes {
    uint64_t n_hidden, n_part, n_group_word;
} expert_sizes;

static uint64_t group_words(const hth_router *router, uint32_t n_row)
{
    uint64_t most = 0;
    for (uint32_t of = HTH_GPU_EXPERT_PAIRS; of <= HTH_GPU_MAX_EXPERT_PAIRS; of *= 2) {
        uint64_t n = hth_max_groups(router->n_expert, n_row * router->n_used, of);
        most = hth_max_u64(most, hth_max_u64(n, hth_max_groups(1, n_row, of)) * hth_group_words(of));
    }
    return HTH_GROUPS_HEAD + most;
}

static expert_sizes sizes_of_experts(const hth_model *m, const hth_offload_params *p)
{
    expert_sizes all = {0};
    for (uint32_t i = 0; i < m->program->n_op; i++) {
        const hth_op *op = &m->program->ops[i];
        if (op->kind != HTH_OP_EXPERTS || op->experts.shared || hth_gpu_op_lacks(m, p, op)) continue;
        const hth_experts *e = &m->layers[op->layer].experts;
        all.n_group_word = hth_max_u64(all.n_group_word, group_words(&e->router, p->n_row));
        all.n_hidden = hth_max_u64(all.n_hidden, hth_max_u64((uint64_t)e->router.n_used * e->d_ff, e->shared.d_ff));
        if (e->down_t.rows.n_row == 0)
            all.n_part = hth_max_u64(all.n_part, ((uint64_t)e->router.n_used + 1) * m->hparams.d_model);
    }
    return all;
}

/* Inputs of the heads that BY_HEAD multiplies at once, at most. */
static uint64_t head_inputs(const hth_model *m, const hth_offload_params *p)
{
    const hth_latent_sizes *z = &m->hparams.latent;
    return (uint64_t)hth_gpu_heads_at_once(m, p) * (z->rank > z->d_nope ? z->rank : z->d_nope);
}

/* The widest input of a product. */
static uint64_t widest_input(const hth_model *m, const hth_offload_params *p)
{
    uint64_t widest = hth_max_u64(hth_max_u64(m->hparams.d_model, m->hparams.d_ff), sizes_of_experts(m, p).n_hidden);
    widest = hth_max_u64(widest, head_inputs(m, p));
    for (uint32_t i = 0; i < m->program->n_op; i++) {
        const hth_op *op = &m->program->ops[i];
        if (op->kind == HTH_OP_PRODUCT) widest = hth_max_u64(widest, op->product.matrix[0]->n_col);
        if (op->kind == HTH_OP_EXPERTS) widest = hth_max_u64(widest, m->program->values[op->in[0].value].width);
    }
    return widest;
}

static void alloc_input(bump *c, const hth_model *m, const hth_offload_params *p, hth_gpu_input *in)
{
    const hth_hparams *h = &m->hparams;
    uint64_t widest = hth_max_u64(widest_input(m, p), h->rank) * p->n_row;
    in->q = bump_alloc(c, widest, 1);
    in->d = bump_alloc(c, widest / HTH_ACT_BLOCK, 4);
    in->sum = bump_alloc(c, widest / HTH_ACT_BLOCK, 4);
    in->q_256 = bump_alloc(c, widest, 1);
    in->d_256 = bump_alloc(c, widest / HTH_ACT_BLOCK_256, 4);
    in->sum_256 = bump_alloc(c, widest / HTH_ACT_SUBBLOCK, 4);
}

/* Clusters and splits of the transposed down of a token, at most. */
typedef struct down_sizes {
    uint64_t n_cluster, n_split;
} down_sizes;

static down_sizes sizes_of_down(const hth_model *m)
{
    down_sizes all = {0};
    if (m->down_transposed) {
        all.n_cluster = hth_n_cluster(m->hparams.d_ff);
        all.n_split = (m->hparams.d_ff + HTH_DOWN_SPLIT - 1) / HTH_DOWN_SPLIT;
    }
    for (uint32_t i = 0; i < m->hparams.n_layer; i++) {
        const hth_experts *e = &m->layers[i].experts;
        uint64_t n = e->down_t.rows.n_row > 0 ? (uint64_t)e->router.n_used * hth_down_clusters(e->d_ff) : 0;
        all.n_cluster = hth_max_u64(all.n_cluster, n);
        all.n_split = hth_max_u64(all.n_split, n * (HTH_CLUSTER_NEURONS / HTH_DOWN_SPLIT));
    }
    return all;
}

/* Partial sums for as many tokens as fit in about 64 MiB. */
static void alloc_down(bump *c, const hth_model *m, const hth_offload_params *p, hth_gpu_workspace *r)
{
    const hth_hparams *h = &m->hparams;
    const uint64_t enough = (uint64_t)64 << 20;
    down_sizes down = sizes_of_down(m);
    uint64_t one = down.n_split * h->d_model * 4;
    r->n_stage = one * p->n_row <= enough ? p->n_row : one <= enough ? (uint32_t)(enough / one) : 1;
    r->down_scales = bump_alloc(c, p->n_row * down.n_cluster, 4);
    r->sums = bump_alloc(c, r->n_stage * down.n_split * h->d_model, 4);
    bool streams = p->streams[0].n_tok > 0;
    uint64_t slot = streams ? hth_gpu_slot_bytes(m) : 0, n_wide = slot > 0 ? (uint64_t)p->n_row * h->d_model * 2 : 0;
    r->acc64 = bump_alloc(c, slot > 0 ? HTH_HOST_SUMS + n_wide : 0, 4);
    for (int i = 0; i < 2; i++) r->slots[i] = bump_alloc(c, slot, 1);
    for (int i = 0; i < 2; i++) r->passing[i] = bump_alloc(c, streams ? hth_gpu_passing_bytes(m) : 0, 1);
}

static void alloc_memory(bump *c, const hth_model *m, const hth_offload_params *p, hth_gpu_workspace *r)
{
    const hth_hparams *h = &m->hparams;
    uint64_t n_row = p->n_row, n_q = (uint64_t)h->n_head * h->d_head;
    bool quantised = p->kv == HEARTH_KV_Q8_0;
    r->n_split = p->host_kv ? 0 : p->n_position / HTH_ATTN_SPLIT + 1;
    alloc_step(c, m, p, lay_out_step(m, p, r), &r->step, &r->grids, &r->table);
    r->values = bump_values(c, p, m->program->width[HTH_ROWS_TOKENS]);
    for (uint32_t i = 0; i < m->program->n_value; i++)
        c->overflow |= m->program->values[i].domain == HTH_ROWS_TOKENS &&
                       hth_gpu_value_row(&m->program->values[i]) > c->max_binding / n_row;
    r->q_q8_d_offset = (uint32_t)(n_row * n_q / 4);
    r->q_q8 = bump_alloc(c, quantised ? n_row * (n_q + n_q / HTH_ACT_BLOCK * 4) : 0, 1);
    r->splits = bump_alloc(c, r->n_split * n_q, 4);
    r->split_partials = bump_alloc(c, (uint64_t)r->n_split * h->n_head, 8);
    bool predicts = p->selector == HEARTH_SELECTOR_PREDICTOR;
    r->rank_out = bump_alloc(c, predicts ? n_row * h->rank : 0, 4);
    r->rank_hidden = bump_alloc(c, predicts ? n_row * h->rank : 0, 4);
    r->scores = bump_alloc(c, predicts ? n_row * h->d_ff : 0, 4);
    r->active_mask = bump_alloc(c, (h->d_ff + 31) / 32, 4);
    alloc_down(c, m, p, r);
    expert_sizes experts = sizes_of_experts(m, p);
    r->expert_halves = bump_alloc(c, 2 * experts.n_hidden * n_row, 4);
    r->expert_hidden = bump_alloc(c, experts.n_hidden * n_row, 4);
    r->expert_parts = bump_alloc(c, experts.n_part * n_row, 4);
    r->expert_groups = bump_alloc(c, experts.n_group_word, 4);
    r->head_inputs = bump_alloc(c, head_inputs(m, p) * n_row, 4);
    r->wanted = bump_alloc(c, p->head ? (uint64_t)HTH_GPU_HEAD_ROWS * h->d_model : 0, 4);
    r->logits = bump_alloc(c, p->head ? (uint64_t)HTH_GPU_HEAD_ROWS * h->n_vocab : 0, 4);
    alloc_input(c, m, p, &r->input);
}

/* The self-test of a device runs in the workspace memory. */
static uint64_t selftest_bytes(const hth_model *m, const hth_offload_params *p)
{
    uint64_t most = hth_gpu_selftest_bytes(p->kv, m->hparams.d_head, 1);
    uint32_t d_state = 1;
    for (uint32_t i = p->first_layer; i < p->end_layer; i++) {
        const hth_layer *l = &m->layers[i];
        d_state = d_state > l->delta_net.d ? d_state : l->delta_net.d;
        d_state = d_state > l->kda.d ? d_state : l->kda.d;
        if (l->attn.n_head_kv == 0) continue;
        most = hth_max_u64(most, hth_gpu_selftest_bytes(p->kv, l->attn.d_head, l->attn.n_head / l->attn.n_head_kv));
    }
    return hth_max_u64(most, hth_gpu_selftest_state_bytes(d_state));
}

static bool lay_out(const hth_model *m, uint64_t max, const hth_offload_params *p, hth_gpu_workspace *r,
                    sizes *s)
{
    *s = (sizes){.from_host.max_binding = max, .to_host.max_binding = max, .memory.max_binding = max};
    alloc_from_host(&s->from_host, m, p, r);
    alloc_to_host(&s->to_host, m, p, r);
    alloc_memory(&s->memory, m, p, r);
    s->memory.used = hth_max_u64(s->memory.used, selftest_bytes(m, p));
    return !s->from_host.overflow && !s->to_host.overflow && !s->memory.overflow;
}

static bool is_router(const hth_model *m, const hth_binding *b)
{
    const hth_experts *e = b->layer < m->hparams.n_layer ? &m->layers[b->layer].experts : NULL;
    const void *vector = b->vector;
    return e && (vector == &e->router.weight || vector == &e->shared_gate);
}

/* Those of the heads of a layer, which a file has in part, or not at all: terms, and norms that are as wide as heads. */
static uint64_t head_vector_bytes(const hth_attention *a)
{
    uint64_t n_term = a->sinks || a->slopes ? 2 * (uint64_t)a->n_head : 0,
             n_norm = a->q_norm.weight ? ((uint64_t)a->n_head + a->n_head_kv) * a->d_head : 0;
    return n_term + n_norm > 0 ? (n_term + n_norm) * sizeof(float) + 4 * ALIGNMENT : 0;
}

/* Vectors as weights.c packs them: of each layer two partial biases, D of each cluster, and what heads have; the others
 * are among the bindings, unless they are outside the file. Rows of routers count with their layers. */
static uint64_t vector_bytes(const hth_model *m, const hth_offload_params *p)
{
    uint64_t bias = (uint64_t)m->hparams.d_ff * sizeof(float) + 2 * ALIGNMENT,
             scale_max = hth_n_cluster(m->hparams.d_ff) * sizeof(float) + 2 * ALIGNMENT,
             numbers = 2 * (uint64_t)hth_gpu_heads_at_once(m, p) * p->n_row * sizeof(float) + 2 * ALIGNMENT,
             all = ALIGNMENT + numbers + m->hparams.n_layer * (2 * bias + (m->down_transposed ? scale_max : 0));
    for (uint32_t i = 0; i < m->hparams.n_layer; i++) all += head_vector_bytes(&m->layers[i].attn);
    for (uint32_t i = 0; i < m->hparams.n_layer; i++) {
        size_t n = hth_n_cluster(m->layers[i].experts.down_t.rows.n_row);
        all += n > 0 ? n * sizeof(float) + 2 * ALIGNMENT : 0;
    }
    for (size_t i = 0; i < m->n_binding; i++)
        if (m->bindings[i].vector)
            all += (is_router(m, &m->bindings[i]) ? 0 : m->bindings[i].n * sizeof(float)) + 2 * ALIGNMENT;
    return all;
}

bool hth_gpu_workspace_bytes(const hth_model *model, uint64_t max, const hth_offload_params *params,
                             uint64_t *bytes)
{
    hth_gpu_workspace r;
    sizes s;
    bool fits = lay_out(model, max, params, &r, &s);
    *bytes = s.from_host.used + s.to_host.used + s.memory.used + vector_bytes(model, params) + hth_gpu_move_bytes(model, params);
    if (params->streams[0].n_tok > 0) *bytes += hth_gpu_passing_job_bytes(model);
    return fits;
}

static void set_buffer(hth_buffer *b, hth_buffer_range *const *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++) ranges[i]->buffer = b;
}

hearth_status hth_gpu_workspace_open(hth_gpu *g, hearth_error *err)
{
    hth_gpu_workspace *r = &g->workspace;
    sizes s;
    if (!lay_out(g->model, hth_device_get_info(g->device)->max_binding_size, &g->params, r, &s))
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                        "%s: the values of %u tokens are too large for a binding; ask for less with n_batch",
                        hth_device_get_info(g->device)->name, g->params.n_row);
    hearth_status st = hth_buffer_new(g->device, HTH_MEMORY_UPLOAD, s.from_host.used, "the inputs of a step",
                                      &r->from_host, err);
    if (st == HEARTH_OK)
        st = hth_buffer_new(g->device, HTH_MEMORY_READBACK, s.to_host.used, "the results of a step", &r->to_host,
                            err);
    if (st == HEARTH_OK)
        st = hth_buffer_new(g->device, HTH_MEMORY_DEVICE, s.memory.used, "the values of a step", &r->memory,
                            err);
    if (st != HEARTH_OK) return st;
    hth_gpu_input *in = &r->input;
    set_buffer(r->from_host,
               (hth_buffer_range *[]){&r->step_from_host, &r->grids_from_host, &r->table_from_host,
                                      &r->values_from_host, &r->host_sums, &r->staging[0], &r->staging[1]},
               7);
    set_buffer(r->to_host, (hth_buffer_range *[]){&r->values_to_host, &r->result, &r->d2h_ffn_input, &r->d2h_pairs,
                                     &r->d2h_scores, &r->sampled_pairs},
               6);
    set_buffer(r->memory,
               (hth_buffer_range *[]){&r->values,      &r->q_q8,        &r->splits,     &r->split_partials,
                                      &r->down_scales, &r->sums,        &r->rank_out,   &r->rank_hidden,
                                      &r->scores,      &r->active_mask, &r->logits,     &in->q,
                                      &in->d,          &in->sum,        &in->q_256,     &in->d_256,
                                      &in->sum_256,    &r->acc64,       &r->slots[0],   &r->slots[1],
                                      &r->step,        &r->grids,       &r->table,      &r->expert_halves,
                                      &r->expert_hidden, &r->expert_parts, &r->expert_groups, &r->wanted,
                                      &r->head_inputs, &r->passing[0], &r->passing[1]},
               31);
    return HEARTH_OK;
}

void hth_gpu_workspace_close(hth_gpu *g)
{
    hth_buffer_free(g->workspace.from_host);
    hth_buffer_free(g->workspace.to_host);
    hth_buffer_free(g->workspace.memory);
}

/* ---- caches and states ---------------------------------------------------------------------------------------- */

/* Bytes of the keys, or values, of a layer; aligned for every device. 0: its attention is not on devices, or reads those
 * of another layer. */
static uint64_t half_cache(const hth_model *m, const hth_offload_params *p, uint32_t i_layer)
{
    const hth_attention *a = &m->layers[i_layer].attn;
    if (a->kv_layer != i_layer || !hth_gpu_attends(m, p, i_layer)) return 0;
    uint64_t words = hth_gpu_cache_head_words(p->kv, a->d_head, p->n_position);
    return (words * 4 * a->n_head_kv + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

uint64_t hth_gpu_state_words(const hth_model *m, const hth_op *op)
{
    const hth_layer *l = &m->layers[op->layer];
    uint32_t n_part;
    switch (op->kind) {
    case HTH_OP_CONV: return HTH_CONV_RING * (uint64_t)op->conv.conv->n_channel;
    case HTH_OP_DELTA: return l->delta_net.n_head_key * hth_delta_net_state(&l->delta_net);
    case HTH_OP_KDA: return (uint64_t)l->kda.n_head * l->kda.d * l->kda.d;
    case HTH_OP_SCAN:
        n_part = l->ssm.n_head > 0 ? l->ssm.n_head : 1;
        return (uint64_t)n_part * l->ssm.d_state * 4 * hth_ssm_quads(l->ssm.n_inner / n_part);
    default: return 0;
    }
}

/* Sessions for which a device has states. */
static uint32_t n_session(const hth_offload_params *p)
{
    enum { POSITIONS = 2048, MIN = 2, MAX = 8 };
    uint32_t n = p->n_position / POSITIONS;
    if (p->n_session > 0) return p->n_session;
    return n < MIN ? MIN : hth_min_u32(n, MAX);
}

uint32_t hth_gpu_n_state(const hth_model *m, const hth_offload_params *p)
{
    for (uint32_t i = 0; i < m->program->n_op; i++)
        if (hth_gpu_state_words(m, &m->program->ops[i]) > 0 && !hth_gpu_op_lacks(m, p, &m->program->ops[i]))
            return n_session(p) * HTH_N_STATE_COPY_ON_DEVICE;
    return 0;
}

uint32_t hth_gpu_max_run(const hth_model *m, const hth_offload_params *p)
{
    return hth_min_u32(p->n_row, hth_gpu_n_state(m, p) / HTH_N_STATE_COPY_ON_DEVICE);
}

/* Bytes of the states of an operation that is on the device. */
static uint64_t state_bytes(const hth_model *m, const hth_offload_params *p, const hth_op *op)
{
    uint64_t words = hth_gpu_state_words(m, op);
    return words > 0 && !hth_gpu_op_lacks(m, p, op) ? words * 4 * hth_gpu_n_state(m, p) : 0;
}

bool hth_gpu_cache_bytes(const hth_model *model, uint64_t max, const hth_offload_params *params,
                         uint32_t i_layer, uint64_t *bytes)
{
    const hth_program *p = model->program;
    uint64_t half = half_cache(model, params, i_layer);
    bool fits = half <= max && half / 4 <= UINT32_MAX;
    *bytes = 2 * half;
    for (uint32_t i = p->first_of_layer[i_layer]; i < p->first_of_layer[i_layer + 1]; i++) {
        uint64_t one = state_bytes(model, params, &p->ops[i]);
        fits = fits && one <= max && one / 4 <= UINT32_MAX;
        *bytes += one;
    }
    return fits;
}

/* A convolution reads some inputs and writes one. DeltaNet reads a state of chunks, and writes little of it until the chunk
 * ends. Others write all that they read. */
hth_gpu_state_use hth_gpu_states_of(const hth_model *m, const hth_offload_params *params, uint32_t i_layer)
{
    const hth_program *p = m->program;
    hth_gpu_state_use all = {0};
    for (uint32_t i = p->first_of_layer[i_layer]; i < p->first_of_layer[i_layer + 1]; i++) {
        const hth_op *op = &p->ops[i];
        if (hth_gpu_op_lacks(m, params, op)) continue;
        all.held += state_bytes(m, params, op);
        if (op->kind == HTH_OP_CONV) all.moved += (uint64_t)op->conv.conv->d_conv * op->conv.conv->n_channel * sizeof(float);
        else all.moved += (op->kind == HTH_OP_DELTA ? 1 : 2) * hth_gpu_state_words(m, op) * sizeof(float);
    }
    return all;
}

static hearth_status open_states(hth_gpu *g, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    for (uint32_t i = 0; st == HEARTH_OK && i < g->model->program->n_op; i++) {
        uint64_t size = g->ops[i].is_on_device ? state_bytes(g->model, &g->params, &g->model->program->ops[i]) : 0;
        if (size == 0) continue;
        g->ops[i].state.size = size;
        st = hth_buffer_new(g->device, HTH_MEMORY_DEVICE, size, "states", &g->ops[i].state.buffer, err);
    }
    return st;
}

static hearth_status open_cache(hth_gpu *g, uint32_t i_layer, hearth_error *err)
{
    hth_gpu_layer *l = &g->layers[i_layer];
    uint32_t d = g->model->layers[i_layer].attn.d_head;
    uint64_t half = half_cache(g->model, &g->params, i_layer);
    l->head_words = (uint32_t)hth_gpu_cache_head_words(g->params.kv, d, g->params.n_position);
    l->keys.size = l->values.size = half;
    hearth_status st = hth_buffer_new(g->device, HTH_MEMORY_DEVICE, half, "keys", &l->keys.buffer, err);
    return st == HEARTH_OK ? hth_buffer_new(g->device, HTH_MEMORY_DEVICE, half, "values", &l->values.buffer, err) : st;
}

/* A layer that has no keys and values of its own reads those of an earlier one, whose are open. */
hearth_status hth_gpu_caches_open(hth_gpu *g, hearth_error *err)
{
    const hth_program *p = g->model->program;
    hearth_status st = HEARTH_OK;
    for (uint32_t i = 0; st == HEARTH_OK && i < p->n_op; i++) {
        uint32_t i_layer = p->ops[i].layer, kv_layer;
        if (p->ops[i].kind != HTH_OP_ATTEND || !g->ops[i].is_on_device) continue;
        kv_layer = g->model->layers[i_layer].attn.kv_layer;
        const hth_gpu_layer *from = &g->layers[kv_layer];
        hth_gpu_layer *l = &g->layers[i_layer];
        if (kv_layer == i_layer) st = open_cache(g, i_layer, err);
        else l->keys = from->keys, l->values = from->values, l->head_words = from->head_words;
    }
    return st == HEARTH_OK ? open_states(g, err) : st;
}

void hth_gpu_caches_close(hth_gpu *g)
{
    for (uint32_t i = g->params.first_layer; g->layers && i < g->params.end_layer; i++) {
        if (g->model->layers[i].attn.kv_layer != i) continue;
        hth_buffer_free(g->layers[i].keys.buffer);
        hth_buffer_free(g->layers[i].values.buffer);
    }
    for (uint32_t i = 0; g->ops && i < g->model->program->n_op; i++) hth_buffer_free(g->ops[i].state.buffer);
}
