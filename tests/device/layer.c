/* A Vulkan layer that lies between a program and its driver, so that tests meet devices which are not here: other
 * limits, kinds and memory, and failures of submissions. VK_INSTANCE_LAYERS=VK_LAYER_HEARTH_test and VK_LAYER_PATH=its
 * folder load it. HEARTH_LAYER says what it changes, read when an instance is made; words between spaces:
 *
 *     kind=cpu|integrated|discrete|virtual|other  of the device
 *     name=TEXT          of the device, without spaces   uuid=N         its UUID is N in each byte
 *     driver=ID:VERSION  VkDriverId, and driverVersion as a number
 *     binding=N          maxStorageBufferRange          allocation=N   maxMemoryAllocationSize; larger ones are refused
 *     groups=N           maxComputeWorkGroupCount, each  shared=N       maxComputeSharedMemorySize
 *     invocations=N      maxComputeWorkGroupInvocations, and of x
 *     subgroup=N         subgroupSize                    alignment=N    minStorageBufferOffsetAlignment
 *     difference=N       maxTimelineSemaphoreValueDifference; a larger step of a semaphore loses the device
 *     floats=0           no float controls               dot=0|2        integer dot products: none, or accelerated
 *     small=0            no storage of 8 and 16 bits
 *     queues=N           1: one family of one queue; 2: another one, without graphics, as well
 *     memory=nvidia|radv|anv|adreno|least  types and heaps of such a device; what is not visible to the host cannot be
 *                        mapped, and what it does not cache reads as poison (see: memory that is written only)
 *     poison=all         what it caches reads as poison too
 *     heap=N             bytes of its largest heap       budget=N       heapBudget
 *     hang=N             of those that raise a semaphore, submission N (from 1) and all later ones never run, and waits
 *                        for them time out
 *     jump=N             submission N does not run, but says that it did
 *     lost=N             submission N and all later calls say VK_ERROR_DEVICE_LOST; lost0=N: the first device's own
 *                        submission N, and its later calls
 *     barriers=0         the program's barriers do not reach what lies below: a validation layer there misses them
 *     report=FILE        lines about what a program did that the device does not allow
 *     skip=N             dispatches of more than N workgroups are counted and do not run
 *     count=FILE         what a program did in all, written when it ends: a word and a number a line (bench/gpu_counts.py)
 *
 * kind0, name0, uuid0, heap0, lost0, kind1 and so on: of one of several devices, in the loader's order; other words
 * change all of them. It has only the entry points that the library uses (vk_functions.def), those that the validation layer asks
 * about devices with, and those that other programs use in place of them: above this one, the validation layer checks
 * each call against the limits of the device that is not here. */
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TYPES = 8, MAX_HEAPS = 3, MAX_QUEUE_INFOS = 4, MAX_MAPPED = 256, MAX_DEVICES = 8, MAX_PHYSICALS = 64 };

/* ---- what is changed ------------------------------------------------------------------------------------ */

typedef struct memory_table {
    const char *name;
    uint32_t n_type, n_heap;
    VkMemoryType types[MAX_TYPES];
    uint64_t heaps[MAX_HEAPS]; /* bytes; the first is the device's own */
} memory_table;

enum {
    OWN = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
    SEEN = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
    CACHED = VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
};
static const uint64_t GIB = (uint64_t)1 << 30;

/* As reports of such devices list them. */
static const memory_table tables[] = {
    {"nvidia",
     5,
     3,
     {{0, 1}, {OWN, 0}, {SEEN, 1}, {SEEN | CACHED, 1}, {OWN | SEEN, 2}},
     {8 * GIB, 16 * GIB, 246 << 20}},
    {"radv",
     4,
     3,
     {{OWN, 0}, {SEEN, 1}, {OWN | SEEN, 2}, {SEEN | CACHED, 1}},
     {8 * GIB, 16 * GIB, 256 << 20}},
    {"anv", 2, 1, {{OWN | SEEN, 0}, {OWN | SEEN | CACHED, 0}}, {12 * GIB}},
    {"adreno", 3, 1, {{OWN, 0}, {OWN | SEEN, 0}, {OWN | SEEN | CACHED, 0}}, {6 * GIB}},
    {"least", 2, 2, {{OWN, 0}, {SEEN, 1}}, {2 * GIB, 4 * GIB}}, /* what Vulkan promises: nothing is cached */
};

static char text[1024]; /* HEARTH_LAYER */
static const memory_table *memory;
static uint64_t n_submit;
static uint32_t allocated_as[1 << 16]; /* type of allocation number i */
static VkDeviceSize allocated_size[1 << 16];
static VkDeviceMemory allocations[1 << 16];
static uint32_t n_allocation;
static uint64_t semaphore_value[64];
static VkSemaphore semaphores[64];
static uint32_t n_semaphore;

/* The value of a word; NULL: it is not there. */
static const char *word(const char *key)
{
    static char value[256];
    size_t n = strlen(key);
    for (const char *s = text; *s;) {
        size_t length = strcspn(s, " ");
        if (length > n && strncmp(s, key, n) == 0 && s[n] == '=') {
            snprintf(value, sizeof value, "%.*s", (int)(length - n - 1), s + n + 1);
            return value;
        }
        s += length, s += strspn(s, " ");
    }
    return NULL;
}

