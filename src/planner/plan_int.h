/* Shared by the planner's solvers: the cost of each placement of a layer, and its bytes. */
#ifndef HTH_PLANNER_PLAN_INT_H
#define HTH_PLANNER_PLAN_INT_H

#include "planner/plan.h"

/* The homes of a list that the solvers take. The device is the first of the list; if there is none, `device`
 * is one without capacity. storage follows the host; NULL: none. */
typedef struct hth_plan_roles {
    const hth_plan_tier *device, *host, *storage;
    uint32_t i_host;
} hth_plan_roles;
/* UNSUPPORTED: several devices or storage homes. */
hearth_status hth_plan_find_roles(const hth_plan_machine *machine, hth_plan_roles *out, hearth_error *err);

/* Instead of a number of clusters on the device: attention too is on the host. */
enum { HTH_PLAN_CPU = -1 };
/* k clusters on the device, or HTH_PLAN_CPU; the first n_resident on device and host, the others on
 * storage. */
hth_plan_division hth_plan_divide(const hth_plan_roles *roles, const hth_plan_layer *layer, int32_t k,
                                  uint32_t n_resident);

/* The seconds of a layer by the number of its clusters on the device, with the price of its bytes on the
 * host, and the number of clusters that are not on storage then. */
typedef struct hth_plan_curve {
    double *seconds;      /* [n_cluster + 1] */
    uint32_t *n_resident; /* [n_cluster + 1] */
    double cpu;           /* attention and all clusters on the host */
    uint32_t cpu_resident;
} hth_plan_curve;

/* [n_layer] curves for a price in seconds per byte on the host; 0: nothing is on storage. */
hearth_status hth_plan_curves(const hth_plan_model *model, const hth_plan_roles *roles,
                              const hth_plan_options *options, double price, hth_plan_curve **out,
                              hearth_error *err);
void hth_plan_curves_free(hth_plan_curve *curves);

/* Bytes of a layer on the device with k clusters on it (not HTH_PLAN_CPU), before rounding to units. */
uint64_t hth_plan_layer_bytes(const hth_plan_layer *layer, const hth_plan_options *options, uint32_t k);
uint64_t hth_plan_units(uint64_t bytes, uint64_t unit);
/* Bytes of a valid placement by home. */
void hth_plan_count(const hth_plan_model *model, const hth_plan_machine *machine,
                    const hth_plan_options *options, const hth_plan_division *divisions, bool head,
                    hth_plan_bytes bytes[HTH_PLAN_MAX_HOME]);

/* Seconds of a divided layer; of the head on the device or the host. */
hth_plan_time hth_plan_layer_time(const hth_plan_layer *layer, const hth_plan_machine *machine,
                                  uint32_t context, const hth_plan_division *division);
double hth_plan_head_seconds(const hth_plan_model *model, const hth_plan_tier *home);

#endif
