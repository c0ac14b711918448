/* Compiled pipelines kept between runs in the driver's format (VkPipelineCache), one file per device. The file is
 * not trusted: base/disk_cache.c checks its length and hash, its key names device and driver, and its header must
 * match the driver. Without a cache folder, or with a damaged file, all pipelines are compiled again. */
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

static uint64_t key_of(const VkPhysicalDeviceProperties *p, const hth_device_info *info)
{
    const uint32_t numbers[] = {p->vendorID, p->deviceID, p->driverVersion, p->apiVersion};
    uint64_t key = hth_hash(numbers, sizeof numbers);
    key = hth_hash_more(key, p->pipelineCacheUUID, sizeof p->pipelineCacheUUID);
    key = hth_hash_more(key, info->uuid, sizeof info->uuid);
    return hth_hash_more(key, info->driver, strlen(info->driver));
}

/* The header that Vulkan prescribes (VkPipelineCacheHeaderVersionOne). */
static bool header_matches(const uint8_t *bytes, size_t n, const VkPhysicalDeviceProperties *p)
{
    VkPipelineCacheHeaderVersionOne header;
    if (n < sizeof header) return false;
    memcpy(&header, bytes, sizeof header);
    return header.headerSize >= sizeof header && header.headerSize <= n &&
           header.headerVersion == VK_PIPELINE_CACHE_HEADER_VERSION_ONE && header.vendorID == p->vendorID &&
           header.deviceID == p->deviceID &&
           memcmp(header.pipelineCacheUUID, p->pipelineCacheUUID, sizeof header.pipelineCacheUUID) == 0;
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
    uint8_t *bytes = hth_diskcache_get(name, key_of(&p, &d->info), &n);
    if (bytes && header_matches(bytes, n, &p)) vk->pipeline_cache = make(vk, bytes, n);
    if (vk->pipeline_cache) d->pipeline_cache_bytes = n, vk->pipeline_cache_hash = hth_hash(bytes, n);
    else vk->pipeline_cache = make(vk, NULL, 0);
    hth_free(bytes);
}

/* Writes the current cache to disk if it changed. What has no whole header (lavapipe of Mesa 26 gives 20 bytes) would be
 * refused later. */
static void save(hth_device *d)
{
    hth_vk_device *vk = d->priv;
    VkPhysicalDeviceProperties p = properties_of(vk);
    char name[HTH_DISKCACHE_NAME];
    size_t n = 0;
    VkResult r = vk->call.vkGetPipelineCacheData(vk->handle, vk->pipeline_cache, &n, NULL);
    uint8_t *bytes = r == VK_SUCCESS && n > 0 && n <= HTH_DISKCACHE_MAX ? hth_alloc(1, n) : NULL;
    if (bytes) r = vk->call.vkGetPipelineCacheData(vk->handle, vk->pipeline_cache, &n, bytes);
    name_of(&p, name);
    uint64_t hash = bytes && r == VK_SUCCESS ? hth_hash(bytes, n) : vk->pipeline_cache_hash;
    if (hash != vk->pipeline_cache_hash && header_matches(bytes, n, &p)) hth_diskcache_put(name, key_of(&p, &d->info), bytes, n);
    vk->pipeline_cache_hash = hash;
    hth_free(bytes);
}

void hth_vk_pipeline_cache_save(hth_device *d)
{
    hth_vk_device *vk = d->priv;
    if (vk->pipeline_cache && vk->compiled) save(d);
    vk->compiled = false;
}

void hth_vk_pipeline_cache_close(hth_device *d)
{
    hth_vk_device *vk = d->priv;
    if (!vk->pipeline_cache) return;
    if (!d->lost) hth_vk_pipeline_cache_save(d);
    vk->call.vkDestroyPipelineCache(vk->handle, vk->pipeline_cache, NULL);
}
