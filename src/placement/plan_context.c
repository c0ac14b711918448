/* Computes plans from a model's shapes, a budget and a calibration. */
#include "placement/plan_context.h"

#include <string.h>

/* The machine with the given estimate, and the device's budget. */
static void estimate_machine(const hth_plan_context *o, const hth_placement_builder *c, hth_estimate estimate,
                             hth_plan_machine *to)
{
    hth_calibration_machine(&o->calibration, c->params.selector, c->model->layers[0].ffn.gate.n_row > 0, estimate, to);
    to->homes[HTH_HOME_DEVICE].capacity = o->budget;
    to->homes[HTH_HOME_DEVICE].fixed_bytes = o->fixed_bytes;
}

/* Seconds of the best plan's placement on a machine with the given estimate. */
static hearth_status evaluate(const hth_plan_context *o, const hth_placement_builder *c, hth_estimate estimate,
                           double *seconds, hearth_error *err)
{
    hth_plan_machine machine;
    hth_plan plan;
    estimate_machine(o, c, estimate, &machine);
    hearth_status st =
        hth_plan_evaluate(&o->input, &machine, &o->options, o->best.divisions, o->best.head, &plan, err);
    if (st != HEARTH_OK) return st;
    *seconds = plan.seconds;
    hth_plan_free(&plan);
    return HEARTH_OK;
}

/* Chooses the weight streams from the bytes of the split layers' FFNs, on device and CPU, in the best plan. */
static void choose_streams(hth_plan_context *o, uint32_t max)
{
    double hot = 0.0, cold = 0.0;
    for (uint32_t i = 0; i < o->best.n_device; i++) {
        const hth_plan_layer *l = &o->input.layers[i];
        uint32_t n_hot = o->best.divisions[i].n_cluster[HTH_HOME_DEVICE];
        if (n_hot >= l->n_cluster) continue;
        hot += (double)n_hot * (double)l->cluster_bytes[HTH_PLAN_DEVICE];
        cold += (double)(l->n_cluster - n_hot) * (double)l->cluster_bytes[HTH_PLAN_HOST];
    }
    hth_calibration_stream_thresholds(&o->calibration, hot, cold, max, o->streams);
}

hearth_status hth_plan_context_build(hth_plan_context *o, const hth_placement_builder *c,
                                     const hth_profile *profile, hth_device *device,
                                     const hth_kernels *kernels, hth_pool *pool, hearth_error *err)
{
    const uint64_t max = (uint64_t)1 << 40; /* the reference device reports unlimited memory */
    hth_offload_params params = c->params;
    const hth_plan_source from = {c->model, &params, c->info->max_binding_size, profile};
    *o = (hth_plan_context){.budget = c->budget < max ? c->budget : max,
                            .options = {.n_ctx = c->params.n_position, .context = c->params.n_position / 2}};
    hearth_status st = hth_calibration_cache_get(device, kernels, pool, c->model->layers[0].ffn.up.type, false,
                                                 &o->calibration, err);
    if (st != HEARTH_OK) return st;
    /* Reserves memory for streamed weights if they may be used. */
    hth_calibration_stream_thresholds(&o->calibration, 0.0, 1.0, params.n_row, params.streams);
    st = hth_plan_model_open(&from, &o->input, &o->fixed_bytes, &o->uniform, err);
    if (st == HEARTH_ERROR_ARGUMENT &&
        params.streams[0].n_tok > 0) { /* too large for bindings with that reserve */
        memset(params.streams, 0, sizeof params.streams);
        st = hth_plan_model_open(&from, &o->input, &o->fixed_bytes, &o->uniform, err);
    }
    if (st == HEARTH_OK) {
        estimate_machine(o, c, HTH_ESTIMATE_MEDIAN, &o->machine);
        st = hth_plan_solve(&o->input, &o->machine, &o->options, &o->best, err);
    }
    if (st == HEARTH_OK && params.streams[0].n_tok > 0) choose_streams(o, params.n_row);
    if (st == HEARTH_OK) st = evaluate(o, c, HTH_ESTIMATE_WORST, &o->seconds_worst, err);
    if (st == HEARTH_OK) st = evaluate(o, c, HTH_ESTIMATE_BEST, &o->seconds_best, err);
    if (st != HEARTH_OK) hth_plan_context_close(o);
    return st;
}

void hth_plan_context_close(hth_plan_context *o)
{
    hth_plan_free(&o->best);
    hth_plan_model_free(&o->input);
}

void hth_plan_context_apply(const hth_plan_context *o, hth_placement_builder *c)
{
    hth_plan_neurons(c->model, &o->best, &c->params.n_layer, c->n_hot);
    c->params.head = o->best.head;
    memcpy(c->params.streams, o->streams, sizeof o->streams);
    c->params.submit_mode = hth_calibration_submit_mode(&o->calibration);
    c->seconds = o->best.seconds;
    c->unsupported_reason = c->params.n_layer == 0 ? "the plan finds nothing that gains on the device" : NULL;
}
