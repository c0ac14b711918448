/* GPUs behind one small interface: memory, shaders, and execution order. Called by forward/, placement/ and
 * engine/; knows neither layers nor quantisation types. Back ends: vulkan; null, the reference device (C functions
 * that the caller passes in, with its own memory and budget: it runs every device path without a GPU); simulated
 * (the reference device with the clock, limits and faults that a file describes: simulated/simulated_int.h). One
 * thread at a time uses a device and its objects. Errors: MEMORY (bytes requested, budget, purpose), UNSUPPORTED
 * (what is missing), DEVICE (lost, timed out, or driver failure; every later call on a lost device fails at once). */
#ifndef HTH_DEVICE_DEVICE_H
#define HTH_DEVICE_DEVICE_H

#include "base/status.h"
#include "device/shaders.h"

#include <stdbool.h>

/* ---- enumeration ----------------------------------------------------------------------------- */

typedef enum hth_device_kind {
    HTH_DEVICE_DISCRETE = 0,
    HTH_DEVICE_INTEGRATED,
    HTH_DEVICE_CPU, /* a driver that computes on the CPU */
    HTH_DEVICE_REF,
    HTH_DEVICE_SIMULATED,
} hth_device_kind;

/* Optional device features. */
enum {
    HTH_FEATURE_INT_DOT = 1,  /* 4-way 8-bit integer dot product; drivers may compute it from products of bytes */
    HTH_FEATURE_TIMELINE = 2, /* timeline semaphores; required on Vulkan */
    HTH_FEATURE_COOPMAT = 4,  /* 8-bit cooperative matrices at subgroup scope (KHR_cooperative_matrix) */
    HTH_FEATURE_COOPMAT2 = 8, /* per-element operations as well (NV_cooperative_matrix2) */
    HTH_FEATURE_FAST_DOT = 16, /* INT_DOT is an instruction: drivers say that it is accelerated */
    HTH_FEATURE_IMPORT = 32,  /* hth_buffer_import */
};

/* One cooperative matrix product: m x k bytes times k x n bytes, added to m x n 32-bit integers. */
typedef struct hth_coopmat_shape {
    uint32_t m, n, k;
} hth_coopmat_shape;
enum { HTH_MAX_COOPMAT_SHAPE = 8 };

typedef struct hth_device_info {
    hth_device_kind kind;
    char name[256], driver[256];
    uint8_t uuid[16];
    uint32_t driver_id;          /* VkDriverId; 0: not of Vulkan */
    uint32_t driver_version;     /* as the driver encodes it (driver_faults.h) */
    uint64_t memory;             /* bytes of device-local memory */
    uint64_t budget;             /* bytes of it usable now; 0: unknown */
    uint64_t max_binding_size;   /* bytes */
    uint32_t alignment;          /* of a buffer range's offset, bytes */
    uint32_t max_shared_memory;  /* bytes of shared memory of a workgroup */
    uint32_t max_workgroup_size; /* invocations */
    uint32_t max_groups[3];      /* workgroups of a dispatch; 0: any number */
    uint64_t max_allocation;     /* bytes of a buffer; 0: any number */
    uint32_t subgroup_size;      /* invocations, default size */
    uint32_t features;           /* HTH_FEATURE_*: those in use */
    uint32_t unused_features;    /* HTH_FEATURE_*: present but not used */
    bool has_second_queue;       /* hth_beside_submit runs concurrently; else behind all that was submitted before */
    uint32_t n_shape;            /* with HTH_FEATURE_COOPMAT, in driver order */
    hth_coopmat_shape shapes[HTH_MAX_COOPMAT_SHAPE];
    double
        host_rate; /* simulated: weight bytes per second that the host reads; 0: host time is not modelled */
    double host_products; /* simulated: of a weight and a value, per second, by the host; 0: they cost nothing */
    double flops;  /* simulated: per second, from the description */
    bool no_values; /* simulated: it keeps its clock and computes nothing */
    char unsupported_reason[200]; /* why it cannot be used; empty: usable */
    bool converts_halves; /* of an open one: its own conversions of halves are exact, and are used */
} hth_device_info;

