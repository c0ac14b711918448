/* What hearth doctor knows of a machine, and what it says about it. */
#ifndef HEARTH_APPS_CLI_DOCTOR_H
#define HEARTH_APPS_CLI_DOCTOR_H

#include "base/cpu.h"
#include "measure/machine.h"
#include "measure/spread.h"

typedef struct doctor_facts {
    hth_cpu level, machine_level;
    const char *lack; /* for the next level, or NULL */
    hth_machine machine;
    hth_load load;
    bool load_known;
    uint32_t n_thread;      /* that a run would take */
    hth_spread one, all;    /* bytes per second from memory, by one thread and by n_thread */
    uint64_t locked_limit;  /* bytes that may be locked in memory; UINT64_MAX: no limit */
    uint64_t address_limit; /* bytes of address space; UINT64_MAX: no limit */
    /* Of a model, when one is named. */
    const char *path;        /* NULL: none */
    bool mmap, fits, opened; /* how it is opened; whether it fits into memory */
    uint64_t weight_bytes, huge_bytes, session_bytes;
    double disk_rate; /* bytes per second; 0: could not be read past the page cache */
} doctor_facts;

typedef struct finding {
    const char *name;
    bool ok;
    char text[160], fix[160]; /* fix is empty when ok */
} finding;

enum { DOCTOR_MAX_FINDING = 10 };

/* doctor_checks.c: what the facts mean, in the order of the screen; how many. */
size_t doctor_check(const doctor_facts *f, finding out[DOCTOR_MAX_FINDING]);

#endif
