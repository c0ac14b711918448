/* Buffers of the host's own memory, which the device reads where it lies (VK_EXT_external_memory_host). Drivers take
 * whole pages around it. They may refuse any memory, as some do with mapped files: that is no fault of the device. */
#include "base/alloc.h"
#include "base/format_bytes.h"
#include "device/vulkan/vulkan_int.h"

static hearth_status refuse(hearth_error *err, const hth_buffer *b, const char *what, const char *call, VkResult r)
{
    if (r == VK_ERROR_DEVICE_LOST) return hth_vk_fail(err, b->device, call, r);
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                    "%s: %s: its driver does not read %s of the host in place (%s, %s, %d)", b->device->info.name, what,
                    hth_format_bytes(b->size).text, call, hth_vk_result_string(r), (int)r);
}

/* The first type among `allowed` in which the device sees what the host writes, preferably one that is not the device's
 * own; UINT32_MAX: none. */
static uint32_t find_host_type(const hth_vk_device *vk, uint32_t allowed)
{
    uint32_t found = UINT32_MAX;
    for (uint32_t i = 0; i < vk->memory.memoryTypeCount; i++) {
        VkMemoryPropertyFlags flags = vk->memory.memoryTypes[i].propertyFlags;
        if (!(allowed >> i & 1) || !(flags & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)) continue;
        if (!(flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT)) return i;
        if (found == UINT32_MAX) found = i;
    }
    return found;
}

/* The types of memory that this memory can be; 0: none. */
static VkResult types_of(const hth_vk_device *vk, const hth_buffer *b, uint32_t *types)
{
    VkMemoryHostPointerPropertiesEXT pointer = {.sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
    VkResult r = vk->call.vkGetMemoryHostPointerPropertiesEXT(vk->handle, HTH_VK_IMPORT_TYPE, b->map, &pointer);
    *types = pointer.memoryTypeBits;
    return r;
}

/* Makes a buffer of the b->size bytes at b->map. */
static hearth_status import_pages(hth_vk_device *vk, hth_buffer *b, const char *what, hearth_error *err)
{
    hth_vk_buffer *own = b->priv;
    VkExternalMemoryBufferCreateInfo external = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
                                                 .handleTypes = HTH_VK_IMPORT_TYPE};
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .pNext = &external,
                               .size = b->size,
                               .usage = HTH_VK_IMPORT_USAGE};
    VkImportMemoryHostPointerInfoEXT pages = {.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
                                              .handleType = HTH_VK_IMPORT_TYPE,
                                              .pHostPointer = b->map};
    VkMemoryAllocateInfo alloc = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .pNext = &pages, .allocationSize = b->size};
    VkMemoryRequirements needs;
    uint32_t types;
    VkResult r = types_of(vk, b, &types);
    if (r != VK_SUCCESS) return refuse(err, b, what, "vkGetMemoryHostPointerPropertiesEXT", r);
    r = vk->call.vkCreateBuffer(vk->handle, &info, NULL, &own->handle);
    if (r != VK_SUCCESS) return refuse(err, b, what, "vkCreateBuffer", r);
    vk->call.vkGetBufferMemoryRequirements(vk->handle, own->handle, &needs);
    alloc.memoryTypeIndex = find_host_type(vk, types & needs.memoryTypeBits);
    if (alloc.memoryTypeIndex == UINT32_MAX || needs.size > b->size)
        return refuse(err, b, what, "vkGetBufferMemoryRequirements", VK_ERROR_INVALID_EXTERNAL_HANDLE);
    r = vk->call.vkAllocateMemory(vk->handle, &alloc, NULL, &own->memory);
    if (r != VK_SUCCESS) return refuse(err, b, what, "vkAllocateMemory", r);
    r = vk->call.vkBindBufferMemory(vk->handle, own->handle, own->memory, 0);
    return r == VK_SUCCESS ? HEARTH_OK : refuse(err, b, what, "vkBindBufferMemory", r);
}

hearth_status hth_vk_buffer_import(hth_buffer *b, const void *data, const char *what, hearth_error *err)
{
    hth_vk_device *vk = b->device->priv;
    uint64_t page = vk->physical.import_alignment, most = b->device->info.max_allocation;
    uint64_t before = (uintptr_t)data % page;
    uint64_t size = (before + b->size + page - 1) / page * page; /* b->size is at most that of a binding */
    if (!vk->call.vkGetMemoryHostPointerPropertiesEXT || (most > 0 && size > most))
        return refuse(err, b, what, "a limit", VK_ERROR_INVALID_EXTERNAL_HANDLE);
    b->priv = hth_alloc(1, sizeof(hth_vk_buffer));
    if (!b->priv) return hth_fail_memory(err, sizeof(hth_vk_buffer), "a buffer");
    b->map = (uint8_t *)((uintptr_t)data - before);
    b->size = size;
    hearth_status st = import_pages(vk, b, what, err);
    if (st != HEARTH_OK) hth_vk_buffer_free(b);
    return st;
}
