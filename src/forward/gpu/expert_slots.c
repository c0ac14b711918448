/* Slots on a device for the experts of layers that are divided between device and host. */
#include "forward/gpu/gpu_int.h"

#include "base/alloc.h"

bool hth_gpu_divides_experts(const hth_gpu *g, uint32_t i_layer)
{
    const hth_layer *l = &g->model->layers[i_layer];
    return hth_layer_divides_experts(l) && g->params.n_hot[i_layer] < hth_layer_n_unit(l);
}

/* The first experts have slots at first. */
static hearth_status open_layer(hth_gpu *g, uint32_t i_layer, hearth_error *err)
{
    hth_gpu_layer *l = &g->layers[i_layer];
    uint32_t n = g->model->layers[i_layer].experts.router.n_expert;
    l->slots_at = g->workspace.slots_at + i_layer * g->workspace.slot_words;
    l->slot_of = hth_alloc(n, sizeof *l->slot_of);
    if (!l->slot_of) return hth_fail_memory(err, n * sizeof *l->slot_of, "slots of experts");
    for (uint32_t i = 0; i < n; i++) l->slot_of[i] = i < g->params.n_hot[i_layer] ? i : HTH_STEP_NO_SLOT;
    return HEARTH_OK;
}

hearth_status hth_gpu_expert_slots_open(hth_gpu *g, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    for (uint32_t i = g->params.first_layer; st == HEARTH_OK && i < g->params.end_layer; i++)
        if (hth_gpu_divides_experts(g, i)) st = open_layer(g, i, err);
    return st;
}

void hth_gpu_expert_slots_close(hth_gpu *g)
{
    for (uint32_t i = g->params.first_layer; g->layers && i < g->params.end_layer; i++) hth_free(g->layers[i].slot_of);
}
