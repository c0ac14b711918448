/* Whether the driver converts halves to floats exactly. One instruction does what takes ten
 * integer operations, but a driver may treat subnormal halves as zeros, and not all say so. So every half is converted
 * once, on the device, when it is opened; a NaN may be any NaN. */
#include "base/bits.h"
#include "device/vulkan/vulkan_int.h"

enum { N_HALF = 65536, LOCAL = 64 };

static hearth_status run(hth_device *d, const hth_pipeline *pipeline, hth_buffer *to, hearth_error *err)
{
    hth_cmdlist *cmdlist;
    hth_fence fence;
    hearth_status st = hth_cmdlist_begin(d, &cmdlist, err);
    if (st != HEARTH_OK) return st;
    hth_cmdlist_dispatch(cmdlist, pipeline, &(hth_buffer_range){.buffer = to}, NULL, N_HALF / 2 / LOCAL, 1, 1);
    st = hth_cmdlist_end(cmdlist, err);
    if (st == HEARTH_OK) st = hth_queue_submit(d, (hth_submit_info[]){{cmdlist, 0}}, 1, &fence, err);
    if (st == HEARTH_OK) st = hth_queue_wait(d, fence, hth_device_submit_timeout_ns(&d->info), err);
    hth_cmdlist_free(cmdlist);
    return st;
}

/* The pipeline is not one of the device's, which are those of models. */
static hearth_status convert_all(hth_device *d, hth_buffer *to, hearth_error *err)
{
    hth_pipeline pipeline = {.id = HTH_SHADER_widen_halves};
    hearth_status st = hth_vk_pipeline_new(d, &pipeline, err);
    if (st != HEARTH_OK) return st;
    st = run(d, &pipeline, to, err);
    hth_vk_pipeline_free(d, &pipeline);
    return st;
}

static bool is_exact(const float *y)
{
    for (uint32_t h = 0; h < N_HALF; h++) {
        float wanted = hth_f16_to_f32((uint16_t)h);
        if (wanted != wanted ? y[h] == y[h] : hth_bits_of(y[h]) != hth_bits_of(wanted)) return false;
    }
    return true;
}

/* The memory is outside the budget, which is of the model. */
hearth_status hth_vk_probe_halves(hth_device *d, hearth_error *err)
{
    hth_vk_device *vk = d->priv;
    const uint64_t size = N_HALF * sizeof(float);
    hth_buffer y = {.device = d, .memory = HTH_MEMORY_READBACK, .size = size, .allocated = size};
    hearth_status st = hth_vk_buffer_new(&y, "a test of conversions", err);
    if (st != HEARTH_OK) return st;
    st = convert_all(d, &y, err);
    vk->converts_halves = st == HEARTH_OK && is_exact((const float *)(const void *)y.map);
    hth_vk_buffer_free(&y);
    return st;
}
