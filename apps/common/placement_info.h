/* Where a model lies, for people and for programs, and the clock that its speed is told by. */
#ifndef HEARTH_APPS_COMMON_PLACED_H
#define HEARTH_APPS_COMMON_PLACED_H

#include "common/json.h"

#include <hearth/hearth.h>

/* "4 of 6 layers on NAME (9.1 MB, the CPU's bits), the rest on the CPU": what the start line says of it,
 * and what of a model, which all is on a device, is no rest. */
typedef struct placed {
    char text[800];
} placed;
placed placement_text(const hearth_model_info *info);

/* The object "gpu" of --json: docs/gpu.md lists its fields. */
void json_placement(json *j, const hearth_model_info *info);

/* Seconds of this machine's clock, and of a simulated card's. */
typedef struct timestamp {
    double wall, sim; /* there: 0: it has none that both sides are charged to */
} timestamp;
timestamp timestamp_now(const hearth_model *model);
/* What went by; there: negative where it had no clock from begin to end. */
timestamp timestamp_since(const hearth_model *model, timestamp start);

#endif
