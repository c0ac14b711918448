/* hearth plan for mixtures of experts on a GPU whose other weights exceed a limit of memory: experts on the GPU, in memory
 * and in the file. */
#ifndef HEARTH_APPS_CLI_DEVICE_PLAN_TIERS_H
#define HEARTH_APPS_CLI_DEVICE_PLAN_TIERS_H

#include "common/json.h"
#include "common/options/options.h"
#include "measure/storage_plan.h"
#include "placement/plan_context.h"

typedef struct plan_tiers {
    bool applies; /* else nothing is read while tokens are computed */
    hth_storage_speed expected;
    double read_rate;   /* bytes per second that the disk reads, as measured */
    double least, most; /* seconds of a token, by the slowest and the fastest figures, and assumptions */
} plan_tiers;

/* Measures the disk for a second, and replays tokens by the placement of a plan. spec: their experts; NULL: as they usually
 * are. limit: bytes of --ram; if it is too small for a run, nothing applies. tied: the head is the embeddings. */
hearth_status plan_tiers_make(const args *a, const hth_plan_context *plan, const hth_route_trace_spec *spec, uint64_t limit,
                              bool tied, plan_tiers *out, hearth_error *err);
void plan_tiers_print(const plan_tiers *t);
void plan_tiers_json(json *j, const plan_tiers *t);

#endif
