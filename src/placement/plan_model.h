/* The planner's view of a model: bytes of its layers on a device and in host memory, and the fraction of them that
 * a token reads. */
#ifndef HTH_PLACEMENT_PLAN_MODEL_H
#define HTH_PLACEMENT_PLAN_MODEL_H

#include "planner/plan.h"
#include "forward/gpu/gpu.h"
#include "placement/expert_hits.h"
#include "sparse/profile.h"

typedef struct hth_plan_source {
    const hth_model *model;
    const hth_offload_params *params; /* n_row, n_position, kv, selector */
    uint64_t max_binding_size;              /* bytes, of the device */
    const hth_profile *profile; /* a profile of this file; NULL: frequencies in the file are used, if any */
    hth_expert_uses uses;
    const hth_plan_machine *machine; /* whose seconds decide how many experts move; NULL: no layer divides experts */
} hth_plan_source;

/* The assumed active fraction of a layer's neurons where nothing is known. */
double hth_plan_assumed(hearth_selector selector);
/* The fraction of the neurons of a layer's cluster i that are active for a token: from the file, or the assumed one. */
double hth_plan_active_share(const hth_layer *layer, uint32_t i, hearth_selector selector);
/* The same as a profile of the model counted it. */
double hth_plan_profiled_share(const hth_profile *profile, uint32_t i_layer, uint32_t i);
/* out: freed by hth_plan_model_free; fixed: bytes of a step's workspace on the device, without layers. *uniform:
 * whether no activation frequencies are known. ARGUMENT: a layer cannot be offloaded, with the reason. MEMORY. */
hearth_status hth_plan_model_open(const hth_plan_source *from, hth_plan_model *out, uint64_t *fixed,
                                  bool *uniform, hearth_error *err);
void hth_plan_model_free(hth_plan_model *model);

/* Converts a plan's clusters to units, as in hth_offload_params: n_hot[n_layer of the model]. */
void hth_plan_neurons(const hth_model *model, const hth_plan *plan, uint32_t *n_hot);

#endif
