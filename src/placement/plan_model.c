/* Builds the planner's model from shapes, types and a profile. Dense networks whose down is not transposed are
 * indivisible, as are experts whose down is: they count with the attention of their layer. */
#include "placement/plan_model.h"

#include "base/alloc.h"
#include "forward/gpu/cache.h"
#include "forward/gpu/experts/pack_table.h"
#include "placement/calibrate.h"
#include "store/expert_policy.h"

_Static_assert((int)HTH_PLAN_N_MOVE == HTH_EXPERT_UPLOAD_BINS, "a plan has the moves of a replay");

static bool is_shared(const hth_op *op) { return op->kind == HTH_OP_EXPERTS && op->experts.shared; }

/* Dispatches of a layer's neurons or experts; and of all else, with those where they are not divided. */
static void count_dispatches(const hth_plan_source *from, uint32_t i_layer, bool divides, hth_plan_layer *to)
{
    const hth_program *p = from->model->program;
    for (uint32_t i = p->first_of_layer[i_layer]; i < p->first_of_layer[i_layer + 1]; i++) {
        uint32_t n = hth_gpu_op_dispatches(from->model, from->params, i);
        bool is_divided = p->ops[i].kind == (to->has_experts ? HTH_OP_EXPERTS : HTH_OP_FFN) && !is_shared(&p->ops[i]);
        if (divides && is_divided) to->n_dispatch_hot += n;
        else to->n_dispatch += n;
        if (divides && to->has_experts && is_shared(&p->ops[i])) to->n_dispatch_beside += n;
    }
}

static uint64_t cpu_bytes(const hth_layer *l)
{
    const hth_experts *e = &l->experts;
    if (hth_layer_divides_experts(l))
        return e->gate.n_row * e->gate.row_size + e->up.n_row * e->up.row_size + e->down.n_row * e->down.row_size;
    return l->ffn.gate.n_row * l->ffn.gate.row_size + l->ffn.up.n_row * l->ffn.up.row_size +
           l->ffn.down_t.rows.n_row * l->ffn.down_t.rows.row_size;
}

/* Activations that give zeros: a quarter, above the active share of most such models (LLaMA2 with ReGLU 18 to
 * 30 %, Bamboo 10 %, ReLU 5 % and less: Xue et al. 2024, PowerInfer-2, table 3). Thresholds with little
 * quality loss leave half of SwiGLU's neurons (Zhang et al. 2024, ReLU2 Wins, figure 4). */
double hth_plan_assumed(hearth_selector selector)
{
    if (selector == HEARTH_SELECTOR_DENSE) return 1.0;
    return selector == HEARTH_SELECTOR_THRESHOLD ? 0.5 : 0.25;
}

double hth_plan_active_share(const hth_layer *l, uint32_t i, hearth_selector selector)
{
    uint32_t first = i * HTH_CLUSTER_NEURONS, end = first + HTH_CLUSTER_NEURONS;
    if (!l->ffn.act_freq) return hth_plan_assumed(selector);
    if (end > l->ffn.d_ff) end = l->ffn.d_ff;
    double active = 0;
    for (uint32_t at = first, n; at < end; at += n) {
        n = end - at < HTH_ACT_FREQ_BLOCK ? end - at : HTH_ACT_FREQ_BLOCK;
        active += (double)l->ffn.act_freq[at / HTH_ACT_FREQ_BLOCK] * n;
    }
    return active / (end - first);
}

double hth_plan_profiled_share(const hth_profile *profile, uint32_t i_layer, uint32_t i)
{
    const hth_profile_layer *p = &profile->layers[i_layer];
    uint32_t first = i * HTH_CLUSTER_NEURONS,
             n = p->d_ff - first < HTH_CLUSTER_NEURONS ? p->d_ff - first : HTH_CLUSTER_NEURONS;
    uint64_t fired = 0;
    for (uint32_t j = first; j < first + n; j++) fired += p->n_fired[j];
    return (double)fired / ((double)profile->n_done * n);
}

/* Fraction of cluster i that tokens read. */
static double active_share(const hth_plan_source *from, uint32_t i_layer, uint32_t i)
{
    return from->profile ? hth_plan_profiled_share(from->profile, i_layer, i)
                         : hth_plan_active_share(&from->model->layers[i_layer], i, from->params->selector);
}

/* Whether devices convert rows of types: which of them have a table (pack_table.h). */
typedef struct tables {
    bool is_known[HTH_TYPE_LIMIT], exists[HTH_TYPE_LIMIT];
} tables;

