/* Shared by the planner's solvers: the cost of each placement of a layer, and its bytes. */
#ifndef HTH_PLANNER_PLAN_INT_H
#define HTH_PLANNER_PLAN_INT_H

#include "planner/plan.h"

/* The homes of a list that the solvers take: its first device, or one without capacity if there is none, and the
 * host. */
typedef struct hth_plan_roles {
    const hth_plan_tier *device, *host;
    uint32_t i_host; /* the number of devices */
} hth_plan_roles;
hth_plan_roles hth_plan_find_roles(const hth_plan_machine *machine);

/* Instead of a number of clusters on the device: attention too is on the host. */
enum { HTH_PLAN_CPU = -1 };
/* k clusters on the device, or HTH_PLAN_CPU; the others on the host. */
hth_plan_division hth_plan_divide(const hth_plan_roles *roles, const hth_plan_layer *layer, int32_t k);

/* The seconds of a layer. */
typedef struct hth_plan_curve {
    double *seconds; /* [n_cluster + 1] by the number of its clusters on the device */
    double cpu;      /* attention and all clusters on the host */
} hth_plan_curve;

/* [n_layer] curves. */
hearth_status hth_plan_curves(const hth_plan_model *model, const hth_plan_roles *roles,
                              const hth_plan_options *options, hth_plan_curve **out, hearth_error *err);
void hth_plan_curves_free(hth_plan_curve *curves);

/* Bytes of a layer on the device with k clusters on it (not HTH_PLAN_CPU), before rounding to units. */
uint64_t hth_plan_layer_bytes(const hth_plan_layer *layer, const hth_plan_options *options, uint32_t k);
uint64_t hth_plan_units(uint64_t bytes, uint64_t unit);

/* Seconds from a home to the host and back. */
double hth_plan_sync_seconds(const hth_plan_tier *home, const hth_plan_options *options);
/* Seconds of the head on the device or the host, for the tokens of a step. */
double hth_plan_head_seconds(const hth_plan_model *model, const hth_plan_tier *home, const hth_plan_options *options);

#endif
