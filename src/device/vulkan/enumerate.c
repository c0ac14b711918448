/* Enumerates the Vulkan devices, and says why one cannot be used. */
#include "base/alloc.h"
#include "device/driver_faults.h"
#include "device/vulkan/vulkan_int.h"

#include <stdio.h>
#include <string.h>

/* Dozen passes on the kind of the device that it translates for. */
static hth_device_kind kind_of(VkPhysicalDeviceType type, VkDriverId driver)
{
    if (driver == VK_DRIVER_ID_MESA_DOZEN) return HTH_DEVICE_INTEGRATED;
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_CPU: return HTH_DEVICE_CPU;
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return HTH_DEVICE_DISCRETE;
    default: return HTH_DEVICE_INTEGRATED; /* virtual devices too: what they run on is not known */
    }
}

/* A compute queue family, preferably without graphics: its waits do not delay rendering. UINT32_MAX: none. A second
 * queue is of the same family, so that buffers need no transfer of ownership. */
static void find_family(const hth_vk_instance *vk, hth_vk_physical_device *f)
{
    enum { MAX = 16 };
    VkQueueFamilyProperties families[MAX];
    uint32_t n = MAX;
    vk->vkGetPhysicalDeviceQueueFamilyProperties(f->handle, &n, families);
    f->family = UINT32_MAX;
    for (uint32_t i = n; i-- > 0;) {
        VkQueueFlags flags = families[i].queueFlags;
        if (!(flags & VK_QUEUE_COMPUTE_BIT)) continue;
        if (f->family == UINT32_MAX || !(flags & VK_QUEUE_GRAPHICS_BIT)) f->family = i;
    }
    uint32_t n_bit = f->family == UINT32_MAX ? 0 : families[f->family].timestampValidBits;
    f->info.has_second_queue = f->family != UINT32_MAX && families[f->family].queueCount > 1;
    f->timestamp_mask = n_bit == 0 ? 0 : UINT64_MAX >> (64 - n_bit);
}

static hearth_status find_extension(const hth_vk_instance *vk, VkPhysicalDevice device, const char *name,
                                    bool *found, hearth_error *err)
{
    uint32_t n = 0;
    VkResult r = vk->vkEnumerateDeviceExtensionProperties(device, NULL, &n, NULL);
    *found = false;
    if (r != VK_SUCCESS || n == 0) return HEARTH_OK;
    VkExtensionProperties *all = hth_alloc(n, sizeof *all);
    if (!all) return hth_fail_memory(err, n * sizeof *all, "the extensions of a Vulkan device");
    r = vk->vkEnumerateDeviceExtensionProperties(device, NULL, &n, all);
    for (uint32_t i = 0; (r == VK_SUCCESS || r == VK_INCOMPLETE) && i < n; i++)
        if (strcmp(all[i].extensionName, name) == 0) *found = true;
    hth_free(all);
    return HEARTH_OK;
}

/* The largest device-local heap, and what this process may still use of it; 0: the driver does not report it. Some
 * drivers report more than the heap size. */
