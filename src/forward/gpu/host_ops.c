/* The host operations of a step: the CPU computes operations that the device lacks, its neurons of a split layer, or a
 * share of them, its experts of a divided mixture, or packs weights into a staging buffer. */
#include "forward/gpu/gpu_int.h"

#include <assert.h>
#include <string.h>

/* ---- operations --------------------------------------------------------------------------------------- */

static hearth_status compute_run(hth_gpu *g, hth_step *s, const hth_gpu_host_run *run, hearth_error *err)
{
    hth_gpu_read_values(g, s, run, 0, s->n_tok);
    hearth_status st = hth_fwd_ops(s, run->first, run->end, err);
    if (st != HEARTH_OK) return st;
    hth_fwd_flush(s);
    hth_pool_finish(s->pool);
    hth_gpu_write_values(g, s, run, 0, s->n_tok);
    return HEARTH_OK;
}

/* The operations of a run, for the n tokens that the device has. Where these are a part of the step's (hth_gpu_max_tokens), a
 * run is attention alone: that of a step of the part, whose values are those of the first rows. */
static hearth_status run_ops(hth_gpu *g, hth_step *s, const hth_gpu_host_run *run, uint32_t n, hearth_error *err)
{
    const hth_batch_token *tokens = s->tokens;
    uint32_t n_tok = s->n_tok;
    size_t at = (size_t)g->first_tok * hth_fwd_max_pair(&g->model->hparams);
    if (n == n_tok) return compute_run(g, s, run, err);
    s->tokens += g->first_tok, s->n_tok = n, s->cosine += at, s->sine += at;
    hth_fwd_group(s);
    hearth_status st = compute_run(g, s, run, err);
    hth_pool_finish(s->pool);
    s->tokens = tokens, s->n_tok = n_tok, s->cosine -= at, s->sine -= at;
    hth_fwd_group(s);
    return st;
}

/* ---- CPU neurons -------------------------------------------------------------------------------------- */

/* Reads the inputs of a split layer for n tokens from the device-to-host message. */
static void read_d2h_msg(const hth_gpu *g, hth_step *s, uint32_t i_layer, uint32_t n)
{
    const hth_op *op = hth_fwd_ffn_op(s, i_layer);
    memcpy(hth_fwd_value(s, op->in[0]), hth_gpu_mapped(g->workspace.d2h_ffn_input),
           (size_t)n * g->model->hparams.d_model * sizeof(float));
}

/* Scores of n tokens for the CPU's neurons of a split layer from number `first` on, n_neuron of them. */
static void read_scores(const hth_gpu *g, hth_step *s, const hth_gpu_layer *l, uint32_t n, uint32_t first,
                        uint32_t n_neuron)
{
    const float *scores = (const float *)hth_gpu_mapped(g->workspace.d2h_scores) + l->n_hot + first;
    uint32_t n_score = l->ffn->fused[HTH_GPU_PREDICT_OUT].n_row;
    for (size_t t = 0; t < n && n_score > 0; t++)
        memcpy(s->scores + t * n_neuron, scores + t * n_score, n_neuron * sizeof *scores);
}

/* Computes the contribution of `cold`, whose first neuron is number `first` of the split layer's CPU neurons, to n
 * tokens whose inputs were read. */
static void compute_cold(hth_gpu *g, hth_step *s, uint32_t i_split_layer, uint32_t n, const hth_ffn *cold,
                         uint32_t first, hth_cold_sums *out)
{
    read_scores(g, s, &g->layers[g->split_layers[i_split_layer]], n, first, cold->d_ff);
    hth_fwd_ffn_cold(s, g->split_layers[i_split_layer], cold, n, out);
    hth_gpu_sim_host_cost_cold(g, s, cold, n, out->n_active);
}

