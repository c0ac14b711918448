/* GPUs behind one small interface: memory, programs, and the order in which they run. Called by run/ and
 * engine/; knows neither layers nor block types. Back ends: vulkan; null (C functions that the caller
 * hands in, own memory and budget: every path of a device without one); simulated (null, with the clock,
 * the limits and the faults that a file describes: simulated/simulated_int.h). A device and all that is
 * made from it belong to one thread at a time. Errors: MEMORY (bytes asked, budget, what for), UNSUPPORTED
 * (what is missing), DEVICE (lost, too slow, or the driver's own failure; a lost device says so at every
 * later call, at once). */
#ifndef HTH_DEVICE_DEVICE_H
#define HTH_DEVICE_DEVICE_H

#include "base/status.h"
#include "device/shaders.h"

#include <stdbool.h>

/* ---- what there is --------------------------------------------------------------------------- */

typedef enum hth_device_kind {
    HTH_DEVICE_DISCRETE = 0,
    HTH_DEVICE_INTEGRATED,
    HTH_DEVICE_CPU, /* a driver that computes on the CPU */
    HTH_DEVICE_REF,
    HTH_DEVICE_SIMULATED,
} hth_device_kind;

/* What a device may have beyond what it must. */
enum {
    HTH_FEATURE_INT_DOT = 1,  /* products of four bytes, added up, in one instruction */
    HTH_FEATURE_TIMELINE = 2, /* semaphores that count; a Vulkan device must have it */
    HTH_FEATURE_COOPMAT = 4,  /* products of matrices of bytes, a subgroup's (KHR_cooperative_matrix) */
    HTH_FEATURE_COOPMAT2 = 8, /* and functions of their elements (NV_cooperative_matrix2) */
};

/* A product of matrices in one instruction: m x k bytes times k x n bytes, added to m x n 32-bit integers. */
typedef struct hth_coopmat_shape {
    uint32_t m, n, k;
} hth_coopmat_shape;
enum { HTH_MAX_COOPMAT_SHAPE = 8 };

typedef struct hth_device_info {
    hth_device_kind kind;
    char name[256], driver[256];
    uint8_t uuid[16];
    uint64_t memory;             /* bytes of its own */
    uint64_t budget;             /* of them that may be used now; 0: it does not say */
    uint64_t max_binding_size;   /* bytes of one binding */
    uint32_t alignment;          /* of a slice's place, in bytes */
    uint32_t max_shared_memory;  /* bytes that a workgroup may have in common */
    uint32_t max_workgroup_size; /* invocations of a workgroup, at most */
    uint32_t subgroup_size;      /* invocations of a subgroup, as a rule */
    uint32_t features;           /* HTH_FEATURE_*: what is used of it */
    uint32_t unused_features;    /* HTH_FEATURE_*: what it has besides */
    uint32_t n_shape;            /* with HTH_FEATURE_COOPMAT, in the driver's order */
    hth_coopmat_shape shapes[HTH_MAX_COOPMAT_SHAPE];
    double
        host_rate; /* simulated: bytes of weights a second that its host reads; 0: its time is no model's */
    double flops;  /* simulated: a second, as described */
    char unsupported_reason[200]; /* why it cannot be used; empty: it can */
} hth_device_info;

enum { HTH_MAX_DEVICE = 16 }; /* of Vulkan's, that are looked at */

/* At most room devices of all back ends but null and simulated; those with a problem too. note: why Vulkan
 * has none; or empty. */
void hth_device_list(hth_device_info *out, size_t capacity, size_t *n, char note[200]);

/* The first card of its own that can be used, as "vulkan:N"; false: there is none. */
bool hth_device_find_discrete(char name[32]);
bool hth_device_is_usable_gpu(const hth_device_info *info);
/* Bytes that a model may take there: others need some, and drivers take some for themselves. */
uint64_t hth_device_free_memory(const hth_device_info *info);

/* ---- a device ----------------------------------------------------------------------------------- */

typedef struct hth_device hth_device;

typedef struct hth_device_spec {
    const char *name;                      /* "null", "sim:FILE", "vulkan:0", or a UUID in 32 hex digits */
    uint64_t memory;                       /* bytes that may be allocated; 0: what it has */
    hth_shader_ref_fn *const *shader_refs; /* null, simulated: [HTH_N_SHADER] */
    bool validation;                       /* Vulkan: its validation layer watches; for tests */
    uint32_t disabled_features;            /* HTH_FEATURE_*: not to be used, for tests and diagnosis */
    hth_coopmat_shape coopmat;             /* null: it has matrix units of this shape; m 0: it has none */
    bool coopmat2;                         /* null: with functions of elements */
} hth_device_spec;

