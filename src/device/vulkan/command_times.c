/* Times of the commands of a command list, from timestamps of the queue. For measurements. */
#include "base/alloc.h"
#include "device/vulkan/vulkan_int.h"

hearth_status hth_vk_times_open(hth_cmdlist *t, hearth_error *err)
{
    hth_vk_device *vk = t->device->priv;
    hth_vk_cmdlist *own = t->priv;
    uint32_t n = (uint32_t)t->n_cmd + 1;
    VkQueryPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                  .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                  .queryCount = n};
    if (!t->device->times_commands || vk->physical.timestamp_mask == 0) return HEARTH_OK;
    VkResult r = vk->call.vkCreateQueryPool(vk->handle, &info, NULL, &own->times);
    if (r != VK_SUCCESS) return hth_vk_fail(err, t->device, "vkCreateQueryPool", r);
    vk->call.vkCmdResetQueryPool(own->commands, own->times, 0, n);
    return HEARTH_OK;
}

void hth_vk_times_write(const hth_cmdlist *t, uint32_t i)
{
    const hth_vk_device *vk = t->device->priv;
    const hth_vk_cmdlist *own = t->priv;
    if (own->times)
        vk->call.vkCmdWriteTimestamp(own->commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, own->times, i);
}

void hth_vk_times_read(hth_cmdlist *t)
{
    hth_vk_device *vk = t->device->priv;
    hth_vk_cmdlist *own = t->priv;
    bool ended = own->run > 0 && hth_vk_completed_value(t->device, own->run_queue) >= own->run;
    uint64_t *ticks = ended ? hth_alloc(t->n_cmd + 1, sizeof *ticks) : NULL;
    own->run = 0;
    if (!ticks) return;
    VkResult r = vk->call.vkGetQueryPoolResults(vk->handle, own->times, 0, (uint32_t)t->n_cmd + 1,
                                                (t->n_cmd + 1) * sizeof *ticks, ticks, sizeof *ticks,
                                                VK_QUERY_RESULT_64_BIT);
    for (size_t i = 0; r == VK_SUCCESS && i < t->n_cmd; i++) {
        t->cmds[i].n_run++;
        t->cmds[i].ns += (uint64_t)((double)((ticks[i + 1] - ticks[i]) & vk->physical.timestamp_mask) *
                                    vk->physical.timestamp_ns);
    }
    hth_free(ticks);
}