/* The same for all CPU neurons, whose rows the step's store has. Sums come part by part, to ordinary memory. */
static hearth_status stream_cold(hth_gpu *g, hth_step *s, uint32_t i_split_layer, uint32_t n, hth_cold_sums *out,
                                 hearth_error *err)
{
    const hth_gpu_layer *l = &g->layers[g->split_layers[i_split_layer]];
    int64_t *to = out->sums;
    out->sums = g->shared_sums;
    read_scores(g, s, l, n, 0, l->cold.d_ff);
    hearth_status st = hth_fwd_cold_bundles(s, g->split_layers[i_split_layer], l->n_hot, n, s->scores, out, err);
    if (st != HEARTH_OK) return st;
    if (out->n_active > 0) memcpy(to, out->sums, (size_t)n * g->model->hparams.d_model * sizeof *to);
    hth_gpu_sim_host_cost_cold(g, s, &l->cold, n, out->n_active);
    return HEARTH_OK;
}

/* All CPU neurons of a split layer. */
static hearth_status run_cold_ffn(hth_gpu *g, hth_step *s, uint32_t i_split_layer, uint32_t n, hearth_error *err)
{
    const hth_ffn *cold = &g->layers[g->split_layers[i_split_layer]].cold;
    uint32_t *flag = hth_gpu_mapped(g->workspace.host_sums);
    hth_cold_sums out = {.sums = (int64_t *)(void *)(flag + HTH_HOST_SUMS)};
    hearth_status st = HEARTH_OK;
    read_d2h_msg(g, s, g->split_layers[i_split_layer], n);
    if (s->bundles) st = stream_cold(g, s, i_split_layer, n, &out, err);
    else compute_cold(g, s, i_split_layer, n, cold, 0, &out);
    if (st != HEARTH_OK) out = (hth_cold_sums){0};
    *flag = out.overflow ? HTH_HOST_SUMS_OVERFLOW : out.n_active > 0 ? HTH_HOST_SUMS_VALID : HTH_HOST_SUMS_NONE;
    g->counts.n_split++;
    g->counts.n_split_empty += out.n_active == 0;
    return st;
}

/* ---- experts -------------------------------------------------------------------------------------------- */

static void read_rows(hth_step *s, hth_view to, hth_buffer_range from, uint32_t n)
{
    size_t row = hth_gpu_value_row(&s->program->values[to.value]);
    memcpy(hth_fwd_value(s, to), hth_gpu_mapped(from), n * row);
}

/* Whether an expert without a slot was chosen for any of n tokens. */
static bool any_chosen(const hth_step *s, const hth_op *op, const uint32_t *slot_of, uint32_t n)
{
    uint32_t n_used = s->model->layers[op->layer].experts.router.n_used;
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t i = 0; i < n_used; i++)
            if (slot_of[hth_fwd_ids(s, op->in[1], t)[i]] == HTH_NO_EXPERT) return true;
    return false;
}

/* Writes the sums of n tokens where the device reads them. Returns HTH_HOST_SUMS_*. */
static uint32_t write_sums(hth_step *s, const hth_op *op, uint32_t n, int64_t *to)
{
    size_t d = s->model->hparams.d_model;
    const int64_t *sums = hth_fwd_value(s, op->out[0]);
    uint32_t state = HTH_HOST_SUMS_VALID;
    for (size_t t = 0; t < n; t++, sums += d + 1) {
        memcpy(to + t * d, sums, d * sizeof *to);
        if (sums[d] != 0) state = HTH_HOST_SUMS_OVERFLOW;
    }
    return state;
}

/* Experts without a slot, for the first n tokens of the step's values: the device may have a part of a step. */
static hearth_status compute_experts(hth_step *s, const hth_op *op, const uint32_t *slot_of, uint32_t n, bool has_values,
                                     hearth_error *err)
{
    uint32_t n_tok = s->n_tok;
    s->n_tok = n;
    hearth_status st = has_values ? hth_fwd_experts_without(s, op, slot_of, err)
                                  : hth_fwd_read_experts_without(s, op, slot_of, err);
    s->n_tok = n_tok;
    return st;
}

/* Experts that were not in memory when a layer asked its store for them. */
static uint64_t count_read(const hth_step *s, uint32_t i_layer)
{
    return s->streamed && s->streamed->store ? hth_store_get_counters(s->streamed->store, i_layer).n_miss : 0;
}

