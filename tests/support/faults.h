/* The n-th allocation, read or write fails, for n = 1, 2, ... until a task has fewer of them. After each: an error with
 * a line for a person, not a byte kept, no output under either of its names; or, where a task can do without, what it
 * writes else. */
#ifndef HEARTH_TESTS_SUPPORT_FAULTS_H
#define HEARTH_TESTS_SUPPORT_FAULTS_H

#include <hearth/hearth.h>

/* A model in a scratch file, and where a task writes. */
typedef struct fault_paths {
    const char *in, *out;
} fault_paths;

/* Leaves nothing open; what it wrote lies at p->out. */
typedef hearth_status fault_task(const fault_paths *p, hearth_error *err);
/* A model of two layers with a chat template. */
void fault_make_input(fault_paths *p);

/* Allocations (each once, and with all behind it), reads and writes, with their numbers printed. At least that many of
 * each kind; 0: none of that kind is tried. */
void fault_survive(const char *name, fault_task *run, uint64_t n_allocation, uint64_t n_read, uint64_t n_write);

#endif