enum { HTH_MAX_DEVICE = 16 }; /* Vulkan devices that are enumerated */

/* Lists at most `capacity` devices of all back ends except null and simulated, including those that cannot be
 * used. note: why there is no Vulkan device, or empty. */
void hth_device_list(hth_device_info *out, size_t capacity, size_t *n, char note[200]);

/* Whether the build has it. */
bool hth_device_has_vulkan(void);

/* Of n listed devices the usable discrete GPU with most memory, of equals that with most features; n: none. */
size_t hth_device_best(const hth_device_info *found, size_t n);
/* The same of all devices, as "vulkan:N"; false: none. */
bool hth_device_find_discrete(char name[32]);

/* The names of a list with commas between them: "vulkan:0,vulkan:1". UNSUPPORTED: more than HEARTH_MAX_GPU, an empty
 * one, or auto or none among several. */
enum { HTH_DEVICE_NAME = 1024 };
typedef struct hth_device_names {
    char all[HEARTH_MAX_GPU][HTH_DEVICE_NAME];
    uint32_t n;
} hth_device_names;
hearth_status hth_device_split_names(const char *list, hth_device_names *out, hearth_error *err);
bool hth_device_is_usable_gpu(const hth_device_info *info);
/* Whether its times say something of a GPU: it is no stand-in that computes on the CPU. */
static inline bool hth_device_is_gpu(const hth_device_info *info)
{
    return info->kind == HTH_DEVICE_DISCRETE || info->kind == HTH_DEVICE_INTEGRATED;
}
/* Bytes that a model may use: leaves a margin for other processes and for the driver. */
uint64_t hth_device_free_memory(const hth_device_info *info);

/* How long one submission may take before the device counts as hung, in nanoseconds. A card gets the least: other
 * devices, such as drivers that compute on the CPU, share memory or cores with other programs. */
uint64_t hth_device_submit_timeout_ns(const hth_device_info *info);

/* ---- a device ----------------------------------------------------------------------------------- */

typedef struct hth_device hth_device;

typedef struct hth_device_spec {
    const char *name;                      /* "null", "sim:FILE", "vulkan:N", or a UUID in 32 hex digits */
    uint64_t memory;                       /* bytes that may be allocated; 0: all of its memory */
    hth_shader_ref_fn *const *shader_refs; /* null, simulated: [HTH_N_SHADER] */
    bool validation;                       /* Vulkan: enables the validation layer; for tests */
    uint32_t disabled_features;            /* HTH_FEATURE_*: for tests and diagnosis */
    bool no_half_conversion;               /* Vulkan: halves are converted by integer operations; for tests */
    hth_coopmat_shape coopmat;             /* null: the cooperative matrix shape it offers; m 0: none */
    bool coopmat2;                         /* null: with per-element operations */
    bool only_times;                       /* the caller uses nothing that is computed: simulated devices may lack values */
} hth_device_spec;

hearth_status hth_device_open(const hth_device_spec *spec, hth_device **out, hearth_error *err);
/* NULL is allowed. Frees everything that was created from the device. */
void hth_device_close(hth_device *device);
const hth_device_info *hth_device_get_info(const hth_device *device);

/* Bytes allocated now, and their limit. */
typedef struct hth_device_usage {
    uint64_t used, limit;
    uint64_t used_device; /* of `used`: HTH_MEMORY_DEVICE */
    uint64_t peak;        /* highest value of used */
    uint64_t used_at_oom; /* value of used when an allocation last failed; 0: never */
    bool lost;
    uint64_t
        pipeline_cache_bytes; /* bytes of compiled pipelines loaded from the disk cache */
    uint64_t n_validation_error; /* validation layer messages */
} hth_device_usage;
hth_device_usage hth_device_state(const hth_device *device);
/* Bytes that may be in use now: the limit, or less where the driver reports a smaller budget. Queries the driver. */
uint64_t hth_device_budget(const hth_device *device);

/* ---- memory ------------------------------------------------------------------------------------------- */

typedef struct hth_buffer hth_buffer;

