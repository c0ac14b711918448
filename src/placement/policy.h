/* Chooses the offload parameters before anything is loaded: by a plan from measurements, from a file, or uniformly
 * from bytes alone. The engine calls it when a model is opened, and again with a smaller budget after an
 * allocation failed; so does hearth plan. */
#ifndef HTH_PLACEMENT_POLICY_H
#define HTH_PLACEMENT_POLICY_H

#include "placement/calibrate.h"
#include "planner/placement.h"
#include "forward/gpu/gpu.h"
#include "placement/expert_hits.h"

/* A device, and what lies on it. */
typedef struct hth_placement_part {
    hth_device *device; /* NULL: no plan is made */
    const hth_device_info *info;
    hth_offload_params params;
    uint64_t budget;    /* bytes that may be used on the device */
    bool is_user_limit; /* the budget is the --vram limit, less than what is free */
} hth_placement_part;

/* Opens the devices of a list (hth_device_split_names), into parts[HEARTH_MAX_GPU]: device, info, and the options'
 * limit as budget, 0: none; limited: the devices have no more memory than that. *n of them are open, also after an
 * error, and closed by the caller. ARGUMENT: more limits than devices; UNSUPPORTED, MEMORY, DEVICE. */
hearth_status hth_placement_open_devices(const char *list, const hearth_gpu_options *options, bool limited,
                                         hth_placement_part *parts, uint32_t *n, hearth_error *err);

typedef struct hth_placement_builder {
    const hth_model *model;
    hth_placement_part parts[HEARTH_MAX_GPU]; /* the layers of each follow those of the one before */
    uint32_t n_part;
    uint32_t *n_hot; /* [n_layer of the model]; params.n_hot of all parts point to it */
    /* why the first CPU layer, or the head, stays on the CPU; NULL: not enough memory */
    const char *unsupported_reason;
    double seconds;      /* expected per token by a plan, behind half of the positions; 0: no plan */
    double seconds_empty, seconds_full; /* the same behind none and all of them; 0: no plan of this machine */
    const hth_placement *given; /* instead of the best plan, on the only device; NULL: none; set as `uses` is */
    hth_expert_uses uses; /* with which a plan expects experts in slots; the caller may set it behind opening */
} hth_placement_builder;

/* Copies parts, of which info, budget, is_user_limit and of params n_row, n_position, kv, selector, bit_exact,
 * max_work and max_layer are set; one of the functions below chooses the rest. ARGUMENT: something is too large for
 * the bindings of a device. MEMORY. */
hearth_status hth_placement_builder_open(hth_placement_builder *c, const hth_model *model,
                                         const hth_placement_part *parts, uint32_t n_part, hearth_error *err);
void hth_placement_builder_close(hth_placement_builder *c);

/* Divides the first layers among the devices: those of each end at ends[n_part], ascending; head: with the last one. */
void hth_placement_builder_set_ends(hth_placement_builder *c, const uint32_t *ends, bool head);

/* The number of layers on devices, and whether the head is on one. */
uint32_t hth_placement_builder_n_layer(const hth_placement_builder *c);
bool hth_placement_builder_has_head(const hth_placement_builder *c);

/* "4.00 MiB are free", or "gpu.vram allows 1.00 MiB": the budget, for messages. */
typedef struct hth_budget_text {
    char text[80];
} hth_budget_text;
hth_budget_text hth_budget_text_of(const hth_placement_part *part);

/* Everything, if it fits; else the same share of all neurons; if neurons cannot be divided, or params.max_layer is
 * set, the first layers whole, as many as fit, and the head. Each device in turn takes as many layers as it holds.
 * No layer is on a device if nothing fits. */
void hth_placement_uniform(hth_placement_builder *c);
/* Layers that share keys and values lie on one device, with all layers of the model: if these do not fit there, fewer lie
 * there, evenly. */
void hth_placement_builder_keep_sharing(hth_placement_builder *c);

/* The tokens of a step for a requested n_batch, where budget, info and all other params of a part are known. AUTO: of a
 * mixture that does not fit there as many as take a sixteenth of the budget, 512 to 4096, since experts that pass through
 * the device come once for a step, if it reads the host's memory; else as hth_gpu_batch_size says. */
uint32_t hth_placement_step_rows(const hth_model *model, const hth_placement_part *part, uint32_t n_batch, uint32_t n_ctx);

