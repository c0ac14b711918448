/* Reports of the reads of weights that are not in memory. */
#ifndef HEARTH_APPS_COMMON_STORAGE_INFO_H
#define HEARTH_APPS_COMMON_STORAGE_INFO_H

#include "common/json.h"

#include <hearth/experimental.h>
#include <hearth/hearth.h>

/* Since `before`, a result of hearth_model_get_storage. False: all weights are in memory. */
bool storage_since(const hearth_model *model, const hearth_storage_stats *before, hearth_storage_stats *stats);
/* The fields of docs/streaming.md, as an object. */
void json_storage(json *j, const char *key, const hearth_storage_stats *stats);

#endif
