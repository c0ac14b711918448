/* Reads pieces of files, several at a time. One thread uses a disk: it starts reads and waits for results, which come
 * in any order. Kinds: io_uring (disk_uring.c), threads that call pread (disk_pread.c), a simulated disk
 * (disk_simulated.c). disk_faults.c injects faults into any of them. What a result means, and what is done about a
 * failure, is decided by reader.c alone. */
#ifndef HTH_STORE_DISK_H
#define HTH_STORE_DISK_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct hth_disk_read {
    uint64_t id;  /* returned with the result */
    int fd;       /* opened with O_DIRECT: at, size and to are aligned as the file system asks */
    uint32_t size;
    uint64_t at;
    void *to;     /* belongs to the disk until the result is there */
} hth_disk_read;

typedef struct hth_disk_result {
    uint64_t id;
    int64_t n; /* bytes read, perhaps fewer than asked for; 0: the file ends there; below 0: -errno */
} hth_disk_result;

typedef struct hth_disk hth_disk;

typedef struct hth_disk_ops {
    /* Starts a read. False: the queue is full; a result must be taken first. */
    bool (*start)(hth_disk *disk, const hth_disk_read *read);
    /* Takes at most max results. If there is none, waits for one, for timeout_ns (UINT64_MAX: no limit), or for
     * wake. */
    uint32_t (*wait)(hth_disk *disk, uint64_t timeout_ns, hth_disk_result *results, uint32_t max);
    /* From any thread: ends a wait, or the next one. */
    void (*wake)(hth_disk *disk);
    /* Nanoseconds of the disk's own clock. */
    uint64_t (*now)(hth_disk *disk);
    /* No read is running. */
    void (*close)(hth_disk *disk);
} hth_disk_ops;

/* Implementations begin with it. */
struct hth_disk {
    const hth_disk_ops *ops;
    const char *name; /* "io_uring" */
    const struct hth_disk_model *model; /* what it simulates; NULL: nothing */
};

/* Whether it names a simulated disk, whose bytes come from the page cache: it is to keep them. NULL: no. */
bool hth_disk_is_simulated(const char *name);
/* "auto" or NULL (io_uring, else pread, with a line in the log), "uring", "pread", or "sim:DISK", a simulated one
 * (disk_simulated.h). ARGUMENT: another name. */
hearth_status hth_disk_open(const char *name, hth_disk **out, hearth_error *err);
/* ARGUMENT for names that hth_disk_open refuses so. */
hearth_status hth_disk_check_name(const char *name, hearth_error *err);

/* io_uring by liburing. UNSUPPORTED: the library was built without it, or the system refuses it (the kernel lacks it, a
 * sysctl or a seccomp filter forbids it). */
hearth_status hth_disk_open_uring(hth_disk **out, hearth_error *err);
/* Whether the build has it. */
bool hth_disk_has_uring(void);

/* Threads that call pread; if the system cannot create any, wait reads. MEMORY. */
hearth_status hth_disk_open_pread(uint32_t n_thread, hth_disk **out, hearth_error *err);

#endif
