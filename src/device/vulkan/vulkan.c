/* Opens and closes a Vulkan device: "vulkan:N" in driver order, or a UUID in 32 hex digits. */
#include "device/vulkan/vulkan_int.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- selection ---------------------------------------------------------------------------------- */

static bool is_named(const hth_vk_physical_device *f, size_t i, const char *name)
{
    char number[32], uuid[33];
    snprintf(number, sizeof number, "vulkan:%zu", i);
    for (int k = 0; k < 16; k++) snprintf(uuid + 2 * k, 3, "%02x", f->info.uuid[k]);
    return strcmp(name, number) == 0 || strcmp(name, uuid) == 0;
}

static hearth_status select_device(hth_vk_device *vk, const hth_device_spec *spec, hearth_error *err)
{
    hth_vk_physical_device physical[HTH_MAX_DEVICE];
    size_t n;
    const char *name = spec->name;
    hearth_status st = hth_vk_find(&vk->instance, spec->disabled_features, physical, &n, err);
    if (st != HEARTH_OK) return st;
    for (size_t i = 0; i < n; i++) {
        if (!is_named(&physical[i], i, name)) continue;
        vk->physical = physical[i];
        if (physical[i].info.unsupported_reason[0] == '\0') return HEARTH_OK;
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s (%s): %s", name, physical[i].info.name,
                        physical[i].info.unsupported_reason);
    }
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                    "%s: there is no such device; Vulkan knows %zu: see hearth devices", name, n);
}

/* ---- opening --------------------------------------------------------------------------------------- */

static hearth_status make_device(hth_vk_device *vk, hearth_error *err)
{
    const float priorities[HTH_N_QUEUE] = {1.0f, 1.0f};
    VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                     .queueFamilyIndex = vk->physical.family,
                                     .queueCount = vk->physical.info.has_second_queue ? HTH_N_QUEUE : 1,
                                     .pQueuePriorities = priorities};
    const char *extensions[6];
    uint32_t n_extension = 0;
    if (vk->physical.is_subset) extensions[n_extension++] = HTH_VK_PORTABILITY_SUBSET;
    if (vk->physical.info.features & HTH_FEATURE_IMPORT)
        extensions[n_extension++] = VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME;
    bool dot = vk->physical.info.features & HTH_FEATURE_INT_DOT;
    bool coopmat = vk->physical.info.features & HTH_FEATURE_COOPMAT;
    bool coopmat2 = vk->physical.info.features & HTH_FEATURE_COOPMAT2;
    VkPhysicalDeviceMaintenance4Features size_features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_FEATURES, .maintenance4 = VK_TRUE};
    VkPhysicalDeviceCooperativeMatrix2FeaturesNV element_features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV,
        .pNext = &size_features,
        .cooperativeMatrixPerElementOperations = VK_TRUE};
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix_features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR,
        .cooperativeMatrix = VK_TRUE};
    VkPhysicalDeviceSubgroupSizeControlFeatures subgroup_features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES,
        .pNext = &matrix_features,
        .subgroupSizeControl = vk->physical.has_subgroup_size,
        .computeFullSubgroups = VK_TRUE};
    VkPhysicalDeviceShaderIntegerDotProductFeatures dot_features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES,
        .shaderIntegerDotProduct = VK_TRUE};
    VkPhysicalDeviceVulkan12Features features = {.sType =
                                                     VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                                 .shaderInt8 = coopmat,
                                                 .timelineSemaphore = VK_TRUE,
                                                 .vulkanMemoryModel = coopmat,
                                                 .vulkanMemoryModelDeviceScope = coopmat};
    if (dot) {
        features.pNext = &dot_features;
        extensions[n_extension++] = VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME;
    }
    if (coopmat) {
        matrix_features.pNext = features.pNext, features.pNext = &subgroup_features;
        extensions[n_extension++] = VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME;
        extensions[n_extension++] = VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME;
    }
    if (coopmat2) {
        size_features.pNext = features.pNext, features.pNext = &element_features;
        extensions[n_extension++] = VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME;
    }
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .pNext = &features,
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queue,
                               .enabledExtensionCount = n_extension,
                               .ppEnabledExtensionNames = extensions};
    VkResult r = vk->instance.vkCreateDevice(vk->physical.handle, &info, NULL, &vk->handle);
    if (r == VK_SUCCESS) return hth_vk_dispatch_table_load(&vk->instance, vk->handle, &vk->call, err);
    vk->handle = NULL;
    return hth_vk_fail(err, NULL, "vkCreateDevice", r);
}

static hearth_status make_timeline(hth_device *d, VkSemaphore *out, hearth_error *err)
{
    hth_vk_device *vk = d->priv;
    VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                      .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
    VkResult r = vk->call.vkCreateSemaphore(vk->handle, &info, NULL, out);
    return r == VK_SUCCESS ? HEARTH_OK : hth_vk_fail(err, d, "vkCreateSemaphore", r);
}

