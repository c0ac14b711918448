/* Placement of a model as text and as JSON, and the clock for its speed. */
#ifndef HEARTH_APPS_COMMON_PLACEMENT_INFO_H
#define HEARTH_APPS_COMMON_PLACEMENT_INFO_H

#include "common/json.h"

#include <hearth/experimental.h>
#include <hearth/hearth.h>

static inline hearth_model_info model_info(const hearth_model *model)
{
    hearth_model_info info = {0};
    hearth_model_get_info(model, &info);
    return info;
}

/* "4 of 6 layers on NAME (9.1 MB, the CPU's bits), the rest on the CPU", for the start line. If the whole model
 * is on a device, the text has no rest. */
typedef struct placed {
    char text[800];
} placed;
placed placement_text(const hearth_model_info *info);

/* Writes the object "gpu" of --json; docs/gpu.md lists its fields. */
void json_placement(json *j, const hearth_model_info *info);

/* Where the experts were that routers chose, as the library counts them; "": no layer divides its experts. */
typedef struct experts_there {
    char text[200];
} experts_there;
experts_there experts_text(const hearth_model *model);
/* Counts since `before`, a result of hearth_model_get_expert_stats. size 0: no layer divides its experts. */
hearth_expert_stats experts_since(const hearth_model *model, const hearth_expert_stats *before);
/* Writes the object "experts" of --json, if a layer divides its experts. */
void json_experts(json *j, const hearth_model *model);
/* Writes such counts as an object under a key, or as an element of an array if key is NULL. */
void json_expert_stats(json *j, const char *key, const hearth_expert_stats *s);

/* Seconds of this machine's clock (wall) and of a simulated GPU's (sim). */
typedef struct timestamp {
    double wall, sim; /* sim: 0: no clock to which both sides are charged */
} timestamp;
timestamp timestamp_now(const hearth_model *model);
/* Time since start. sim is negative if there was no such clock from start to end. */
timestamp timestamp_since(const hearth_model *model, timestamp start);

#endif
