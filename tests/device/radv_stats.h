/* What RADV compiles for tests/device/test_compiler.py: the pipelines of models of true shape, and how often a
 * step runs each. radv_stats.c compiles them, radv_models.c finds them. */
#ifndef HEARTH_TESTS_DEVICE_RADV_STATS_H
#define HEARTH_TESTS_DEVICE_RADV_STATS_H

#include "device/device.h"

/* A pipeline of a step; n: how often the step dispatches it. */
typedef void radv_use_fn(void *user, const char *model, const char *step, hth_shader_id id,
                         const uint32_t *consts, uint32_t n);

/* Records the steps of all models as a device with these limits and features would get them. False: stderr says why. */
bool radv_models_record(const hth_device_info *info, radv_use_fn *fn, void *user);

#endif
