/* Charges the host's part of a step to the clock of a simulated GPU: the bytes of weights, keys and values that it reads,
 * at the host rate of the GPU description, or what uploads leave of it; or its products with weights, if the description
 * says how many it computes and they take longer. A whole run then has the model's time, identical in every run unless
 * weights are read from a file; on any other device nothing is charged. Experts that come from a simulated disk also take
 * its time. On the GPU itself products are free, so prompts look cheap. Of a split layer only the active neurons count; a
 * layer on the CPU counts whole. */
#include "base/checked_math.h"
#include "forward/gpu/cache.h"
#include "forward/gpu/gpu_int.h"
#include "store/disk_simulated.h"

static uint64_t bytes_of(const hth_matrix *m) { return (uint64_t)m->n_row * m->row_size; }

/* Weights of so many rows. */
static double weights_of(const hth_matrix *m, uint64_t n_row) { return (double)n_row * (double)m->n_col; }

void hth_gpu_sim_host_cost_cold(hth_gpu *g, const hth_step *s, const hth_ffn *cold, uint32_t n_tok, uint64_t n_fired)
{
    const hth_matrix *gate = cold->gate.n_row > 0 ? &cold->gate : NULL, *up = &cold->up,
                     *down = &cold->down_t.rows;
    uint64_t n_active = n_fired < cold->d_ff ? n_fired : cold->d_ff, n_up = up->n_row, n_gate = gate ? gate->n_row : 0;
    /* With a predictor only the named neurons are read in both halves; other selectors read the first half of all. */
    if (s->selector == HEARTH_SELECTOR_PREDICTOR) n_gate = gate ? n_active : 0;
    if (s->selector == HEARTH_SELECTOR_PREDICTOR || (s->selector != HEARTH_SELECTOR_DENSE && gate)) n_up = n_active;
    double weights = weights_of(up, n_up) + (gate ? weights_of(gate, n_gate) : 0.0) + weights_of(down, n_active);
    hth_device_charge_host(g->device,
                           n_up * up->row_size + (gate ? n_gate * gate->row_size : 0) + n_active * down->row_size,
                           weights * n_tok);
}

/* Charges n experts of so many bytes and weights together. n_read of them come from a simulated disk, one after the other.
 * The host computes those that are in memory first, then each when it has arrived. */
static void charge_experts(hth_gpu *g, const hth_disk_model *disk, uint64_t n, uint64_t n_read, uint64_t bytes, double weights)
{
    uint64_t start = hth_device_time(g->device), n_here = disk ? n - hth_min_u64(n_read, n) : n;
    hth_device_charge_host(g->device, bytes / n * n_here, weights * ((double)n_here / (double)n));
    for (uint64_t i = n_here; i < n; i++) {
        double reading = (double)(bytes / n * (i - n_here + 1)) / disk->bytes_per_ns;
        uint64_t arrival = start + disk->latency_ns + (uint64_t)reading, now = hth_device_time(g->device);
        if (arrival > now) hth_device_advance_clock(g->device, arrival - now);
        hth_device_charge_host(g->device, bytes / n, weights / (double)n);
    }
}

void hth_gpu_sim_host_cost_experts(hth_gpu *g, const hth_step *s, const hth_op *op, uint32_t n_tok, uint64_t n_read)
{
    const hth_experts *e = &s->model->layers[op->layer].experts;
    const uint32_t *slot_of = g->layers[op->layer].slots->policy.slot_of;
    uint8_t is_chosen[HTH_MAX_EXPERT] = {0};
    uint64_t n = 0, n_pair = 0;
    for (uint32_t t = 0; t < n_tok; t++)
        for (uint32_t i = 0; i < e->router.n_used; i++) {
            uint32_t id = hth_fwd_ids(s, op->in[1], t)[i];
            if (slot_of[id] != HTH_NO_EXPERT) continue;
            n += !is_chosen[id], n_pair++;
            is_chosen[id] = 1;
        }
    double weights = weights_of(&e->gate, e->gate.n_row) + weights_of(&e->up, e->up.n_row) + weights_of(&e->down, e->down.n_row);
    charge_experts(g, s->streamed ? hth_reader_disk_model(s->streamed->reader) : NULL, n, n_read,
                   (bytes_of(&e->gate) + bytes_of(&e->up) + bytes_of(&e->down)) / e->router.n_expert * n,
                   weights / e->router.n_expert * (double)n_pair);
}

