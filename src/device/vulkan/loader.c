/* The Vulkan loader, opened with dlopen, and its entry points. Without it or without a driver there is no Vulkan
 * device, and nothing else changes. */
#include "base/log.h"
#include "device/vulkan/vulkan_int.h"

#include <dlfcn.h>
#include <string.h>

static const char VALIDATION[] = "VK_LAYER_KHRONOS_validation";

/* Vulkan results in words; any other result is a driver failure, reported by number. */
static const struct {
    VkResult result;
    hearth_status status;
    const char *words;
} result_texts[] = {
    {VK_ERROR_OUT_OF_HOST_MEMORY, HEARTH_ERROR_MEMORY, "out of memory"},
    {VK_ERROR_OUT_OF_DEVICE_MEMORY, HEARTH_ERROR_MEMORY, "out of the device's memory"},
    {VK_ERROR_OUT_OF_POOL_MEMORY, HEARTH_ERROR_DEVICE, "its driver's pool is full"},
    {VK_ERROR_FRAGMENTED_POOL, HEARTH_ERROR_DEVICE, "its driver's pool is fragmented"},
    {VK_ERROR_TOO_MANY_OBJECTS, HEARTH_ERROR_DEVICE, "its driver cannot create more objects"},
    {VK_ERROR_MEMORY_MAP_FAILED, HEARTH_ERROR_DEVICE, "its memory cannot be mapped"},
    {VK_ERROR_INITIALIZATION_FAILED, HEARTH_ERROR_DEVICE, "its driver did not start"},
    {VK_ERROR_DEVICE_LOST, HEARTH_ERROR_DEVICE, "it was lost"},
    {VK_ERROR_UNKNOWN, HEARTH_ERROR_DEVICE, "its driver failed and does not say why"},
    {VK_ERROR_INVALID_EXTERNAL_HANDLE, HEARTH_ERROR_UNSUPPORTED, "its driver cannot import this memory"},
    {VK_ERROR_INCOMPATIBLE_DRIVER, HEARTH_ERROR_UNSUPPORTED,
     "no driver was found: docs/gpu.md names some; VK_LOADER_DEBUG=error says more"},
    {VK_ERROR_FEATURE_NOT_PRESENT, HEARTH_ERROR_UNSUPPORTED, "its driver lacks a feature"},
    {VK_ERROR_EXTENSION_NOT_PRESENT, HEARTH_ERROR_UNSUPPORTED, "its driver lacks an extension"},
    {VK_ERROR_LAYER_NOT_PRESENT, HEARTH_ERROR_UNSUPPORTED, "a layer is not installed"},
};

const char *hth_vk_result_string(VkResult result)
{
    for (size_t i = 0; i < sizeof result_texts / sizeof *result_texts; i++)
        if (result_texts[i].result == result) return result_texts[i].words;
    return "its driver failed";
}

static hearth_status status_of(VkResult result)
{
    for (size_t i = 0; i < sizeof result_texts / sizeof *result_texts; i++)
        if (result_texts[i].result == result) return result_texts[i].status;
    return HEARTH_ERROR_DEVICE;
}

hearth_status hth_vk_fail(hearth_error *err, const hth_device *d, const char *call, VkResult result)
{
    return hth_fail(err, status_of(result), "%s: %s (%s, %d)", d ? d->info.name : "Vulkan",
                    hth_vk_result_string(result), call, (int)result);
}

static PFN_vkVoidFunction entry(const hth_vk_instance *vk, const char *name)
{
    return vk->vkGetInstanceProcAddr(vk->handle, name);
}

static hearth_status fail_entry(const char *name, hearth_error *err)
{
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "Vulkan: %s is missing: 1.2 is needed", name);
}

/* ---- the instance ------------------------------------------------------------------------------- */

static hearth_status open_loader(hth_vk_instance *vk, hearth_error *err)
{
    /* Debian's name, Android's, macOS's */
    static const char *const names[] = {"libvulkan.so.1", "libvulkan.so", "libvulkan.1.dylib"};
    for (size_t i = 0; !vk->library && i < sizeof names / sizeof *names; i++)
        vk->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!vk->library)
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "no Vulkan loader (libvulkan.so.1) on this machine");
    void *symbol = dlsym(vk->library, "vkGetInstanceProcAddr");
    memcpy(&vk->vkGetInstanceProcAddr, &symbol,
           sizeof symbol); /* POSIX allows converting an object pointer to a function pointer */
    if (!symbol) return fail_entry("vkGetInstanceProcAddr", err);