typedef enum hth_memory {
    HTH_MEMORY_DEVICE = 0, /* weights, activations: not visible to the host */
    HTH_MEMORY_READBACK,   /* the device writes, the host reads */
    HTH_MEMORY_UPLOAD,     /* the host writes, the device reads */
    HTH_MEMORY_HOST,       /* the caller's own, which the device reads where it lies: hth_buffer_import */
} hth_memory;

/* A range of a buffer. size 0: to the end of the buffer. */
typedef struct hth_buffer_range {
    hth_buffer *buffer;
    uint64_t offset, size;
} hth_buffer_range;

/* what: for error messages ("the weights of layer 3"). The buffer is not zeroed. */
hearth_status hth_buffer_new(hth_device *device, hth_memory memory, uint64_t size, const char *what,
                             hth_buffer **out, hearth_error *err);
/* A buffer of `size` bytes (above 0) of the caller's memory, which the device reads where it lies and never writes. The
 * driver takes whole pages, so that data begins at byte *offset of the buffer. It counts towards no limit. The caller may
 * write it while no unfinished command list reads it. It must outlive the buffer and all submitted command lists that
 * use it; on a lost device, the device. UNSUPPORTED, which loses no device: it cannot import, its bindings are smaller,
 * or its driver refuses this memory, as some do with mapped files. */
hearth_status hth_buffer_import(hth_device *device, const void *data, uint64_t size, const char *what,
                                hth_buffer **out, uint64_t *offset, hearth_error *err);
/* NULL is allowed. The memory is freed once the device has completed its last use; on a lost device, when the
 * device is closed. */
void hth_buffer_free(hth_buffer *buffer);
uint64_t hth_buffer_size(const hth_buffer *buffer);
/* Host address of its first byte; NULL for HTH_MEMORY_DEVICE. */
void *hth_buffer_map(hth_buffer *buffer);

/* ---- pipelines and command lists ---------------------------------------------------------------------- */

typedef struct hth_pipeline hth_pipeline; /* a shader with its specialisation constants; lives as long as its device */
typedef struct hth_cmdlist hth_cmdlist;   /* recorded once, submitted often */

/* consts[n_const of the shader]. */
hearth_status hth_pipeline_get(hth_device *device, hth_shader_id id, const uint32_t *consts,
                               const hth_pipeline **out, hearth_error *err);
/* Drivers compile a pipeline for 0.1 to 1 s. While on, hth_pipeline_get only notes what is to be compiled, for command
 * lists that are not ended. Returns whether the back end compiles anything. */
bool hth_pipeline_defer(hth_device *device, bool on);
/* Whether that is on. */
bool hth_pipeline_is_deferred(const hth_device *device);
/* Compiles all that is noted with n_thread threads, 0: one for each core. A pipeline that fails is forgotten; the first
 * error is returned. What is noted and not compiled, the next hth_pipeline_get for it compiles. */
hearth_status hth_pipeline_compile(hth_device *device, uint32_t n_thread, hearth_error *err);
/* Keeps what was compiled for later runs now, and not only when the device is closed. */
void hth_pipeline_save(hth_device *device);
/* Iterates over all compiled pipelines, in any order: the one after `last` (NULL: the first); NULL: no more. */
const hth_pipeline *hth_pipeline_next(const hth_device *device, const hth_pipeline *last);
/* consts: [n_const of the shader], valid as long as the pipeline. */
hth_shader_id hth_pipeline_get_info(const hth_pipeline *pipeline, const uint32_t **consts);

hearth_status hth_cmdlist_begin(hth_device *device, hth_cmdlist **out, hearth_error *err);
/* Records a dispatch: one buffer range per binding, push constants (copied), workgroup counts. hth_cmdlist_end
 * returns recording errors. */
void hth_cmdlist_dispatch(hth_cmdlist *cmdlist, const hth_pipeline *pipeline, const hth_buffer_range *bind,
                          const void *push, uint32_t gx, uint32_t gy, uint32_t gz);
