/* Single shaders of a device, between guards: what a kernel's test needs on null and on Vulkan alike. */
#ifndef HEARTH_TESTS_SUPPORT_DEVICE_SHADERS_H
#define HEARTH_TESTS_SUPPORT_DEVICE_SHADERS_H

#include "device/device.h"

#include <stdbool.h>

/* "null", or "vulkan:0" under its validation layer. NULL, and the case is skipped: there is none, or no layer. */
hth_device *shaders_open(const char *name);
/* Whether a test compiles only some of its pipelines on a device of this name, each type and each number among them: a
 * driver on the CPU takes a second for a pipeline. $HEARTH_LONG compiles all of them. */
bool shaders_are_few(const char *name);
/* The same with what is set in a description; functions and validation are set here. */
hth_device *shaders_open_as(const hth_device_spec *spec);
/* Closes it; the layer must not have complained. */
void shaders_close(hth_device *device);

/* What a binding is given, or gets: size bytes. Read: uploaded. Written: the device's copy holds SHADERS_POISON
 * before, and data the device's bytes afterwards. Both: uploaded, and brought back. */
typedef struct shaders_binding {
    void *data;
    size_t size;
} shaders_binding;
enum { SHADERS_POISON = 0xa5 };

typedef struct shaders_run {
    hth_shader_id id;
    const uint32_t *consts;
    const void *push;
    shaders_binding bind[HTH_SHADER_MAX_BIND];
    uint32_t grid[3];
    uint64_t read_bytes; /* nonzero: the grid is in memory, and a workgroup reads so much */
} shaders_run;

/* Runs it once and waits. False, and the case fails: an error, or a byte beside an output was written. */
bool shaders_do(hth_device *device, const shaders_run *run);

/* hth_shader_ref_table, but the last word that one of them changes is one unit too large or too small (HTH_N_SHADER:
 * none). One table at a time. */
hth_shader_ref_fn *const *shaders_off_by_one(hth_shader_id id);

/* Of a device that rounds to nearest, but ties away from zero: integers, and integers that become floats. */
extern hth_shader_ref_fn *const shaders_away[HTH_N_SHADER];
/* Of one that rounds all sums and products towards zero. */
extern hth_shader_ref_fn *const shaders_truncating[HTH_N_SHADER];
/* The attn shader of a device that fuses products with their sums; the table has no other. */
extern hth_shader_ref_fn *const shaders_fusing[HTH_N_SHADER];

#endif