static hearth_status make_rest(hth_device *d, hearth_error *err)
{
    hth_vk_device *vk = d->priv;
    VkPhysicalDeviceMemoryProperties2 memory = {.sType =
                                                    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                    .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                    .queueFamilyIndex = vk->physical.family};
    for (uint32_t i = 0; i < HTH_N_QUEUE; i++)
        vk->call.vkGetDeviceQueue(vk->handle, vk->physical.family, vk->physical.info.has_second_queue ? i : 0,
                                  &vk->queues[i]);
    vk->instance.vkGetPhysicalDeviceMemoryProperties2(vk->physical.handle, &memory);
    vk->memory = memory.memoryProperties;
    VkResult r = vk->call.vkCreateCommandPool(vk->handle, &pool, NULL, &vk->commands);
    if (r != VK_SUCCESS) return hth_vk_fail(err, d, "vkCreateCommandPool", r);
    hearth_status st = make_timeline(d, &vk->host_semaphore, err);
    for (int i = 0; st == HEARTH_OK && i < HTH_N_QUEUE; i++) st = make_timeline(d, &vk->done[i], err);
    if (st == HEARTH_OK) st = hth_vk_proofs_open(d, err);
    if (st == HEARTH_OK) hth_vk_pipeline_cache_open(d);
    return st;
}

static void close_device(hth_device *d)
{
    hth_vk_device *vk = d->priv;
    hth_vk_proofs_close(d);
    if (vk->hangs) goto done; /* the driver's threads may run in its library */
    if (vk->host_semaphore) vk->call.vkDestroySemaphore(vk->handle, vk->host_semaphore, NULL);
    for (int i = 0; i < HTH_N_QUEUE; i++)
        if (vk->done[i]) vk->call.vkDestroySemaphore(vk->handle, vk->done[i], NULL);
    hth_vk_pipeline_cache_close(d);
    if (vk->commands) vk->call.vkDestroyCommandPool(vk->handle, vk->commands, NULL);
    if (vk->handle && vk->call.vkDestroyDevice) vk->call.vkDestroyDevice(vk->handle, NULL);
    hth_vk_instance_close(&vk->instance);
done:
    hth_free(vk);
}

static hearth_status open_device(hth_device *d, const hth_device_spec *spec, hearth_error *err)
{
    hth_vk_device *vk = hth_alloc(1, sizeof *vk);
    if (!vk) return hth_fail_memory(err, sizeof *vk, "a Vulkan device");
    d->priv = vk;
    hearth_status st = hth_vk_instance_open(&vk->instance, spec->validation, err);
    if (st == HEARTH_OK) st = select_device(vk, spec, err);
    d->info = vk->physical.info;
    if (st == HEARTH_OK) st = make_device(vk, err);
    if (st == HEARTH_OK) st = make_rest(d, err);
    if (st != HEARTH_OK) close_device(d);
    return st;
}

/* Completes everything submitted; releases command lists that still wait for the host semaphore. */
static void stop(hth_device *d)
{
    if (d->max_wait_value > d->host_value) hth_vk_signal(d, d->max_wait_value, NULL);
    hth_vk_finish_uploads(d, NULL);
    hth_vk_finish(d);
}

static uint64_t n_validation_error(const hth_device *d)
{
    return ((const hth_vk_device *)d->priv)->instance.n_validation_error;
}

/* ---- enumeration -------------------------------------------------------------------------------------- */

hearth_status hth_vk_list(hth_device_info *out, size_t capacity, size_t *n, hearth_error *err)
{
    hth_vk_instance vk;
    hth_vk_physical_device physical[HTH_MAX_DEVICE];
    size_t count;
    *n = 0;
    hearth_status st = hth_vk_instance_open(&vk, false, err);
    if (st != HEARTH_OK) return st;
    st = hth_vk_find(&vk, 0, physical, &count, err);
    for (size_t i = 0; st == HEARTH_OK && i < count && i < capacity; i++) out[(*n)++] = physical[i].info;
    hth_vk_instance_close(&vk);
    return st;
}

const hth_backend hth_backend_vulkan = {
    .open = open_device,
    .probe = hth_vk_probe_halves,
    .stop = stop,
    .close = close_device,
    .n_validation_error = n_validation_error,
    .budget = hth_vk_budget,
    .buffer_new = hth_vk_buffer_new,
    .buffer_import = hth_vk_buffer_import,
    .buffer_free = hth_vk_buffer_release,
    .upload = hth_vk_upload,
    .download = hth_vk_download,
    .pipeline_new = hth_vk_pipeline_new,
    .pipeline_free = hth_vk_pipeline_free,
    .pipelines_save = hth_vk_pipeline_cache_save,
    .cmdlist_end = hth_vk_cmdlist_end,
    .cmdlist_free = hth_vk_cmdlist_free,
    .cmdlist_read_times = hth_vk_times_read,
    .submit = hth_vk_submit,
    .submit_beside = hth_vk_submit_beside,
    .signal = hth_vk_signal,
    .completed_value = hth_vk_completed_value,
    .wait = hth_vk_wait,
    .did_run = hth_vk_did_run,
};
