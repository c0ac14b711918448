/* A command list as a command buffer that is recorded once. All its descriptor sets come from one pool. */
#include "base/alloc.h"
#include "device/vulkan/vulkan_int.h"

#include <string.h>

static VkBuffer handle_of(const hth_buffer_range *s) { return ((const hth_vk_buffer *)s->buffer->priv)->handle; }

/* ---- descriptor sets ----------------------------------------------------------------------------- */

static hearth_status open_pool(hth_cmdlist *t, hearth_error *err)
{
    hth_vk_device *vk = t->device->priv;
    hth_vk_cmdlist *own = t->priv;
    VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 0};
    uint32_t n_set = 0;
    for (size_t i = 0; i < t->n_cmd; i++) {
        if (t->cmds[i].kind != HTH_CMD_DISPATCH && t->cmds[i].kind != HTH_CMD_DISPATCH_INDIRECT) continue;
        n_set++;
        size.descriptorCount += (uint32_t)strlen(hth_shader_infos[t->cmds[i].pipeline->id].bindings);
    }
    if (n_set == 0) return HEARTH_OK;
    VkDescriptorPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                       .maxSets = n_set,
                                       .poolSizeCount = 1,
                                       .pPoolSizes = &size};
    VkResult r = vk->call.vkCreateDescriptorPool(vk->handle, &info, NULL, &own->pool);
    return r == VK_SUCCESS ? HEARTH_OK : hth_vk_fail(err, t->device, "vkCreateDescriptorPool", r);
}

static hearth_status make_set(hth_cmdlist *t, const hth_cmd *cmd, VkDescriptorSet *set, hearth_error *err)
{
    hth_vk_device *vk = t->device->priv;
    hth_vk_cmdlist *own = t->priv;
    const hth_vk_pipeline *pipe = cmd->pipeline->priv;
    VkDescriptorBufferInfo buffers[HTH_SHADER_MAX_BIND];
    uint32_t n = (uint32_t)strlen(hth_shader_infos[cmd->pipeline->id].bindings);
    VkDescriptorSetAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                        .descriptorPool = own->pool,
                                        .descriptorSetCount = 1,
                                        .pSetLayouts = &pipe->set};
    VkResult r = vk->call.vkAllocateDescriptorSets(vk->handle, &info, set);
    if (r != VK_SUCCESS) return hth_vk_fail(err, t->device, "vkAllocateDescriptorSets", r);
    VkWriteDescriptorSet writes[HTH_SHADER_MAX_BIND];
    for (uint32_t i = 0; i < n; i++) {
        const hth_buffer_range *s = &t->ranges[cmd->first_range + i];
        buffers[i] = (VkDescriptorBufferInfo){handle_of(s), s->offset, s->size};
        writes[i] = (VkWriteDescriptorSet){.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                           .dstSet = *set,
                                           .dstBinding = i,
                                           .descriptorCount = 1,
                                           .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                           .pBufferInfo = &buffers[i]};
    }
    vk->call.vkUpdateDescriptorSets(vk->handle, n, writes, 0, NULL);
    return HEARTH_OK;
}

/* ---- barriers --------------------------------------------------------------------------------------- */

static const VkPipelineStageFlags WORK = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT |
                                         VK_PIPELINE_STAGE_TRANSFER_BIT | VK_PIPELINE_STAGE_DRAW_INDIRECT_BIT;
static const VkAccessFlags WRITES = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
static const VkAccessFlags READS =
    VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_INDIRECT_COMMAND_READ_BIT;

/* Makes earlier writes of command lists and of the host visible to this one; at its end, its writes visible to the
 * host. */
static void memory_barrier(const hth_vk_device *vk, VkCommandBuffer commands, VkPipelineStageFlags from,
                      VkAccessFlags written, VkPipelineStageFlags to, VkAccessFlags read)
{
    VkMemoryBarrier barrier = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = written, .dstAccessMask = read};
    vk->call.vkCmdPipelineBarrier(commands, from, to, 0, 1, &barrier, 0, NULL, 0, NULL);
}

static void buffer_barriers(const hth_vk_device *vk, VkCommandBuffer commands, const hth_buffer_range *ranges,
                         uint32_t n)
{
    enum { AT_ONCE = 16 };
    for (uint32_t first = 0; first < n; first += AT_ONCE) {
        VkBufferMemoryBarrier barriers[AT_ONCE];
        uint32_t count = n - first < AT_ONCE ? n - first : AT_ONCE;
        for (uint32_t i = 0; i < count; i++)
            barriers[i] = (VkBufferMemoryBarrier){.sType = VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER,
                                                  .srcAccessMask = WRITES,
                                                  .dstAccessMask = READS | WRITES,
                                                  .srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
                                                  .dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
                                                  .buffer = handle_of(&ranges[first + i]),
                                                  .offset = ranges[first + i].offset,
                                                  .size = ranges[first + i].size};
        vk->call.vkCmdPipelineBarrier(commands, WORK, WORK, 0, 0, NULL, count, barriers, 0, NULL);
    }
}