static hearth_status find_memory(const hth_vk_instance *vk, VkPhysicalDevice device, hth_vk_physical_device *f,
                                 hearth_error *err)
{
    hth_device_info *info = &f->info;
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 memory = {.sType =
                                                    VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    hearth_status st = find_extension(vk, device, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME, &f->has_memory_budget, err);
    if (st != HEARTH_OK) return st;
    if (f->has_memory_budget) memory.pNext = &budget;
    vk->vkGetPhysicalDeviceMemoryProperties2(device, &memory);
    const VkPhysicalDeviceMemoryProperties *m = &memory.memoryProperties;
    for (uint32_t i = 0; i < m->memoryHeapCount; i++) {
        uint64_t size = m->memoryHeaps[i].size, left = budget.heapBudget[i];
        if (!(m->memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) || size <= info->memory) continue;
        info->memory = size, info->budget = 0, f->heap = i;
        if (left == 0) continue;
        left = left > budget.heapUsage[i] ? left - budget.heapUsage[i] : 1; /* 0 would mean unknown */
        info->budget = left < size ? left : size;
    }
    return HEARTH_OK;
}

/* Signed 8-bit products without saturation, at subgroup scope. */
static bool is_int8(const VkCooperativeMatrixPropertiesKHR *p)
{
    return p->AType == VK_COMPONENT_TYPE_SINT8_KHR && p->BType == VK_COMPONENT_TYPE_SINT8_KHR &&
           p->CType == VK_COMPONENT_TYPE_SINT32_KHR && p->ResultType == VK_COMPONENT_TYPE_SINT32_KHR &&
           p->scope == VK_SCOPE_SUBGROUP_KHR && !p->saturatingAccumulation;
}

static hearth_status find_shapes(const hth_vk_instance *vk, VkPhysicalDevice device, hth_device_info *info,
                                 hearth_error *err)
{
    uint32_t n = 0;
    VkResult r = vk->vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR(device, &n, NULL);
    if (r != VK_SUCCESS || n == 0) return HEARTH_OK;
    VkCooperativeMatrixPropertiesKHR *all = hth_alloc(n, sizeof *all);
    if (!all) return hth_fail_memory(err, n * sizeof *all, "the cooperative matrices of a Vulkan device");
    for (uint32_t i = 0; i < n; i++) all[i].sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
    r = vk->vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR(device, &n, all);
    for (uint32_t i = 0; (r == VK_SUCCESS || r == VK_INCOMPLETE) && i < n; i++)
        if (is_int8(&all[i]) && info->n_shape < HTH_MAX_COOPMAT_SHAPE)
            info->shapes[info->n_shape++] = (hth_coopmat_shape){all[i].MSize, all[i].NSize, all[i].KSize};
    hth_free(all);
    return HEARTH_OK;
}

/* Further requirements of cooperative matrix shaders (shaders/tiles.glsl): 8-bit integers, the Vulkan memory
 * model, and full subgroups. Where that model is enabled, atomics of all shaders need its device scope. */
static hearth_status find_coopmat(const hth_vk_instance *vk, VkPhysicalDevice device, hth_vk_physical_device *f,
                                   hearth_error *err)
{
    hth_device_info *info = &f->info;
    VkPhysicalDeviceSubgroupSizeControlProperties sizes = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR};
    VkPhysicalDeviceSubgroupSizeControlFeatures subgroups = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES, .pNext = &matrix};
    VkPhysicalDeviceVulkan12Features more = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                             .pNext = &subgroups};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = &more};
    VkPhysicalDeviceCooperativeMatrixPropertiesKHR stages = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_PROPERTIES_KHR, .pNext = &sizes};
    VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                              .pNext = &stages};
    bool listed, controls;
    hearth_status st = find_extension(vk, device, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME, &listed, err);
    if (st == HEARTH_OK)
        st = find_extension(vk, device, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME, &controls, err);
    if (st != HEARTH_OK) return st;
    if (!listed || !controls || !vk->vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR) return HEARTH_OK;
    vk->vkGetPhysicalDeviceFeatures2(device, &features);
    vk->vkGetPhysicalDeviceProperties2(device, &properties);
    bool computes = stages.cooperativeMatrixSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT;
    if (!matrix.cooperativeMatrix || !computes || !subgroups.computeFullSubgroups || !more.shaderInt8 ||
        !more.vulkanMemoryModel || !more.vulkanMemoryModelDeviceScope)
        return HEARTH_OK;
    f->has_subgroup_size = subgroups.subgroupSizeControl &&
                           sizes.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT &&
                           info->subgroup_size >= sizes.minSubgroupSize && info->subgroup_size <= sizes.maxSubgroupSize;
    st = find_shapes(vk, device, info, err);
    if (info->n_shape > 0) info->features |= HTH_FEATURE_COOPMAT;
    return st;
}

/* Per-element operations. Shaders that use them are SPIR-V 1.6 (Vulkan 1.3) and declare their workgroup size in
 * its way (maintenance4). Listed as unused: without 8-bit matrices, or where the driver has only other parts of
 * the extension. */
