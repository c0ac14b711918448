/* The solver's table (solve.c), of which solve_devices.c opens one for each device. */
#ifndef HTH_PLANNER_SOLVE_INT_H
#define HTH_PLANNER_SOLVE_INT_H

#include "planner/plan_int.h"

/* A candidate placement of a layer. */
typedef struct hth_plan_option {
    uint64_t units;
    uint32_t k;
    int32_t quanta;
} hth_plan_option;

/* A row holds, for the first l layers, the minimum seconds with at most u units, in whole quanta. */
typedef struct hth_plan_table {
    /* Set by the caller; `unit` may be doubled. */
    const hth_plan_model *model;
    const hth_plan_roles *roles;
    const hth_plan_options *request;
    uint64_t unit; /* bytes */
    hth_plan_curve *curves;
    double quantum;           /* seconds */
    hth_plan_option *options; /* options of all layers; a layer's ascend in units and descend in quanta */
    uint32_t *first;          /* [n_layer + 1] where a layer's options begin */
    uint64_t *reach; /* [n_layer + 1] units that the first l layers can use; reach[n_layer]: all layers */
    uint64_t *low;   /* [n_layer + 1] start of each row's window; it ends at min(reach, high) */
    uint64_t high;   /* maximum units of a query */
    size_t *at;      /* [n_layer + 2] offset of each row in cells */
    int32_t *cells;
    size_t capacity; /* bytes of options and all that follows */
} hth_plan_table;

/* The best placement for a number of layers on the device. */
typedef struct hth_plan_answer {
    double seconds;
    uint32_t n_device;
    bool head;
    uint64_t units; /* limit of its layers in units */
} hth_plan_answer;

hearth_status hth_plan_table_open(hth_plan_table *t, hearth_error *err);
/* Also after a failure. */
void hth_plan_table_close(hth_plan_table *t);
/* Fills the table for devices from the device's capacity to `high` bytes. */
hearth_status hth_plan_table_fill(hth_plan_table *t, uint64_t high, hearth_error *err);
/* The best answer for a device of that many bytes. */
hth_plan_answer hth_plan_table_best(const hth_plan_table *t, uint64_t vram);
/* The answer with the first n layers on a device of that many bytes, and the head if `head`; its seconds are those of
 * the device alone. false: they do not fit. */
bool hth_plan_table_first(const hth_plan_table *t, uint64_t vram, uint32_t n, bool head,
                          hth_plan_answer *out);
/* The placement behind an answer: divisions[n_layer]. */
void hth_plan_table_divide(const hth_plan_table *t, const hth_plan_answer *answer,
                           hth_plan_division *divisions);

/* hth_plan_solve with several devices (solve_devices.c). */
hearth_status hth_plan_solve_devices(const hth_plan_model *model, const hth_plan_machine *machine,
                                     uint32_t n_device, const hth_plan_options *options, hth_plan *out,
                                     hearth_error *err);

#endif