static uint64_t number(const char *key, uint64_t otherwise)
{
    const char *value = word(key);
    return value ? strtoull(value, NULL, 10) : otherwise;
}

/* What the handles of an instance and its physical devices, or of a device, its queues and its command buffers, have in
 * common: they begin with the same pointer to a table of the loader's. */
static const void *key_of(const void *handle) { return *(const void *const *)handle; }

/* In the order of each instance. */
static VkPhysicalDevice physicals[MAX_PHYSICALS];
static uint32_t n_physical;

static uint32_t index_of(VkPhysicalDevice physical)
{
    uint32_t n = 0, i = 0;
    for (; i < n_physical && physicals[i] != physical; i++) n += key_of(physicals[i]) == key_of(physical);
    if (i == n_physical && n_physical < MAX_PHYSICALS) physicals[n_physical++] = physical;
    return n;
}

static void forget_physicals(VkInstance instance)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_physical; i++)
        if (key_of(physicals[i]) != key_of(instance)) physicals[n++] = physicals[i];
    n_physical = n;
}

/* A word of this device alone, or of all. */
static const char *word_of(VkPhysicalDevice physical, const char *key)
{
    char own[32];
    snprintf(own, sizeof own, "%s%u", key, index_of(physical));
    const char *value = word(own);
    return value ? value : word(key);
}

static void report(const char *what, unsigned long long value)
{
    const char *path = word("report");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (!f) return;
    fprintf(f, "%s: %llu\n", what, value);
    fclose(f);
}

static void read_words(void)
{
    const char *set = getenv("HEARTH_LAYER");
    snprintf(text, sizeof text, "%s", set ? set : "");
    memory = NULL;
    const char *name = word("memory");
    for (size_t i = 0; name && i < sizeof tables / sizeof *tables; i++)
        if (strcmp(tables[i].name, name) == 0) memory = &tables[i];
}

/* ---- the chain -------------------------------------------------------------------------------------------- */

static PFN_vkGetInstanceProcAddr next_instance_proc;

/* A device that was not destroyed yet. */
typedef struct live {
    const void *key;
    VkDevice device;
    PFN_vkGetDeviceProcAddr next;
    uint32_t index;    /* of its physical device */
    uint64_t n_submit; /* its own */
} live;
static live devices[MAX_DEVICES];

/* Of a key, or a free one (NULL). NULL: there is none. */
static live *slot_of(const void *key)
{
    for (int i = 0; i < MAX_DEVICES; i++)
        if (devices[i].key == key) return &devices[i];
    return NULL;
}

static bool is_any_live(void)
{
    for (int i = 0; i < MAX_DEVICES; i++)
        if (devices[i].key) return true;
    return false;
}

static PFN_vkVoidFunction below(const void *handle, const char *name)
{
    const live *of = slot_of(key_of(handle));
    return of->next(of->device, name);
}

/* Found while the instance is made: later the loader answers with the functions of the first layer. */
static PFN_vkCreateDevice next_create_device;
static PFN_vkDestroyInstance next_destroy_instance;
static PFN_vkGetPhysicalDeviceProperties next_properties;
static PFN_vkGetPhysicalDeviceFeatures next_features;
static PFN_vkGetPhysicalDeviceMemoryProperties next_memory;
static PFN_vkGetPhysicalDeviceQueueFamilyProperties next_families;
static PFN_vkGetPhysicalDeviceProperties2 next_properties2;
static PFN_vkGetPhysicalDeviceFeatures2 next_features2;
static PFN_vkGetPhysicalDeviceMemoryProperties2 next_memory2;

#define OF_INSTANCE(name) ((PFN_##name)next_instance_proc(*out, #name))
#define OF_DEVICE(handle, name) ((PFN_##name)below(handle, #name))

