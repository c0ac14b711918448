/* The Vulkan back end's own types. The loader is opened at run time: nothing here is linked. */
#ifndef HTH_DEVICE_VULKAN_INT_H
#define HTH_DEVICE_VULKAN_INT_H

#include "device/device_int.h"
#include "device/vulkan/spirv.h"

#include "device/vulkan/vk_compat.h"

/* ---- entry points (loader.c) -------------------------------------------------------------------- */

typedef struct hth_vk_instance {
    void *library;
    PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr;
    VkInstance handle;
    VkDebugUtilsMessengerEXT messenger;
    uint64_t n_validation_error; /* messages of the validation layer */
#define GLOBAL(name) PFN_##name name;
#define INSTANCE(name) PFN_##name name;
#define OPTIONAL(name) PFN_##name name; /* NULL: it is not there */
#define DEVICE(name)
#include "device/vulkan/vk_functions.def"
#undef GLOBAL
#undef INSTANCE
#undef OPTIONAL
#undef DEVICE
} hth_vk_instance;

typedef struct hth_vk_dispatch_table {
#define GLOBAL(name)
#define INSTANCE(name)
#define OPTIONAL(name)
#define DEVICE(name) PFN_##name name;
#include "device/vulkan/vk_functions.def"
#undef GLOBAL
#undef INSTANCE
#undef OPTIONAL
#undef DEVICE
} hth_vk_dispatch_table;

/* UNSUPPORTED: no loader, or no driver for it. */
hearth_status hth_vk_instance_open(hth_vk_instance *vk, bool validation, hearth_error *err);
void hth_vk_instance_close(hth_vk_instance *vk);
hearth_status hth_vk_dispatch_table_load(const hth_vk_instance *vk, VkDevice device, hth_vk_dispatch_table *calls,
                                hearth_error *err);

/* What a driver answered, in words. */
const char *hth_vk_result_string(VkResult result);
/* What a result means: MEMORY, DEVICE or UNSUPPORTED, with the call's name. */
hearth_status hth_vk_fail(hearth_error *err, const hth_device *d, const char *call, VkResult result);

/* ---- what there is (list.c) --------------------------------------------------------------------------- */

typedef struct hth_vk_physical_device {
    VkPhysicalDevice handle;
    uint32_t family; /* of a queue that computes */
    uint32_t float_controls; /* HTH_VK_FLOATS_*: what it promises */
    uint32_t heap;   /* its largest */
    bool has_memory_budget;
    hth_device_info info;
} hth_vk_physical_device;

/* without: features that count as missing. */
hearth_status hth_vk_find(const hth_vk_instance *vk, uint32_t without, hth_vk_physical_device physical[HTH_MAX_DEVICE],
                          size_t *n, hearth_error *err);

/* As hth_backend wants it. */
uint64_t hth_vk_budget(const hth_device *d);

/* ---- a device ------------------------------------------------------------------------------------------ */

typedef struct hth_vk_device {
    hth_vk_instance instance;
    hth_vk_physical_device physical;
    hth_vk_dispatch_table call;
    VkDevice handle;
    VkQueue queue;
    VkCommandPool commands;
    VkPhysicalDeviceMemoryProperties memory;
    VkSemaphore done, host_semaphore;    /* timelines: ticks, and the host's signals */
    VkPipelineCache pipeline_cache; /* NULL: the driver refused one */
    uint64_t pipeline_cache_hash;   /* of what was kept */
    bool compiled;             /* some, since */
} hth_vk_device;

typedef struct hth_vk_buffer {
    VkBuffer handle;
    VkDeviceMemory memory;
} hth_vk_buffer;

typedef struct hth_vk_pipeline {
    VkShaderModule module;
    VkDescriptorSetLayout set;
    VkPipelineLayout layout;
    VkPipeline pipeline;
} hth_vk_pipeline;

typedef struct hth_vk_cmdlist {
    VkCommandBuffer commands;
    VkDescriptorPool pool;
} hth_vk_cmdlist;

/* memory.c */
hearth_status hth_vk_buffer_new(hth_buffer *b, const char *what, hearth_error *err);
void hth_vk_buffer_free(hth_buffer *b);
hearth_status hth_vk_upload(hth_buffer_range to, const void *from, hearth_error *err);
hearth_status hth_vk_download(hth_buffer_range from, void *to, hearth_error *err);
/* pipeline.c */
hearth_status hth_vk_pipeline_new(hth_device *d, hth_pipeline *p, hearth_error *err);
void hth_vk_pipeline_free(hth_device *d, hth_pipeline *p);
/* pipeline_cache.c: what an earlier run compiled for the device is taken, and what this one did is kept. */
void hth_vk_pipeline_cache_open(hth_device *d);
void hth_vk_pipeline_cache_close(hth_device *d);
/* tape.c */
hearth_status hth_vk_cmdlist_end(hth_cmdlist *t, hearth_error *err);
void hth_vk_cmdlist_free(hth_cmdlist *t);
/* queue.c */
hearth_status hth_vk_submit(hth_device *d, const hth_submit_info *submits, size_t n, hth_fence first,
                            hearth_error *err);
hearth_status hth_vk_signal(hth_device *d, uint64_t value, hearth_error *err);
hth_fence hth_vk_completed_value(hth_device *d);
hearth_status hth_vk_wait(hth_device *d, hth_fence fence, uint64_t timeout_ns, bool *late, hearth_error *err);
/* Runs commands now and waits: for loading. */
hearth_status hth_vk_run_once(hth_device *d, VkCommandBuffer commands, hearth_error *err);
hearth_status hth_vk_commands_begin(hth_device *d, VkCommandBuffer *out, hearth_error *err);

#endif