/* By the best plan (hearth plan), if there are several devices or not everything fits on the only one. The placement
 * planned earlier for this model, devices and parameters is cached, and reused while it fits and little more memory is
 * free than it was made for. Uniformly if a layer cannot be offloaded. Calibrates the machine if no calibration is cached. DEVICE, MEMORY. */
hearth_status hth_placement_builder_plan(hth_placement_builder *c, const hth_kernels *kernels,
                                         uint32_t n_thread, hearth_error *err);

/* "layers:N", or "all", which is the largest N: the first N layers whole, as many of them as fit, and the head if N is
 * larger than their number. "layers:N,cpu-experts:M": the experts of the first M layers stay on the host.
 * "layers:N,cpu:RULES": those do of which RULES, PATTERN=BUFFER with commas as of llama.cpp's --override-tensor, name a
 * matrix for a buffer of the host's memory. */
typedef struct hth_placement_layers {
    uint64_t n, n_cpu_experts;
    const char *cpu; /* RULES; NULL: there are none */
} hth_placement_layers;
/* Whether --placement is that. */
bool hth_placement_arg_layers(const char *placement, hth_placement_layers *out);
/* Before hth_placement_builder_layers: experts that stay on the host pass through GPUs, and simulated ones, in prompts, from
 * as many tokens on as that gains by a calibration, which is made if none is cached. Where that fails none pass. */
void hth_placement_let_experts_pass(hth_placement_builder *c, const hth_placement_layers *layers, const hth_kernels *kernels,
                                    uint32_t n_thread);
/* Applies it, also for later choices. ARGUMENT: RULES are wrong; MEMORY. */
hearth_status hth_placement_builder_layers(hth_placement_builder *c, const hth_placement_layers *layers, hearth_error *err);
/* The layers whose experts stay on the host. Warns of matrices that cannot be kept there by name. Errors as
 * above. */
hearth_status hth_placement_find_host_experts(const hth_model *model, const hth_placement_layers *which,
                                              hth_layer_set *layers, hearth_error *err);
/* Whether RULES are right: ARGUMENT, MEMORY. */
hearth_status hth_placement_check_rules(const char *rules, hearth_error *err);

/* Whether --placement is a file: none of NULL, "plan", "even", "all" and "layers:N". */
bool hth_placement_arg_is_path(const char *placement);
/* Whether --placement is valid: NULL, "plan", "even", "all", "layers:N" and what may follow, or a readable file. IO;
 * ARGUMENT, MEMORY: of hth_placement_check_rules. */
hearth_status hth_placement_arg_check(const char *placement, hearth_error *err);

/* Sets the work limits of submissions and the slow levels (hth_offload_params) for every kind of placement: from the
 * cached calibration of each device, else from what was measured when it was first opened. That is now on a GPU without
 * either, if the part has its device; on other devices, and if it fails, the limit is 0. */
void hth_placement_set_rates(hth_placement_builder *c, const hth_kernels *kernels, uint32_t n_thread);

/* The integrated GPU that `auto` takes where there is no card: of n listed ones the first whose cached calibration for
 * this type says that it is faster than this CPU, with which it shares memory, for one token and for many. n: none
 * is. */
size_t hth_placement_find_integrated(const hth_device_info *infos, size_t n, const hth_kernels *kernels,
                                     uint32_t n_thread, hth_type type);

/* From a file. ARGUMENT: made for another model or other devices, or it places what cannot be offloaded; MEMORY: it
 * exceeds a budget; IO, FORMAT, UNSUPPORTED. */
hearth_status hth_placement_builder_from_file(hth_placement_builder *c, const char *path, hearth_error *err);

/* Bytes of the chosen placement on device i_part; UINT64_MAX: it cannot be offloaded. */
uint64_t hth_placement_builder_bytes(const hth_placement_builder *c, uint32_t i_part);
/* The first device whose part exceeds its budget; NULL: all fit. */
const hth_placement_part *hth_placement_builder_exceeds(const hth_placement_builder *c);
/* Bytes of the whole model on the first device, and the minimum with which anything can be offloaded to it. */
uint64_t hth_placement_builder_whole_bytes(const hth_placement_builder *c);
uint64_t hth_placement_builder_least_bytes(const hth_placement_builder *c);

#endif
