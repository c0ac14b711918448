/* The n-th allocation, read or write fails, for n = 1, 2, ... until a task succeeds in spite of it. After each: an
 * error with a line for a person, not a byte kept, no output under either of its names. */
#ifndef HEARTH_TESTS_SUPPORT_FAULTS_H
#define HEARTH_TESTS_SUPPORT_FAULTS_H

#include <hearth/hearth.h>

/* A model in a scratch file, and where a task writes. */
typedef struct fault_paths {
    const char *in, *out;
} fault_paths;

/* Leaves nothing open; what it wrote lies at p->out. */
typedef hearth_status fault_task(const fault_paths *p, hearth_error *err);
/* Makes fault n happen; 0: none. */
typedef void fault_inject(uint64_t n);

void fault_one_allocation(uint64_t n);
void fault_allocations_from(uint64_t n); /* that one and all later ones */
void fault_one_read(uint64_t n);
void fault_one_write(uint64_t n);

/* A model of two layers with a chat template. */
void fault_make_input(fault_paths *p);

/* n_least: fewer faults than that mean that the task was not put to the test. Returns the number of faults. */
uint64_t fault_each(fault_task *run, fault_inject *fault, hearth_status status, uint64_t n_least);

/* The same, with the number printed: each allocation once, and with all behind it. */
void fault_survive_allocations(const char *name, fault_task *run, uint64_t n_least);
void fault_survive_reads(const char *name, fault_task *run, uint64_t n_least);
void fault_survive_writes(const char *name, fault_task *run, uint64_t n_least);

#endif
