/* Buffers of a Vulkan device, each with its own allocation: they are few and large. A staging buffer fills memory
 * that the host cannot see. */
#include "base/alloc.h"
#include "base/format_bytes.h"
#include "device/vulkan/vulkan_int.h"

#include <string.h>

/* Bytes of one chunk of an upload. */
static const uint64_t CHUNK = (uint64_t)32 << 20;

/* The first type among `allowed` with all wanted properties, preferably with the preferred ones; UINT32_MAX: none. */
static uint32_t find_type(const hth_vk_device *vk, uint32_t allowed, VkMemoryPropertyFlags wanted,
                          VkMemoryPropertyFlags preferred)
{
    uint32_t found = UINT32_MAX;
    for (uint32_t i = 0; i < vk->memory.memoryTypeCount; i++) {
        VkMemoryPropertyFlags flags = vk->memory.memoryTypes[i].propertyFlags;
        if (!(allowed >> i & 1) || (flags & wanted) != wanted) continue;
        if ((flags & preferred) == preferred) return i;
        if (found == UINT32_MAX) found = i;
    }
    return found;
}

static uint32_t type_for(const hth_vk_device *vk, uint32_t allowed, hth_memory memory)
{
    const VkMemoryPropertyFlags host_flags =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    switch (memory) {
    case HTH_MEMORY_DEVICE: return find_type(vk, allowed, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0);
    case HTH_MEMORY_READBACK: return find_type(vk, allowed, host_flags, VK_MEMORY_PROPERTY_HOST_CACHED_BIT);
    case HTH_MEMORY_UPLOAD: return find_type(vk, allowed, host_flags, 0);
    case HTH_MEMORY_HOST: break; /* import.c */
    }
    return UINT32_MAX;
}

static hearth_status allocate(hth_vk_device *vk, hth_buffer *b, const char *what, hearth_error *err)
{
    hth_vk_buffer *own = b->priv;
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = b->allocated,
                               .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT |
                                        VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT};
    VkMemoryRequirements needs;
    VkResult r = vk->call.vkCreateBuffer(vk->handle, &info, NULL, &own->handle);
    if (r != VK_SUCCESS) return hth_vk_fail(err, b->device, "vkCreateBuffer", r);
    vk->call.vkGetBufferMemoryRequirements(vk->handle, own->handle, &needs);
    VkMemoryAllocateInfo alloc = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .allocationSize = needs.size,
                                 .memoryTypeIndex = type_for(vk, needs.memoryTypeBits, b->memory)};
    if (alloc.memoryTypeIndex == UINT32_MAX)
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: no memory type for %s", b->device->info.name,
                        what);
    r = vk->call.vkAllocateMemory(vk->handle, &alloc, NULL, &own->memory);
    if (r != VK_SUCCESS)
        return hth_fail(err, r == VK_ERROR_DEVICE_LOST ? HEARTH_ERROR_DEVICE : HEARTH_ERROR_MEMORY,
                        "%s: %s: %s were refused (%s, %d), %s are in use", b->device->info.name, what,
                        hth_format_bytes(b->size).text, hth_vk_result_string(r), (int)r,
                        hth_format_bytes(b->device->used).text);
    r = vk->call.vkBindBufferMemory(vk->handle, own->handle, own->memory, 0);
    if (r != VK_SUCCESS) return hth_vk_fail(err, b->device, "vkBindBufferMemory", r);
    if (b->memory == HTH_MEMORY_DEVICE) return HEARTH_OK;
    void *map;
    r = vk->call.vkMapMemory(vk->handle, own->memory, 0, VK_WHOLE_SIZE, 0, &map);
    if (r != VK_SUCCESS) return hth_vk_fail(err, b->device, "vkMapMemory", r);
    b->map = map;
    return HEARTH_OK;
}

hearth_status hth_vk_buffer_new(hth_buffer *b, const char *what, hearth_error *err)
{
    b->priv = hth_alloc(1, sizeof(hth_vk_buffer));
    if (!b->priv) return hth_fail_memory(err, sizeof(hth_vk_buffer), "a buffer");
    hearth_status st = allocate(b->device->priv, b, what, err);
    if (st != HEARTH_OK) hth_vk_buffer_free(b);
    return st;
}

/* Whether a copy to it is in flight is not known. */
void hth_vk_buffer_release(hth_buffer *b)
{
    hth_vk_finish_uploads(b->device, NULL);
    hth_vk_buffer_free(b);
}

void hth_vk_buffer_free(hth_buffer *b)
{
    hth_vk_device *vk = b->device->priv;
    hth_vk_buffer *own = b->priv;
    if (own->handle && !vk->hangs) vk->call.vkDestroyBuffer(vk->handle, own->handle, NULL);
    if (own->memory && !vk->hangs) vk->call.vkFreeMemory(vk->handle, own->memory, NULL);
    hth_free(own);
    b->priv = NULL;
}

/* ---- transfers between host and device ------------------------------------------------------------- */