static void *link_of(const void *chain, VkStructureType type)
{
    for (VkLayerInstanceCreateInfo *c = (void *)(uintptr_t)chain; c; c = (void *)(uintptr_t)c->pNext)
        if (c->sType == type && c->function == VK_LAYER_LINK_INFO) return c;
    return NULL;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info,
                                                      const VkAllocationCallbacks *a, VkInstance *out)
{
    VkLayerInstanceCreateInfo *link = link_of(info->pNext, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;
    read_words();
    next_instance_proc = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    VkResult r = ((PFN_vkCreateInstance)next_instance_proc(NULL, "vkCreateInstance"))(info, a, out);
    if (r != VK_SUCCESS) return r;
    next_create_device = OF_INSTANCE(vkCreateDevice);
    next_destroy_instance = OF_INSTANCE(vkDestroyInstance);
    next_properties = OF_INSTANCE(vkGetPhysicalDeviceProperties);
    next_features = OF_INSTANCE(vkGetPhysicalDeviceFeatures);
    next_memory = OF_INSTANCE(vkGetPhysicalDeviceMemoryProperties);
    next_families = OF_INSTANCE(vkGetPhysicalDeviceQueueFamilyProperties);
    next_properties2 = OF_INSTANCE(vkGetPhysicalDeviceProperties2);
    next_features2 = OF_INSTANCE(vkGetPhysicalDeviceFeatures2);
    next_memory2 = OF_INSTANCE(vkGetPhysicalDeviceMemoryProperties2);
    return r;
}

static VKAPI_ATTR void VKAPI_CALL destroy_instance(VkInstance instance, const VkAllocationCallbacks *a)
{
    if (instance) forget_physicals(instance);
    next_destroy_instance(instance, a);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo *info,
                                                    const VkAllocationCallbacks *a, VkDevice *out)
{
    VkLayerDeviceCreateInfo *link = link_of(info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;
    PFN_vkGetDeviceProcAddr next_device_proc = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    VkDeviceQueueCreateInfo queues[MAX_QUEUE_INFOS];
    VkDeviceCreateInfo own = *info;
    if (number("queues", 0) > 0 && info->queueCreateInfoCount <= MAX_QUEUE_INFOS) {
        for (uint32_t i = 0; i < info->queueCreateInfoCount; i++) {
            queues[i] = info->pQueueCreateInfos[i];
            if (queues[i].queueCount > 1) report("queues of a family", queues[i].queueCount);
            queues[i].queueFamilyIndex = 0;
        }
        own.pQueueCreateInfos = queues;
        if (info->queueCreateInfoCount > 1) report("families of queues", info->queueCreateInfoCount);
    }
    /* Poisoned maps of a device that hangs stay. */
    if (!is_any_live()) n_submit = n_allocation = n_semaphore = 0;
    live *slot = slot_of(NULL);
    if (!slot) return VK_ERROR_TOO_MANY_OBJECTS;
    VkResult r = next_create_device(physical, &own, a, out);
    if (r == VK_SUCCESS) *slot = (live){key_of(*out), *out, next_device_proc, index_of(physical), 0};
    return r;
}

static VKAPI_ATTR void VKAPI_CALL destroy_device(VkDevice d, const VkAllocationCallbacks *a)
{
    live *slot = d ? slot_of(key_of(d)) : NULL;
    if (!slot) return;
    PFN_vkDestroyDevice next = OF_DEVICE(d, vkDestroyDevice);
    *slot = (live){0};
    next(d, a);
}

/* ---- the device ------------------------------------------------------------------------------------------- */

static void change_limits(VkPhysicalDevice physical, VkPhysicalDeviceProperties *p)
{
    static const struct {
        const char *name;
        VkPhysicalDeviceType type;
    } kinds[] = {{"cpu", VK_PHYSICAL_DEVICE_TYPE_CPU},
                 {"integrated", VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU},
                 {"discrete", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU},
                 {"virtual", VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU},
                 {"other", VK_PHYSICAL_DEVICE_TYPE_OTHER}};
    const char *kind = word_of(physical, "kind");
    for (size_t i = 0; kind && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, kind) == 0) p->deviceType = kinds[i].type;
    const char *name = word_of(physical, "name");
    if (name) snprintf(p->deviceName, sizeof p->deviceName, "%s", name);
    VkPhysicalDeviceLimits *l = &p->limits;
    l->maxStorageBufferRange = (uint32_t)number("binding", l->maxStorageBufferRange);
    l->maxComputeSharedMemorySize = (uint32_t)number("shared", l->maxComputeSharedMemorySize);
    l->maxComputeWorkGroupInvocations = (uint32_t)number("invocations", l->maxComputeWorkGroupInvocations);
    l->maxComputeWorkGroupSize[0] = (uint32_t)number("invocations", l->maxComputeWorkGroupSize[0]);
    l->minStorageBufferOffsetAlignment = number("alignment", l->minStorageBufferOffsetAlignment);
    for (int i = 0; i < 3; i++)
        l->maxComputeWorkGroupCount[i] = (uint32_t)number("groups", l->maxComputeWorkGroupCount[i]);
}

static VKAPI_ATTR void VKAPI_CALL properties(VkPhysicalDevice physical, VkPhysicalDeviceProperties *p)
{
    next_properties(physical, p);
    change_limits(physical, p);
}

static VKAPI_ATTR void VKAPI_CALL properties2(VkPhysicalDevice physical, VkPhysicalDeviceProperties2 *p)
{
    bool floats = number("floats", 1) > 0;
    next_properties2(physical, p);
    change_limits(physical, &p->properties);
    for (VkBaseOutStructure *s = p->pNext; s; s = s->pNext) {
        void *is = s;
        if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES) {
            VkPhysicalDeviceMaintenance3Properties *m = is;
            m->maxMemoryAllocationSize = number("allocation", m->maxMemoryAllocationSize);
        } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES &&
                   word_of(physical, "driver")) {
            VkPhysicalDeviceDriverProperties *d = is;
            snprintf(d->driverInfo, sizeof d->driverInfo, "of the layer");
            d->driverID = (VkDriverId)strtoul(word_of(physical, "driver"), NULL, 10);
            p->properties.driverVersion =
                (uint32_t)strtoul(strchr(word_of(physical, "driver"), ':') + 1, NULL, 10);
        } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES && word_of(physical, "uuid")) {
            VkPhysicalDeviceIDProperties *id = is;
            memset(id->deviceUUID, (int)strtoul(word_of(physical, "uuid"), NULL, 10), sizeof id->deviceUUID);
        } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES) {
            VkPhysicalDeviceSubgroupProperties *g = is;
            g->subgroupSize = (uint32_t)number("subgroup", g->subgroupSize);
        } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_PROPERTIES) {
            VkPhysicalDeviceTimelineSemaphoreProperties *t = is;
            t->maxTimelineSemaphoreValueDifference =
                number("difference", t->maxTimelineSemaphoreValueDifference);
        } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES) {
            VkPhysicalDeviceShaderIntegerDotProductProperties *dot = is;
            if (number("dot", 1) == 2) dot->integerDotProduct4x8BitPackedSignedAccelerated = VK_TRUE;
        } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES && !floats) {
            VkPhysicalDeviceFloatControlsProperties *f = is;
            f->shaderDenormPreserveFloat32 = f->shaderSignedZeroInfNanPreserveFloat32 = VK_FALSE;
            f->shaderRoundingModeRTEFloat32 = VK_FALSE;
        } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES) {
            VkPhysicalDeviceVulkan11Properties *v = is;
            v->maxMemoryAllocationSize = number("allocation", v->maxMemoryAllocationSize);
            v->subgroupSize = (uint32_t)number("subgroup", v->subgroupSize);
        } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES) {
            VkPhysicalDeviceVulkan12Properties *v = is;
            v->maxTimelineSemaphoreValueDifference =
                number("difference", v->maxTimelineSemaphoreValueDifference);
            if (floats) continue;
            v->shaderDenormPreserveFloat32 = v->shaderSignedZeroInfNanPreserveFloat32 = VK_FALSE;
            v->shaderRoundingModeRTEFloat32 = VK_FALSE;
        }
    }
}

