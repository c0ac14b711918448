/* Types that all back ends share: the device, its objects, and the back-end function table. */
#ifndef HTH_DEVICE_DEVICE_INT_H
#define HTH_DEVICE_DEVICE_INT_H

#include "device/device.h"

typedef struct hth_backend hth_backend;

/* The queues of a device: that of hth_queue_submit and that of hth_beside_submit. */
typedef enum hth_queue_id {
    HTH_QUEUE_MAIN = 0,
    HTH_QUEUE_BESIDE,
    HTH_N_QUEUE,
} hth_queue_id;

/* The call number (as in n_call) that fails with status. */
typedef struct hth_fault {
    uint64_t call;
    hearth_status status;
    const char *what; /* "timeout" */
} hth_fault;

struct hth_device {
    const hth_backend *backend;
    void *priv; /* back-end data */
    hth_device_info info;
    uint64_t used, used_device, limit, peak, used_at_oom; /* bytes of buffers; device.h: hth_device_usage */
    _Atomic bool lost;                       /* threads that run no steps read it too */
    uint64_t pipeline_cache_bytes;           /* device.h: hth_device_usage */
    hth_fence last[HTH_N_QUEUE];             /* last fence value submitted */
    /* of the host semaphore: current value, and the highest value that a command list waits for */
    uint64_t host_value, max_wait_value;
    uint64_t timeout_ns;                     /* of the wait in progress */
    hth_buffer *buffers, *pending_free;      /* live; freed, but possibly in use by the device */
    hth_cmdlist *cmdlists, *pending_free_cmdlists;
    hth_pipeline *pipelines;
    bool defers_pipelines;
    uint64_t n_call, fail_at, fail_end; /* calls fail_at to fail_end - 1 fail (fault injection) */
    hearth_status fail_with;
    const hth_fault *faults; /* of the back end */
    size_t n_fault;
    uint64_t opened_ns; /* on the monotonic clock */
    bool times_commands;
};

struct hth_buffer {
    hth_device *device;
    hth_memory memory;
    uint64_t size, allocated; /* bytes requested, and allocated; 0 of HTH_MEMORY_HOST */
    hth_fence free_after[HTH_N_QUEUE];
    void *priv;
    uint8_t *map;
    hth_buffer *next, **link;
};

struct hth_pipeline {
    hth_shader_id id;
    uint32_t consts[HTH_SHADER_MAX_CONST];
    void *priv;
    bool pending; /* not compiled */
    hth_pipeline *next;
};

/* ---- recorded commands ------------------------------------------------------------------------ */

typedef enum hth_cmd_kind {
    HTH_CMD_DISPATCH,
    HTH_CMD_DISPATCH_INDIRECT,
    HTH_CMD_COPY,
    HTH_CMD_BARRIER
} hth_cmd_kind;

/* DISPATCH: ranges of the bindings. DISPATCH_INDIRECT: the grid's range follows them. COPY: from, to. BARRIER: the
 * ranges written. */
typedef struct hth_cmd {
    hth_cmd_kind kind;
    const hth_pipeline *pipeline;
    uint32_t grid[3];
    uint32_t n_range;
    size_t first_range;    /* index into the command list's ranges */
    size_t push_offset;    /* byte offset into the command list's push data */
    uint64_t read_bytes;   /* hth_cmdlist_hint_bytes; 0: unknown */
    uint64_t link_bytes;   /* hth_cmdlist_hint_link_bytes; 0: none */
    hth_buffer_range mask; /* buffer NULL: none; else read_bytes counts once per set bit of n_bit bits */
    uint32_t first_bit, n_bit;
    uint64_t n_run, ns; /* device.h: hth_command_time */
} hth_cmd;

struct hth_cmdlist {
    hth_device *device;
    hth_cmd *cmds;
    hth_buffer_range *ranges;
    uint8_t *push;
    size_t n_cmd, n_range, n_push, cmd_capacity, range_capacity, push_capacity;
    hearth_error error; /* the first recording error */
    bool ended;
    hth_fence free_after[HTH_N_QUEUE];
    void *priv;
    hth_cmdlist *next, **link;
};

/* ---- back-end functions -------------------------------------------------------------------------- */

/* Statuses as in device.h. A back end may assume that its arguments are in bounds and belong to this device. It
 * sets and frees the priv pointers. NULL for stop, pipeline_free, cmdlist_end, cmdlist_free: nothing to do. */