/* The same, with the workgroup counts in three words of memory. */
void hth_cmdlist_dispatch_indirect(hth_cmdlist *cmdlist, const hth_pipeline *pipeline,
                                   const hth_buffer_range *bind, const void *push, hth_buffer_range grid);
/* The last recorded dispatch reads `bytes` bytes of weights, or of whatever its time depends on; for an indirect
 * dispatch, each workgroup does. 0: unknown. Only the simulated device uses it. */
void hth_cmdlist_hint_bytes(hth_cmdlist *cmdlist, uint64_t bytes);
/* The same, with `bytes` bytes read per set bit among the n bits of `marks` starting at bit `first`. */
void hth_cmdlist_hint_bytes_masked(hth_cmdlist *cmdlist, uint64_t bytes, hth_buffer_range marks,
                                   uint32_t first, uint32_t n);
/* The last recorded dispatch reads `bytes` bytes of the host's memory over the link; of an indirect one, each workgroup
 * does. Of the device's memory it then reads what hth_cmdlist_hint_bytes says, or nothing. Only the simulated device
 * uses it. */
void hth_cmdlist_hint_link_bytes(hth_cmdlist *cmdlist, uint64_t bytes);
void hth_cmdlist_copy(hth_cmdlist *cmdlist, hth_buffer_range from, hth_buffer_range to);
/* Later commands of this command list may read or overwrite what earlier commands wrote to these ranges. */
void hth_cmdlist_barrier(hth_cmdlist *cmdlist, const hth_buffer_range *written, size_t n);
/* No command is recorded yet. */
bool hth_cmdlist_is_empty(const hth_cmdlist *cmdlist);
hearth_status hth_cmdlist_end(hth_cmdlist *cmdlist, hearth_error *err);
/* NULL is allowed; freed after its last use, as buffers are. Its buffers must outlive it. */
void hth_cmdlist_free(hth_cmdlist *cmdlist);

/* ---- execution ---------------------------------------------------------------------------------------- */

/* A point in the execution of a queue; increases monotonically from 1. Each of the two queues has its own. */
typedef uint64_t hth_fence;

/* One submitted command list: it waits until the host semaphore reaches `wait` and the second queue reaches the fence
 * `beside`, whose writes it sees (0: does not wait). Command lists run in submission order, across all submissions. */
typedef struct hth_submit_info {
    hth_cmdlist *cmdlist;
    uint64_t wait;
    hth_fence beside;
} hth_submit_info;
/* Command lists in flight (completion not yet observed) that every back end supports, of each queue. */
enum { HTH_QUEUE_MAX_IN_FLIGHT = 4096 };

/* fences[n]: the value at which each command list is complete and its writes are visible; may be NULL. */
hearth_status hth_queue_submit(hth_device *device, const hth_submit_info *submits, size_t n,
                               hth_fence *fences, hearth_error *err);
/* Sets the host semaphore to value, which only increases; the host's earlier writes become visible to what waits
 * for it. */
hearth_status hth_queue_signal(hth_device *device, uint64_t value, hearth_error *err);
/* Current value of the host semaphore; a new user of the device continues from it. */
uint64_t hth_queue_host_value(const hth_device *device);
bool hth_queue_is_complete(hth_device *device, hth_fence fence);
/* Blocks. Fails with DEVICE after timeout_ns, and the device is lost. Each stop of the process (SIGSTOP) consumes
 * at most 1/16 of the timeout or 0.1 s, whichever is less. */
hearth_status hth_queue_wait(hth_device *device, hth_fence fence, uint64_t timeout_ns, hearth_error *err);
/* Spins for spin_ns, then blocks as above: a blocked thread sees the end some 50 microseconds late. */
hearth_status hth_queue_wait_spin(hth_device *device, hth_fence fence, uint64_t spin_ns, uint64_t timeout_ns,
                                  hearth_error *err);
/* How long to spin for work that took last_ns when it was last waited for (0: unknown): a little longer than that, if
 * it is so short that the delay matters, and if no core is taken from a driver that computes on the CPU. */
uint64_t hth_queue_spin_ns(const hth_device *device, uint64_t last_ns);

