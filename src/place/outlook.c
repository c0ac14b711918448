/* Plans from a model's shapes, a budget, and a calibration. */
#include "place/outlook.h"

#include <string.h>

/* The placement of the best plan on a machine of another luck. */
static hearth_status price(const hth_outlook *o, const hth_choice *c, hth_luck luck, double *seconds,
                           hearth_error *err)
{
    hth_plan_machine machine;
    hth_plan plan;
    hth_calibration_machine(&o->calibration, c->place.selector, c->model->layers[0].gate.n_row > 0, luck,
                            &machine);
    hearth_status st = hth_plan_price(&o->input, &machine, &o->wish, o->best.n_hot, o->best.head, &plan, err);
    if (st != HEARTH_OK) return st;
    *seconds = plan.seconds;
    hth_plan_free(&plan);
    return HEARTH_OK;
}

/* Bytes of the divided layers' networks, there and here, by the best plan. */
static void choose_streams(hth_outlook *o, uint32_t most)
{
    double hot = 0.0, cold = 0.0;
    for (uint32_t i = 0; i < o->best.n_device; i++) {
        const hth_plan_layer *l = &o->input.layers[i];
        uint32_t n_hot = (uint32_t)o->best.n_hot[i];
        if (n_hot >= l->n_cluster) continue;
        hot += (double)n_hot * (double)l->device_bytes;
        cold += (double)(l->n_cluster - n_hot) * (double)l->cpu_bytes;
    }
    hth_calibration_streams(&o->calibration, hot, cold, most, o->streams);
}

hearth_status hth_outlook_open(hth_outlook *o, const hth_choice *c, const hth_profile *profile,
                               hth_device *device, const hth_kernels *kernels, hth_pool *pool,
                               hearth_error *err)
{
    const uint64_t most = (uint64_t)1 << 40; /* null says that it has everything */
    hth_gpu_place place = c->place;
    const hth_plan_source from = {c->model, &place, c->info->most, profile};
    *o = (hth_outlook){.wish = {.vram = c->budget < most ? c->budget : most,
                                .n_ctx = c->place.n_position,
                                .context = c->place.n_position / 2}};
    hearth_status st =
        hth_calibration_get(device, kernels, pool, c->model->layers[0].up.type, false, &o->calibration, err);
    if (st != HEARTH_OK) return st;
    /* Room for weights that pass through is kept where they may. */
    hth_calibration_streams(&o->calibration, 0.0, 1.0, place.n_row, place.streams);
    st = hth_plan_model_open(&from, &o->input, &o->wish.fixed_bytes, &o->uniform, err);
    if (st == HEARTH_ERROR_ARGUMENT &&
        place.streams[0].n_tok > 0) { /* too large for bindings, with that room */
        memset(place.streams, 0, sizeof place.streams);
        st = hth_plan_model_open(&from, &o->input, &o->wish.fixed_bytes, &o->uniform, err);
    }
    if (st == HEARTH_OK) {
        hth_calibration_machine(&o->calibration, c->place.selector, c->model->layers[0].gate.n_row > 0,
                                HTH_LUCK_USUAL, &o->machine);
        st = hth_plan_solve(&o->input, &o->machine, &o->wish, &o->best, err);
    }
    if (st == HEARTH_OK && place.streams[0].n_tok > 0) choose_streams(o, place.n_row);
    if (st == HEARTH_OK) st = price(o, c, HTH_LUCK_BAD, &o->seconds_bad, err);
    if (st == HEARTH_OK) st = price(o, c, HTH_LUCK_GOOD, &o->seconds_good, err);
    if (st != HEARTH_OK) hth_outlook_close(o);
    return st;
}

void hth_outlook_close(hth_outlook *o)
{
    hth_plan_free(&o->best);
    hth_plan_model_free(&o->input);
}

void hth_outlook_take(const hth_outlook *o, hth_choice *c)
{
    hth_plan_neurons(c->model, &o->best, &c->place.n_layer, c->n_hot);
    c->place.head = o->best.head;
    memcpy(c->place.streams, o->streams, sizeof o->streams);
    c->place.handoff = hth_calibration_handoff(&o->calibration);
    c->seconds = o->best.seconds;
    c->problem = c->place.n_layer == 0 ? "a plan finds nothing that gains by lying there" : NULL;
}
