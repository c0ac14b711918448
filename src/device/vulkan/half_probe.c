/* Whether the driver converts halves to floats exactly. One instruction does what takes ten integer operations, but a
 * driver may treat subnormal halves as zeros, and not all say so. So every half is converted once, on the device, when it
 * is opened: alone and as a factor of a product, for which hardware has other instructions. */
#include "base/bits.h"
#include "device/vulkan/vulkan_int.h"

enum { N_HALF = HTH_N_HALF, LOCAL = 64 };

/* What the device reads and writes may be freed afterwards, or the device hangs (hth_vk_device.hangs). */
static hearth_status run(hth_device *d, const hth_pipeline *pipeline, hth_buffer *to, hearth_error *err)
{
    hth_cmdlist *cmdlist;
    hth_fence fence;
    hearth_status st = hth_cmdlist_begin(d, &cmdlist, err);
    if (st != HEARTH_OK) return st;
    hth_cmdlist_dispatch(cmdlist, pipeline, &(hth_buffer_range){.buffer = to}, NULL, N_HALF / 2 / LOCAL, 1, 1);
    st = hth_cmdlist_end(cmdlist, err);
    if (st == HEARTH_OK) st = hth_queue_submit(d, (hth_submit_info[]){{.cmdlist = cmdlist}}, 1, &fence, err);
    if (st == HEARTH_OK) st = hth_queue_wait(d, fence, hth_device_submit_timeout_ns(&d->info), err);
    if (st != HEARTH_OK) hth_vk_finish(d);
    hth_cmdlist_free(cmdlist);
    if (st != HEARTH_OK) hth_device_reclaim(d, true);
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

static bool is_same(float x, float wanted)
{
    return wanted != wanted ? x != x : hth_bits_of(x) == hth_bits_of(wanted);
}

bool hth_vk_halves_are_exact(const float *y)
{
    for (uint32_t h = 0; h < N_HALF; h++) {
        float wanted = hth_f16_to_f32((uint16_t)h), factor = (float)(1 + (h / 2 & 7));
        if (!is_same(y[h], wanted) || !is_same(y[N_HALF + h], wanted * factor)) return false;
    }
    return true;
}

/* The memory is outside the budget, which is of the model. Where the probe cannot be made, halves are converted by
 * integer operations; a device that fails while it runs is refused. */
hearth_status hth_vk_probe_halves(hth_device *d, hearth_error *err)
{
    const uint64_t size = 2 * N_HALF * sizeof(float);
    hth_buffer y = {.device = d, .memory = HTH_MEMORY_READBACK, .size = size, .allocated = size};
    hearth_error why = {0};
    hearth_status st = hth_vk_buffer_new(&y, "a test of conversions", &why);
    if (st == HEARTH_OK) {
        st = convert_all(d, &y, &why);
        d->info.converts_halves = st == HEARTH_OK && hth_vk_halves_are_exact((const float *)(const void *)y.map);
        hth_vk_buffer_free(&y);
    }
    if (st != HEARTH_ERROR_DEVICE) return HEARTH_OK;
    if (err) *err = why;
    return st;
}
