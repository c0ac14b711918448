/* Reads what the system reports about the machine and this process: cores, memory, huge pages, limits, and the load
 * of other processes. The values come from /proc and /sys; missing ones are 0. hearth doctor calls it. */
#ifndef HTH_MEASURE_MACHINE_H
#define HTH_MEASURE_MACHINE_H

#include "base/status.h"
#include "base/system/system_memory.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum hth_huge_mode {
    HTH_HUGE_UNKNOWN, /* the kernel has no such file: built without huge pages */
    HTH_HUGE_NEVER,
    HTH_HUGE_MADVISE,
    HTH_HUGE_ALWAYS,
} hth_huge_mode;

typedef struct hth_machine {
    char cpu_name[80];  /* as the kernel reports it; "": none */
    uint32_t n_online;  /* CPUs (hardware threads) of the kernel; without /sys those allowed */
    uint32_t n_allowed; /* of those, CPUs that this process may run on */
    uint32_t n_core;    /* physical cores behind the allowed ones */
    double cpu_quota;   /* CPUs' worth of time allowed by control groups; 0: no limit */
    hth_huge_mode huge;
    hth_system_memory memory;
} hth_machine;

/* root is the prefix of every path: "" for this machine, a folder in tests. */
void hth_machine_read(const char *root, hth_machine *out);

/* Bytes of this process in transparent huge pages. */
uint64_t hth_huge_page_bytes(void);

/* ---- load of other processes (cpu_load.c) ------------------------------------------------ */

typedef struct hth_cpu_load {
    double busy;   /* CPUs' worth of time used by other processes */
    double stolen; /* CPUs' worth of time used by the host of this virtual machine */
    int pid;       /* the busiest process; 0: none used a tenth of a CPU */
    double pid_busy;
    char name[32];
} hth_cpu_load;

/* Samples for ms milliseconds, asleep. False: /proc has no such data. */
bool hth_cpu_load_sample(unsigned ms, hth_cpu_load *out);

/* ---- storage (disk.c) ---------------------------------------------------------------------- */

/* Reads up to limit bytes from the start of a file with direct reads: *rate in bytes per second, over *n_read
 * bytes. UNSUPPORTED: the file system has no direct reads. IO. */
hearth_status hth_disk_read_rate(const char *path, uint64_t limit, double *rate, uint64_t *n_read,
                                 hearth_error *err);

#endif