static hearth_status begin_copy(hth_device *d, hth_buffer_range from, hth_buffer_range to, VkCommandBuffer *commands,
                                hearth_error *err)
{
    hth_vk_device *vk = d->priv;
    VkBufferCopy region = {from.offset, to.offset, to.size};
    /* Waits for the previous copy, which may write the same bytes. */
    const VkMemoryBarrier after = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                   .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                                   .dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT};
    hearth_status st = hth_vk_commands_begin(d, commands, err);
    if (st == HEARTH_OK)
        vk->call.vkCmdPipelineBarrier(*commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 1,
                                      &after, 0, NULL, 0, NULL);
    if (st == HEARTH_OK)
        vk->call.vkCmdCopyBuffer(*commands, ((hth_vk_buffer *)from.buffer->priv)->handle,
                                 ((hth_vk_buffer *)to.buffer->priv)->handle, 1, &region);
    return st;
}

static hearth_status copy_now(hth_device *d, hth_buffer_range from, hth_buffer_range to, hearth_error *err)
{
    VkCommandBuffer commands;
    hearth_status st = begin_copy(d, from, to, &commands, err);
    return st == HEARTH_OK ? hth_vk_run_once(d, commands, err) : st;
}

/* A staging buffer, outside the budget: freed when what it carries is there. */
static hearth_status open_staging(hth_device *d, hth_memory memory, uint64_t size, hth_buffer *b,
                                  hearth_error *err)
{
    *b = (hth_buffer){.device = d, .memory = memory, .size = size, .allocated = size};
    return hth_vk_buffer_new(b, "a staging buffer", err);
}

static hearth_status finish_staging(hth_device *d, hth_vk_staging *s, hearth_error *err)
{
    VkCommandBuffer commands = s->commands;
    s->commands = NULL;
    return commands ? hth_vk_run_finish(d, commands, s->fence, err) : HEARTH_OK;
}

hearth_status hth_vk_finish_uploads(hth_device *d, hearth_error *err)
{
    hth_vk_device *vk = d->priv;
    hearth_status st = HEARTH_OK;
    for (int i = 0; i < 2; i++) {
        hth_vk_staging *s = &vk->staging[i];
        hearth_status one = finish_staging(d, s, st == HEARTH_OK ? err : NULL);
        if (st == HEARTH_OK) st = one;
        if (s->buffer.priv) hth_vk_buffer_free(&s->buffer);
    }
    return st;
}

/* Waits until a staging buffer is free, and makes one of at least so many bytes of it. */
static hearth_status prepare_staging(hth_device *d, hth_vk_staging *s, uint64_t size, hearth_error *err)
{
    hearth_status st = finish_staging(d, s, err);
    if (st == HEARTH_OK && s->buffer.priv && s->buffer.size < size) hth_vk_buffer_free(&s->buffer);
    if (st == HEARTH_OK && !s->buffer.priv) st = open_staging(d, HTH_MEMORY_UPLOAD, size, &s->buffer, err);
    return st;
}

/* Returns while the last chunks are copied: all that is submitted later waits for them. */
hearth_status hth_vk_upload(hth_buffer_range to, const void *from, hearth_error *err)
{
    hth_device *d = to.buffer->device;
    hth_vk_device *vk = d->priv;
    if (to.size == 0) return HEARTH_OK;
    if (to.buffer->map) return memcpy(to.buffer->map + to.offset, from, (size_t)to.size), HEARTH_OK;
    uint64_t capacity = to.size < CHUNK ? to.size : CHUNK;
    hearth_status st = HEARTH_OK;
    for (uint64_t at = 0; st == HEARTH_OK && at < to.size; at += capacity) {
        hth_vk_staging *s = &vk->staging[vk->i_staging];
        uint64_t n = to.size - at < capacity ? to.size - at : capacity;
        if ((st = prepare_staging(d, s, capacity, err)) != HEARTH_OK) break;
        memcpy(s->buffer.map, (const uint8_t *)from + at, (size_t)n);
        VkCommandBuffer commands;
        st = begin_copy(d, (hth_buffer_range){&s->buffer, 0, n}, (hth_buffer_range){to.buffer, to.offset + at, n},
                        &commands, err);
        if (st == HEARTH_OK) st = hth_vk_run_start(d, commands, &s->fence, err);
        if (st == HEARTH_OK) s->commands = commands, vk->i_staging ^= 1;
    }
    return st;
}

hearth_status hth_vk_download(hth_buffer_range from, void *to, hearth_error *err)
{
    hth_device *d = from.buffer->device;
    hth_buffer staging;
    hearth_status st = hth_vk_finish_uploads(d, err);
    if (st != HEARTH_OK || from.size == 0) return st;
    if (from.buffer->map) return memcpy(to, from.buffer->map + from.offset, (size_t)from.size), HEARTH_OK;
    uint64_t capacity = from.size < CHUNK ? from.size : CHUNK;
    st = open_staging(d, HTH_MEMORY_READBACK, capacity, &staging, err);
    if (st != HEARTH_OK) return st;
    for (uint64_t at = 0; st == HEARTH_OK && at < from.size; at += capacity) {
        uint64_t n = from.size - at < capacity ? from.size - at : capacity;
        st = copy_now(d, (hth_buffer_range){from.buffer, from.offset + at, n},
                      (hth_buffer_range){&staging, 0, n}, err);
        if (st == HEARTH_OK) memcpy((uint8_t *)to + at, staging.map, (size_t)n);
    }
    hth_vk_buffer_free(&staging);
    return st;
}
