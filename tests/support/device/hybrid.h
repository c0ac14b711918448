/* Models that tests divide between a device and the CPU: packed files of quantised weights, made from
 * the test data, and placements of them as files. What they hold beside weights is measured on a short text,
 * or drawn from a seed. */
#ifndef HEARTH_TESTS_SUPPORT_DEVICE_HYBRID_H
#define HEARTH_TESTS_SUPPORT_DEVICE_HYBRID_H

#include "device/device.h"
#include "planner/placement.h"
#include "support/test.h"

enum { HYBRID_MAX_LAYERS = 8 };

/* Storyteller, 6 layers of 768 neurons, in the type of a mix; profile, predictors and thresholds are
 * measured. False: a check failed. */
bool hybrid_pack_storyteller(const char *mix, const char *path);
/* golden/powerinfer/NAME.q4_0, 2 layers of 1024 neurons, with its own types and predictors; profile and
 * thresholds are drawn. */
bool hybrid_pack_powerinfer(const char *name, const char *path);
/* A tiny llama with ReLU, 2 layers of HYBRID_WIDE neurons: ten clusters, of which the last one is shorter.
 * Random weights in Q8_0, 267 tokens; no predictors or thresholds. */
enum { HYBRID_WIDE = 9 * 256 + 160 };
bool hybrid_pack_wide(const char *path);
/* golden/powerinfer/NAME.f16, of the same shape as NAME.q4_0, with its floats. */
bool hybrid_pack_floats(const char *name, const char *path);

/* Thresholds for a model that is there. */
typedef float hybrid_floor_fn(uint32_t i_layer, uint32_t i);
bool hybrid_write_thresholds(const char *model, hybrid_floor_fn *floor_of, const char *path);

/* "null", "vulkan:0". NULL: there is no such device (skipped), or a check failed. */
hth_device *hybrid_open_device(const char *name);
/* A placement of that model for that device, whose names it fills in. False: as above. */
bool hybrid_write_placement(const char *model, const char *device, hth_placement *p, const char *path);

#endif