#define GLOBAL(name)                                                                                         \
    if (!(vk->name = (PFN_##name)entry(vk, #name))) return fail_entry(#name, err);
#define INSTANCE(name)
#define OPTIONAL(name)
#define DEVICE(name)
#define OPTIONAL_DEVICE(name)
#include "device/vulkan/vk_functions.def"
#undef GLOBAL
#undef INSTANCE
#undef OPTIONAL
#undef DEVICE
#undef OPTIONAL_DEVICE
    return HEARTH_OK;
}

static hearth_status load_instance(hth_vk_instance *vk, hearth_error *err)
{
#define GLOBAL(name)
#define INSTANCE(name)                                                                                       \
    if (!(vk->name = (PFN_##name)entry(vk, #name))) return fail_entry(#name, err);
#define OPTIONAL(name) vk->name = (PFN_##name)entry(vk, #name);
#define DEVICE(name)
#define OPTIONAL_DEVICE(name)
#include "device/vulkan/vk_functions.def"
#undef GLOBAL
#undef INSTANCE
#undef OPTIONAL
#undef DEVICE
#undef OPTIONAL_DEVICE
    return HEARTH_OK;
}

hearth_status hth_vk_dispatch_table_load(const hth_vk_instance *vk, VkDevice device, hth_vk_dispatch_table *calls,
                                hearth_error *err)
{
#define GLOBAL(name)
#define INSTANCE(name)
#define OPTIONAL(name)
#define DEVICE(name)                                                                                         \
    if (!(calls->name = (PFN_##name)vk->vkGetDeviceProcAddr(device, #name))) return fail_entry(#name, err);
#define OPTIONAL_DEVICE(name) calls->name = (PFN_##name)vk->vkGetDeviceProcAddr(device, #name);
#include "device/vulkan/vk_functions.def"
#undef GLOBAL
#undef INSTANCE
#undef OPTIONAL
#undef DEVICE
#undef OPTIONAL_DEVICE
    return HEARTH_OK;
}

/* ---- the validation layer, for tests -------------------------------------------------------------- */

static VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                               VkDebugUtilsMessageTypeFlagsEXT types,
                                               const VkDebugUtilsMessengerCallbackDataEXT *data, void *user)
{
    hth_vk_instance *vk = user;
    (void)types;
    if (severity >= VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT) {
        vk->n_validation_error++;
        hth_log(HEARTH_LOG_WARN, "Vulkan: %s: %s", data->pMessageIdName ? data->pMessageIdName : "", data->pMessage);
    }
    return VK_FALSE;
}

static void open_messenger(hth_vk_instance *vk)
{
    PFN_vkCreateDebugUtilsMessengerEXT create =
        (PFN_vkCreateDebugUtilsMessengerEXT)entry(vk, "vkCreateDebugUtilsMessengerEXT");
    VkDebugUtilsMessengerCreateInfoEXT info = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
        .messageSeverity =
            VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
        .messageType =
            VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT,
        .pfnUserCallback = on_message,
        .pUserData = vk};
    if (!create || create(vk->handle, &info, NULL, &vk->messenger) != VK_SUCCESS) vk->n_validation_error++;
}

static void close_messenger(hth_vk_instance *vk)
{
    PFN_vkDestroyDebugUtilsMessengerEXT destroy =
        (PFN_vkDestroyDebugUtilsMessengerEXT)entry(vk, "vkDestroyDebugUtilsMessengerEXT");
    if (vk->messenger && destroy) destroy(vk->handle, vk->messenger, NULL);
}

/* ---- opening ---------------------------------------------------------------------------------------- */

/* Loaders list drivers of parts of Vulkan, such as MoltenVK, only to programs that ask for them. */
static bool has_portability(const hth_vk_instance *vk)
{
    enum { MAX = 64 };
    VkExtensionProperties all[MAX];
    uint32_t n = MAX;
    VkResult r = vk->vkEnumerateInstanceExtensionProperties(NULL, &n, all);
    for (uint32_t i = 0; (r == VK_SUCCESS || r == VK_INCOMPLETE) && i < n; i++)
        if (strcmp(all[i].extensionName, VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME) == 0) return true;
    return false;
}

/* The loader reports a driver's file that it cannot read as a lack of memory. */
static hearth_status fail_instance(VkResult result, hearth_error *err)
{
    if (result != VK_ERROR_OUT_OF_HOST_MEMORY) return hth_vk_fail(err, NULL, "vkCreateInstance", result);
    return hth_fail(err, HEARTH_ERROR_MEMORY,
                    "Vulkan: out of memory, or a driver's file is damaged: VK_LOADER_DEBUG=error says more");
}

hearth_status hth_vk_instance_open(hth_vk_instance *vk, bool validation, hearth_error *err)
{
    static const char *const layers[] = {VALIDATION};
    const char *extensions[2];
    static const VkValidationFeatureEnableEXT enabled[] = {
        VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
    VkValidationFeaturesEXT features = {.sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT,
                                        .enabledValidationFeatureCount = 1,
                                        .pEnabledValidationFeatures = enabled};
    VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                             .pApplicationName = "hearth",
                             .apiVersion = VK_API_VERSION_1_3}; /* the highest version used where available */
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &app};
    if (validation) {
        info.pNext = &features;
        info.enabledLayerCount = 1, info.ppEnabledLayerNames = layers;
        extensions[info.enabledExtensionCount++] = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
    }
    *vk = (hth_vk_instance){0};
    hearth_status st = open_loader(vk, err);
    if (st == HEARTH_OK && has_portability(vk)) {
        info.flags |= VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
        extensions[info.enabledExtensionCount++] = VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME;
    }
    info.ppEnabledExtensionNames = extensions;
    if (st == HEARTH_OK) {
        VkResult r = vk->vkCreateInstance(&info, NULL, &vk->handle);
        if (r != VK_SUCCESS) vk->handle = NULL, st = fail_instance(r, err);
    }
    if (st == HEARTH_OK) st = load_instance(vk, err);
    if (st == HEARTH_OK && validation) open_messenger(vk);
    if (st != HEARTH_OK) hth_vk_instance_close(vk);
    return st;
}

void hth_vk_instance_close(hth_vk_instance *vk)
{
    if (vk->handle) close_messenger(vk);
    if (vk->handle && vk->vkDestroyInstance) vk->vkDestroyInstance(vk->handle, NULL);
    if (vk->library) dlclose(vk->library);
    *vk = (hth_vk_instance){0};
}
