/* Types of the Vulkan back end. The loader is opened at run time: nothing is linked. */
#ifndef HTH_DEVICE_VULKAN_VULKAN_INT_H
#define HTH_DEVICE_VULKAN_VULKAN_INT_H

#include "device/device_int.h"
#include "device/vulkan/spirv.h"

#include "device/vulkan/vk_compat.h"

/* ---- entry points (loader.c) -------------------------------------------------------------------- */

typedef struct hth_vk_instance {
    void *library;
    PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr;
    VkInstance handle;
    VkDebugUtilsMessengerEXT messenger;
    _Atomic uint64_t n_validation_error; /* messages of the validation layer, from any thread */
#define GLOBAL(name) PFN_##name name;
#define INSTANCE(name) PFN_##name name;
#define OPTIONAL(name) PFN_##name name; /* NULL: missing */
#define DEVICE(name)
#define OPTIONAL_DEVICE(name)
#include "device/vulkan/vk_functions.def"
#undef GLOBAL
#undef INSTANCE
#undef OPTIONAL
#undef DEVICE
#undef OPTIONAL_DEVICE
} hth_vk_instance;

typedef struct hth_vk_dispatch_table {
#define GLOBAL(name)
#define INSTANCE(name)
#define OPTIONAL(name)
#define DEVICE(name) PFN_##name name;
#define OPTIONAL_DEVICE(name) PFN_##name name; /* NULL: missing */
#include "device/vulkan/vk_functions.def"
#undef GLOBAL
#undef INSTANCE
#undef OPTIONAL
#undef DEVICE
#undef OPTIONAL_DEVICE
} hth_vk_dispatch_table;

/* UNSUPPORTED: no loader, or no driver for it. */
hearth_status hth_vk_instance_open(hth_vk_instance *vk, bool validation, hearth_error *err);
void hth_vk_instance_close(hth_vk_instance *vk);
hearth_status hth_vk_dispatch_table_load(const hth_vk_instance *vk, VkDevice device, hth_vk_dispatch_table *calls,
                                hearth_error *err);

/* A VkResult in words. */
const char *hth_vk_result_string(VkResult result);
/* Reports a VkResult with the name of the call: MEMORY, DEVICE or UNSUPPORTED. */
hearth_status hth_vk_fail(hearth_error *err, const hth_device *d, const char *call, VkResult result);

/* ---- enumeration (enumerate.c) ------------------------------------------------------------------------ */

/* A driver that has it wants it enabled. In vulkan_beta.h. */
#define HTH_VK_PORTABILITY_SUBSET "VK_KHR_portability_subset"

/* What imported memory is to the driver (import.c). */
#define HTH_VK_IMPORT_TYPE VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT
#define HTH_VK_IMPORT_USAGE (VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT)

typedef struct hth_vk_physical_device {
    VkPhysicalDevice handle;
    uint32_t family; /* compute queue family */
    uint64_t timestamp_mask; /* valid bits of its timestamps; 0: it has none */
    double timestamp_ns;     /* of one tick */
    uint32_t float_controls; /* HTH_VK_*: supported float controls */
    uint32_t heap;   /* index of the largest device-local heap */
    bool has_memory_budget;
    bool is_subset;           /* the driver has a part of Vulkan: what it lacks is not used here */
    bool has_subgroup_size;   /* a pipeline can require info.subgroup_size */
    uint64_t import_alignment; /* with HTH_FEATURE_IMPORT: of addresses and sizes, bytes */
    hth_device_info info;
} hth_vk_physical_device;

/* without: features to treat as missing. */
hearth_status hth_vk_find(const hth_vk_instance *vk, uint32_t without, hth_vk_physical_device physical[HTH_MAX_DEVICE],
                          size_t *n, hearth_error *err);

/* hth_backend.budget. */
uint64_t hth_vk_budget(const hth_device *d);

/* ---- a device ------------------------------------------------------------------------------------------ */

typedef struct hth_vk_proofs hth_vk_proofs; /* proof.c */

/* A buffer of the host that is copied to the device. */
typedef struct hth_vk_staging {
    hth_buffer buffer;        /* priv NULL: none */
    VkCommandBuffer commands; /* in flight; NULL: nothing is */
    VkFence fence;
} hth_vk_staging;

