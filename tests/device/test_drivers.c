/* What a machine's Vulkan may be: no loader, no driver, no device, a driver that lacks something, or lies
 * about its memory. Each has its reason, by name, and nothing that a driver says is taken for more than it
 * can be. The loader's answers are changed on their way (tests/CMakeLists.txt: --wrap). */
#include "device/vulkan/vulkan_int.h"
#include "support/test.h"

/* ---- what the loader answers ------------------------------------------------------------------------ */

typedef struct lies {
    bool no_loader, no_device, no_timeline, no_compute, has_memory_budget, is_portability, no_memory;
    bool two_queues, drops_beside; /* a family has two; what comes to the second one is said to be done */
    VkResult pointer, import;      /* of what is asked about memory of the host, and of importing it */
    bool two_types;                /* memory of the host is the device's own, or not */
    uint64_t allocation;           /* the largest one; 0: as it is */
    const char *missing; /* an entry point */
    uint32_t version;    /* 0: as it is */
    uint64_t budget, usage;
} lies;
static lies now;

static PFN_vkGetInstanceProcAddr real;
static VkInstance instance;

#define REAL(name) ((PFN_##name)real(instance, #name))

static VKAPI_ATTR VkResult VKAPI_CALL enumerate(VkInstance of, uint32_t *n, VkPhysicalDevice *devices)
{
    if (!now.no_device) return REAL(vkEnumeratePhysicalDevices)(of, n, devices);
    *n = 0;
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL properties(VkPhysicalDevice device, VkPhysicalDeviceProperties2 *p)
{
    REAL(vkGetPhysicalDeviceProperties2)(device, p);
    if (now.version) p->properties.apiVersion = now.version;
    if (now.is_portability) p->properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
    for (VkBaseOutStructure *s = p->pNext; now.allocation > 0 && s; s = s->pNext)
        if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES)
            ((VkPhysicalDeviceMaintenance3Properties *)(void *)s)->maxMemoryAllocationSize = now.allocation;
}

static VKAPI_ATTR void VKAPI_CALL features(VkPhysicalDevice device, VkPhysicalDeviceFeatures2 *p)
{
    REAL(vkGetPhysicalDeviceFeatures2)(device, p);
    for (VkBaseOutStructure *s = p->pNext; now.no_timeline && s; s = s->pNext)
        if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES)
            ((VkPhysicalDeviceTimelineSemaphoreFeatures *)(void *)s)->timelineSemaphore = VK_FALSE;
}

static VKAPI_ATTR void VKAPI_CALL families(VkPhysicalDevice device, uint32_t *n, VkQueueFamilyProperties *p)
{
    REAL(vkGetPhysicalDeviceQueueFamilyProperties)(device, n, p);
    for (uint32_t i = 0; now.no_compute && p && i < *n; i++) p[i].queueFlags &= ~(VkQueueFlags)VK_QUEUE_COMPUTE_BIT;
    for (uint32_t i = 0; now.two_queues && p && i < *n; i++) p[i].queueCount = 2;
}

/* A loader that hides a driver of a part of Vulkan from programs that do not ask for it. */
static bool asked, subset_enabled;

static VKAPI_ATTR VkResult VKAPI_CALL instance_extensions(const char *layer, uint32_t *n, VkExtensionProperties *p)
{
    if (!now.is_portability) {
        PFN_vkEnumerateInstanceExtensionProperties of =
            (PFN_vkEnumerateInstanceExtensionProperties)real(NULL, "vkEnumerateInstanceExtensionProperties");
        return of(layer, n, p);
    }
    if (p && *n > 0) snprintf(p[0].extensionName, sizeof p[0].extensionName, "VK_KHR_portability_enumeration");
    *n = 1;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info, const VkAllocationCallbacks *a,
                                                      VkInstance *out)
{
    VkInstanceCreateInfo plain = *info;
    if (now.no_memory) return VK_ERROR_OUT_OF_HOST_MEMORY;
    asked = info->flags & VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR && info->enabledExtensionCount == 1 &&
            strcmp(info->ppEnabledExtensionNames[0], "VK_KHR_portability_enumeration") == 0;
    if (now.is_portability) plain.flags = 0, plain.enabledExtensionCount = 0; /* this machine's may not have it */
    return ((PFN_vkCreateInstance)real(NULL, "vkCreateInstance"))(&plain, a, out);
}

