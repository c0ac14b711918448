/* A plan for a model on this machine: what it is made from, and what it expects. */
#ifndef HTH_PLACE_OUTLOOK_H
#define HTH_PLACE_OUTLOOK_H

#include "placement/policy.h"
#include "placement/plan_model.h"

typedef struct hth_plan_context {
    hth_calibration calibration;
    hth_plan_machine machine;
    hth_plan_model input;
    hth_plan_options options;
    hth_plan best;
    hth_placement_stream streams[HTH_PLACEMENT_STREAMS]; /* as in a place */
    double seconds_worst, seconds_best; /* a token by best, at the slowest and the fastest that was measured */
    bool uniform;                     /* nothing is known of who fires */
} hth_plan_context;

/* For c's model, device and budget; profile: of this model, or NULL. ARGUMENT: a layer cannot lie there.
 * DEVICE, MEMORY. */
hearth_status hth_plan_context_build(hth_plan_context *o, const hth_placement_builder *c, const hth_profile *profile,
                               hth_device *device, const hth_kernels *kernels, hth_pool *pool,
                               hearth_error *err);
void hth_plan_context_close(hth_plan_context *o);

/* The best plan becomes what is chosen; without neurons to divide, or a gain, n_layer may be 0. */
void hth_plan_context_apply(const hth_plan_context *o, hth_placement_builder *c);

#endif