static hearth_status find_coopmat2(const hth_vk_instance *vk, VkPhysicalDevice device, uint32_t version,
                                   hth_device_info *info, hearth_error *err)
{
    VkPhysicalDeviceCooperativeMatrix2FeaturesNV elements = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV};
    VkPhysicalDeviceMaintenance4Features sizes = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_FEATURES, .pNext = &elements};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = &sizes};
    bool listed;
    hearth_status st = find_extension(vk, device, VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME, &listed, err);
    if (st != HEARTH_OK || !listed) return st;
    if (version >= VK_API_VERSION_1_3) vk->vkGetPhysicalDeviceFeatures2(device, &features);
    bool usable = info->features & HTH_FEATURE_COOPMAT && sizes.maintenance4 &&
                  elements.cooperativeMatrixPerElementOperations;
    if (usable) info->features |= HTH_FEATURE_COOPMAT2;
    else info->unused_features |= HTH_FEATURE_COOPMAT2;
    return HEARTH_OK;
}

/* Whether buffers that shaders read can be the host's own memory. */
static hearth_status find_import(const hth_vk_instance *vk, VkPhysicalDevice device, hth_vk_physical_device *f,
                                 hearth_error *err)
{
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT host = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
    VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &host};
    VkPhysicalDeviceExternalBufferInfo buffer = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO,
                                                 .usage = HTH_VK_IMPORT_USAGE,
                                                 .handleType = HTH_VK_IMPORT_TYPE};
    VkExternalBufferProperties external = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES};
    bool listed;
    hearth_status st = find_extension(vk, device, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME, &listed, err);
    if (st != HEARTH_OK || !listed) return st;
    vk->vkGetPhysicalDeviceProperties2(device, &properties);
    vk->vkGetPhysicalDeviceExternalBufferProperties(device, &buffer, &external);
    f->import_alignment = host.minImportedHostPointerAlignment;
    bool usable = f->import_alignment > 0 && external.externalMemoryProperties.externalMemoryFeatures &
                                                 VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT;
    if (usable) f->info.features |= HTH_FEATURE_IMPORT;
    return HEARTH_OK;
}

uint64_t hth_vk_budget(const hth_device *d)
{
    const hth_vk_device *vk = d->priv;
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 memory = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, .pNext = &budget};
    if (!vk->physical.has_memory_budget) return 0;
    vk->instance.vkGetPhysicalDeviceMemoryProperties2(vk->physical.handle, &memory);
    return budget.heapBudget[vk->physical.heap];
}

/* Queries integer dot products as the extension, which drivers of 1.3 have too. */
static hearth_status find_features(const hth_vk_instance *vk, VkPhysicalDevice device, hth_device_info *info,
                                   hearth_error *err)
{
    VkPhysicalDeviceShaderIntegerDotProductFeatures dot = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES};
    VkPhysicalDeviceTimelineSemaphoreFeatures timeline = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = &timeline};
    VkPhysicalDeviceShaderIntegerDotProductProperties speed = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES};
    VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    bool has_dot;
    hearth_status st =
        find_extension(vk, device, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME, &has_dot, err);
    if (st != HEARTH_OK) return st;
    if (has_dot) timeline.pNext = &dot, properties.pNext = &speed;
    vk->vkGetPhysicalDeviceFeatures2(device, &features);
    vk->vkGetPhysicalDeviceProperties2(device, &properties);
    bool is_fast = dot.shaderIntegerDotProduct && speed.integerDotProduct4x8BitPackedSignedAccelerated;
    info->features = (timeline.timelineSemaphore ? HTH_FEATURE_TIMELINE : 0u) |
                     (dot.shaderIntegerDotProduct ? HTH_FEATURE_INT_DOT : 0u) | (is_fast ? HTH_FEATURE_FAST_DOT : 0u);
    return HEARTH_OK;
}

static uint32_t float_controls_of(const VkPhysicalDeviceFloatControlsProperties *p)
{
    return (p->shaderDenormPreserveFloat32 ? HTH_VK_DENORM_PRESERVE : 0u) |
           (p->shaderDenormPreserveFloat16 ? HTH_VK_DENORM_PRESERVE_16 : 0u) |
           (p->shaderSignedZeroInfNanPreserveFloat32 ? HTH_VK_SIGNED_ZERO_INF_NAN_PRESERVE : 0u) |
           (p->shaderRoundingModeRTEFloat32 ? HTH_VK_ROUNDING_RTE : 0u);
}

