/* Slots on a device for the experts of layers that are divided between device and host. */
#include "forward/gpu/gpu_int.h"

#include "base/alloc.h"
#include "base/checked_math.h"

#include <string.h>

bool hth_gpu_divides_experts(const hth_gpu *g, uint32_t i_layer)
{
    const hth_layer *l = &g->model->layers[i_layer];
    return hth_layer_divides_experts(l) && g->params.n_hot[i_layer] < hth_layer_n_unit(l);
}

/* The first experts have slots at first. */
static hearth_status open_layer(hth_gpu *g, uint32_t i_layer, hearth_error *err)
{
    const hth_router *r = &g->model->layers[i_layer].experts.router;
    hth_gpu_expert_slots *s = g->layers[i_layer].slots = hth_alloc(1, sizeof *s);
    if (!s) return hth_fail_memory(err, sizeof *s, "slots of experts");
    s->at = g->workspace.slots_at + i_layer * g->workspace.slot_words;
    const hth_expert_policy_options o = {
        .n_expert = r->n_expert, .n_used = r->n_used, .n_slot = g->params.n_hot[i_layer], .reuse = &g->reuse};
    return hth_expert_policy_open(&s->policy, &o, err);
}

hearth_status hth_gpu_expert_slots_open(hth_gpu *g, hearth_error *err)
{
    uint32_t n_used = 0;
    hearth_status st = HEARTH_OK;
    for (uint32_t i = g->params.first_layer; st == HEARTH_OK && i < g->params.end_layer; i++) {
        if (!hth_gpu_divides_experts(g, i)) continue;
        n_used = hth_max_u32(n_used, g->model->layers[i].experts.router.n_used);
        st = open_layer(g, i, err);
    }
    if (st != HEARTH_OK || n_used == 0) return st;
    size_t n = (size_t)g->params.n_row * n_used;
    g->chosen = hth_alloc(n, sizeof *g->chosen);
    return g->chosen ? HEARTH_OK : hth_fail_memory(err, n * sizeof *g->chosen, "slots of experts");
}

void hth_gpu_expert_slots_close(hth_gpu *g)
{
    for (uint32_t i = g->params.first_layer; g->layers && i < g->params.end_layer; i++) {
        if (!g->layers[i].slots) continue;
        hth_expert_policy_close(&g->layers[i].slots->policy);
        hth_free(g->layers[i].slots);
    }
    hth_free(g->chosen);
}

bool hth_gpu_are_experts(const hth_expert_policy *p, const uint32_t *ids, uint32_t stride, uint32_t n)
{
    for (uint32_t t = 0; t < n; t++, ids += stride)
        for (uint32_t i = 0; i < p->n_used; i++)
            if (ids[i] >= p->n_expert) return false;
    return true;
}

hearth_status hth_gpu_fail_experts(const hth_gpu *g, hearth_error *err)
{
    return hth_fail(err, HEARTH_ERROR_DEVICE, "%s chose experts that the model lacks", hth_device_get_info(g->device)->name);
}

void hth_gpu_count_experts(hth_gpu *g, hth_expert_policy *p, const uint32_t *ids, uint32_t stride, uint32_t n)
{
    for (uint32_t t = 0; t < n; t++, ids += stride) {
        memcpy(g->chosen + (size_t)t * p->n_used, ids, p->n_used * sizeof *ids);
        for (uint32_t i = 0; i < p->n_used; i++) g->counts.n_chosen_there += p->slot_of[ids[i]] != HTH_NO_EXPERT;
    }
    g->counts.n_chosen += (uint64_t)n * p->n_used;
    hth_expert_policy_step(p, g->chosen, n);
}
