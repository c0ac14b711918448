/* Models that tests divide between a device and the CPU: packed files of quantised weights, made anew from the test
 * data, and placements of them as files. Both are measured or drawn here, and labelled so where they are printed. */
#ifndef HEARTH_TESTS_SUPPORT_HYBRID_H
#define HEARTH_TESTS_SUPPORT_HYBRID_H

#include "plan/placement.h"
#include "support/test.h"

/* Storyteller (6 layers of 768 neurons) and files of PowerInfer (2 layers of 1024), all with predictors and thresholds
 * of their own; of every type that a row names. */
enum { HYBRID_MOST_LAYERS = 8 };

/* Storyteller in the type of a mix, neurons by a profile of a short text. False: there are no test data (the case is
 * skipped), or a check failed. */
bool hybrid_pack_storyteller(const char *mix, const char *path);
/* golden/powerinfer/NAME.q4_0 with its own types; every layer's usual |hidden| is up to `usual`. 0: the file says
 * none. Its thresholds are beside it. */
bool hybrid_pack_powerinfer(const char *name, float usual, const char *path);
/* Floors of the neurons of every layer, for a model that is there: floor_of(i_layer, i). */
typedef float hybrid_floor_fn(uint32_t i_layer, uint32_t i);
bool hybrid_write_thresholds(const char *model, hybrid_floor_fn *floor_of, const char *path);
/* Sets what a packed file says of its layers' usual |hidden|: all of them times factor. */
bool hybrid_scale_usual(const char *path, float factor);

/* A placement of that model for that device ("null", "vulkan:0"), whose names it fills in. False: there is no such
 * device (skipped). */
bool hybrid_write_placement(const char *model, const char *device, hth_placement *p, const char *path);

#endif
