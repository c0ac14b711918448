/* Compiled programs that are kept between runs, as the driver gives them (VkPipelineCache), one file for each
 * device. What was kept is trusted no more than any file: base/disk_cache.c checks its length and hash, its mark
 * names device and driver, and its head must be that driver's. Without a folder, or with a damaged file, all
 * is compiled anew. */
#include "base/alloc.h"
#include "base/hash.h"
#include "base/disk_cache.h"
#include "device/vulkan/vulkan_int.h"

#include <stdio.h>
#include <string.h>

static void name_of(const VkPhysicalDeviceProperties *p, char name[HTH_DISKCACHE_NAME])
{
    int n =
        snprintf(name, HTH_DISKCACHE_NAME, "pipelines-%08x-%08x-", (unsigned)p->vendorID, (unsigned)p->deviceID);
    for (int i = 0; i < 16; i++)
        n += snprintf(name + n, HTH_DISKCACHE_NAME - (size_t)n, "%02x", p->pipelineCacheUUID[i]);
}

static uint64_t mark_of(const VkPhysicalDeviceProperties *p, const hth_device_info *info)
{
    const uint32_t numbers[] = {p->vendorID, p->deviceID, p->driverVersion, p->apiVersion};
    uint64_t mark = hth_hash(numbers, sizeof numbers);
    mark = hth_hash_more(mark, p->pipelineCacheUUID, sizeof p->pipelineCacheUUID);
    mark = hth_hash_more(mark, info->uuid, sizeof info->uuid);
    return hth_hash_more(mark, info->driver, strlen(info->driver));
}

/* The head that Vulkan prescribes (VkPipelineCacheHeaderVersionOne). */
static bool is_of_driver(const uint8_t *bytes, size_t n, const VkPhysicalDeviceProperties *p)
{
    VkPipelineCacheHeaderVersionOne head;
    if (n < sizeof head) return false;
    memcpy(&head, bytes, sizeof head);
    return head.headerSize >= sizeof head && head.headerSize <= n &&
           head.headerVersion == VK_PIPELINE_CACHE_HEADER_VERSION_ONE && head.vendorID == p->vendorID &&
           head.deviceID == p->deviceID &&
           memcmp(head.pipelineCacheUUID, p->pipelineCacheUUID, sizeof head.pipelineCacheUUID) == 0;
}

static VkPhysicalDeviceProperties properties_of(const hth_vk_device *vk)
{
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    vk->instance.vkGetPhysicalDeviceProperties2(vk->physical.handle, &p);
    return p.properties;
}

static VkPipelineCache make(const hth_vk_device *vk, const void *bytes, size_t n)
{
    VkPipelineCache cache;
    VkPipelineCacheCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO, .initialDataSize = n, .pInitialData = bytes};
    VkResult r = vk->call.vkCreatePipelineCache(vk->handle, &info, NULL, &cache);
    return r == VK_SUCCESS ? cache : VK_NULL_HANDLE;
}

void hth_vk_pipeline_cache_open(hth_device *d)
{
    hth_vk_device *vk = d->priv;
    VkPhysicalDeviceProperties p = properties_of(vk);
    char name[HTH_DISKCACHE_NAME];
    size_t n = 0;
    name_of(&p, name);
    uint8_t *bytes = hth_diskcache_get(name, mark_of(&p, &d->info), &n);
    if (bytes && is_of_driver(bytes, n, &p)) vk->pipeline_cache = make(vk, bytes, n);
    if (vk->pipeline_cache) d->pipeline_cache_bytes = n, vk->pipeline_cache_hash = hth_hash(bytes, n);
    else vk->pipeline_cache = make(vk, NULL, 0);
    hth_free(bytes);
}

/* What there is now, where it is not what was kept. */
static void keep(const hth_device *d)
{
    const hth_vk_device *vk = d->priv;
    VkPhysicalDeviceProperties p = properties_of(vk);
    char name[HTH_DISKCACHE_NAME];
    size_t n = 0;
    VkResult r = vk->call.vkGetPipelineCacheData(vk->handle, vk->pipeline_cache, &n, NULL);
    uint8_t *bytes = r == VK_SUCCESS && n > 0 && n <= HTH_DISKCACHE_MAX ? hth_alloc(1, n) : NULL;
    if (bytes) r = vk->call.vkGetPipelineCacheData(vk->handle, vk->pipeline_cache, &n, bytes);
    name_of(&p, name);
    if (bytes && r == VK_SUCCESS && (n != d->pipeline_cache_bytes || hth_hash(bytes, n) != vk->pipeline_cache_hash))
        hth_diskcache_put(name, mark_of(&p, &d->info), bytes, n);
    hth_free(bytes);
}

void hth_vk_pipeline_cache_close(hth_device *d)
{
    hth_vk_device *vk = d->priv;
    if (!vk->pipeline_cache) return;
    if (vk->compiled && !d->lost) keep(d);
    vk->call.vkDestroyPipelineCache(vk->handle, vk->pipeline_cache, NULL);
}
