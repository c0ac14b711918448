/* Computes plans from a model's shapes, budgets and calibrations. */
#include "placement/plan_context.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "forward/gpu/gpu_int.h"

#include <string.h>

const uint32_t hth_plan_n_seq[HTH_PLAN_N_SEQ] = {1, 4, 16, 64};

/* The machine with the given estimate, and the budgets of the devices. */
static void estimate_machine(const hth_plan_context *o, const hth_placement_builder *c, hth_estimate estimate,
                             hth_plan_machine *to)
{
    bool gated = hth_model_is_gated(c->model);
    double crosses = (double)(o->input.d2h_bytes + o->input.h2d_bytes);
    *to = (hth_plan_machine){.n_home = o->n_part + 1};
    for (uint32_t i = 0; i < o->n_part; i++) {
        hth_plan_machine one;
        hth_calibration_machine(&o->parts[i].calibration, c->parts[i].params.selector, gated, estimate, &one);
        to->homes[i] = one.homes[HTH_HOME_DEVICE];
        to->homes[i].capacity = o->parts[i].budget;
        to->homes[i].fixed_bytes = o->parts[i].fixed_bytes;
        /* The clock of a description counts what is read: rows once for so many tokens. */
        if (c->parts[i].info->kind == HTH_DEVICE_SIMULATED)
            to->homes[i].product_rate = HTH_GPU_FEW_ROWS * to->homes[i].rates.at[HTH_PLAN_N_KNOT - 1];
        to->homes[i].sync_more = to->homes[i].way_rate > 0.0 ? crosses / to->homes[i].way_rate : 0.0;
        if (i == 0) to->homes[o->n_part] = one.homes[HTH_HOME_HOST]; /* measured with each device alike */
    }
}

/* The best plan's placement on a machine, for so many sequences. */
static hearth_status evaluate(const hth_plan_context *o, const hth_plan_machine *machine, uint32_t n_seq, hth_plan *plan,
                              hearth_error *err)
{
    hth_plan_options options = o->options;
    options.n_seq = n_seq;
    return hth_plan_evaluate(&o->input, machine, &options, o->best.divisions, o->best.head, plan, err);
}

/* Seconds of one sequence's token on a machine with the given estimate. */
static hearth_status expect_estimate(const hth_plan_context *o, const hth_placement_builder *c, hth_estimate estimate,
                                     double *seconds, hearth_error *err)
{
    hth_plan_machine machine;
    hth_plan plan;
    estimate_machine(o, c, estimate, &machine);
    hearth_status st = evaluate(o, &machine, 1, &plan, err);
    if (st != HEARTH_OK) return st;
    *seconds = plan.seconds;
    hth_plan_free(&plan);
    return HEARTH_OK;
}

/* What is expected of the best plan with other numbers of sequences. Of a plan for several the figures of one are kept. */
static hearth_status expect_sequences(hth_plan_context *o, hearth_error *err)
{
    hth_plan one = o->best;
    hearth_status st = HEARTH_OK;
    o->seconds_planned = o->best.seconds;
    for (int i = HTH_PLAN_N_SEQ; st == HEARTH_OK && i-- > 0;) {
        hth_plan plan;
        if ((st = evaluate(o, &o->machine, hth_plan_n_seq[i], &plan, err)) != HEARTH_OK) break;
        o->seconds_by_seq[i] = plan.seconds;
        if (i == 0 && o->options.n_seq > 1) one = plan;
        else hth_plan_free(&plan);
    }
    if (st != HEARTH_OK || o->options.n_seq <= 1) return st;
    for (uint32_t i = 0; i < o->input.n_layer; i++) one.divisions[i].reads = o->best.divisions[i].reads;
    one.tps_per_gib = o->best.tps_per_gib * o->options.n_seq, one.min_vram = o->best.min_vram, one.unit = o->best.unit;
    hth_plan_free(&o->best);
    o->best = one;
    return HEARTH_OK;
}