static bool has_table(tables *t, hth_type type)
{
    uint32_t words[HTH_PACK_TABLE_WORDS], n;
    if (!t->is_known[type]) t->exists[type] = hth_pack_table(type, HTH_LAYOUT_ROWS, words, &n);
    return t->is_known[type] = true, t->exists[type];
}

/* Whether a device that reads the host's memory can have the experts of a layer from there. */
static bool is_readable(const hth_layer *l, tables *t)
{
    const hth_experts *e = &l->experts;
    const hth_matrix *parts[] = {&e->gate, &e->up, &e->down};
    bool all = true;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) all = all && (parts[i]->n_row == 0 || has_table(t, parts[i]->type));
    return all;
}

static uint32_t n_part_of(const hth_experts *e)
{
    return (uint32_t)(e->gate.n_row > 0) + (e->up.n_row > 0) + (e->down.n_row > 0);
}

/* Keys and values of one position, in `cache` bytes on a device beside its states, or on the host. */
static uint64_t kv_bytes_of(const hth_plan_source *from, uint32_t i_layer, uint64_t cache, const hth_gpu_kv_trips *trips)
{
    const hth_attention *a = &from->model->layers[i_layer].attn;
    if (trips->n == 0) return cache / from->params->n_position;
    return a->kv_layer == i_layer ? 8 * (uint64_t)a->n_head_kv * hth_gpu_cache_words(from->params->kv, a->d_head) : 0;
}

/* Of the bytes of all experts, those that a token does not read. */
static double idle_share(const hth_router *r)
{
    return r->n_expert > 0 ? 1.0 - (double)r->n_used / r->n_expert : 0.0;
}

static hearth_status fill_layer(const hth_plan_source *from, uint32_t i_layer, tables *t, hth_plan_layer *to,
                                hth_expert_slots *slots, hearth_error *err)
{
    const hth_layer *l = &from->model->layers[i_layer];
    const char *problem = hth_gpu_unsupported_reason(from->model, from->params, i_layer);
    uint64_t whole, without, cache;
    bool is_gated = l->ffn.gate.n_row > 0;
    bool divides = hth_gpu_split_granularity(from->model, i_layer) > 0, has_experts = hth_layer_divides_experts(l);
    uint32_t n_unit = hth_layer_n_unit(l), n_cluster = has_experts ? n_unit : (uint32_t)hth_n_cluster(n_unit);
    uint64_t max = from->max_binding_size;
    uint32_t most = hth_gpu_max_units(from->model, max, from->params, i_layer);
    if (problem || !hth_gpu_layer_bytes(from->model, max, from->params, i_layer, most, &whole) ||
        !hth_gpu_layer_bytes(from->model, max, from->params, i_layer, 0, &without) ||
        !hth_gpu_cache_bytes(from->model, max, from->params, i_layer, &cache))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: layer %u cannot lie on a device: %s",
                        hth_gguf_path(from->model->file), i_layer,
                        problem ? problem : "it is too large for its bindings");
    uint32_t n_used = has_experts ? l->experts.router.n_used : 0;
    size_t n_double = n_cluster + (has_experts ? (n_cluster + (size_t)1) * (n_used + 1 + HTH_PLAN_N_MOVE) : 0);
    double *share = hth_alloc(n_double, sizeof *share);
    if (!share) return hth_fail_memory(err, n_double * sizeof *share, "a plan");
    *slots = (hth_expert_slots){share, share + n_cluster, share + n_cluster + (n_cluster + (size_t)1) * (n_used + 1)};
    for (uint32_t i = 0; !has_experts && i < n_cluster; i++)
        share[i] = hth_calibration_share(from->params->selector, is_gated, active_share(from, i_layer, i));
    hth_gpu_kv_trips trips = hth_gpu_kv_trips_of(from->model, from->params, i_layer);
    hth_gpu_state_use states = hth_gpu_states_of(from->model, from->params, i_layer);
    uint32_t n_beyond = has_experts ? n_unit - most : 0, n_there = n_cluster - n_beyond;
    uint64_t device_bytes = divides && n_there > 0 ? (whole - without + n_there - 1) / n_there : 0,
             host_bytes = divides ? (cpu_bytes(l) + n_cluster - 1) / n_cluster : 0;
    *to = (hth_plan_layer){.attention_bytes = (divides ? without : whole) + states.moved,
                           .idle_bytes = divides ? 0 : hth_gpu_idle_bytes(from->model, max, from->params, i_layer),
                           .idle_share = idle_share(&l->experts.router),
                           .moved_bytes = states.moved,
                           .state_bytes = states.held,
                           .has_experts = has_experts,
                           .n_used = n_used,
                           .misses = has_experts ? slots->misses : NULL,
                           .moves = has_experts ? slots->moves : NULL,
                           .n_spare = has_experts && is_readable(l, t) ? l->experts.router.n_used : 0,
                           .n_dispatch_read = has_experts ? n_part_of(&l->experts) : 0,
                           .kv_bytes = kv_bytes_of(from, i_layer, cache - states.held, &trips),
                           .kv_window = l->attn.window > 0 ? l->attn.window : l->attn.chunk,
                           .n_trip = trips.n,
                           .trip_bytes = trips.bytes,
                           .cluster_bytes = {[HTH_PLAN_DEVICE] = device_bytes, [HTH_PLAN_HOST] = host_bytes},
                           .n_cluster = divides ? n_cluster : 0,
                           .n_beyond = n_beyond,
                           .whole_share = has_experts ? 0.0 : hth_calibration_share(from->params->selector, is_gated, 0.0),
                           .share = share};
    count_dispatches(from, i_layer, divides, to);
    return HEARTH_OK;
}