hearth_status hth_device_open(const hth_device_spec *spec, hth_device **out, hearth_error *err);
/* NULL is allowed. What was made from it is gone then. */
void hth_device_close(hth_device *device);
const hth_device_info *hth_device_get_info(const hth_device *device);

/* Bytes allocated now, and the most that may be. */
typedef struct hth_device_usage {
    uint64_t used, limit;
    uint64_t peak;        /* bytes that ever were in use at once */
    uint64_t used_at_oom; /* bytes in use when memory was refused last; 0: it never was */
    bool lost;
    uint64_t
        pipeline_cache_bytes; /* bytes of compiled programs that an earlier run had left, and that were taken */
    uint64_t n_validation_error; /* of the validation layer */
} hth_device_usage;
hth_device_usage hth_device_state(const hth_device *device);
/* Bytes that may be in use now: the limit, or less where the driver says that others want more. Asks it. */
uint64_t hth_device_budget(const hth_device *device);

/* ---- memory ------------------------------------------------------------------------------------------- */

typedef struct hth_buffer hth_buffer;

typedef enum hth_memory {
    HTH_MEMORY_DEVICE = 0, /* weights, activations: out of the host's sight */
    HTH_MEMORY_READBACK,   /* the device writes, the host reads */
    HTH_MEMORY_UPLOAD,     /* the host writes, the device reads */
} hth_memory;

/* A range of a buffer. bytes 0: to its end. */
typedef struct hth_buffer_range {
    hth_buffer *buffer;
    uint64_t offset, size;
} hth_buffer_range;

/* what: for messages ("the weights of layer 3"). Not zeroed. */
hearth_status hth_buffer_new(hth_device *device, hth_memory memory, uint64_t size, const char *what,
                             hth_buffer **out, hearth_error *err);
/* NULL is allowed. Its memory is given back once the device has passed its last use; a lost one's when it is
 * closed. */
void hth_buffer_free(hth_buffer *buffer);
uint64_t hth_buffer_size(const hth_buffer *buffer);
/* Where the host sees it; NULL for HTH_MEMORY_DEVICE. */
void *hth_buffer_map(hth_buffer *buffer);

/* ---- programs and tapes ------------------------------------------------------------------------------- */

typedef struct hth_pipeline hth_pipeline; /* a program with its constants; as old as its device */
typedef struct hth_cmdlist hth_cmdlist;   /* recorded once, run often */

/* consts[n_const of the program]. */
hearth_status hth_pipeline_get(hth_device *device, hth_shader_id id, const uint32_t *consts,
                               const hth_pipeline **out, hearth_error *err);
/* All that were made, in any order: the one behind `last` (NULL: the first); NULL: there are no more. */
const hth_pipeline *hth_pipeline_next(const hth_device *device, const hth_pipeline *last);
/* consts: as many as the program has; as old as it. */
hth_shader_id hth_pipeline_get_info(const hth_pipeline *pipeline, const uint32_t **consts);

hearth_status hth_cmdlist_begin(hth_device *device, hth_cmdlist **out, hearth_error *err);
/* One run: a slice for each binding, push constants (copied), workgroups. What goes wrong while recording
 * comes out of hth_cmdlist_end. */
void hth_cmdlist_dispatch(hth_cmdlist *cmdlist, const hth_pipeline *pipeline, const hth_buffer_range *bind,
                          const void *push, uint32_t gx, uint32_t gy, uint32_t gz);
/* The same, with three words in memory for the workgroups. */
void hth_cmdlist_dispatch_indirect(hth_cmdlist *cmdlist, const hth_pipeline *pipeline,
                                   const hth_buffer_range *bind, const void *push, hth_buffer_range grid);
/* The run recorded last reads so many bytes of weights, or of whatever else its time goes by; each of its
 * workgroups does, if it is one of hth_cmdlist_dispatch_indirect. 0: nobody knows. Only a simulated device asks. */