static VKAPI_ATTR void VKAPI_CALL features(VkPhysicalDevice physical, VkPhysicalDeviceFeatures *f)
{
    next_features(physical, f);
    if (number("small", 1) == 0) f->shaderInt16 = VK_FALSE;
}

static void remove_small_types(VkBaseOutStructure *s)
{
    void *is = s;
    if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES) {
        VkPhysicalDevice16BitStorageFeatures *f = is;
        f->storageBuffer16BitAccess = f->uniformAndStorageBuffer16BitAccess = f->storagePushConstant16 =
            VK_FALSE;
    } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES) {
        VkPhysicalDevice8BitStorageFeatures *f = is;
        f->storageBuffer8BitAccess = f->uniformAndStorageBuffer8BitAccess = f->storagePushConstant8 =
            VK_FALSE;
    } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES) {
        VkPhysicalDeviceShaderFloat16Int8Features *f = is;
        f->shaderFloat16 = f->shaderInt8 = VK_FALSE;
    } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES) {
        VkPhysicalDeviceVulkan11Features *f = is;
        f->storageBuffer16BitAccess = f->uniformAndStorageBuffer16BitAccess = f->storagePushConstant16 =
            VK_FALSE;
    } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES) {
        VkPhysicalDeviceVulkan12Features *f = is;
        f->storageBuffer8BitAccess = f->uniformAndStorageBuffer8BitAccess = f->storagePushConstant8 =
            VK_FALSE;
        f->shaderFloat16 = f->shaderInt8 = VK_FALSE;
    }
}

static VKAPI_ATTR void VKAPI_CALL features2(VkPhysicalDevice physical, VkPhysicalDeviceFeatures2 *p)
{
    next_features2(physical, p);
    if (number("small", 1) == 0) p->features.shaderInt16 = VK_FALSE;
    for (VkBaseOutStructure *s = p->pNext; s; s = s->pNext) {
        void *is = s;
        if (number("small", 1) == 0) remove_small_types(s);
        if (number("dot", 1) > 0) continue;
        if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES)
            ((VkPhysicalDeviceShaderIntegerDotProductFeatures *)is)->shaderIntegerDotProduct = VK_FALSE;
        else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES)
            ((VkPhysicalDeviceVulkan13Features *)is)->shaderIntegerDotProduct = VK_FALSE;
    }
}

static void change_memory(VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties *m)
{
    if (memory) {
        m->memoryTypeCount = memory->n_type, m->memoryHeapCount = memory->n_heap;
        memcpy(m->memoryTypes, memory->types, sizeof memory->types);
        for (uint32_t i = 0; i < memory->n_heap; i++)
            m->memoryHeaps[i] =
                (VkMemoryHeap){memory->heaps[i], i == 1 ? 0 : VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
    }
    const char *heap = word_of(physical, "heap");
    if (heap) m->memoryHeaps[0].size = strtoull(heap, NULL, 10);
}

static VKAPI_ATTR void VKAPI_CALL memory1(VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties *m)
{
    next_memory(physical, m);
    change_memory(physical, m);
}

static VKAPI_ATTR void VKAPI_CALL memory2(VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties2 *p)
{
    next_memory2(physical, p);
    change_memory(physical, &p->memoryProperties);
    for (VkBaseOutStructure *s = p->pNext; s; s = s->pNext)
        if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT) {
            VkPhysicalDeviceMemoryBudgetPropertiesEXT *b = (void *)s;
            b->heapBudget[0] = number("budget", b->heapBudget[0]);
        }
}

/* ---- queues: all families are the driver's first ---------------------------------------------------------- */

