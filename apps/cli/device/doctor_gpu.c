/* The GPU in hearth doctor: its description, and its measured rates with this machine. Measurements are cached
 * (base/disk_cache.h), so only the first run takes some seconds. */
#include "cli/device/doctor.h"
#include "common/options/field_names.h"

#include "placement/calibrate.h"
#include "forward/gpu/shader_params.h"

#include <stdio.h>
#include <string.h>

/* The usable discrete GPU with most memory; if there is none, why the first one cannot be used. */
static bool find_gpu(doctor_gpu *g, char name[32])
{
    hth_device_info found[HTH_MAX_DEVICE];
    char note[200];
    size_t n;
    if (hth_device_find_discrete(name)) return true;
    hth_device_list(found, HTH_MAX_DEVICE, &n, note);
    snprintf(g->problem, sizeof g->problem, "%s", note);
    for (size_t i = 0; i < n; i++) {
        if (found[i].kind != HTH_DEVICE_DISCRETE) continue;
        g->info = found[i];
        snprintf(g->problem, sizeof g->problem, "%s", found[i].unsupported_reason);
        return false;
    }
    return false;
}

static hearth_status measure(doctor_gpu *g, hth_device *device, const doctor_gpu_options *options,
                             hearth_error *err)
{
    hth_kernels kernels;
    hth_pool *pool;
    hth_cpu level;
    hearth_status st = hth_cpu_choose(NULL, &level, err);
    if (st == HEARTH_OK) st = hth_pool_open(options->n_thread, &pool, err);
    if (st != HEARTH_OK) return st;
    hth_kernels_init(&kernels, level);
    for (size_t i = 0; st == HEARTH_OK && i < options->n_type; i++) {
        st = hth_calibration_cache_get(device, &kernels, pool, options->types[i], options->again, &g->calibrations[i],
                                 err);
        if (st == HEARTH_OK) g->n_calibration++;
    }
    /* The other cached measurements may be wrong for the same reason, so they are dropped; a plan measures them
     * again. */
    if (st == HEARTH_OK && options->again)
        hth_calibration_cache_evict_others(hth_calibration_fingerprint(&g->info, &kernels, hth_pool_n_thread(pool)),
                                      options->types, options->n_type);
    hth_pool_close(pool);
    return st;
}

void doctor_look_at_gpu(doctor_gpu *g, const doctor_gpu_options *options)
{
    char gpu[32];
    const char *name = options->name;
    hth_device *device;
    hearth_error why = {0};
    bool is_named = strcmp(name, "auto") != 0;
    *g = (doctor_gpu){.is_left_out = strcmp(name, "none") == 0};
    if (g->is_left_out) return;
    if (!is_named) {
        if (!find_gpu(g, gpu)) return;
        name = gpu;
    }
    hth_device_spec spec = {.name = name, .shader_refs = hth_shader_ref_table};
    hearth_status st = hth_device_open(&spec, &device, &why);
    if (st == HEARTH_OK) {
        g->found = true;
        g->info = *hth_device_get_info(device);
        st = measure(g, device, options, &why);
        hth_device_close(device);
    }
    if (st == HEARTH_OK) return;
    g->failed = is_named;
    (void)name_options(g->problem, sizeof g->problem, why.message);
}