void hth_cmdlist_hint_bytes(hth_cmdlist *cmdlist, uint64_t bytes);
/* The same of a run that reads so many bytes for each bit that is set of n bits of marks, from `first` on. */
void hth_cmdlist_hint_bytes_masked(hth_cmdlist *cmdlist, uint64_t bytes, hth_buffer_range marks,
                                   uint32_t first, uint32_t n);
void hth_cmdlist_copy(hth_cmdlist *cmdlist, hth_buffer_range from, hth_buffer_range to);
/* What was written there before is read by what follows on this tape, or written anew. */
void hth_cmdlist_barrier(hth_cmdlist *cmdlist, const hth_buffer_range *written, size_t n);
/* Nothing was recorded so far. */
bool hth_cmdlist_is_empty(const hth_cmdlist *cmdlist);
hearth_status hth_cmdlist_end(hth_cmdlist *cmdlist, hearth_error *err);
/* NULL is allowed; likewise given back after its last use. Its buffers must outlive it. */
void hth_cmdlist_free(hth_cmdlist *cmdlist);

/* ---- running ------------------------------------------------------------------------------------------ */

/* A point of the device's time; only grows. */
typedef uint64_t hth_fence;

/* A tape of a submission: waits until the host's gate has reached `wait` (0: does not). Tapes run in the
 * order in which they were given, over all submissions. */
typedef struct hth_submit_info {
    hth_cmdlist *cmdlist;
    uint64_t wait;
} hth_submit_info;
/* Turns whose end was not seen: so many every back end holds at once. */
enum { HTH_QUEUE_MAX_IN_FLIGHT = 4096 };

/* ticks[n]: when each tape is done, what it wrote can be seen by then; may be NULL. */
hearth_status hth_queue_submit(hth_device *device, const hth_submit_info *submits, size_t n,
                               hth_fence *fences, hearth_error *err);
/* The host's gate reaches value, which only grows; what the host wrote before is seen behind it. */
hearth_status hth_queue_signal(hth_device *device, uint64_t value, hearth_error *err);
/* Where it is now: whoever begins to use the gate of a device goes on from there. */
uint64_t hth_queue_host_value(const hth_device *device);
bool hth_queue_is_complete(hth_device *device, hth_fence fence);
/* Sleeps. DEVICE after timeout_ns, which loses the device. Time in which the process was stopped hardly
 * counts: a sixteenth of it, or a tenth of a second if that is less, for each stop. */
hearth_status hth_queue_wait(hth_device *device, hth_fence fence, uint64_t timeout_ns, hearth_error *err);
/* Looks for a while, then sleeps likewise: for what is done soon. */
hearth_status hth_queue_wait_spin(hth_device *device, hth_fence fence, uint64_t timeout_ns,
                                  hearth_error *err);

/* Lets all that was submitted run out: opens the gate as far as any tape waits for it, and waits for the last.
 * timeout_ns is for sixteen tapes. What is refused is tried twice again, over all of them. */
hearth_status hth_queue_drain(hth_device *device, uint64_t timeout_ns, hearth_error *err);

/* size bytes at `from` to a buffer of any memory; done when it returns. For loading, not for tokens. */
hearth_status hth_device_upload(hth_buffer_range to, const void *from, hearth_error *err);
hearth_status hth_device_download(hth_buffer_range from, void *to, hearth_error *err);

/* ---- time ------------------------------------------------------------------------------------------ */

/* Nanoseconds since the device was opened: the host's on the clock of the model where a simulated device
 * has a virtual one (the same in every run), of the monotonic clock everywhere else. */
uint64_t hth_device_time(const hth_device *device);
/* The host computes for so long; moves a virtual clock, nothing else. */
void hth_device_advance_clock(hth_device *device, uint64_t time_ns);

/* ---- for tests ---------------------------------------------------------------------------------------- */

/* The n-th call from now on (from 1) that can fail ends with status, once; 0 turns that off. After DEVICE the
 * device is lost. */
void hth_device_inject_fault(hth_device *device, uint64_t n, hearth_status status);
/* So do the n_call calls from that one on. */
void hth_device_inject_faults(hth_device *device, uint64_t n, uint64_t n_call, hearth_status status);
/* The same for every device that is opened from now on; its opening is call 1. n 0: for none. */
void hth_device_inject_fault_on_open(uint64_t n, hearth_status status);
/* Whether that call was made. */
bool hth_device_open_fault_was_hit(void);
/* Calls that can fail, since the device was opened. */
uint64_t hth_device_n_call(const hth_device *device);

#endif
