/* Facts of hearth doctor about a machine, and its check results. */
#ifndef HEARTH_APPS_CLI_DEVICE_DOCTOR_H
#define HEARTH_APPS_CLI_DEVICE_DOCTOR_H

#include "base/system/cpu.h"
#include "measure/machine/machine.h"
#include "base/sample_stats.h"
#include "placement/calibrate.h"

enum { DOCTOR_MAX_TYPE = 2 };
typedef struct doctor_gpu {
    bool found;           /* it can be used */
    hth_device_info info; /* name is empty: no GPU */
    bool is_left_out;     /* --gpu none */
    bool failed;          /* a named device cannot be used or measured */
    char problem[400];    /* why there is none, or why it cannot be used */
    hth_calibration calibrations[DOCTOR_MAX_TYPE];
    size_t n_calibration;
} doctor_gpu;

typedef struct system_info {
    hth_cpu level, machine_level;
    const char *lack; /* features missing for the next level, or NULL */
    hth_machine machine;
    hth_cpu_load load;
    bool load_known;
    uint32_t n_thread;         /* default of a run */
    hth_sample_stats one, all; /* bytes per second from memory, with one thread and with n_thread */
    uint64_t locked_limit;     /* bytes that may be locked in memory; UINT64_MAX: no limit */
    uint64_t address_limit;    /* bytes of address space; UINT64_MAX: no limit */
    doctor_gpu gpu;
    /* The fields below are set if a model is named. */
    const char *path;        /* NULL: none */
    bool mmap, fits, opened; /* how it is opened; whether it fits in memory */
    uint64_t weight_bytes, huge_bytes, session_bytes;
    hth_type type;    /* of its feed-forward matrices */
    double disk_rate; /* bytes per second; 0: no direct reads */
} system_info;

typedef struct check_result {
    const char *name;
    bool ok;
    char text[400], fix[160]; /* fix is empty if ok */
} check_result;

enum { DOCTOR_MAX_FINDING = 11 };

typedef struct doctor_gpu_options {
    const char *name; /* "auto": the discrete GPU with most memory; "none" */
    bool again;       /* measures again instead of using cached results */
    const hth_type *types;
    size_t n_type; /* up to DOCTOR_MAX_TYPE */
    uint32_t n_thread;
} doctor_gpu_options;

/* doctor_gpu.c. A device error is stored as a problem in g. */
void doctor_look_at_gpu(doctor_gpu *g, const doctor_gpu_options *options);

/* doctor_checks.c: evaluates the facts, in display order. Returns the number of results. */
size_t doctor_check(const system_info *f, check_result out[DOCTOR_MAX_FINDING]);

#endif