/* Expects the speed of the placement that the builder was given. */
static hearth_status evaluate_given(hth_plan_context *o, const hth_placement_builder *c, hearth_error *err)
{
    hth_plan_division *divisions = hth_alloc(o->input.n_layer, sizeof *divisions);
    if (!divisions) return hth_fail_memory(err, o->input.n_layer * sizeof *divisions, "a plan");
    for (uint32_t i = 0; i < o->input.n_layer; i++) {
        hth_plan_layer *l = &o->input.layers[i];
        uint32_t grain = hth_gpu_split_granularity(c->model, i), n_hot = i < c->given->n_layer ? c->given->n_hot[i] : 0;
        uint32_t n = grain == 0 ? l->n_cluster : hth_min_u32(l->n_cluster, (n_hot + grain - 1) / grain);
        divisions[i] = (hth_plan_division){.attention = i < c->given->n_layer ? 0 : 1, .n_cluster = {n, l->n_cluster - n}};
        if (!hth_layer_set_has(&c->given->read_experts, i)) l->n_spare = 0;
    }
    hearth_status st = hth_plan_evaluate(&o->input, &o->machine, &o->options, divisions, c->given->head, &o->best, err);
    hth_free(divisions);
    return st;
}

/* The share of a layer's experts that a token uses. */
static double used_share(const hth_model *m, uint32_t i_layer)
{
    const hth_router *r = &m->layers[i_layer].experts.router;
    return (double)r->n_used / (double)r->n_expert;
}

/* Chooses the weight streams of device i from the bytes of its divided layers in the best plan. */
static void choose_streams(hth_plan_context *o, const hth_model *m, uint32_t i, uint32_t max)
{
    hth_stream_work w = {0};
    for (uint32_t k = 0; k < o->best.n_device; k++) {
        const hth_plan_layer *l = &o->input.layers[k];
        const hth_plan_division *d = &o->best.divisions[k];
        uint32_t n_hot = d->n_cluster[i];
        if (d->attention != i || n_hot >= l->n_cluster) continue;
        double hot = (double)n_hot * (double)l->cluster_bytes[HTH_PLAN_DEVICE],
               cold = (double)(l->n_cluster - n_hot) * (double)l->cluster_bytes[HTH_PLAN_HOST];
        if (l->has_experts) w.slots += hot, w.missing += cold, w.used = used_share(m, k);
        else w.hot += hot, w.cold += cold;
    }
    hth_calibration_stream_thresholds(&o->parts[i].calibration, &w, max, o->parts[i].streams);
}

/* The model, with the offload parameters of each device that is to have all of it; the least of the bindings decides
 * how matrices are cut. */
static hearth_status open_model(hth_plan_context *o, const hth_placement_builder *c,
                                const hth_profile *profile, const hth_offload_params params[HEARTH_MAX_GPU],
                                hearth_error *err)
{
    uint64_t max = UINT64_MAX;
    for (uint32_t i = 0; i < o->n_part; i++)
        if (c->parts[i].info->max_binding_size < max) max = c->parts[i].info->max_binding_size;
    estimate_machine(o, c, HTH_ESTIMATE_MEDIAN, &o->machine);
    const hth_plan_source from = {c->model, params, max, profile, c->uses, &o->machine};
    hearth_status st = hth_plan_model_open(&from, &o->input, &o->parts[0].fixed_bytes, &o->uniform, err);
    for (uint32_t i = 1; st == HEARTH_OK && i < o->n_part; i++)
        if (!hth_gpu_workspace_bytes(c->model, max, &params[i], &o->parts[i].fixed_bytes))
            st = hth_fail(err, HEARTH_ERROR_ARGUMENT,
                          "%s: the values of %u tokens are too large for the bindings of %s",
                          hth_gguf_path(c->model->file), params[i].n_row, c->parts[i].info->name);
    if (st != HEARTH_OK) hth_plan_model_free(&o->input);
    return st;
}

