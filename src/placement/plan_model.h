/* A model as a plan sees it: bytes of its layers on a device and in memory, and what of them a token
 * reads. */
#ifndef HTH_PLACE_PLAN_MODEL_H
#define HTH_PLACE_PLAN_MODEL_H

#include "planner/plan.h"
#include "forward/gpu/gpu.h"
#include "sparse/profile.h"

typedef struct hth_plan_source {
    const hth_model *model;
    const hth_offload_params *params; /* n_tok, n_position, kv, selector */
    uint64_t max_binding_size;              /* bytes of a binding of the device */
    const hth_profile *profile; /* of this file, or NULL: the shares in the file, where there are some */
} hth_plan_source;

/* What of a layer's neurons is taken to fire for a token where nothing is known of it. */
double hth_plan_assumed(hearth_selector selector);
/* out: freed by hth_plan_model_free; fixed: what a step takes on the device beside layers. *uniform
 * becomes whether nothing is known of who fires. ARGUMENT: a layer that no device can have, by its reason.
 * MEMORY. */
hearth_status hth_plan_model_open(const hth_plan_source *from, hth_plan_model *out, uint64_t *fixed,
                                  bool *uniform, hearth_error *err);
void hth_plan_model_free(hth_plan_model *model);

/* A plan's clusters as neurons, as a place has them: *n_layer of them, n_hot[n_layer of the model]. */
void hth_plan_neurons(const hth_model *model, const hth_plan *plan, uint32_t *n_layer, uint32_t *n_hot);

#endif