/* The experts that the device lacks, for n tokens. */
static hearth_status run_experts(hth_gpu *g, hth_step *s, uint32_t i_op, uint32_t n, hearth_error *err)
{
    const hth_op *op = &s->program->ops[i_op];
    hth_expert_policy *policy = &g->layers[op->layer].slots->policy;
    const uint32_t *slot_of = policy->slot_of;
    uint32_t *flag = hth_gpu_mapped(g->workspace.host_sums);
    read_rows(s, op->in[1], g->workspace.d2h_pairs, n);
    *flag = HTH_HOST_SUMS_NONE;
    g->counts.n_split++;
    if (!hth_gpu_are_experts(policy, hth_fwd_ids(s, op->in[1], 0), 2 * policy->n_used, n)) return hth_gpu_fail_experts(g, err);
    hth_gpu_count_experts(g, policy, hth_fwd_ids(s, op->in[1], 0), 2 * policy->n_used, n);
    if (!any_chosen(s, op, slot_of, n)) {
        g->counts.n_split_empty++;
        return HEARTH_OK;
    }
    bool has_values = !hth_device_get_info(g->device)->no_values;
    uint64_t before = count_read(s, op->layer);
    if (has_values) read_rows(s, op->in[0], g->workspace.d2h_ffn_input, n);
    hearth_status st = compute_experts(s, op, slot_of, n, has_values, err);
    if (st != HEARTH_OK) return st;
    if (has_values) *flag = write_sums(s, op, n, (int64_t *)(void *)(flag + HTH_HOST_SUMS));
    hth_gpu_sim_host_cost_experts(g, s, op, n, count_read(s, op->layer) - before);
    return HEARTH_OK;
}

/* ---- streamed weights ----------------------------------------------------------------------------------- */

static void stage_chunk(hth_gpu *g, hth_step *s, const hth_weight_stream *p, uint32_t i_chunk)
{
    hth_gpu_stage(g, s->pool, p, i_chunk);
    hth_gpu_sim_host_cost_chunk(g, &p->chunks[i_chunk]);
}

/* Computes the host's share for a chunk. The sums of a layer accumulate in ordinary host memory, because mapped
 * memory may be slow to read. */
static void run_partial_ffn(hth_gpu *g, hth_step *s, const hth_weight_stream *p, uint32_t i_chunk, uint32_t n)
{
    const hth_stream_chunk *chunk = &p->chunks[i_chunk];
    const hth_gpu_layer *l = &g->layers[g->split_layers[chunk->i_split_layer]];
    uint32_t *flag = hth_gpu_mapped(g->workspace.host_sums);
    if (chunk->first_cpu_neuron == hth_gpu_n_streamed(l, p)) {
        read_d2h_msg(g, s, g->split_layers[chunk->i_split_layer], n);
        g->shared_state = HTH_HOST_SUMS_NONE;
    }
    hth_cold_sums out = {.sums = g->shared_sums, .more = g->shared_state != HTH_HOST_SUMS_NONE};
    compute_cold(g, s, chunk->i_split_layer, n, &chunk->cpu_neurons, chunk->first_cpu_neuron, &out);
    if (out.overflow) g->shared_state = HTH_HOST_SUMS_OVERFLOW;
    else if (out.n_active > 0 && g->shared_state == HTH_HOST_SUMS_NONE) g->shared_state = HTH_HOST_SUMS_VALID;
    if (chunk->first_cpu_neuron + chunk->cpu_neurons.d_ff < l->cold.d_ff) return;
    if (g->shared_state == HTH_HOST_SUMS_VALID)
        memcpy(flag + HTH_HOST_SUMS, g->shared_sums,
               (size_t)n * g->model->hparams.d_model * sizeof *g->shared_sums);
    *flag = g->shared_state;
}

hearth_status hth_gpu_run_host_op(hth_gpu *g, hth_step *s, const hth_weight_stream *p, const hth_gpu_host_op *op,
                                  uint32_t n, hearth_error *err)
{
    switch (op->kind) {
    case HTH_HOST_OP_RUN: return run_ops(g, s, &g->crossings.runs[op->index], n, err);
    case HTH_HOST_OP_COLD_FFN: return run_cold_ffn(g, s, op->index, n, err);
    case HTH_HOST_OP_EXPERTS: return run_experts(g, s, op->index, n, err);
    case HTH_HOST_OP_STAGE_CHUNK: stage_chunk(g, s, p, op->index); break;
    default: run_partial_ffn(g, s, p, op->index, n);
    }
    return HEARTH_OK;
}
