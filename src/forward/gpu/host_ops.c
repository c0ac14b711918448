/* The host operations of a step: the CPU computes its neurons of a split layer, or a share of them, or packs
 * weights into a staging buffer; and the check that the sums of both sides are in range.
 *
 * Both sides compute integers scaled by a power of two that is chosen for a layer's calibrated range
 * (docs/arithmetic.md 6). A token that exceeds the range is known only when all parts are done; it is retried on
 * the path with a synchronised exponent, where both parts agree on the power before they compute sums. */
#include "forward/gpu/gpu_int.h"

#include "base/bits.h"

#include <string.h>

/* ---- CPU neurons -------------------------------------------------------------------------------------- */

/* Reads the inputs of a split layer for n tokens from the device-to-host message. */
static void read_d2h_msg(const hth_gpu *g, hth_step *s, uint32_t i_split_layer, uint32_t n)
{
    memcpy(s->x_norm, hth_gpu_mapped(g->workspace.d2h_ffn_input), (size_t)n * g->model->hparams.d_model * sizeof(float));
    memset(g->cold_absmax + (size_t)i_split_layer * g->params.n_row, 0, n * sizeof *g->cold_absmax);
}

/* Computes the contribution of `cold`, whose first neuron is number `first` of the split layer's CPU neurons, to n
 * tokens whose inputs were read. */
static void compute_cold(hth_gpu *g, hth_step *s, uint32_t i_split_layer, uint32_t n, const hth_ffn *cold,
                         uint32_t first, hth_cold_sums *out)
{
    const hth_gpu_layer *l = &g->layers[g->split_layers[i_split_layer]];
    const float *scores = (const float *)hth_gpu_mapped(g->workspace.d2h_scores) + l->n_hot + first;
    for (size_t t = 0; t < n && l->predict_out.n_matrix > 0; t++)
        memcpy(s->scores + t * cold->d_ff, scores + t * l->predict_out.n_row, cold->d_ff * sizeof *scores);
    out->absmax = g->cold_absmax + (size_t)i_split_layer * g->params.n_row;
    hth_fwd_ffn_cold(s, g->split_layers[i_split_layer], cold, n, out);
    g->host_sums_invalid |= out->overflow;
    hth_gpu_sim_host_cost_cold(g, s, cold, out->n_active);
}

/* All CPU neurons of a split layer. cold: the layer's own, or with another H. */
static void compute_all_cold(hth_gpu *g, hth_step *s, uint32_t i_split_layer, uint32_t n, const hth_ffn *cold)
{
    uint32_t *flag = hth_gpu_mapped(g->workspace.host_sums);
    hth_cold_sums out = {.sums = (int64_t *)(void *)(flag + HTH_HOST_SUMS)};
    read_d2h_msg(g, s, i_split_layer, n);
    compute_cold(g, s, i_split_layer, n, cold, 0, &out);
    *flag = out.overflow ? HTH_HOST_SUMS_OVERFLOW : out.n_active > 0 ? HTH_HOST_SUMS_VALID : HTH_HOST_SUMS_NONE;
    g->counts.n_split++;
    g->counts.n_split_empty += out.n_active == 0;
}

static void run_cold_ffn(hth_gpu *g, hth_step *s, uint32_t i_split_layer, uint32_t n)
{
    compute_all_cold(g, s, i_split_layer, n, &g->layers[g->split_layers[i_split_layer]].cold);
}

/* The largest |h| of the device's neurons for a token. */
static uint32_t device_absmax(const hth_gpu *g, uint32_t i_layer, uint32_t row)
{
    const uint32_t *absmax = hth_gpu_mapped(g->workspace.d2h_absmax);
    return absmax[2 * ((size_t)i_layer * g->params.n_row + row) + 1];
}

/* Computes the host's part with a power of two that suits the device's part too, and passes that power to the
 * device. */
static void sync_exponent(hth_gpu *g, hth_step *s, uint32_t i_split_layer, uint32_t n)
{
    uint32_t i_layer = g->split_layers[i_split_layer], *exponent = hth_gpu_mapped(g->workspace.host_exponent);
    hth_ffn *cold = &g->layers[i_layer].cold_synced;
    float hot = hth_float_of(device_absmax(g, i_layer, 0)), *calib_max = &cold->down_t.hidden_absmax;
    *calib_max = g->layers[i_layer].cold.down_t.hidden_absmax;
    if (!(hot <= *calib_max)) *calib_max = hot;
    compute_all_cold(g, s, i_split_layer, n, cold);
    float cold_max = hth_float_of(g->cold_absmax[(size_t)i_split_layer * g->params.n_row]);
    exponent[0] = hth_bits_of(hth_axpy_scale(cold_max <= *calib_max ? *calib_max : cold_max, cold->down_t.scale_max));
    exponent[1] = hth_bits_of(cold_max);
}

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
        read_d2h_msg(g, s, chunk->i_split_layer, n);
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

void hth_gpu_run_host_op(hth_gpu *g, hth_step *s, const hth_weight_stream *p, const hth_gpu_host_op *op, uint32_t n)
{
    switch (op->kind) {
    case HTH_HOST_OP_COLD_FFN: run_cold_ffn(g, s, op->index, n); break;
    case HTH_HOST_OP_SYNC_EXPONENT: sync_exponent(g, s, op->index, n); break;
    case HTH_HOST_OP_STAGE_CHUNK: stage_chunk(g, s, p, op->index); break;
    default: run_partial_ffn(g, s, p, op->index, n);
    }
}

/* ---- values outside the calibrated range -------------------------------------------------------------- */

/* Whether the CPU computes neurons of a layer with a weight stream, or (p NULL) without one. */
static bool has_cpu_part(const hth_gpu_layer *l, const hth_weight_stream *p)
{
    return !p || hth_gpu_n_streamed(l, p) < l->cold.d_ff;
}

/* Whether both parts of every split layer computed the token's sums with the power of two of H. */
static bool is_in_range(const hth_gpu *g, const hth_weight_stream *p, uint32_t row)
{
    for (uint32_t i = 0; i < g->n_split_layer; i++) {
        const hth_layer *l = &g->model->layers[g->split_layers[i]];
        if (!has_cpu_part(&g->layers[g->split_layers[i]], p)) continue;
        uint32_t calib_max = hth_bits_of(l->ffn.down_t.hidden_absmax) & 0x7fffffffu;
        bool floats = hth_type_act_block(l->ffn.down_t.rows.type) == 0;
        uint32_t cold = g->cold_absmax[(size_t)i * g->params.n_row + row],
                 hot = device_absmax(g, g->split_layers[i], row);
        if (!floats && (cold > calib_max || hot > calib_max)) return false;
    }
    return true;
}

bool hth_gpu_has_calib_range(const hth_gpu *g)
{
    for (uint32_t i = 0; i < g->n_split_layer; i++)
        if (g->model->layers[g->split_layers[i]].ffn.down_t.hidden_absmax == 0.0f) return false;
    return true;
}

uint32_t hth_gpu_n_in_range(const hth_gpu *g, const hth_weight_stream *p, uint32_t n)
{
    uint32_t n_in_range = 0;
    while (!g->host_sums_invalid && n_in_range < n && is_in_range(g, p, n_in_range)) n_in_range++;
    return n_in_range;
}