static VKAPI_ATTR void VKAPI_CALL families(VkPhysicalDevice physical, uint32_t *n,
                                           VkQueueFamilyProperties *out)
{
    VkQueueFamilyProperties first;
    uint32_t one = 1, wanted = (uint32_t)number("queues", 0);
    if (wanted == 0) {
        next_families(physical, n, out);
        return;
    }
    next_families(physical, &one, &first);
    first.queueCount = 1;
    *n = out && *n < wanted ? *n : wanted;
    for (uint32_t i = 0; out && i < *n; i++) {
        out[i] = first;
        if (i > 0) out[i].queueFlags = VK_QUEUE_COMPUTE_BIT | VK_QUEUE_TRANSFER_BIT;
    }
}

static VKAPI_ATTR void VKAPI_CALL get_queue(VkDevice d, uint32_t family, uint32_t i, VkQueue *out)
{
    OF_DEVICE(d, vkGetDeviceQueue)(d, number("queues", 0) > 0 ? 0 : family, i, out);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_pool(VkDevice d, const VkCommandPoolCreateInfo *info,
                                                  const VkAllocationCallbacks *a, VkCommandPool *out)
{
    VkCommandPoolCreateInfo own = *info;
    if (number("queues", 0) > 0) own.queueFamilyIndex = 0;
    return OF_DEVICE(d, vkCreateCommandPool)(d, &own, a, out);
}

/* ---- memory ----------------------------------------------------------------------------------------------- */

static VKAPI_ATTR void VKAPI_CALL requirements(VkDevice d, VkBuffer buffer, VkMemoryRequirements *r)
{
    OF_DEVICE(d, vkGetBufferMemoryRequirements)(d, buffer, r);
    if (memory) r->memoryTypeBits = (1u << memory->n_type) - 1;
}

/* Memory of the host is of all types that it sees and that are not the device's own, or of all that it sees. */
static VKAPI_ATTR VkResult VKAPI_CALL host_pointer(VkDevice d, VkExternalMemoryHandleTypeFlagBits type,
                                                   const void *at, VkMemoryHostPointerPropertiesEXT *p)
{
    VkResult r = OF_DEVICE(d, vkGetMemoryHostPointerPropertiesEXT)(d, type, at, p);
    uint32_t seen = 0, away = 0;
    for (uint32_t i = 0; memory && i < memory->n_type; i++) {
        VkMemoryPropertyFlags is = memory->types[i].propertyFlags;
        if ((is & SEEN) == SEEN) seen |= 1u << i, away |= is & OWN ? 0 : 1u << i;
    }
    if (memory && r == VK_SUCCESS) p->memoryTypeBits = away ? away : seen;
    return r;
}

/* The driver's own type 0 serves for all. */
static VKAPI_ATTR VkResult VKAPI_CALL allocate(VkDevice d, const VkMemoryAllocateInfo *info,
                                               const VkAllocationCallbacks *a, VkDeviceMemory *out)
{
    VkMemoryAllocateInfo own = *info;
    if (info->allocationSize > number("allocation", UINT64_MAX)) {
        report("allocated", info->allocationSize);
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    if (memory) own.memoryTypeIndex = 0;
    VkResult r = OF_DEVICE(d, vkAllocateMemory)(d, &own, a, out);
    if (r == VK_SUCCESS && n_allocation < sizeof allocations / sizeof *allocations)
        allocations[n_allocation] = *out, allocated_size[n_allocation] = info->allocationSize,
        allocated_as[n_allocation++] = info->memoryTypeIndex;
    return r;
}

/* ---- memory that is written only --------------------------------------------------------------------------
 *
 * Reads of memory that the host does not cache are right, but each takes as long as one over the bus. So a program gets
 * a copy of it, in which all words are poison; what it writes there moves to the driver's memory before each call that
 * lets the device go on, and becomes poison again. A program that reads it computes with poison. The limits of it: a
 * word of 32 bits is written whole, by a thread that does not run during such a call, and is none of the poison. */

typedef struct mapped {
    VkDeviceMemory memory;
    uint32_t *words, *copy;
    size_t n_word;
} mapped;
static mapped poisoned[MAX_MAPPED];
static size_t n_poisoned;

static uint32_t poison(size_t i) { return 0xa5c3965au ^ (uint32_t)i * 0x9e3779b1u; }

static void move_written(void)
{
    for (size_t m = 0; m < n_poisoned; m++) {
        uint32_t *words = poisoned[m].words, *copy = poisoned[m].copy;
        for (size_t i = 0; i < poisoned[m].n_word; i++)
            if (copy[i] != poison(i)) words[i] = copy[i], copy[i] = poison(i);
    }
}

static bool has_cached_memory(void)
{
    for (uint32_t i = 0; i < memory->n_type; i++)
        if (memory->types[i].propertyFlags & CACHED) return true;
    return false;
}

static VkResult poison_map(VkDeviceMemory m, VkDeviceSize size, VkDeviceSize at, void **out)
{
    size_t n = (size_t)size / sizeof(uint32_t);
    uint32_t *copy = n_poisoned < MAX_MAPPED ? malloc(n * sizeof *copy) : NULL;
    if (!copy) return VK_ERROR_MEMORY_MAP_FAILED;
    for (size_t i = 0; i < n; i++) copy[i] = poison(i);
    poisoned[n_poisoned++] = (mapped){m, *out, copy, n};
    *out = (char *)copy + at;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL map(VkDevice d, VkDeviceMemory m, VkDeviceSize at, VkDeviceSize size,
                                          VkMemoryMapFlags flags, void **out)
{
    uint32_t i = n_allocation;
    while (memory && i > 0 && allocations[i - 1] != m) i--;
    if (!memory || i-- == 0) return OF_DEVICE(d, vkMapMemory)(d, m, at, size, flags, out);
    VkMemoryPropertyFlags is = memory->types[allocated_as[i]].propertyFlags;
    if (!(is & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT)) {
        report("mapped memory of type", allocated_as[i]);
        return VK_ERROR_MEMORY_MAP_FAILED;
    }
    bool is_read = is & CACHED ? !word("poison") : !has_cached_memory();
    if (is_read) return OF_DEVICE(d, vkMapMemory)(d, m, at, size, flags, out);
    VkResult r = OF_DEVICE(d, vkMapMemory)(d, m, 0, VK_WHOLE_SIZE, flags, out);
    return r == VK_SUCCESS ? poison_map(m, allocated_size[i], at, out) : r;
}

static VKAPI_ATTR void VKAPI_CALL free_memory(VkDevice d, VkDeviceMemory m, const VkAllocationCallbacks *a)
{
    for (size_t i = n_poisoned; i-- > 0;) {
        if (poisoned[i].memory != m) continue;
        free(poisoned[i].copy);
        poisoned[i] = poisoned[--n_poisoned];
    }
    OF_DEVICE(d, vkFreeMemory)(d, m, a);
}

/* ---- counts ----------------------------------------------------------------------------------------------- */

/* Of a command buffer, or of all that were submitted. A copy is up or down between memory of the device and of the host
 * (by memory=nvidia: lavapipe has one type for both). Waits are calls that returned what they waited for. */
typedef struct tally {
    uint64_t submits, lists, dispatches, barriers, copies, up, down, within, waits, polls, signals;
} tally;
static tally counts;

typedef struct known {
    uint64_t handle;
    bool of_host; /* a buffer's memory */
    tally tally;  /* of a command buffer */
} known;
enum { N_KNOWN = 1 << 17 };
static known table[N_KNOWN];

static known *known_of(const void *handle)
{
    uint64_t key = (uint64_t)(uintptr_t)handle, i = key * 0x9e3779b97f4a7c15u >> 47;
    while (table[i % N_KNOWN].handle && table[i % N_KNOWN].handle != key) i++;
    table[i % N_KNOWN].handle = key;
    return &table[i % N_KNOWN];
}

static VKAPI_ATTR VkResult VKAPI_CALL bind_memory(VkDevice d, VkBuffer buffer, VkDeviceMemory m,
                                                  VkDeviceSize at)
{
    for (uint32_t i = n_allocation; memory && i-- > 0;)
        if (allocations[i] == m) {
            known_of(buffer)->of_host = !(memory->types[allocated_as[i]].propertyFlags & OWN);
            break;
        }
    return OF_DEVICE(d, vkBindBufferMemory)(d, buffer, m, at);
}

static VKAPI_ATTR VkResult VKAPI_CALL begin(VkCommandBuffer c, const VkCommandBufferBeginInfo *info)
{
    known_of(c)->tally = (tally){0};
    return OF_DEVICE(c, vkBeginCommandBuffer)(c, info);
}

static VKAPI_ATTR void VKAPI_CALL dispatch(VkCommandBuffer c, uint32_t x, uint32_t y, uint32_t z)
{
    known_of(c)->tally.dispatches++;
    if ((uint64_t)x * y * z <= number("skip", UINT64_MAX)) OF_DEVICE(c, vkCmdDispatch)(c, x, y, z);
}

static VKAPI_ATTR void VKAPI_CALL dispatch_indirect(VkCommandBuffer c, VkBuffer buffer, VkDeviceSize at)
{
    known_of(c)->tally.dispatches++;
    OF_DEVICE(c, vkCmdDispatchIndirect)(c, buffer, at);
}

static VKAPI_ATTR void VKAPI_CALL barrier(VkCommandBuffer c, VkPipelineStageFlags from,
                                          VkPipelineStageFlags to, VkDependencyFlags flags, uint32_t n_memory,
                                          const VkMemoryBarrier *m, uint32_t n_buffer,
                                          const VkBufferMemoryBarrier *b, uint32_t n_image,
                                          const VkImageMemoryBarrier *image)
{
    if (word("count")) known_of(c)->tally.barriers++;
    if (number("barriers", 1) > 0)
        OF_DEVICE(c, vkCmdPipelineBarrier)(c, from, to, flags, n_memory, m, n_buffer, b, n_image, image);
}

static VKAPI_ATTR void VKAPI_CALL copy(VkCommandBuffer c, VkBuffer from, VkBuffer to, uint32_t n,
                                       const VkBufferCopy *regions)
{
    tally *t = &known_of(c)->tally;
    uint64_t *bytes = known_of(from)->of_host ? &t->up : known_of(to)->of_host ? &t->down : &t->within;
    for (uint32_t i = 0; i < n; i++) *bytes += regions[i].size;
    t->copies++;
    OF_DEVICE(c, vkCmdCopyBuffer)(c, from, to, n, regions);
}

static void count_submit(uint32_t n, const VkSubmitInfo *infos)
{
    if (!word("count")) return;
    counts.submits++;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < infos[i].commandBufferCount; k++) {
            const tally *t = &known_of(infos[i].pCommandBuffers[k])->tally;
            counts.lists++, counts.dispatches += t->dispatches, counts.barriers += t->barriers;
            counts.copies += t->copies, counts.up += t->up, counts.down += t->down,
                counts.within += t->within;
        }
}

static VKAPI_ATTR VkResult VKAPI_CALL fence_status(VkDevice d, VkFence fence)
{
    counts.polls++;
    return OF_DEVICE(d, vkGetFenceStatus)(d, fence);
}

static VKAPI_ATTR VkResult VKAPI_CALL semaphore_counter(VkDevice d, VkSemaphore s, uint64_t *value)
{
    counts.polls++;
    return OF_DEVICE(d, vkGetSemaphoreCounterValue)(d, s, value);
}

__attribute__((destructor)) static void write_counts(void)
{
    const char *path = word("count");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f) return;
    const tally *t = &counts;
    fprintf(f, "submits %" PRIu64 "\nlists %" PRIu64 "\ndispatches %" PRIu64 "\nbarriers %" PRIu64 "\n",
            t->submits, t->lists, t->dispatches, t->barriers);
    fprintf(f, "copies %" PRIu64 "\nup %" PRIu64 "\ndown %" PRIu64 "\nwithin %" PRIu64 "\n", t->copies, t->up,
            t->down, t->within);
    fprintf(f, "waits %" PRIu64 "\nsignals %" PRIu64 "\npolls %" PRIu64 "\n", t->waits, t->signals, t->polls);
    fclose(f);
}

/* ---- submissions ------------------------------------------------------------------------------------------ */

/* What is lost does not run any more, so that its objects may be freed. */
static bool is_lost(VkDevice of)
{
    const live *d = slot_of(key_of(of));
    char own[32];
    snprintf(own, sizeof own, "lost%u", d->index);
    if (n_submit < number("lost", UINT64_MAX) && d->n_submit < number(own, UINT64_MAX)) return false;
    OF_DEVICE(of, vkDeviceWaitIdle)(of);
    return true;
}

static bool hangs(void) { return n_submit >= number("hang", UINT64_MAX); }

static uint64_t *value_of(VkSemaphore s)
{
    for (uint32_t i = 0; i < n_semaphore; i++)
        if (semaphores[i] == s) return &semaphore_value[i];
    uint32_t i = n_semaphore < 63 ? n_semaphore++ : 63;
    semaphores[i] = s;
    return &semaphore_value[i];
}

static bool is_near(VkSemaphore s, uint64_t value, const char *what)
{
    uint64_t now = *value_of(s);
    bool allowed = value <= now || value - now <= number("difference", UINT64_MAX);
    if (!allowed) report(what, value - now);
    return allowed;
}

static bool is_step_allowed(VkSemaphore s, uint64_t value)
{
    bool allowed = is_near(s, value, "semaphore raised by");
    *value_of(s) = value;
    return allowed;
}

static bool are_steps_allowed(const VkSubmitInfo *info)
{
    bool allowed = true;
    for (const VkBaseInStructure *s = info->pNext; s; s = s->pNext) {
        if (s->sType != VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO) continue;
        const VkTimelineSemaphoreSubmitInfo *t = (const void *)s;
        for (uint32_t i = 0; i < info->waitSemaphoreCount; i++)
            allowed &=
                is_near(info->pWaitSemaphores[i], t->pWaitSemaphoreValues[i], "waited for a semaphore in");
        for (uint32_t i = 0; i < info->signalSemaphoreCount; i++)
            allowed &= is_step_allowed(info->pSignalSemaphores[i], t->pSignalSemaphoreValues[i]);
    }
    return allowed;
}

/* Raises what the submission would have raised. */
static VkResult pretend(VkDevice of, const VkSubmitInfo *info)
{
    VkResult r = VK_SUCCESS;
    for (const VkBaseInStructure *s = info->pNext; s; s = s->pNext) {
        if (s->sType != VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO) continue;
        const VkTimelineSemaphoreSubmitInfo *t = (const void *)s;
        for (uint32_t i = 0; r == VK_SUCCESS && i < info->signalSemaphoreCount; i++) {
            VkSemaphoreSignalInfo signal = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO,
                                            .semaphore = info->pSignalSemaphores[i],
                                            .value = t->pSignalSemaphoreValues[i]};
            r = OF_DEVICE(of, vkSignalSemaphore)(of, &signal);
        }
    }
    return r;
}

static VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue queue, uint32_t n, const VkSubmitInfo *infos,
                                             VkFence fence)
{
    VkResult r = VK_SUCCESS;
    live *slot = slot_of(key_of(queue));
    VkDevice d = slot->device;
    move_written();
    count_submit(n, infos);
    for (uint32_t i = 0; r == VK_SUCCESS && i < n; i++) {
        n_submit += infos[i].signalSemaphoreCount > 0;
        slot->n_submit += infos[i].signalSemaphoreCount > 0;
        if (is_lost(d)) return VK_ERROR_DEVICE_LOST;
        if (hangs()) return VK_SUCCESS;
        if (!are_steps_allowed(&infos[i])) return VK_ERROR_DEVICE_LOST;
        if (n_submit == number("jump", UINT64_MAX)) r = pretend(d, &infos[i]);
        else r = OF_DEVICE(queue, vkQueueSubmit)(queue, 1, &infos[i], VK_NULL_HANDLE);
    }
    if (r != VK_SUCCESS || hangs()) return r;
    return fence ? OF_DEVICE(queue, vkQueueSubmit)(queue, 0, NULL, fence) : r;
}

static VKAPI_ATTR VkResult VKAPI_CALL wait_semaphores(VkDevice d, const VkSemaphoreWaitInfo *info,
                                                      uint64_t timeout)
{
    if (is_lost(d)) return VK_ERROR_DEVICE_LOST;
    VkResult r = OF_DEVICE(d, vkWaitSemaphores)(d, info, timeout);
    counts.waits += r == VK_SUCCESS;
    return r;
}

