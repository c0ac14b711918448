/* A plan for a model on this machine, with its inputs and its expected figures. */
#ifndef HTH_PLACEMENT_PLAN_CONTEXT_H
#define HTH_PLACEMENT_PLAN_CONTEXT_H

#include "placement/policy.h"
#include "placement/plan_model.h"

/* One device of a plan. The machine's homes have the same order, followed by the host. */
typedef struct hth_plan_part {
    hth_calibration calibration;
    uint64_t budget, fixed_bytes;                        /* bytes that may be used; bytes of a step's workspace */
    hth_placement_stream streams[HTH_PLACEMENT_STREAMS]; /* as in hth_offload_params */
} hth_plan_part;

/* Live sequences for which a plan says what to expect. */
enum { HTH_PLAN_N_SEQ = 4 };
extern const uint32_t hth_plan_n_seq[HTH_PLAN_N_SEQ]; /* 1, 4, 16, 64 */

typedef struct hth_plan_context {
    hth_plan_part parts[HEARTH_MAX_GPU];
    uint32_t n_part; /* also the host's home */
    hth_plan_machine machine;
    hth_plan_model input;
    hth_plan_options options;
    hth_plan best; /* expected for one sequence, also if it was planned for several (options.n_seq) */
    double seconds_by_seq[HTH_PLAN_N_SEQ], seconds_planned; /* of a step of `best`: by hth_plan_n_seq; by options.n_seq */
    double seconds_worst,
        seconds_best; /* per token for `best`, at the slowest and the fastest measured rates */
    bool uniform;     /* no activation frequencies are known */
    bool host_kv;     /* keys and values are on the host: asked for, or faster */
    double seconds_other_kv; /* per token of the best plan with them at the other home; 0: there is none, or it was not asked */
} hth_plan_context;

/* Builds the inputs of a plan for the builder's model, devices and budgets, and solves it. profile: a profile of this
 * model, or NULL. ARGUMENT: a layer cannot be offloaded. DEVICE, MEMORY. */
hearth_status hth_plan_context_build(hth_plan_context *o, const hth_placement_builder *c,
                                     const hth_profile *profile, const hth_kernels *kernels, hth_pool *pool,
                                     hearth_error *err);
void hth_plan_context_close(hth_plan_context *o);

/* Applies the best plan to the builder; if no neurons can be divided, or nothing is gained, no layer may be on a
 * device. */
void hth_plan_context_apply(const hth_plan_context *o, hth_placement_builder *c);

#endif