hearth_status hth_plan_model_open(const hth_plan_source *from, hth_plan_model *out, uint64_t *fixed,
                                  bool *uniform, hearth_error *err)
{
    const hth_hparams *h = &from->model->hparams;
    float min_gain = from->params->streams_experts ? HTH_EXPERT_MIN_GAIN_STREAMED : HTH_EXPERT_MIN_GAIN;
    hearth_status st = HEARTH_OK;
    tables t = {.is_known = {false}};
    *uniform = !from->profile && !from->model->layers[0].ffn.act_freq;
    *out = (hth_plan_model){
        .n_layer = h->n_layer, .d2h_bytes = 4 * (uint64_t)h->d_model, .h2d_bytes = 8 * (uint64_t)h->d_model};
    if (from->params->selector == HEARTH_SELECTOR_PREDICTOR) out->d2h_bytes += 4 * (uint64_t)h->d_ff;
    out->layers = hth_alloc(h->n_layer, sizeof *out->layers);
    hth_expert_slots *slots = hth_alloc(h->n_layer, sizeof *slots);
    if (!out->layers || !slots) st = hth_fail_memory(err, h->n_layer * (sizeof *out->layers + sizeof *slots), "a plan");
    for (uint32_t i = 0; st == HEARTH_OK && i < h->n_layer; i++)
        st = fill_layer(from, i, &t, &out->layers[i], &slots[i], err);
    if (st == HEARTH_OK) st = hth_expert_slots_expect(from->model, &from->uses, out->layers, from->machine, min_gain, slots, err);
    hth_free(slots);
    if (st == HEARTH_OK && (!hth_gpu_head_bytes(from->model, from->max_binding_size, from->params, &out->head_bytes) ||
                            !hth_gpu_workspace_bytes(from->model, from->max_binding_size, from->params, fixed)))
        st = hth_fail(
            err, HEARTH_ERROR_ARGUMENT,
            "%s: the head, or the values of %u tokens, are too large for the bindings of this device",
            hth_gguf_path(from->model->file), from->params->n_row);
    if (hth_gpu_unsupported_reason(from->model, from->params, h->n_layer)) out->head_stays = true;
    if (st != HEARTH_OK) hth_plan_model_free(out);
    return st;
}

void hth_plan_model_free(hth_plan_model *model)
{
    for (uint32_t i = 0; model->layers && i < model->n_layer; i++)
        hth_free((void *)(uintptr_t)model->layers[i].share);
    hth_free(model->layers);
    model->layers = NULL;
}

void hth_plan_neurons(const hth_model *model, const hth_plan *plan, uint32_t *n_hot)
{
    for (uint32_t i = 0; i < plan->n_device; i++) {
        uint32_t n_unit = hth_layer_n_unit(&model->layers[i]), grain = hth_gpu_split_granularity(model, i);
        const hth_plan_division *d = &plan->divisions[i];
        uint64_t n = (uint64_t)d->n_cluster[d->attention] * grain;
        n_hot[i] = grain == 0 || n >= n_unit ? n_unit : (uint32_t)n;
    }
}