static VKAPI_ATTR VkResult VKAPI_CALL wait_fences(VkDevice d, uint32_t n, const VkFence *fences, VkBool32 all,
                                                  uint64_t timeout)
{
    if (is_lost(d)) return VK_ERROR_DEVICE_LOST;
    VkResult r = OF_DEVICE(d, vkWaitForFences)(d, n, fences, all, timeout);
    counts.waits += r == VK_SUCCESS;
    return r;
}

static VKAPI_ATTR VkResult VKAPI_CALL signal_semaphore(VkDevice d, const VkSemaphoreSignalInfo *info)
{
    if (is_lost(d) || !is_step_allowed(info->semaphore, info->value)) return VK_ERROR_DEVICE_LOST;
    move_written();
    counts.signals++;
    return OF_DEVICE(d, vkSignalSemaphore)(d, info);
}

/* ---- entry points ----------------------------------------------------------------------------------------- */

#define HAS(entry, fn)                                                                                       \
    if (strcmp(name, entry) == 0) return (PFN_vkVoidFunction)fn

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL layer_device_proc(VkDevice d, const char *name);

static PFN_vkVoidFunction own_device_proc(const char *name)
{
    HAS("vkGetDeviceProcAddr", layer_device_proc);
    HAS("vkDestroyDevice", destroy_device);
    HAS("vkGetBufferMemoryRequirements", requirements);
    HAS("vkGetMemoryHostPointerPropertiesEXT", host_pointer);
    HAS("vkAllocateMemory", allocate);
    HAS("vkMapMemory", map);
    HAS("vkFreeMemory", free_memory);
    HAS("vkGetDeviceQueue", get_queue);
    HAS("vkCreateCommandPool", create_pool);
    HAS("vkCmdPipelineBarrier", barrier);
    HAS("vkQueueSubmit", submit);
    HAS("vkWaitSemaphores", wait_semaphores);
    HAS("vkWaitForFences", wait_fences);
    HAS("vkSignalSemaphore", signal_semaphore);
    if (!word("count")) return NULL;
    HAS("vkBindBufferMemory", bind_memory);
    HAS("vkBeginCommandBuffer", begin);
    HAS("vkCmdDispatch", dispatch);
    HAS("vkCmdDispatchIndirect", dispatch_indirect);
    HAS("vkCmdCopyBuffer", copy);
    HAS("vkGetFenceStatus", fence_status);
    HAS("vkGetSemaphoreCounterValue", semaphore_counter);
    return NULL;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL layer_device_proc(VkDevice d, const char *name)
{
    PFN_vkVoidFunction own = own_device_proc(name);
    return own ? own : below(d, name);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL layer_instance_proc(VkInstance i, const char *name)
{
    HAS("vkGetInstanceProcAddr", layer_instance_proc);
    HAS("vkCreateInstance", create_instance);
    HAS("vkDestroyInstance", destroy_instance);
    HAS("vkCreateDevice", create_device);
    HAS("vkGetPhysicalDeviceProperties", properties);
    HAS("vkGetPhysicalDeviceFeatures", features);
    HAS("vkGetPhysicalDeviceMemoryProperties", memory1);
    HAS("vkGetPhysicalDeviceQueueFamilyProperties", families);
    HAS("vkGetPhysicalDeviceProperties2", properties2);
    HAS("vkGetPhysicalDeviceFeatures2", features2);
    HAS("vkGetPhysicalDeviceMemoryProperties2", memory2);
    PFN_vkVoidFunction own = own_device_proc(name);
    return own || !next_instance_proc ? own : next_instance_proc(i, name);
}

VKAPI_ATTR VkResult VKAPI_CALL vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *v);

__attribute__((visibility("default"))) VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *v)
{
    v->loaderLayerInterfaceVersion = 2;
    v->pfnGetInstanceProcAddr = layer_instance_proc;
    v->pfnGetDeviceProcAddr = layer_device_proc;
    v->pfnGetPhysicalDeviceProcAddr = NULL;
    return VK_SUCCESS;
}