/* Both queues are the driver's one. */
static uint32_t n_asked_queue, n_got_second, n_wait; /* n_wait: semaphores that the last submission waits for */
static VkDevice last_device;

#define REAL_OF_DEVICE(name) ((PFN_##name)REAL(vkGetDeviceProcAddr)(last_device, #name))

static VKAPI_ATTR void VKAPI_CALL get_queue(VkDevice device, uint32_t family, uint32_t i, VkQueue *out)
{
    n_got_second += i == 1;
    REAL_OF_DEVICE(vkGetDeviceQueue)(device, family, now.two_queues ? 0 : i, out);
}

static VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue queue, uint32_t n, const VkSubmitInfo *infos, VkFence fence)
{
    const VkTimelineSemaphoreSubmitInfo *t = n > 0 ? infos->pNext : NULL;
    bool waits = n > 0 && infos->waitSemaphoreCount > 0;
    n_wait = n > 0 ? infos->waitSemaphoreCount : 0;
    if (!now.drops_beside || !t || waits) return REAL_OF_DEVICE(vkQueueSubmit)(queue, n, infos, fence);
    VkSemaphoreSignalInfo signal = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO,
                                    .semaphore = infos->pSignalSemaphores[0],
                                    .value = t->pSignalSemaphoreValues[0]};
    return REAL_OF_DEVICE(vkSignalSemaphore)(last_device, &signal);
}

static uint32_t imported_type;

static VKAPI_ATTR VkResult VKAPI_CALL host_pointer(VkDevice device, VkExternalMemoryHandleTypeFlagBits type,
                                                   const void *at, VkMemoryHostPointerPropertiesEXT *p)
{
    if (now.pointer != VK_SUCCESS) return now.pointer;
    VkResult result = REAL_OF_DEVICE(vkGetMemoryHostPointerPropertiesEXT)(device, type, at, p);
    if (now.two_types) p->memoryTypeBits = 7;
    return result;
}

static VKAPI_ATTR void VKAPI_CALL requirements(VkDevice device, VkBuffer buffer, VkMemoryRequirements *needs)
{
    REAL_OF_DEVICE(vkGetBufferMemoryRequirements)(device, buffer, needs);
    if (now.two_types) needs->memoryTypeBits = 7;
}

