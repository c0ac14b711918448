/* Devices of all back ends for a case that each of them must pass. */
#include "support/device/each_device.h"

#include "base/alloc.h"
#include "support/test.h"

const char *each_device;

/* ---- three shaders --------------------------------------------------------------------------- */

static void fill(const hth_dispatch_args *c)
{
    uint32_t push[2], *y = c->bind[0];
    memcpy(push, c->push, sizeof push);
    for (uint32_t i = 0; i < push[0]; i++) y[i] = push[1];
}

static void copy(const hth_dispatch_args *c)
{
    uint32_t n;
    memcpy(&n, c->push, sizeof n);
    memcpy(c->bind[1], c->bind[0], n * sizeof n);
}

static void add(const hth_dispatch_args *c)
{
    uint32_t n;
    const float *a = c->bind[0], *b = c->bind[1];
    float *y = c->bind[2];
    memcpy(&n, c->push, sizeof n);
    for (uint32_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

hth_shader_ref_fn *const each_device_shaders[HTH_N_SHADER] = {
    [HTH_SHADER_fill] = fill, [HTH_SHADER_copy] = copy, [HTH_SHADER_add] = add};

/* ---- devices ------------------------------------------------------------------------------------ */

static hearth_status open_it(uint64_t memory, uint32_t without, hth_device **d, hearth_error *err)
{
    hth_device_spec spec = {.name = each_device,
                            .memory = memory,
                            .disabled_features = without,
                            .shader_refs = each_device_shaders,
                            .validation = true};
    return hth_device_open(&spec, d, err);
}

hearth_status each_device_open(uint64_t memory, hth_device **d, hearth_error *err)
{
    return open_it(memory, 0, d, err);
}

hearth_status each_device_open_without(uint32_t features, hth_device **d, hearth_error *err)
{
    return open_it(0, features, d, err);
}

void each_device_close(hth_device *d)
{
    if (d) CHECK_INT(hth_device_state(d).n_validation_error, 0);
    hth_device_close(d);
}

bool each_device_has_vulkan(void)
{
    hth_device *d = NULL;
    hearth_error why;
    hth_device_spec spec = {.name = "vulkan:0", .shader_refs = each_device_shaders, .validation = true};
    hearth_status st = hth_device_open(&spec, &d, &why);
    if (st == HEARTH_ERROR_UNSUPPORTED) test_skip("%s", why.message);
    hth_device_close(d);
    return st != HEARTH_ERROR_UNSUPPORTED;
}

/* A GPU whose costs are small enough to be waited for on the real clock. */
static void on_simulated(void (*promise)(void), const char *clock)
{
    char text[400], name[1100];
    const char *path = test_scratch("card.sim");
    snprintf(text, sizeof text,
             "name = a card of the tests\nvram_bytes = 1G\nbandwidth = 272e9\npcie_up = 13e9\n"
             "pcie_down = 13e9\npcie_latency_us = 2\ndispatch_us = 3\nsubmit_us = 20\nwake_us = 10\n"
             "flops = 15e12\njitter = 0.1\nseed = 1\nclock = %s\n",
             clock);
    snprintf(name, sizeof name, "sim:%s", path);
    CHECK(test_write_file(path, text, strlen(text)));
    each_device = name;
    promise();
}

void each_device_run(void (*promise)(void))
{
    each_device = "null";
    promise();
    on_simulated(promise, "virtual");
    on_simulated(promise, "real");
    each_device = "vulkan:0";
    if (each_device_has_vulkan()) promise();
}

uint64_t each_device_fail_calls(each_device_task *task, hearth_status with, uint64_t max)
{
    uint64_t held = hth_alloc_in_use();
    for (uint64_t n = 1; n < max; n++) {
        hearth_error err = {0};
        hearth_status st = task(n, with, &err);
        CHECK(st == HEARTH_OK || (st == with && err.message[0] != '\0'));
        CHECK(hth_alloc_in_use() == held);
        if (st == HEARTH_OK) return n;
    }
    return max;
}