struct hth_backend {
    hearth_status (*open)(hth_device *d, const hth_device_spec *spec, hearth_error *err);
    /* Measures properties that drivers do not report; after open. NULL: nothing is measured. */
    hearth_status (*probe)(hth_device *d, hearth_error *err);
    void (*stop)(hth_device *d); /* completes what was submitted, or drops it */
    void (*close)(hth_device *d);
    uint64_t (*n_validation_error)(const hth_device *d); /* NULL: none are counted */
    /* Bytes that this process may use now, its own included; 0 or NULL: unknown. */
    uint64_t (*budget)(const hth_device *d);
    hearth_status (*buffer_new)(hth_buffer *b, const char *what, hearth_error *err);
    /* Makes a buffer of b->size bytes of data. Sets b->map and b->size to the whole pages around them. */
    hearth_status (*buffer_import)(hth_buffer *b, const void *data, const char *what, hearth_error *err);
    void (*buffer_free)(hth_buffer *b);
    hearth_status (*upload)(hth_buffer_range to, const void *from, hearth_error *err);
    hearth_status (*download)(hth_buffer_range from, void *to, hearth_error *err);
    hearth_status (*pipeline_new)(hth_device *d, hth_pipeline *p, hearth_error *err); /* in any thread */
    void (*pipelines_save)(hth_device *d); /* NULL: nothing is compiled */
    void (*pipeline_free)(hth_device *d, hth_pipeline *p);
    hearth_status (*cmdlist_end)(hth_cmdlist *t, hearth_error *err);
    void (*cmdlist_free)(hth_cmdlist *t);
    void (*cmdlist_read_times)(hth_cmdlist *t); /* adds those of its last run, if that is complete; NULL: has none */
    /* Command list i completes at fence first + i. */
    hearth_status (*submit)(hth_device *d, const hth_submit_info *submits, size_t n, hth_fence first,
                            hearth_error *err);
    /* To the second queue; command list i completes at fence first + i of that queue. */
    hearth_status (*submit_beside)(hth_device *d, hth_cmdlist *const *t, size_t n, hth_fence first, hearth_error *err);
    hearth_status (*signal)(hth_device *d, uint64_t value, hearth_error *err);
    hth_fence (*completed_value)(hth_device *d, hth_queue_id queue);
    /* OK: reached. DEVICE with late: not within timeout_ns, which is part of d->timeout_ns; without: never. */
    hearth_status (*wait)(hth_device *d, hth_queue_id queue, hth_fence fence, uint64_t timeout_ns, bool *late,
                          hearth_error *err);
    /* Whether the command list that completes at a fence, which was reached, did what it contains. NULL: always. */
    bool (*did_run)(const hth_device *d, hth_queue_id queue, hth_fence fence);
    /* As in device.h; NULL: the monotonic clock, which does not advance on request. */
    uint64_t (*time)(const hth_device *d);
    void (*advance_clock)(hth_device *d, uint64_t time_ns);
    void (*charge_host)(hth_device *d, uint64_t bytes, double products); /* NULL: nothing is charged */
};

extern const hth_backend hth_backend_ref, hth_backend_vulkan, hth_backend_simulated;

/* Runs one command of a command list with the functions that the reference device d was opened with. */
hearth_status hth_ref_buffer_new(hth_buffer *b, const char *what, hearth_error *err);
hearth_status hth_ref_buffer_import(hth_buffer *b, const void *data, const char *what, hearth_error *err);
void hth_ref_dispatch(const hth_device *d, const hth_cmdlist *t, const hth_cmd *cmd);

/* Whether y[2 * HTH_N_HALF] is what widen_halves computes without an error; any NaN is a NaN. */
enum { HTH_N_HALF = 65536 };
bool hth_vk_halves_are_exact(const float *y);

/* Lists the Vulkan devices. UNSUPPORTED: no loader, or no driver. */
hearth_status hth_vk_list(hth_device_info *out, size_t capacity, size_t *n, hearth_error *err);

/* Error messages append these words to the number of a command list: "", " of the second queue". */
extern const char *const hth_queue_words[HTH_N_QUEUE];

/* Resolves size 0. ARGUMENT: the range exceeds its buffer. */
hearth_status hth_buffer_range_check(hth_buffer_range *s, hearth_error *err);
/* ARGUMENT: nothing may write it. */
hearth_status hth_buffer_check_written(const hth_buffer *b, hearth_error *err);
/* Begins every call that can fail: checks for a lost device and for injected faults. */
hearth_status hth_device_begin_call(hth_device *d, hearth_error *err);
/* Ends the call: after DEVICE the device is lost. */
hearth_status hth_device_end_call(hth_device *d, hearth_status st);
/* Frees released objects that the device no longer uses, and nothing of a lost device. all (closing): frees all of
 * them. */
void hth_device_reclaim(hth_device *d, bool all);

#endif
