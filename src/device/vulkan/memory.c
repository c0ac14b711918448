/* Buffers of a Vulkan device, each with memory of its own: there are few and they are large. What the host
 * does not see is filled through a buffer that it does. */
#include "base/alloc.h"
#include "base/bytes.h"
#include "device/vulkan/vulkan_int.h"

#include <string.h>

/* Bytes of a piece of an upload. */
static const uint64_t PIECE = (uint64_t)32 << 20;

/* The first type among `allowed` with all wanted properties, and best with the liked ones; UINT32_MAX:
 * none. */
static uint32_t find_type(const hth_vk_device *vk, uint32_t allowed, VkMemoryPropertyFlags wanted,
                          VkMemoryPropertyFlags liked)
{
    uint32_t found = UINT32_MAX;
    for (uint32_t i = vk->memory.memoryTypeCount; i-- > 0;) {
        VkMemoryPropertyFlags flags = vk->memory.memoryTypes[i].propertyFlags;
        if (!(allowed >> i & 1) || (flags & wanted) != wanted) continue;
        if (found == UINT32_MAX || (flags & liked) == liked) found = i;
    }
    return found;
}

static uint32_t type_for(const hth_vk_device *vk, uint32_t allowed, hth_memory memory)
{
    const VkMemoryPropertyFlags seen =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    switch (memory) {
    case HTH_MEMORY_DEVICE: return find_type(vk, allowed, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0);
    case HTH_MEMORY_TO_HOST: return find_type(vk, allowed, seen, VK_MEMORY_PROPERTY_HOST_CACHED_BIT);
    case HTH_MEMORY_TO_DEVICE: return find_type(vk, allowed, seen, 0);
    }
    return UINT32_MAX;
}

static hearth_status fill_in(hth_vk_device *vk, hth_buffer *b, const char *what, hearth_error *err)
{
    hth_vk_buffer *own = b->own;
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = b->held,
                               .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT |
                                        VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT};
    VkMemoryRequirements needs;
    VkResult r = vk->call.vkCreateBuffer(vk->handle, &info, NULL, &own->handle);
    if (r != VK_SUCCESS) return hth_vk_fail(err, b->device, "vkCreateBuffer", r);
    vk->call.vkGetBufferMemoryRequirements(vk->handle, own->handle, &needs);
    VkMemoryAllocateInfo room = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .allocationSize = needs.size,
                                 .memoryTypeIndex = type_for(vk, needs.memoryTypeBits, b->memory)};
    if (room.memoryTypeIndex == UINT32_MAX)
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: no kind of memory for %s", b->device->info.name,
                        what);
    r = vk->call.vkAllocateMemory(vk->handle, &room, NULL, &own->memory);
    if (r != VK_SUCCESS)
        return hth_fail(err, r == VK_ERROR_DEVICE_LOST ? HEARTH_ERROR_DEVICE : HEARTH_ERROR_MEMORY,
                        "%s: %s: %s were refused (%s, %d), %s are in use", b->device->info.name, what,
                        hth_bytes_shown(b->size).text, hth_vk_answer(r), (int)r,
                        hth_bytes_shown(b->device->used).text);
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
    b->own = hth_alloc(1, sizeof(hth_vk_buffer));
    if (!b->own) return hth_fail_memory(err, sizeof(hth_vk_buffer), "a buffer");
    hearth_status st = fill_in(b->device->own, b, what, err);
    if (st != HEARTH_OK) hth_vk_buffer_free(b);
    return st;
}

void hth_vk_buffer_free(hth_buffer *b)
{
    hth_vk_device *vk = b->device->own;
    hth_vk_buffer *own = b->own;
    if (own->handle) vk->call.vkDestroyBuffer(vk->handle, own->handle, NULL);
    if (own->memory) vk->call.vkFreeMemory(vk->handle, own->memory, NULL);
    hth_free(own);
    b->own = NULL;
}

/* ---- from and to the host -------------------------------------------------------------------------- */

static hearth_status copy_now(hth_device *d, hth_slice from, hth_slice to, hearth_error *err)
{
    hth_vk_device *vk = d->own;
    VkCommandBuffer commands;
    VkBufferCopy region = {from.at, to.at, to.bytes};
    hearth_status st = hth_vk_commands_begin(d, &commands, err);
    if (st != HEARTH_OK) return st;
    vk->call.vkCmdCopyBuffer(commands, ((hth_vk_buffer *)from.of->own)->handle,
                             ((hth_vk_buffer *)to.of->own)->handle, 1, &region);
    return hth_vk_run_once(d, commands, err);
}

/* A buffer between both sides, outside the budget: it is gone when the call returns. */
static hearth_status open_between(hth_device *d, hth_memory memory, uint64_t size, hth_buffer *b,
                                  hearth_error *err)
{
    *b = (hth_buffer){.device = d, .memory = memory, .size = size, .held = size};
    return hth_vk_buffer_new(b, "what is carried over", err);
}

hearth_status hth_vk_upload(hth_slice to, const void *from, hearth_error *err)
{
    hth_device *d = to.of->device;
    hth_buffer between;
    if (to.bytes == 0) return HEARTH_OK;
    if (to.of->map) return memcpy(to.of->map + to.at, from, (size_t)to.bytes), HEARTH_OK;
    uint64_t room = to.bytes < PIECE ? to.bytes : PIECE;
    hearth_status st = open_between(d, HTH_MEMORY_TO_DEVICE, room, &between, err);
    if (st != HEARTH_OK) return st;
    for (uint64_t at = 0; st == HEARTH_OK && at < to.bytes; at += room) {
        uint64_t n = to.bytes - at < room ? to.bytes - at : room;
        memcpy(between.map, (const uint8_t *)from + at, (size_t)n);
        st = copy_now(d, (hth_slice){&between, 0, n}, (hth_slice){to.of, to.at + at, n}, err);
    }
    hth_vk_buffer_free(&between);
    return st;
}

hearth_status hth_vk_download(hth_slice from, void *to, hearth_error *err)
{
    hth_device *d = from.of->device;
    hth_buffer between;
    if (from.bytes == 0) return HEARTH_OK;
    if (from.of->map) return memcpy(to, from.of->map + from.at, (size_t)from.bytes), HEARTH_OK;
    uint64_t room = from.bytes < PIECE ? from.bytes : PIECE;
    hearth_status st = open_between(d, HTH_MEMORY_TO_HOST, room, &between, err);
    if (st != HEARTH_OK) return st;
    for (uint64_t at = 0; st == HEARTH_OK && at < from.bytes; at += room) {
        uint64_t n = from.bytes - at < room ? from.bytes - at : room;
        st = copy_now(d, (hth_slice){from.of, from.at + at, n}, (hth_slice){&between, 0, n}, err);
        if (st == HEARTH_OK) memcpy((uint8_t *)to + at, between.map, (size_t)n);
    }
    hth_vk_buffer_free(&between);
    return st;
}
