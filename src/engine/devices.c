/* Implements hearth/device.h: devices, levels of the CPU, and parts that a build may lack, as the modules below tell
 * them. */
#include "base/alloc.h"
#include "base/system/cpu.h"
#include "base/fp_state.h"
#include "device/device.h"
#include "engine/struct_size.h"
#include "store/disk.h"
#include "text/pretokenizer.h"
#include "text/unicode.h"

#include <stdio.h>

/* ---- devices ---------------------------------------------------------------------------------- */

/* The texts of a device that are not in its hth_device_info. */
typedef struct device_texts {
    char name[32], uuid[33], shapes[HTH_MAX_COOPMAT_SHAPE * 40];
} device_texts;

struct hearth_devices {
    hth_device_info found[HTH_MAX_DEVICE];
    device_texts texts[HTH_MAX_DEVICE];
    size_t n, best; /* best: of `auto`; n: none */
    char note[200];
};

_Static_assert((int)HEARTH_DEVICE_DISCRETE == HTH_DEVICE_DISCRETE &&
                   (int)HEARTH_DEVICE_INTEGRATED == HTH_DEVICE_INTEGRATED &&
                   (int)HEARTH_DEVICE_CPU == HTH_DEVICE_CPU,
               "kinds of listed devices have the same values");

static void write_texts(const hth_device_info *d, size_t i, device_texts *to)
{
    size_t n = 0;
    snprintf(to->name, sizeof to->name, "vulkan:%zu", i);
    for (int k = 0; k < 16; k++) snprintf(to->uuid + 2 * k, 3, "%02x", d->uuid[k]);
    for (uint32_t k = 0; k < d->n_shape; k++)
        n += (size_t)snprintf(to->shapes + n, sizeof to->shapes - n, "%s%ux%ux%u", k > 0 ? " " : "",
                              d->shapes[k].m, d->shapes[k].n, d->shapes[k].k);
}

hearth_status hearth_devices_open(hearth_devices **out, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!out) return hth_fail_null(err, "out");
    hearth_devices *d = *out = hth_alloc(1, sizeof *d);
    if (!d) return hth_fail_memory(err, sizeof *d, "a list of devices");
    hth_device_list(d->found, HTH_MAX_DEVICE, &d->n, d->note);
    d->best = hth_device_best(d->found, d->n);
    for (size_t i = 0; i < d->n; i++) write_texts(&d->found[i], i, &d->texts[i]);
    return HEARTH_OK;
}

void hearth_devices_close(hearth_devices *d) { hth_free(d); }

size_t hearth_devices_count(const hearth_devices *d) { return d ? d->n : 0; }

const char *hearth_devices_note(const hearth_devices *d) { return d ? d->note : NULL; }

hearth_status hearth_devices_get(const hearth_devices *devices, size_t i, hearth_device_info *info)
{
    hearth_device_info all = {0};
    if (!devices || !hth_engine_can_write_result(&hth_size_of_hearth_device_info, info))
        return HEARTH_ERROR_ARGUMENT;
    bool exists = i < devices->n;
    if (exists) {
        const hth_device_info *d = &devices->found[i];
        all = (hearth_device_info){.kind = (hearth_device_kind)d->kind,
                                   .is_usable = !d->unsupported_reason[0],
                                   .is_auto = i == devices->best,
                                   .has_byte_dot = d->features & HTH_FEATURE_FAST_DOT,
                                   .has_cooperative_matrix2 = d->features & HTH_FEATURE_COOPMAT2,
                                   .lists_cooperative_matrix2 = d->unused_features & HTH_FEATURE_COOPMAT2,
                                   .device = devices->texts[i].name,
                                   .uuid = devices->texts[i].uuid,
                                   .description = d->name,
                                   .driver = d->driver,
                                   .problem = d->unsupported_reason,
                                   .memory_bytes = d->memory,
                                   .free_bytes = d->budget,
                                   .binding_bytes = d->max_binding_size,
                                   .matrix_shapes = devices->texts[i].shapes};
    }
    hth_engine_write_result(&hth_size_of_hearth_device_info, &all, info);
    return exists ? HEARTH_OK : HEARTH_ERROR_ARGUMENT;
}

/* ---- the CPU -------------------------------------------------------------------------------------- */

const char *hearth_cpu_level(size_t i)
{
    hth_cpu machine = hth_cpu_detect();
    for (int level = (int)machine; level >= 0; level--)
        if (hth_cpu_has(machine, (hth_cpu)level) && i-- == 0) return hth_cpu_name((hth_cpu)level);
    return NULL;
}

/* ---- the build ------------------------------------------------------------------------------------ */

static bool has_bpe(void) { return hth_pretokenizer_engine(NULL, 0); }
static bool has_wordpiece(void) { return hth_unicode_engine(NULL, 0); }

static const struct {
    const char *name;
    bool (*is_built)(void);
} features[] = {
    {"vulkan", hth_device_has_vulkan},
    {"io_uring", hth_disk_has_uring},
    {"bpe", has_bpe},
    {"wordpiece", has_wordpiece},
};

const char *hearth_feature(size_t i, bool *built)
{
    bool exists = i < sizeof features / sizeof *features;
    if (built) *built = exists && features[i].is_built();
    return exists ? features[i].name : NULL;
}