/* Work of which all is on the host, of the kind that the model has. */
static hth_stream_work any_work(const hth_model *m)
{
    hth_stream_work w = {.cold = m->down_transposed};
    for (uint32_t i = 0; i < m->hparams.n_layer; i++)
        if (hth_layer_divides_experts(&m->layers[i])) w.missing = 1.0, w.used = used_share(m, i);
    return w;
}

void hth_placement_let_experts_pass(hth_placement_builder *c, const hth_placement_layers *layers, const hth_kernels *kernels,
                                    uint32_t n_thread)
{
    const hth_stream_work any = any_work(c->model);
    hth_pool *pool = NULL;
    bool keeps_any = any.missing > 0.0 && (layers->n_cpu_experts > 0 || layers->cpu);
    if (!keeps_any || hth_pool_open(hth_pool_default_threads(n_thread), &pool, NULL) != HEARTH_OK) return;
    for (uint32_t i = 0; i < c->n_part; i++) {
        hth_placement_part *p = &c->parts[i];
        hth_calibration known;
        if (!hth_device_is_usable_gpu(p->info) && p->info->kind != HTH_DEVICE_SIMULATED) continue;
        if (hth_calibration_cache_get(p->device, kernels, pool, hth_model_row_type(c->model), false, &known, NULL) == HEARTH_OK)
            hth_calibration_stream_thresholds(&known, &any, p->params.n_row, p->params.streams);
    }
    hth_pool_close(pool);
}

/* With memory reserved for streamed weights if they may be used, and without if that is too large for bindings. */
static hearth_status open_inputs(hth_plan_context *o, const hth_placement_builder *c,
                                 const hth_profile *profile, bool *streams, hearth_error *err)
{
    hth_offload_params params[HEARTH_MAX_GPU];
    *streams = false;
    for (uint32_t i = 0; i < o->n_part; i++) {
        params[i] = c->parts[i].params;
        params[i].host_kv = o->host_kv;
        params[i].first_layer = 0, params[i].end_layer = c->model->hparams.n_layer, params[i].head = true;
        const hth_stream_work any = any_work(c->model);
        hth_calibration_stream_thresholds(&o->parts[i].calibration, &any, params[i].n_row, params[i].streams);
        *streams |= params[i].streams[0].n_tok > 0;
    }
    hearth_status st = open_model(o, c, profile, params, err);
    if (st != HEARTH_ERROR_ARGUMENT || !*streams) return st;
    for (uint32_t i = 0; i < o->n_part; i++) memset(params[i].streams, 0, sizeof params[i].streams);
    *streams = false;
    return open_model(o, c, profile, params, err);
}

/* With keys and values where o->host_kv says, behind the calibration of all parts. */
static hearth_status solve(hth_plan_context *o, const hth_placement_builder *c, const hth_profile *profile,
                           hearth_error *err)
{
    bool streams;
    hearth_status st = open_inputs(o, c, profile, &streams, err);
    if (st != HEARTH_OK) return st;
    for (uint32_t i = 0; c->parts[0].params.streams_experts && i < o->input.n_layer; i++)
        o->input.layers[i].n_spare = 0; /* a device cannot read what has no place in the host's memory */
    estimate_machine(o, c, HTH_ESTIMATE_MEDIAN, &o->machine);
    st = c->given ? evaluate_given(o, c, err) : hth_plan_solve(&o->input, &o->machine, &o->options, &o->best, err);
    for (uint32_t i = 0; st == HEARTH_OK && streams && i < c->n_part; i++)
        choose_streams(o, c->model, i, c->parts[i].params.n_row);
    if (st == HEARTH_OK) st = expect_sequences(o, err);
    if (st == HEARTH_OK) st = expect_estimate(o, c, HTH_ESTIMATE_WORST, &o->seconds_worst, err);
    if (st == HEARTH_OK) st = expect_estimate(o, c, HTH_ESTIMATE_BEST, &o->seconds_best, err);
    if (st != HEARTH_OK) hth_plan_context_close(o);
    return st;
}

