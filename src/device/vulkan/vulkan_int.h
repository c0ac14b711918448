/* The Vulkan back end's own types. The loader is opened at run time: nothing here is linked. */
#ifndef HTH_DEVICE_VULKAN_INT_H
#define HTH_DEVICE_VULKAN_INT_H

#include "device/device_int.h"
#include "device/vulkan/words.h"

#include "device/vulkan/newer.h"

/* ---- entry points (entries.c) -------------------------------------------------------------------- */

typedef struct hth_vk_instance {
    void *library;
    PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr;
    VkInstance handle;
    VkDebugUtilsMessengerEXT messenger;
    uint64_t n_complaint; /* messages of the validation layer */
#define GLOBAL(name) PFN_##name name;
#define INSTANCE(name) PFN_##name name;
#define OPTIONAL(name) PFN_##name name; /* NULL: it is not there */
#define DEVICE(name)
#include "device/vulkan/entries.def"
#undef GLOBAL
#undef INSTANCE
#undef OPTIONAL
#undef DEVICE
} hth_vk_instance;

typedef struct hth_vk_calls {
#define GLOBAL(name)
#define INSTANCE(name)
#define OPTIONAL(name)
#define DEVICE(name) PFN_##name name;
#include "device/vulkan/entries.def"
#undef GLOBAL
#undef INSTANCE
#undef OPTIONAL
#undef DEVICE
} hth_vk_calls;

/* UNSUPPORTED: no loader, or no driver for it. */
hearth_status hth_vk_instance_open(hth_vk_instance *vk, bool validation, hearth_error *err);
void hth_vk_instance_close(hth_vk_instance *vk);
hearth_status hth_vk_calls_load(const hth_vk_instance *vk, VkDevice device, hth_vk_calls *calls,
                                hearth_error *err);

/* What a driver answered, in words. */
const char *hth_vk_answer(VkResult result);
/* What a result means: MEMORY, DEVICE or UNSUPPORTED, with the call's name. */
hearth_status hth_vk_fail(hearth_error *err, const hth_device *d, const char *call, VkResult result);

/* ---- what there is (list.c) --------------------------------------------------------------------------- */

typedef struct hth_vk_found {
    VkPhysicalDevice handle;
    uint32_t family; /* of a queue that computes */
    uint32_t floats; /* HTH_VK_FLOATS_*: what it promises */
    uint32_t heap;   /* its largest */
    bool says_budget;
    hth_device_info info;
} hth_vk_found;

/* without: features that count as missing. */
hearth_status hth_vk_find(const hth_vk_instance *vk, uint32_t without, hth_vk_found found[HTH_MAX_DEVICE],
                          size_t *n, hearth_error *err);

/* As hth_backend wants it. */
uint64_t hth_vk_budget(const hth_device *d);

/* ---- a device ------------------------------------------------------------------------------------------ */

typedef struct hth_vk_device {
    hth_vk_instance instance;
    hth_vk_found found;
    hth_vk_calls call;
    VkDevice handle;
    VkQueue queue;
    VkCommandPool commands;
    VkPhysicalDeviceMemoryProperties memory;
    VkSemaphore done, gate;    /* timelines: ticks, and the host's signals */
    VkPipelineCache pipelines; /* NULL: the driver refused one */
    uint64_t pipelines_hash;   /* of what was kept */
    bool compiled;             /* some, since */
} hth_vk_device;

typedef struct hth_vk_buffer {
    VkBuffer handle;
    VkDeviceMemory memory;
} hth_vk_buffer;

typedef struct hth_vk_program {
    VkShaderModule module;
    VkDescriptorSetLayout set;
    VkPipelineLayout layout;
    VkPipeline pipeline;
} hth_vk_program;

typedef struct hth_vk_tape {
    VkCommandBuffer commands;
    VkDescriptorPool pool;
} hth_vk_tape;

/* memory.c */
hearth_status hth_vk_buffer_new(hth_buffer *b, const char *what, hearth_error *err);
void hth_vk_buffer_free(hth_buffer *b);
hearth_status hth_vk_upload(hth_slice to, const void *from, hearth_error *err);
hearth_status hth_vk_download(hth_slice from, void *to, hearth_error *err);
/* program.c */
hearth_status hth_vk_program_new(hth_device *d, hth_program *p, hearth_error *err);
void hth_vk_program_free(hth_device *d, hth_program *p);
/* pipelines.c: what an earlier run compiled for the device is taken, and what this one did is kept. */
void hth_vk_pipelines_open(hth_device *d);
void hth_vk_pipelines_close(hth_device *d);
/* tape.c */
hearth_status hth_vk_tape_end(hth_tape *t, hearth_error *err);
void hth_vk_tape_free(hth_tape *t);
/* queue.c */
hearth_status hth_vk_submit(hth_device *d, const hth_turn *turns, size_t n, hth_tick first,
                            hearth_error *err);
hearth_status hth_vk_signal(hth_device *d, uint64_t value, hearth_error *err);
hth_tick hth_vk_reached(hth_device *d);
hearth_status hth_vk_wait(hth_device *d, hth_tick tick, uint64_t timeout_ns, bool *late, hearth_error *err);
/* Runs commands now and waits: for loading. */
hearth_status hth_vk_run_once(hth_device *d, VkCommandBuffer commands, hearth_error *err);
hearth_status hth_vk_commands_begin(hth_device *d, VkCommandBuffer *out, hearth_error *err);

#endif
