/* What the files of this room share: a device as all back ends see it, and what a back end does. */
#ifndef HTH_DEVICE_DEVICE_INT_H
#define HTH_DEVICE_DEVICE_INT_H

#include "device/device.h"

typedef struct hth_backend hth_backend;

/* A call, counted as by n_call, that ends so. */
typedef struct hth_fault {
    uint64_t call;
    hearth_status status;
    const char *what; /* "timeout" */
} hth_fault;

struct hth_device {
    const hth_backend *back;
    void *own; /* the back end's */
    hth_device_info info;
    uint64_t used, limit, most, refused; /* bytes of buffers; device.h: hth_device_usage */
    _Atomic bool lost;                   /* threads that do not step look at it, too */
    uint64_t kept;                       /* device.h: hth_device_usage */
    hth_tick last;                       /* that was submitted */
    uint64_t gate, awaited;              /* the host's; and how far tapes wait for it */
    uint64_t patience_ns;                /* of the wait under way */
    hth_buffer *buffers, *waiting;       /* in use; freed, but perhaps not passed by the device */
    hth_tape *tapes, *waiting_tapes;
    hth_program *programs;
    uint64_t n_call, fail_at, fail_end; /* calls fail_at to fail_end - 1 fail, by a test's wish */
    hearth_status fail_with;
    const hth_fault *faults; /* the back end's */
    size_t n_fault;
    uint64_t opened_ns; /* of the monotonic clock */
};

struct hth_buffer {
    hth_device *device;
    hth_memory memory;
    uint64_t size, held; /* bytes asked for, and taken */
    hth_tick free_after;
    void *own;
    uint8_t *map;
    hth_buffer *next, **link;
};

struct hth_program {
    hth_program_id id;
    uint32_t consts[HTH_PROGRAM_MAX_CONST];
    void *own;
    hth_program *next;
};

/* ---- recorded commands ------------------------------------------------------------------------ */

typedef enum hth_op_kind { HTH_OP_RUN, HTH_OP_RUN_AT, HTH_OP_COPY, HTH_OP_ORDER } hth_op_kind;

/* RUN: slices of the bindings. RUN_AT: the grid's slice behind them. COPY: from, to. ORDER: what was
 * written. */
typedef struct hth_op {
    hth_op_kind kind;
    const hth_program *program;
    uint32_t grid[3];
    uint32_t n_slice;
    size_t first_slice; /* of the tape's */
    size_t push_at;     /* in the tape's bytes */
    uint64_t reads;     /* hth_tape_reads; 0: nobody said */
    hth_slice marks;    /* of NULL: none; else reads is what each of n_mark bits adds that is set */
    uint32_t first_mark, n_mark;
} hth_op;

struct hth_tape {
    hth_device *device;
    hth_op *ops;
    hth_slice *slices;
    uint8_t *push;
    size_t n_op, n_slice, n_push, room_op, room_slice, room_push;
    hearth_error wrong; /* the first error of recording */
    bool ended;
    hth_tick free_after;
    void *own;
    hth_tape *next, **link;
};

/* ---- what a back end does ------------------------------------------------------------------------ */

/* All statuses as device.h says; a back end may assume that what it is given is in bounds and of this
 * device. own pointers are its to fill in and to free. */
struct hth_backend {
    hearth_status (*open)(hth_device *d, const hth_device_spec *spec, hearth_error *err);
    void (*stop)(hth_device *d); /* lets what was submitted end, or drops it */
    void (*close)(hth_device *d);
    uint64_t (*complaints)(const hth_device *d);
    /* Bytes that this process may use there now, its own included; 0, or NULL: nobody says. */
    uint64_t (*budget)(const hth_device *d);
    hearth_status (*buffer_new)(hth_buffer *b, const char *what, hearth_error *err);
    void (*buffer_free)(hth_buffer *b);
    hearth_status (*upload)(hth_slice to, const void *from, hearth_error *err);
    hearth_status (*download)(hth_slice from, void *to, hearth_error *err);
    hearth_status (*program_new)(hth_device *d, hth_program *p, hearth_error *err);
    void (*program_free)(hth_device *d, hth_program *p);
    hearth_status (*tape_end)(hth_tape *t, hearth_error *err);
    void (*tape_free)(hth_tape *t);
    /* Turn i is over at tick first + i. */
    hearth_status (*submit)(hth_device *d, const hth_turn *turns, size_t n, hth_tick first,
                            hearth_error *err);
    hearth_status (*signal)(hth_device *d, uint64_t value, hearth_error *err);
    hth_tick (*reached)(hth_device *d);
    /* OK: reached. DEVICE: late: not within that time, which is part of d->patience_ns; else: never. */
    hearth_status (*wait)(hth_device *d, hth_tick tick, uint64_t timeout_ns, bool *late, hearth_error *err);
    /* As in device.h; NULL: the monotonic clock, which nobody moves. */
    uint64_t (*time)(const hth_device *d);
    void (*charge)(hth_device *d, uint64_t time_ns);
};

extern const hth_backend hth_backend_null, hth_backend_vulkan, hth_backend_simulated;

/* One command of a tape, by the functions that the null device d was opened with. */
void hth_null_run(const hth_device *d, const hth_tape *t, const hth_op *op);

/* Those that Vulkan knows. UNSUPPORTED: there is no loader, or no driver. */
hearth_status hth_vk_list(hth_device_info *out, size_t room, size_t *n, hearth_error *err);

/* A slice with its bytes filled in. ARGUMENT: it leaves its buffer. */
hearth_status hth_slice_check(hth_slice *s, hearth_error *err);
/* Begins every call that can fail: a lost device, and faults that tests ask for. */
hearth_status hth_device_begin_call(hth_device *d, hearth_error *err);
/* Ends it: after DEVICE the device is lost. */
hearth_status hth_device_end_call(hth_device *d, hearth_status st);
/* Gives back what was freed and has been passed, nothing of a lost device; all of it where it is closed. */
void hth_device_sweep(hth_device *d, bool all);

#endif