static hearth_status fill_physical_device(const hth_vk_instance *vk, VkPhysicalDevice device, uint32_t without,
                             hth_vk_physical_device *f, hearth_error *err)
{
    VkPhysicalDeviceFloatControlsProperties floats = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES};
    VkPhysicalDeviceDriverProperties driver = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES,
                                               .pNext = &floats};
    VkPhysicalDeviceSubgroupProperties subgroups = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES, .pNext = &driver};
    VkPhysicalDeviceMaintenance3Properties sizes = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES, .pNext = &subgroups};
    VkPhysicalDeviceIDProperties id = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES,
                                       .pNext = &sizes};
    VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                              .pNext = &id};
    vk->vkGetPhysicalDeviceProperties2(device, &properties);
    const VkPhysicalDeviceProperties *p = &properties.properties;
    hth_device_info *info = &f->info;
    *f = (hth_vk_physical_device){.handle = device, .float_controls = float_controls_of(&floats),
                                  .timestamp_ns = (double)p->limits.timestampPeriod};
    find_family(vk, f);
    info->kind = kind_of(p->deviceType, driver.driverID);
    info->driver_id = (uint32_t)driver.driverID;
    info->driver_version = p->driverVersion;
    snprintf(info->name, sizeof info->name, "%s", p->deviceName);
    snprintf(info->driver, sizeof info->driver, "%.100s %.100s", driver.driverName, driver.driverInfo);
    memcpy(info->uuid, id.deviceUUID, sizeof info->uuid);
    info->max_binding_size = p->limits.maxStorageBufferRange;
    info->alignment = (uint32_t)p->limits.minStorageBufferOffsetAlignment;
    info->max_shared_memory = p->limits.maxComputeSharedMemorySize;
    info->max_workgroup_size = p->limits.maxComputeWorkGroupInvocations;
    memcpy(info->max_groups, p->limits.maxComputeWorkGroupCount, sizeof info->max_groups);
    info->max_allocation = sizes.maxMemoryAllocationSize;
    info->subgroup_size = subgroups.subgroupSize;
    without |= hth_driver_avoided(info);
    hearth_status st = find_extension(vk, device, HTH_VK_PORTABILITY_SUBSET, &f->is_subset, err);
    if (f->is_subset && info->kind == HTH_DEVICE_DISCRETE) info->kind = HTH_DEVICE_INTEGRATED; /* a layered driver */
    if (st == HEARTH_OK) st = find_memory(vk, device, f, err);
    if (st == HEARTH_OK) st = find_features(vk, device, info, err);
    if (st == HEARTH_OK && p->apiVersion >= VK_API_VERSION_1_2 && !(without & HTH_FEATURE_COOPMAT))
        st = find_coopmat(vk, device, f, err);
    if (st == HEARTH_OK) st = find_coopmat2(vk, device, p->apiVersion, info, err);
    if (st == HEARTH_OK) st = find_import(vk, device, f, err);
    if (st != HEARTH_OK) return st;
    if (without & HTH_FEATURE_COOPMAT) without |= HTH_FEATURE_COOPMAT2, info->n_shape = 0;
    if (without & HTH_FEATURE_INT_DOT) without |= HTH_FEATURE_FAST_DOT;
    info->features &= ~without, info->unused_features &= ~without;
    const char *missing = NULL;
    if (p->apiVersion < VK_API_VERSION_1_2) missing = "Vulkan 1.2";
    else if (!(info->features & HTH_FEATURE_TIMELINE)) missing = "timelineSemaphore";
    else if (f->family == UINT32_MAX) missing = "a queue that computes";
    if (missing) snprintf(info->unsupported_reason, sizeof info->unsupported_reason, "its driver lacks %s", missing);
    return HEARTH_OK;
}

hearth_status hth_vk_find(const hth_vk_instance *vk, uint32_t without, hth_vk_physical_device physical[HTH_MAX_DEVICE],
                          size_t *n, hearth_error *err)
{
    VkPhysicalDevice devices[HTH_MAX_DEVICE];
    uint32_t count = HTH_MAX_DEVICE;
    *n = 0;
    VkResult r = vk->vkEnumeratePhysicalDevices(vk->handle, &count, devices);
    if (r != VK_SUCCESS && r != VK_INCOMPLETE) return hth_vk_fail(err, NULL, "vkEnumeratePhysicalDevices", r);
    hearth_status st = HEARTH_OK;
    for (uint32_t i = 0; st == HEARTH_OK && i < count; i++)
        st = fill_physical_device(vk, devices[i], without, &physical[(*n)++], err);
    return st;
}
