/* Shared by the planner's solvers: the cost of each placement of a layer, and its bytes. */
#ifndef HTH_PLANNER_PLAN_INT_H
#define HTH_PLANNER_PLAN_INT_H

#include "planner/plan.h"

/* The seconds of a layer by the number of its clusters on the device. */
typedef struct hth_plan_curve {
    double *seconds; /* [n_cluster + 1] */
    double cpu;      /* the whole layer on the CPU */
} hth_plan_curve;

/* [n_layer] curves for a context. */
hearth_status hth_plan_curves(const hth_plan_model *model, const hth_plan_machine *machine, uint32_t context,
                              hth_plan_curve **out, hearth_error *err);
void hth_plan_curves_free(hth_plan_curve *curves);

/* Bytes of a layer on the device with k clusters on it (not HTH_PLAN_CPU), before rounding to units. */
uint64_t hth_plan_layer_bytes(const hth_plan_layer *layer, const hth_plan_options *options, uint32_t k);
uint64_t hth_plan_units(uint64_t bytes, uint64_t unit);

/* Seconds of the head, on the device or the CPU, and of everything with nothing on the device. */
double hth_plan_head_seconds(const hth_plan_model *model, const hth_plan_machine *machine, bool on_device);
double hth_plan_cpu_seconds(const hth_plan_model *model, const hth_plan_machine *machine,
                            const hth_plan_curve *curves);

#endif
