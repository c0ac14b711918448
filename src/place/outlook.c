/* Plans from a model's shapes, a budget, and a calibration. */
#include "place/outlook.h"

/* The placement of the best plan on a machine of another luck. */
static hearth_status price(const hth_outlook *o, hearth_selector selector, hth_luck luck, double *seconds,
                           hearth_error *err)
{
    hth_plan_machine machine;
    hth_plan plan;
    hth_calibration_machine(&o->calibration, selector, luck, &machine);
    hearth_status st = hth_plan_price(&o->input, &machine, &o->wish, o->best.n_hot, o->best.head, &plan, err);
    if (st != HEARTH_OK) return st;
    *seconds = plan.seconds;
    hth_plan_free(&plan);
    return HEARTH_OK;
}

hearth_status hth_outlook_open(hth_outlook *o, const hth_choice *c, const hth_profile *profile,
                               hth_device *device, const hth_kernels *kernels, hth_pool *pool,
                               hearth_error *err)
{
    const uint64_t most = (uint64_t)1 << 40; /* null says that it has everything */
    const hth_plan_source from = {c->model, &c->place, c->info->most, profile};
    hearth_selector selector = c->place.selector;
    *o = (hth_outlook){.wish = {.vram = c->budget < most ? c->budget : most,
                                .n_ctx = c->place.n_position,
                                .context = c->place.n_position / 2}};
    hearth_status st = hth_plan_model_open(&from, &o->input, &o->wish.fixed_bytes, &o->uniform, err);
    if (st == HEARTH_OK)
        st = hth_calibration_get(device, kernels, pool, c->model->layers[0].up.type, &o->calibration, err);
    if (st == HEARTH_OK) {
        hth_calibration_machine(&o->calibration, selector, HTH_LUCK_USUAL, &o->machine);
        st = hth_plan_solve(&o->input, &o->machine, &o->wish, &o->best, err);
    }
    if (st == HEARTH_OK) st = price(o, selector, HTH_LUCK_BAD, &o->seconds_bad, err);
    if (st == HEARTH_OK) st = price(o, selector, HTH_LUCK_GOOD, &o->seconds_good, err);
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
    c->place.handoff = hth_calibration_handoff(&o->calibration);
    c->seconds = o->best.seconds;
    c->problem = c->place.n_layer == 0 ? "a plan finds nothing that gains by lying there" : NULL;
}