/* ---- recording --------------------------------------------------------------------------------------- */

static hearth_status record_dispatch(hth_cmdlist *t, const hth_cmd *cmd, hearth_error *err)
{
    hth_vk_device *vk = t->device->priv;
    VkCommandBuffer commands = ((hth_vk_cmdlist *)t->priv)->commands;
    const hth_vk_pipeline *pipe = cmd->pipeline->priv;
    const hth_buffer_range *grid = &t->ranges[cmd->first_range + cmd->n_range - 1];
    uint32_t push = hth_shader_infos[cmd->pipeline->id].push_size;
    VkDescriptorSet set;
    hearth_status st = make_set(t, cmd, &set, err);
    if (st != HEARTH_OK) return st;
    vk->call.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipe->pipeline);
    vk->call.vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipe->layout, 0, 1, &set, 0,
                                     NULL);
    if (push > 0)
        vk->call.vkCmdPushConstants(commands, pipe->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, push,
                                    t->push + cmd->push_offset);
    if (cmd->kind == HTH_CMD_DISPATCH) vk->call.vkCmdDispatch(commands, cmd->grid[0], cmd->grid[1], cmd->grid[2]);
    else vk->call.vkCmdDispatchIndirect(commands, handle_of(grid), grid->offset);
    return HEARTH_OK;
}

static hearth_status record(hth_cmdlist *t, const hth_cmd *cmd, hearth_error *err)
{
    hth_vk_device *vk = t->device->priv;
    VkCommandBuffer commands = ((hth_vk_cmdlist *)t->priv)->commands;
    const hth_buffer_range *ranges = &t->ranges[cmd->first_range];
    if (cmd->kind == HTH_CMD_DISPATCH || cmd->kind == HTH_CMD_DISPATCH_INDIRECT) return record_dispatch(t, cmd, err);
    if (cmd->kind == HTH_CMD_BARRIER) {
        buffer_barriers(vk, commands, ranges, cmd->n_range);
    } else {
        VkBufferCopy region = {ranges[0].offset, ranges[1].offset,
                               ranges[0].size < ranges[1].size ? ranges[0].size : ranges[1].size};
        if (region.size > 0)
            vk->call.vkCmdCopyBuffer(commands, handle_of(&ranges[0]), handle_of(&ranges[1]), 1, &region);
    }
    return HEARTH_OK;
}

hearth_status hth_vk_cmdlist_end(hth_cmdlist *t, hearth_error *err)
{
    hth_device *d = t->device;
    hth_vk_device *vk = d->priv;
    hth_vk_cmdlist *own = hth_alloc(1, sizeof *own);
    if (!own) return hth_fail_memory(err, sizeof *own, "a command list");
    t->priv = own;
    hearth_status st = open_pool(t, err);
    if (st == HEARTH_OK) st = hth_vk_commands_begin(d, &own->commands, err);
    if (st != HEARTH_OK) goto done;
    memory_barrier(vk, own->commands, WORK | VK_PIPELINE_STAGE_HOST_BIT, WRITES | VK_ACCESS_HOST_WRITE_BIT, WORK,
              READS | WRITES);
    st = hth_vk_times_open(t, err);
    hth_vk_times_write(t, 0);
    for (size_t i = 0; st == HEARTH_OK && i < t->n_cmd; i++) {
        st = record(t, &t->cmds[i], err);
        hth_vk_times_write(t, (uint32_t)i + 1);
    }
    memory_barrier(vk, own->commands, WORK, WRITES, VK_PIPELINE_STAGE_HOST_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
                   VK_ACCESS_HOST_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT);
    hth_vk_proof_record(t);
    memory_barrier(vk, own->commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT,
                   VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
    if (st == HEARTH_OK) {
        VkResult r = vk->call.vkEndCommandBuffer(own->commands);
        if (r != VK_SUCCESS) st = hth_vk_fail(err, d, "vkEndCommandBuffer", r);
    }
done:
    if (st != HEARTH_OK) hth_vk_cmdlist_free(t);
    return st;
}

void hth_vk_cmdlist_free(hth_cmdlist *t)
{
    hth_vk_device *vk = t->device->priv;
    hth_vk_cmdlist *own = t->priv;
    if (vk->hangs) goto done;
    hth_vk_proof_free(t);
    if (own->commands) vk->call.vkFreeCommandBuffers(vk->handle, vk->commands, 1, &own->commands);
    if (own->pool) vk->call.vkDestroyDescriptorPool(vk->handle, own->pool, NULL);
    if (own->times) vk->call.vkDestroyQueryPool(vk->handle, own->times, NULL);
done:
    hth_free(own);
    t->priv = NULL;
}