/* The second queue. Its command lists run in their order, concurrently with those of hth_queue_submit: neither may
 * touch what unfinished command lists of the other write. Uploads and downloads count as command lists of
 * hth_queue_submit. Without info.has_second_queue they run in one order with those, behind the waits of all that was
 * submitted before: the host signals what these wait for before it waits for a fence of this queue.
 * fences[n]: where each command list is complete and its writes are visible; may be NULL. */
hearth_status hth_beside_submit(hth_device *device, hth_cmdlist *const *cmdlists, size_t n, hth_fence *fences,
                                hearth_error *err);
/* They do for fences of the second queue what hth_queue_is_complete and hth_queue_wait do for the main one's. */
bool hth_beside_is_complete(hth_device *device, hth_fence fence);
hearth_status hth_beside_wait(hth_device *device, hth_fence fence, uint64_t timeout_ns, hearth_error *err);

/* Completes everything submitted to both queues: signals the host semaphore up to the highest value that a command
 * list waits for, and waits for the last command lists. timeout_ns is per 16 command lists. Failed calls are retried
 * at most twice in total. */
hearth_status hth_queue_drain(hth_device *device, uint64_t timeout_ns, hearth_error *err);

/* Copies to.size bytes from `from` to a buffer of any memory kind but HTH_MEMORY_HOST: what is submitted, uploaded or
 * downloaded later is ordered after it. For loading, not for decoding. */
hearth_status hth_device_upload(hth_buffer_range to, const void *from, hearth_error *err);
hearth_status hth_device_download(hth_buffer_range from, void *to, hearth_error *err);

/* ---- time ------------------------------------------------------------------------------------------ */

/* Nanoseconds since the device was opened: the host's virtual clock on a simulated device with one (identical in
 * every run), else the monotonic clock. */
uint64_t hth_device_time(const hth_device *device);
/* Accounts for time_ns of host computation; moves a virtual clock, otherwise does nothing. */
void hth_device_advance_clock(hth_device *device, uint64_t time_ns);
/* Accounts for `bytes` bytes of weights that the host reads, at info.host_rate less what the second queue reads of the
 * same memory meanwhile (simulated_int.h), or for its products of a weight and a value, if they take longer. 0: does
 * nothing. */
void hth_device_charge_host(hth_device *device, uint64_t bytes, double products);

/* ---- for measurements --------------------------------------------------------------------------------- */

/* One recorded command of a live command list. */
typedef struct hth_command_time {
    const char *name;       /* of the shader, or "copy", "barrier" */
    const uint32_t *consts; /* [n_const of the shader]; NULL for other commands */
    uint32_t n_const, grid[3];
    uint64_t read_bytes;    /* hth_cmdlist_hint_bytes */
    uint64_t n_run, ns;     /* completed runs that were read, and the sum of their times */
} hth_command_time;
typedef void hth_command_time_fn(void *user, const hth_command_time *time);

/* Vulkan: devices opened from now on write a timestamp after each command. The time of a command ends when it and all
 * commands before it are complete, so those without a barrier between them share one. Costs some microseconds each. */
void hth_device_time_commands_on_open(bool on);
/* Passes all commands that ran since the last call, and sets their times to zero. Nothing may be in flight. */
void hth_device_command_times(hth_device *device, hth_command_time_fn *fn, void *user);

/* ---- for tests ---------------------------------------------------------------------------------------- */

/* The n-th call from now on (from 1) that can fail ends with status, once; 0: turns that off. After DEVICE the
 * device is lost. */
void hth_device_inject_fault(hth_device *device, uint64_t n, hearth_status status);
/* The n_call calls from the n-th on fail likewise. */
void hth_device_inject_faults(hth_device *device, uint64_t n, uint64_t n_call, hearth_status status);
/* The same for every device opened from now on; its opening is call 1. n 0: turns that off. */
void hth_device_inject_fault_on_open(uint64_t n, hearth_status status);
/* Whether an injected call was reached. */
bool hth_device_open_fault_was_hit(void);
/* Calls that can fail, since the device was opened. */
uint64_t hth_device_n_call(const hth_device *device);

#endif