void hth_gpu_sim_host_cost_chunk(hth_gpu *g, const hth_stream_chunk *p)
{
    hth_device_charge_host(g->device, (uint64_t)p->n_row * p->rows->row_size, 0.0);
}

/* Bytes of the keys and values of a layer that a token sees. */
static uint64_t seen_bytes(const hth_gpu *g, const hth_attention *a, const hth_batch_token *token)
{
    uint64_t n = (uint64_t)token->position + 1, window = hth_attn_window(token->position, a->window, a->chunk);
    if (window > 0 && window < n) n = window;
    return 2 * n * a->n_head_kv * hth_gpu_cache_words(g->params.kv, a->d_head) * 4;
}

/* Tokens of one sequence share what they read: its last token sees the most. */
static uint64_t kv_bytes(const hth_gpu *g, const hth_step *s, const hth_op *op)
{
    uint64_t bytes = 0;
    for (uint32_t t = 0; op->kind == HTH_OP_ATTEND && t < s->n_tok; t++)
        if (t + 1 == s->n_tok || s->tokens[t + 1].seq != s->tokens[t].seq)
            bytes += seen_bytes(g, &s->model->layers[op->layer].attn, &s->tokens[t]);
    return bytes;
}

/* The share of an operation's weights that a token multiplies. */
static double used_share(const hth_model *m, const hth_op *op)
{
    const hth_router *r = &m->layers[op->layer].experts.router;
    return op->kind == HTH_OP_EXPERTS && !op->experts.shared ? (double)r->n_used / r->n_expert : 1.0;
}

static bool is_on_device(const hth_gpu *g, uint32_t i_op)
{
    while (g && !g->ops[i_op].is_on_device) g = g->next;
    return g != NULL;
}

void hth_gpu_sim_host_cost_rest(hth_gpu *g, const hth_step *s, bool logits)
{
    const hth_gpu *first = g;
    const hth_model *m = g->model;
    const hth_program *p = m->program;
    uint64_t bytes = 0;
    double weights = 0.0;
    while (g->next) g = g->next;
    if (hth_device_get_info(g->device)->host_rate == 0.0 || s->n_tok == 0) return;
    for (uint32_t i = p->first_of_layer[0]; i < p->first_of_layer[m->hparams.n_layer]; i++) {
        if (is_on_device(first, i)) continue;
        const hth_op_weights w = hth_op_weights_of(m, &p->ops[i]);
        bytes += kv_bytes(g, s, &p->ops[i]);
        for (uint32_t k = 0; k < w.n; k++) /* of experts all: nothing says which are chosen */
            bytes += bytes_of(w.matrix[k]), weights += used_share(m, &p->ops[i]) * weights_of(w.matrix[k], w.matrix[k]->n_row);
    }
    if (logits && !g->params.head) bytes += bytes_of(m->tied ? &m->token_embd : &m->output);
    pthread_mutex_lock(&g->step_lock);
    if (!g->unloaded) hth_device_charge_host(g->device, bytes, weights * s->n_tok); /* else the device belongs to other users */
    pthread_mutex_unlock(&g->step_lock);
}

uint64_t hth_gpu_model_time(hth_gpu *g)
{
    uint64_t sum = 0;
    for (; g; g = g->next) {
        if (hth_device_get_info(g->device)->host_rate == 0.0) return 0;
        pthread_mutex_lock(&g->step_lock);
        if (!g->unloaded) sum += hth_device_time(g->device);
        pthread_mutex_unlock(&g->step_lock);
    }
    return sum;
}