static bool has_trips(const hth_plan_context *o)
{
    uint32_t i = 0;
    while (i < o->input.n_layer && o->input.layers[i].n_trip == 0) i++;
    return i < o->input.n_layer;
}

/* Takes the better home of keys and values: the host if that gains more than predictions err. st: of the plan with them on
 * devices, which may lack their attention. */
static hearth_status compare_homes(hth_plan_context *o, hth_plan_context host, const hth_placement_builder *c,
                                   const hth_profile *profile, hearth_status st)
{
    const double least_gain = 0.02; /* docs/plan.md: by so much simulations differ from predictions */
    host.host_kv = true;
    if ((st != HEARTH_OK && st != HEARTH_ERROR_ARGUMENT) || solve(&host, c, profile, NULL) != HEARTH_OK) return st;
    if (st != HEARTH_OK && has_trips(&host)) {
        *o = host;
        return HEARTH_OK;
    }
    if (st == HEARTH_OK && has_trips(&host)) {
        const hth_plan_context device = *o;
        bool is_faster = host.seconds_planned < (1.0 - least_gain) * device.seconds_planned;
        if (is_faster) *o = host, host = device;
        o->seconds_other_kv = host.best.seconds;
    }
    hth_plan_context_close(&host);
    return st;
}

hearth_status hth_plan_context_build(hth_plan_context *o, const hth_placement_builder *c,
                                     const hth_profile *profile, const hth_kernels *kernels, hth_pool *pool,
                                     hearth_error *err)
{
    const uint64_t max = (uint64_t)1 << 40; /* the reference device reports unlimited memory */
    const hth_offload_params *params = &c->parts[0].params;
    hearth_status st = HEARTH_OK;
    *o = (hth_plan_context){.n_part = c->n_part, .options = {.n_ctx = params->n_position,
                                        .context = params->n_position / 2,
                                        .n_seq = hth_offload_n_live(params)},
                            .host_kv = params->host_kv || (c->given && c->given->host_kv)};
    for (uint32_t i = 0; st == HEARTH_OK && i < c->n_part; i++) {
        o->parts[i].budget = c->parts[i].budget < max ? c->parts[i].budget : max;
        st = hth_calibration_cache_get(c->parts[i].device, kernels, pool, hth_model_row_type(c->model),
                                       false, &o->parts[i].calibration, err);
    }
    if (st != HEARTH_OK) return st;
    const hth_plan_context calibrated = *o;
    st = solve(o, c, profile, err);
    return o->host_kv || c->given ? st : compare_homes(o, calibrated, c, profile, st);
}

void hth_plan_context_close(hth_plan_context *o)
{
    hth_plan_free(&o->best);
    hth_plan_model_free(&o->input);
}

void hth_plan_context_apply(const hth_plan_context *o, hth_placement_builder *c)
{
    uint32_t ends[HEARTH_MAX_GPU], next = 0, n_layer = o->best.n_device;
    hth_plan_neurons(c->model, &o->best, c->n_hot);
    for (uint32_t i = 0; i < c->n_part; i++) {
        hth_offload_params *p = &c->parts[i].params;
        while (next < n_layer && o->best.divisions[next].attention == i) next++;
        ends[i] = next;
        p->submit_mode = hth_calibration_submit_mode(&o->parts[i].calibration);
        memcpy(p->streams, o->parts[i].streams, sizeof p->streams);
        p->host_kv = o->host_kv;
        p->read_experts = (hth_layer_set){0};
        for (uint32_t k = 0; k < n_layer; k++)
            if (o->best.divisions[k].reads) hth_layer_set_add(&p->read_experts, k);
    }
    hth_placement_builder_set_ends(c, ends, o->best.head);
    c->seconds = o->best.seconds, c->seconds_empty = o->best.seconds_empty, c->seconds_full = o->best.seconds_full;
    c->unsupported_reason = n_layer == 0 ? "the plan finds nothing that gains on the device" : NULL;
}
