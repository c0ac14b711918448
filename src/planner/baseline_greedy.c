/* The baseline placement: the rule of PowerInfer's release, which maximises the sum of shares on the device and
 * knows neither rates nor synchronisation, and only one device and the host. Called by tests and the tables of
 * docs/plan.md. */
#include "planner/plan_int.h"

#include "base/alloc.h"

static uint64_t rounded(const hth_plan_layer *l, const hth_plan_options *options, uint32_t k)
{
    return hth_plan_units(hth_plan_layer_bytes(l, options, k), HTH_PLAN_UNIT) * HTH_PLAN_UNIT;
}

/* Adds the next cluster of the layer whose next cluster has the highest share and fits; on a tie, the first
 * layer's. */
static bool add_hottest(const hth_plan_model *model, const hth_plan_options *options, int32_t *n_hot,
                        uint64_t *left)
{
    const double *best = NULL;
    uint32_t best_l = 0;
    for (uint32_t l = 0; l < model->n_layer; l++) {
        const hth_plan_layer *layer = &model->layers[l];
        uint32_t k = (uint32_t)n_hot[l];
        if (k == layer->n_cluster - layer->n_beyond || rounded(layer, options, k + 1) - rounded(layer, options, k) > *left)
            continue;
        if (!best || layer->share[k] > *best) best = &layer->share[k], best_l = l;
    }
    if (!best) return false;
    uint32_t k = (uint32_t)n_hot[best_l]++;
    *left -= rounded(&model->layers[best_l], options, k + 1) - rounded(&model->layers[best_l], options, k);
    return true;
}

hearth_status hth_plan_greedy_baseline(const hth_plan_model *model, const hth_plan_machine *machine,
                                       const hth_plan_options *options, hth_plan *out, hearth_error *err)
{
    *out = (hth_plan){0};
    hearth_status st = hth_plan_validate(model, machine, options, err);
    if (st != HEARTH_OK) return st;
    const hth_plan_roles roles = hth_plan_find_roles(machine);
    if (roles.i_host > 1)
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "plan: %u devices: placed by firings for one only",
                        roles.i_host);
    size_t size = model->n_layer * (sizeof(hth_plan_division) + sizeof(int32_t));
    hth_plan_division *divisions = hth_alloc(size, 1);
    if (!divisions) return hth_fail_memory(err, size, "a plan");
    int32_t *n_hot = (int32_t *)(divisions + model->n_layer);
    bool fits = roles.device->capacity >= roles.device->fixed_bytes, head = false;
    uint64_t left = fits ? roles.device->capacity - roles.device->fixed_bytes : 0;
    for (uint32_t l = 0; l < model->n_layer; l++) {
        uint64_t bytes = rounded(&model->layers[l], options, 0);
        fits = fits && bytes <= left;
        n_hot[l] = fits ? 0 : HTH_PLAN_CPU;
        if (fits) left -= bytes;
    }
    if (fits && model->head_bytes <= left) {
        head = true;
        left -= model->head_bytes;
        while (add_hottest(model, options, n_hot, &left)) continue;
    }
    for (uint32_t l = 0; l < model->n_layer; l++)
        divisions[l] = hth_plan_divide(&roles, &model->layers[l], n_hot[l]);
    st = hth_plan_evaluate(model, machine, options, divisions, head, out, err);
    hth_free(divisions);
    return st;
}
