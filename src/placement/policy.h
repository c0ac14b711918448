/* What of a model lies on a device, chosen before anything is loaded: by a plan from what was measured, as
 * a file says, or evenly by bytes alone. Called by the engine when a model is opened, again with less when
 * memory was refused, and by hearth plan. */
#ifndef HTH_PLACE_CHOOSE_H
#define HTH_PLACE_CHOOSE_H

#include "placement/calibrate.h"
#include "planner/placement.h"
#include "forward/gpu/gpu.h"

typedef struct hth_placement_builder {
    const hth_model *model;
    const hth_device_info *info; /* of the device */
    hth_offload_params params;
    uint32_t *n_hot;     /* [n_layer of the model], to which place points */
    uint64_t budget;     /* bytes that may be taken there, */
    bool is_user_limit;   /* which are what --vram allows, less than is free */
    const char *unsupported_reason; /* why the layer behind the last there, or the head, stays on the CPU; NULL: for want
                            of memory */
    double seconds;      /* that a plan expects of a token; 0: there is none */
} hth_placement_builder;

/* place: n_tok, n_position, kv, selector, strict; the rest is chosen by one of the functions below.
 * ARGUMENT: something is too large for the bindings of the device. MEMORY. */
hearth_status hth_placement_builder_open(hth_placement_builder *c, const hth_model *model, const hth_device_info *info,
                              uint64_t budget, const hth_offload_params *params, hearth_error *err);
void hth_placement_builder_close(hth_placement_builder *c);

/* "4.00 MiB are free", or "--vram allows 1.00 MiB": the budget, in the words of messages. */
typedef struct hth_budget_text {
    char text[64];
} hth_budget_text;
hth_budget_text hth_budget_text_of(const hth_placement_builder *c);

/* Everything, where it fits; else the same share of all neurons; where they cannot be divided, or place.max_layer
 * is set, the first layers whole, as many as fit, and the head. place.n_layer is 0 where nothing does. */
void hth_placement_uniform(hth_placement_builder *c);

/* As a plan finds best (hearth plan), where not everything fits; what was planned before for this model,
 * device and place is kept, and taken again while it fits and little more is free than it was made for.
 * Where a layer cannot lie there: evenly. Measures the machine, if its calibration is not kept. DEVICE,
 * MEMORY. */
hearth_status hth_placement_builder_plan(hth_placement_builder *c, hth_device *device, const hth_kernels *kernels,
                              uint32_t n_thread, hearth_error *err);

/* Whether --placement is "layers:N", and that N; and what it asks for: place.max_layer is N from here
 * on, also where the place is chosen again: the first N layers whole, as many of them as fit, and the head where N
 * is larger than their number. */
bool hth_placement_arg_layers(const char *placement, uint64_t *n);
void hth_placement_builder_layers(hth_placement_builder *c, uint64_t n);

/* Whether --placement is a file, none of NULL, "plan", "even" and "layers:N". */
bool hth_placement_arg_is_path(const char *placement);
/* Whether --placement may say so: NULL, "plan", "even", "layers:N", or a file that is there and can be read. IO. */
hearth_status hth_placement_arg_check(const char *placement, hearth_error *err);

/* How much a submission there may be (hth_offload_params), by what was measured of the device and is kept, however
 * the place was chosen: 0 where nothing is. */
void hth_placement_set_submit_limit(hth_placement_builder *c, const hth_kernels *kernels, uint32_t n_thread);

/* As a file says. ARGUMENT: made for another model or device, or it places what cannot lie there; MEMORY: it
 * takes more than the budget; IO, FORMAT, UNSUPPORTED. */
hearth_status hth_placement_builder_from_file(hth_placement_builder *c, const char *path, hearth_error *err);

/* Bytes of what was chosen; UINT64_MAX: it cannot lie there. */
uint64_t hth_placement_builder_bytes(const hth_placement_builder *c);
/* Bytes of the whole model, and the least with which anything lies there. */
uint64_t hth_placement_builder_whole_bytes(const hth_placement_builder *c);
uint64_t hth_placement_builder_least_bytes(const hth_placement_builder *c);

#endif
