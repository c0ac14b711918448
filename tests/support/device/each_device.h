/* Promises of device.h that every back end keeps: a case of ON_EACH runs on null, on simulated devices with either
 * clock, and on the first one that Vulkan knows, watched by its validation layer. */
#ifndef HEARTH_TESTS_SUPPORT_DEVICE_EACH_DEVICE_H
#define HEARTH_TESTS_SUPPORT_DEVICE_EACH_DEVICE_H

#include "device/device.h"

#include <stdbool.h>

/* The name of the device under test. */
extern const char *each_device;
/* C functions of the shaders fill, copy and add: [HTH_N_SHADER]. */
extern hth_shader_ref_fn *const each_device_shaders[HTH_N_SHADER];

/* Runs a promise on each; Vulkan is skipped, with the reason, where it is not. */
void each_device_run(void (*promise)(void));
#define ON_EACH(NAME)                                                                                        \
    static void NAME##_there(void);                                                                          \
    TEST(NAME) { each_device_run(NAME##_there); }                                                            \
    static void NAME##_there(void)

/* The device under test, with so much memory (0: all), and without some features (HTH_FEATURE_*). */
hearth_status each_device_open(uint64_t memory, hth_device **d, hearth_error *err);
hearth_status each_device_open_without(uint32_t features, hth_device **d, hearth_error *err);
/* NULL is allowed. The validation layer must have said nothing. */
void each_device_close(hth_device *d);
/* Runs a task whose call `fail_at` of a device fails, for the first call, the second and so on, until it ends without a
 * failure. Each failure must be this status with a message, and leave no memory. Returns that last run's number, or
 * `max`. */
typedef hearth_status each_device_task(uint64_t fail_at, hearth_status with, hearth_error *err);
uint64_t each_device_fail_calls(each_device_task *task, hearth_status with, uint64_t max);
/* False: skipped. */
bool each_device_has_vulkan(void);

#endif
