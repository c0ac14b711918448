/* What the system says about the machine and about this process: cores, memory, huge
 * pages, limits, and who else is at work. Read from /proc and /sys; what is not there
 * stays 0. Called by the verb doctor. */
#ifndef HTH_MEASURE_MACHINE_H
#define HTH_MEASURE_MACHINE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum hth_huge_mode {
    HTH_HUGE_UNKNOWN, /* the kernel has no such file: built without huge pages */
    HTH_HUGE_NEVER,
    HTH_HUGE_MADVISE,
    HTH_HUGE_ALWAYS,
} hth_huge_mode;

typedef struct hth_machine {
    char cpu_name[80];  /* as the kernel shows it; "" where it shows none */
    uint32_t n_online;  /* CPUs of the kernel, threads of cores each */
    uint32_t n_allowed; /* of them those that this process may run on */
    uint32_t n_core;    /* physical cores behind the allowed ones */
    double cpu_quota;   /* CPUs' worth of time that control groups grant; 0: no limit */
    hth_huge_mode huge;
    uint64_t memory, available, swap; /* bytes of the machine */
    uint64_t group_limit;             /* bytes that control groups grant; 0: no limit */
    uint64_t group_used;              /* of that group, its page cache included */
    uint32_t overcommit;              /* 0 guess, 1 always, 2 never */
} hth_machine;

/* root stands before every path: "" for this machine, a folder in tests. */
void hth_machine_read(const char *root, hth_machine *out);

/* Bytes of this process on transparent huge pages. */
uint64_t hth_huge_page_bytes(void);

/* ---- who else is at work (load.c) -------------------------------------------------------- */

typedef struct hth_cpu_load {
    double busy;   /* CPUs' worth of time that other processes took */
    double stolen; /* that the host of this virtual machine took */
    int pid;       /* the busiest process, 0 when none took a tenth of a CPU */
    double pid_busy;
    char name[32];
} hth_cpu_load;

/* Watches for ms milliseconds, asleep. False where /proc does not tell. */
bool hth_cpu_load_sample(unsigned ms, hth_cpu_load *out);

/* ---- storage (disk.c) ---------------------------------------------------------------------- */

/* Reads up to limit bytes from the start of a file past the page cache: *rate in bytes per
 * second, of *n_read bytes. UNSUPPORTED where the file system has no such reads; IO. */
hearth_status hth_disk_read_rate(const char *path, uint64_t limit, double *rate, uint64_t *n_read,
                                 hearth_error *err);

#endif