typedef struct hth_vk_device {
    hth_vk_instance instance;
    hth_vk_physical_device physical;
    hth_vk_dispatch_table call;
    VkDevice handle;
    VkQueue queues[HTH_N_QUEUE]; /* the same one twice: its family has no second one */
    VkCommandPool commands;
    VkPhysicalDeviceMemoryProperties memory;
    VkSemaphore done[HTH_N_QUEUE], host_semaphore; /* timelines: fences, and the host semaphore */
    VkPipelineCache pipeline_cache; /* NULL: the driver could not create one */
    uint64_t pipeline_cache_hash;   /* of the loaded cache data */
    hth_vk_staging staging[2]; /* of uploads: one is filled while the other is copied */
    int i_staging;             /* the next one */
    _Atomic bool compiled;          /* some pipeline was compiled since */
    hth_vk_proofs *proofs;
    bool hangs;                /* what was submitted did not end: its objects stay until the process ends */
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
    uint32_t proof;    /* proof.c: 1 + its slot; 0: none */
    VkQueryPool times; /* a timestamp at the beginning and one after each command; NULL: none */
    hth_fence run;     /* whose times were not read; 0: none */
    hth_queue_id run_queue; /* of that fence */
} hth_vk_cmdlist;

/* memory.c */
hearth_status hth_vk_buffer_new(hth_buffer *b, const char *what, hearth_error *err);
void hth_vk_buffer_free(hth_buffer *b);
void hth_vk_buffer_release(hth_buffer *b); /* hth_backend.buffer_free */
hearth_status hth_vk_upload(hth_buffer_range to, const void *from, hearth_error *err);
hearth_status hth_vk_download(hth_buffer_range from, void *to, hearth_error *err);
/* Waits for uploads in flight, and frees their staging buffers. */
hearth_status hth_vk_finish_uploads(hth_device *d, hearth_error *err);
/* import.c */
hearth_status hth_vk_buffer_import(hth_buffer *b, const void *data, const char *what, hearth_error *err);
/* pipeline.c */
hearth_status hth_vk_pipeline_new(hth_device *d, hth_pipeline *p, hearth_error *err);
void hth_vk_pipeline_free(hth_device *d, hth_pipeline *p);
/* half_probe.c: hth_backend.probe */
hearth_status hth_vk_probe_halves(hth_device *d, hearth_error *err);
/* pipeline_cache.c: loads what an earlier run compiled for the device, and saves what this one compiled. */
void hth_vk_pipeline_cache_open(hth_device *d);
void hth_vk_pipeline_cache_save(hth_device *d);
void hth_vk_pipeline_cache_close(hth_device *d);
/* cmdlist.c */
hearth_status hth_vk_cmdlist_end(hth_cmdlist *t, hearth_error *err);
void hth_vk_cmdlist_free(hth_cmdlist *t);
/* proof.c: that command lists ran. */
hearth_status hth_vk_proofs_open(hth_device *d, hearth_error *err);
void hth_vk_proofs_close(hth_device *d);
void hth_vk_proof_record(hth_cmdlist *t); /* the last command of a list */
void hth_vk_proof_free(hth_cmdlist *t);
void hth_vk_proof_submit(const hth_cmdlist *t, hth_queue_id queue, hth_fence fence);
/* hth_backend.did_run. */
bool hth_vk_did_run(const hth_device *d, hth_queue_id queue, hth_fence fence);
/* command_times.c: timestamps of a command list, where the device times commands and its queue can. */
hearth_status hth_vk_times_open(hth_cmdlist *t, hearth_error *err);
void hth_vk_times_write(const hth_cmdlist *t, uint32_t i);
void hth_vk_times_read(hth_cmdlist *t);
/* queue.c */
hearth_status hth_vk_submit(hth_device *d, const hth_submit_info *submits, size_t n, hth_fence first,
                            hearth_error *err);
hearth_status hth_vk_submit_beside(hth_device *d, hth_cmdlist *const *t, size_t n, hth_fence first, hearth_error *err);
hearth_status hth_vk_signal(hth_device *d, uint64_t value, hearth_error *err);
hth_fence hth_vk_completed_value(hth_device *d, hth_queue_id queue);
hearth_status hth_vk_wait(hth_device *d, hth_queue_id queue, hth_fence fence, uint64_t timeout_ns, bool *late,
                          hearth_error *err);
/* Submits commands and waits for completion: for loading. */
hearth_status hth_vk_run_once(hth_device *d, VkCommandBuffer commands, hearth_error *err);
/* The same in two parts: start makes a fence, which finish frees with the commands. Both free them if they fail. */
hearth_status hth_vk_run_start(hth_device *d, VkCommandBuffer commands, VkFence *fence, hearth_error *err);
hearth_status hth_vk_run_finish(hth_device *d, VkCommandBuffer commands, VkFence fence, hearth_error *err);
/* Waits until all that was submitted is complete, for a limited time: see hth_vk_device.hangs. */
void hth_vk_finish(hth_device *d);
hearth_status hth_vk_commands_begin(hth_device *d, VkCommandBuffer *out, hearth_error *err);

#endif