static VKAPI_ATTR VkResult VKAPI_CALL allocate(VkDevice device, const VkMemoryAllocateInfo *info,
                                               const VkAllocationCallbacks *a, VkDeviceMemory *out)
{
    VkMemoryAllocateInfo own = *info;
    if (info->pNext && now.import != VK_SUCCESS) return now.import;
    if (info->pNext) imported_type = info->memoryTypeIndex;
    if (now.two_types) own.memoryTypeIndex = 0;
    return REAL_OF_DEVICE(vkAllocateMemory)(device, &own, a, out);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_entry(VkDevice device, const char *name)
{
    last_device = device;
    if (strcmp(name, "vkGetDeviceQueue") == 0) return (PFN_vkVoidFunction)get_queue;
    PFN_vkVoidFunction there = REAL(vkGetDeviceProcAddr)(device, name);
    if (strcmp(name, "vkQueueSubmit") == 0) return (PFN_vkVoidFunction)submit;
    if (strcmp(name, "vkGetBufferMemoryRequirements") == 0) return (PFN_vkVoidFunction)requirements;
    if (strcmp(name, "vkAllocateMemory") == 0) return (PFN_vkVoidFunction)allocate;
    bool is_import = strcmp(name, "vkGetMemoryHostPointerPropertiesEXT") == 0;
    return is_import && there ? (PFN_vkVoidFunction)host_pointer : there;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice device, const VkDeviceCreateInfo *info,
                                                    const VkAllocationCallbacks *a, VkDevice *out)
{
    const char *names[16];
    VkDeviceCreateInfo plain = *info;
    VkDeviceQueueCreateInfo queue = *info->pQueueCreateInfos;
    n_asked_queue = queue.queueCount;
    if (now.two_queues) queue.queueCount = 1;
    plain.pQueueCreateInfos = &queue;
    plain.enabledExtensionCount = 0, plain.ppEnabledExtensionNames = names;
    for (uint32_t i = 0; i < info->enabledExtensionCount && i < 16; i++) {
        bool subset = strcmp(info->ppEnabledExtensionNames[i], "VK_KHR_portability_subset") == 0;
        subset_enabled |= subset;
        if (!subset) names[plain.enabledExtensionCount++] = info->ppEnabledExtensionNames[i];
    }
    return REAL(vkCreateDevice)(device, &plain, a, out);
}

/* One more than there are. */
static VKAPI_ATTR VkResult VKAPI_CALL extensions(VkPhysicalDevice device, const char *layer, uint32_t *n,
                                                 VkExtensionProperties *p)
{
    uint32_t all = 0;
    VkResult r = REAL(vkEnumerateDeviceExtensionProperties)(device, layer, &all, NULL);
    if (!now.has_memory_budget && !now.is_portability)
        return REAL(vkEnumerateDeviceExtensionProperties)(device, layer, n, p);
    if (r == VK_SUCCESS && p && *n > all) {
        r = REAL(vkEnumerateDeviceExtensionProperties)(device, layer, &all, p);
        snprintf(p[all].extensionName, sizeof p[all].extensionName, "%s",
                 now.is_portability ? "VK_KHR_portability_subset" : VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    }
    *n = all + 1;
    return r;
}

static VKAPI_ATTR void VKAPI_CALL memory(VkPhysicalDevice device, VkPhysicalDeviceMemoryProperties2 *p)
{
    REAL(vkGetPhysicalDeviceMemoryProperties2)(device, p);
    VkMemoryType *types = p->memoryProperties.memoryTypes;
    if (now.two_types) {
        p->memoryProperties.memoryTypeCount = 3;
        types[1] = types[2] = types[0]; /* cached memory that is not flushed; memory of the host */
        types[1].propertyFlags = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
        types[2].propertyFlags &= ~(VkMemoryPropertyFlags)VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    }
    for (VkBaseOutStructure *s = p->pNext; now.has_memory_budget && s; s = s->pNext) {
        if (s->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT) continue;
        VkPhysicalDeviceMemoryBudgetPropertiesEXT *b = (void *)s;
        for (uint32_t i = 0; i < VK_MAX_MEMORY_HEAPS; i++) b->heapBudget[i] = now.budget, b->heapUsage[i] = now.usage;
    }
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL entry(VkInstance of, const char *name)
{
    static const struct {
        const char *name;
        PFN_vkVoidFunction function;
    } ours[] = {{"vkEnumeratePhysicalDevices", (PFN_vkVoidFunction)enumerate},
                {"vkGetPhysicalDeviceProperties2", (PFN_vkVoidFunction)properties},
                {"vkGetPhysicalDeviceFeatures2", (PFN_vkVoidFunction)features},
                {"vkGetPhysicalDeviceQueueFamilyProperties", (PFN_vkVoidFunction)families},
                {"vkEnumerateDeviceExtensionProperties", (PFN_vkVoidFunction)extensions},
                {"vkCreateDevice", (PFN_vkVoidFunction)create_device},
                {"vkGetDeviceProcAddr", (PFN_vkVoidFunction)device_entry},
                {"vkGetPhysicalDeviceMemoryProperties2", (PFN_vkVoidFunction)memory}};
    if (of) instance = of;
    if (now.missing && strcmp(name, now.missing) == 0) return NULL;
    if (strcmp(name, "vkEnumerateInstanceExtensionProperties") == 0) return (PFN_vkVoidFunction)instance_extensions;
    if (strcmp(name, "vkCreateInstance") == 0) return (PFN_vkVoidFunction)create_instance;
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (of && strcmp(name, ours[i].name) == 0) return ours[i].function;
    return real(of, name);
}

void *__real_dlopen(const char *name, int how);
void *__wrap_dlopen(const char *name, int how);
void *__real_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name);

void *__wrap_dlopen(const char *name, int how) { return now.no_loader ? NULL : __real_dlopen(name, how); }

void *__wrap_dlsym(void *library, const char *name)
{
    PFN_vkGetInstanceProcAddr own = entry;
    void *at = __real_dlsym(library, name);
    if (strcmp(name, "vkGetInstanceProcAddr") != 0 || !at) return at;
    if (now.missing && strcmp(name, now.missing) == 0) return NULL;
    memcpy(&real, &at, sizeof real);
    memcpy(&at, &own, sizeof at);
    return at;
}

/* ---- refusals --------------------------------------------------------------------------------------- */

static bool has_vulkan(void)
{
    hth_device *d = NULL;
    hearth_error why = {0};
    now = (lies){0};
    hearth_status st = hth_device_open(&(hth_device_spec){.name = "vulkan:0"}, &d, &why);
    hth_device_close(d);
    if (st != HEARTH_OK) test_skip("%s", why.message);
    return st == HEARTH_OK;
}

/* Refused with these words; there is no GPU to be found, and others are as usable as ever. */
static void expect_refused(lies l, const char *words)
{
    hth_device *d = NULL;
    hearth_error why = {0};
    char name[32];
    now = l;
    hearth_status st = hth_device_open(&(hth_device_spec){.name = "vulkan:0"}, &d, &why);
    if (st != HEARTH_ERROR_UNSUPPORTED || d || !strstr(why.message, words))
        test_fail(__FILE__, __LINE__, "'%s', expected '%s'", why.message, words);
    hth_device_close(d);
    CHECK(!hth_device_find_discrete(name));
    CHECK_OK(hth_device_open(&(hth_device_spec){.name = "null"}, &d, err));
    hth_device_close(d);
    now = (lies){0};
}

TEST(without_a_loader_there_is_no_vulkan_and_it_says_why)
{
    hth_device_info found[HTH_MAX_DEVICE];
    char note[200];
    size_t n = 1;
    expect_refused((lies){.no_loader = true}, "no Vulkan loader (libvulkan.so.1) on this machine");
    now.no_loader = true;
    hth_device_list(found, HTH_MAX_DEVICE, &n, note);
    now.no_loader = false;
    CHECK(n == 0 && strstr(note, "libvulkan.so.1") != NULL);
}

TEST(a_loader_that_fails_says_where_to_look)
{
    hth_device_info found[HTH_MAX_DEVICE];
    char note[200];
    size_t n = 1;
    if (!has_vulkan()) return;
    now.no_memory = true;
    hth_device_list(found, HTH_MAX_DEVICE, &n, note);
    now.no_memory = false;
    CHECK(n == 0 && strstr(note, "a driver's file is damaged: VK_LOADER_DEBUG=error") != NULL);
}

TEST(a_loader_without_a_driver_is_refused)
{
    if (!has_vulkan()) return;
    const char *was = getenv("VK_ICD_FILENAMES");
    FREED char *kept = was ? strdup(was) : NULL;
    setenv("VK_ICD_FILENAMES", "/nowhere", 1);
    setenv("VK_DRIVER_FILES", "/nowhere", 1);
    expect_refused((lies){0}, "Vulkan: no driver was found: ");
    unsetenv("VK_DRIVER_FILES");
    if (kept) setenv("VK_ICD_FILENAMES", kept, 1);
    else unsetenv("VK_ICD_FILENAMES");
}

TEST(a_driver_without_a_device_is_refused)
{
    if (has_vulkan()) expect_refused((lies){.no_device = true}, "there is no such device; Vulkan knows 0");
}

TEST(an_old_driver_is_refused_by_what_it_lacks)
{
    if (!has_vulkan()) return;
    expect_refused((lies){.version = VK_API_VERSION_1_1}, "its driver lacks Vulkan 1.2");
    expect_refused((lies){.no_timeline = true}, "its driver lacks timelineSemaphore");
    expect_refused((lies){.no_compute = true}, "its driver lacks a queue that computes");
    static const char *const entries[] = {"vkGetInstanceProcAddr", "vkEnumerateInstanceVersion",
                                          "vkGetPhysicalDeviceFeatures2", "vkGetDeviceProcAddr"};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        expect_refused((lies){.missing = entries[i]}, entries[i]);
}

/* ---- lies about memory ------------------------------------------------------------------------------ */

/* What the device says that it has left, and what may be in use by then, with a limit of 1 MiB. */
static void check_budget(uint64_t budget, uint64_t usage, uint64_t left, uint64_t may_be_used)
{
    now = (lies){.has_memory_budget = true, .budget = budget, .usage = usage};
    hth_device *d = OPENED(hth_device, &(hth_device_spec){.name = "vulkan:0", .memory = 1 << 20});
    if (d) {
        const hth_device_info *info = hth_device_get_info(d);
        CHECK(info->memory > 1 << 20);
        CHECK_INT(info->budget, left == UINT64_MAX ? info->memory : left);
        CHECK_INT(hth_device_budget(d), may_be_used);
        CHECK(hth_device_free_memory(info) < info->memory);
    }
    hth_device_close(d);
    now = (lies){0};
}

TEST(a_device_that_lies_about_its_budget_is_held_to_its_memory)
{
    const uint64_t limit = 1 << 20;
    if (!has_vulkan()) return;
    check_budget((uint64_t)1 << 60, 0, UINT64_MAX, limit); /* more than there is */
    check_budget(UINT64_MAX, 12345, UINT64_MAX, limit);
    check_budget(0, 0, 0, limit); /* says nothing */
    check_budget(500000, 100000, 400000, 500000);
    check_budget(500000, 500000, 1, 500000); /* nothing is left, which is not to say nothing */
    check_budget(500000, UINT64_MAX, 1, 500000);
}

TEST(a_full_device_holds_nothing)
{
    if (!has_vulkan()) return;
    now = (lies){.has_memory_budget = true, .budget = 500000, .usage = 600000};
    hth_device *d = OPENED(hth_device, &(hth_device_spec){.name = "vulkan:0"});
    if (d) CHECK_INT(hth_device_free_memory(hth_device_get_info(d)), 0);
    hth_device_close(d);
    now = (lies){0};
}

/* MoltenVK: its loader lists it to those that ask, and it wants its extension enabled. `auto` does not take it. */
TEST(a_driver_of_a_part_of_vulkan_is_listed_and_opened_but_not_chosen)
{
    hth_device_info found[HTH_MAX_DEVICE];
    char note[200], name[32];
    size_t n = 0;
    hth_device *d = NULL;
    if (!has_vulkan()) return;
    asked = false, now = (lies){.is_portability = true};
    hth_device_list(found, HTH_MAX_DEVICE, &n, note);
    CHECK(asked && n > 0 && found[0].kind == HTH_DEVICE_INTEGRATED && !found[0].unsupported_reason[0]);
    CHECK(!hth_device_find_discrete(name));
    CHECK_OK(hth_device_open(&(hth_device_spec){.name = "vulkan:0"}, &d, err));
    CHECK(subset_enabled);
    hth_device_close(d);
    now = (lies){0};
}

/* ---- queues ----------------------------------------------------------------------------------------- */

/* A command list of nothing. */
static hth_cmdlist *end_empty(hth_device *d)
{
    hth_cmdlist *list = OPENED_BY(hth_cmdlist_begin, hth_cmdlist, d);
    CHECK_OK(hth_cmdlist_end(list, err));
    return list;
}

TEST(a_family_of_two_queues_gives_both)
{
    const uint64_t second = 1000000000;
    hth_fence load, read;
    if (!has_vulkan()) return;
    for (int two = 0; two < 2; two++) {
        n_got_second = 0;
        now = (lies){.two_queues = two};
        hth_device *d = OPENED(hth_device, &(hth_device_spec){.name = "vulkan:0"});
        if (!d) break;
        bool has_second = hth_device_get_info(d)->has_second_queue;
        CHECK(has_second || !two);
        CHECK(n_asked_queue == 1u + has_second && n_got_second == has_second);
        hth_cmdlist *first = end_empty(d), *beside = end_empty(d);
        CHECK_OK(hth_beside_submit(d, (hth_cmdlist *[]){beside}, 1, &load, err));
        CHECK_INT(n_wait, 0);
        CHECK_OK(hth_queue_submit(d, &(hth_submit_info){.cmdlist = first, .wait = 1, .beside = load}, 1, &read, err));
        CHECK_INT(n_wait, 2);
        CHECK_OK(hth_queue_signal(d, 1, err));
        CHECK_OK(hth_queue_wait(d, read, second, err));
        CHECK_OK(hth_queue_submit(d, &(hth_submit_info){.cmdlist = first, .beside = load}, 1, &read, err));
        CHECK_INT(n_wait, 1);
        CHECK_OK(hth_queue_wait(d, read, second, err));
        CHECK_OK(hth_beside_wait(d, load, second, err));
        hth_device_close(d);
    }
    now = (lies){0};
}

/* A driver that drops what it was given, as some do behind a reset: here of the second queue alone. */
TEST(command_lists_of_the_second_queue_that_did_not_run_are_found)
{
    hth_fence load, read;
    if (!has_vulkan()) return;
    now = (lies){.two_queues = true};
    hth_device *d = OPENED(hth_device, &(hth_device_spec){.name = "vulkan:0"});
    if (d) {
        hth_cmdlist *first = end_empty(d), *beside = end_empty(d);
        CHECK_OK(hth_beside_submit(d, (hth_cmdlist *[]){beside}, 1, &load, err));
        CHECK_OK(hth_beside_wait(d, load, 1000000000, err));
        now.drops_beside = true;
        CHECK_OK(hth_beside_submit(d, (hth_cmdlist *[]){beside}, 1, &load, err));
        CHECK_OK(hth_queue_submit(d, &(hth_submit_info){.cmdlist = first, .beside = load}, 1, &read, err));
        CHECK_OK(hth_queue_wait(d, read, 1000000000, err)); /* this one did run */
        CHECK_FAILS(hth_beside_wait(d, load, 1000000000, err), HEARTH_ERROR_DEVICE,
                    "command list 2 of the second queue is complete, but it did not run");
        CHECK(hth_device_state(d).lost);
        now.drops_beside = false;
    }
    hth_device_close(d);
    now = (lies){0};
}

/* ---- memory of the host ------------------------------------------------------------------------------- */

/* A device of this driver that can import, or NULL (skipped). */
static hth_device *open_importing(lies l)
{
    if (!has_vulkan()) return NULL;
    now = l;
    hth_device *d = OPENED(hth_device, &(hth_device_spec){.name = "vulkan:0"});
    if (d && hth_device_get_info(d)->features & HTH_FEATURE_IMPORT) return d;
    if (d) test_skip("%s does not import memory", hth_device_get_info(d)->name);
    hth_device_close(d);
    now = (lies){0};
    return NULL;
}

TEST(memory_that_a_driver_refuses_loses_no_device)
{
    static const VkResult results[] = {VK_ERROR_INVALID_EXTERNAL_HANDLE, VK_ERROR_OUT_OF_DEVICE_MEMORY,
                                       VK_ERROR_OUT_OF_HOST_MEMORY, VK_ERROR_UNKNOWN};
    static uint8_t data[8192];
    hth_device *d = open_importing((lies){.allocation = (uint64_t)64 << 20});
    hth_buffer *b;
    uint64_t at;
    if (!d) return;
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        for (int k = 0; k < 2; k++) {
            now.pointer = k == 0 ? results[i] : VK_SUCCESS, now.import = k == 1 ? results[i] : VK_SUCCESS;
            CHECK_FAILS(hth_buffer_import(d, data, 100, "experts", &b, &at, err), HEARTH_ERROR_UNSUPPORTED,
                        k == 0 ? "experts: |vkGetMemoryHostPointerPropertiesEXT" : "experts: |vkAllocateMemory");
            CHECK(!hth_device_state(d).lost && b == NULL);
        }
    now.import = VK_SUCCESS;
    CHECK_FAILS(hth_buffer_import(d, data, (uint64_t)64 << 20 | 1, "experts", &b, &at, err), HEARTH_ERROR_UNSUPPORTED,
                "experts: |a limit");
    CHECK_OK(hth_buffer_import(d, data, sizeof data, "experts", &b, &at, err));
    now.import = VK_ERROR_DEVICE_LOST;
    CHECK_FAILS(hth_buffer_import(d, data, 100, "experts", &b, &at, err), HEARTH_ERROR_DEVICE, "it was lost");
    CHECK(hth_device_state(d).lost);
    hth_device_close(d);
    now = (lies){0};
}

TEST(imported_memory_is_preferably_not_the_device_s_own)
{
    static uint8_t data[8192];
    hth_device *d = open_importing((lies){.two_types = true});
    hth_buffer *b;
    uint64_t at;
    if (!d) return;
    CHECK_OK(hth_buffer_import(d, data, 100, "experts", &b, &at, err));
    CHECK_INT(imported_type, 2);
    hth_device_close(d);
    now = (lies){0};
}
