/* Generation speed of a model with the GPU of this machine, computed as hearth plan does: from measurements of
 * the GPU, which are made once per weight type and cached (placement/calibrate.h). */
#include "hub/machine.h"

#include "placement/plan_context.h"
#include "forward/gpu/shader_params.h"

#include <string.h>

enum { N_BATCH = 256 }; /* n_batch of sessions that do not set it */

hearth_status hub_gpu_open(hub_machine *m, const char *name, hearth_error *err)
{
    char gpu[32];
    bool is_auto = strcmp(name, "auto") == 0;
    if (strcmp(name, "none") == 0 || (is_auto && !hth_device_find_discrete(gpu))) return HEARTH_OK;
    hth_device_spec spec = {.name = is_auto ? gpu : name, .memory = m->vram, .shader_refs = hth_shader_ref_table};
    hearth_status st = hth_device_open(&spec, &m->device, err);
    if (st != HEARTH_OK) m->device = NULL;
    return is_auto ? HEARTH_OK : st; /* runs do not use a GPU that fails to open either */
}

static uint64_t budget_of(const hub_machine *m)
{
    uint64_t is_free = hth_device_free_memory(hth_device_get_info(m->device));
    return m->vram > 0 && m->vram < is_free ? m->vram : is_free;
}

uint64_t hub_gpu_key(const hub_machine *m)
{
    if (!m->device) return 0;
    uint64_t fingerprint = hth_calibration_fingerprint(hth_device_get_info(m->device), &m->kernels, m->n_thread);
    return fingerprint ^ (budget_of(m) >> 30) ^ m->vram << 20; /* whole GiB, because the free memory changes all the time */
}

double hub_gpu_speed(hub_machine *m, const hth_model *model, hearth_selector selector, uint64_t *bytes)
{
    hth_placement_builder builder;
    hth_plan_context context;
    hearth_error ignored;
    double speed = 0.0;
    const hth_device_info *info = hth_device_get_info(m->device);
    uint32_t n_ctx = hth_context_for(&model->hparams, 0);
    hth_offload_params params = {.selector = selector,
                                 .n_row = hth_gpu_batch_size(info, N_BATCH, n_ctx),
                                 .n_position = hth_gpu_positions(n_ctx)};
    const hth_placement_part part = {
        .device = m->device, .info = info, .params = params, .budget = budget_of(m)};
    if (hth_placement_builder_open(&builder, model, &part, 1, &ignored) != HEARTH_OK) return 0.0;
    if (hth_plan_context_build(&context, &builder, NULL, &m->kernels, m->pool, &ignored) == HEARTH_OK) {
        bool is_there = context.best.n_device > 0 || context.best.head;
        if (is_there && context.best.seconds > 0.0)
            speed = 1.0 / context.best.seconds, *bytes = context.best.bytes[HTH_HOME_DEVICE].total;
        hth_plan_context_close(&context);
    }
    hth_placement_builder_close(&builder);
    return speed;
}
