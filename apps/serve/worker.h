/* A thread for work that takes long and needs nothing of its caller's: beside the engine thread, indexing a vocabulary
 * and compiling the constraint of a request, and on another worker large calls (large_call.h); beside the network thread,
 * reading large bodies. So no other request waits
 * for it. Jobs run one after the other, in the order in which they come. One thread calls all functions. */
#ifndef HEARTH_APPS_SERVE_WORKER_H
#define HEARTH_APPS_SERVE_WORKER_H

#include <stdbool.h>

typedef struct worker worker;

/* The caller's; it stays in place while the worker has it. */
typedef struct worker_job worker_job;
struct worker_job {
    void (*run)(worker_job *j); /* on the worker's thread */
    worker_job *next;           /* in the worker's queue */
    bool has_ended;             /* worker_has_ended tells it */
};

/* name: of the thread. wake(user) is called by it when a job has ended. NULL: memory ran out, or the system has no thread. */
worker *worker_open(const char *name, void (*wake)(void *user), void *user);
/* NULL is allowed. The worker has no jobs. */
void worker_close(worker *w);

void worker_add(worker *w, worker_job *j);
/* Whether it ran to its end. It is the caller's again. */
bool worker_has_ended(worker *w, const worker_job *j);
/* Takes a job back that may have ended, or may not have begun and will not. False: it runs. */
bool worker_take_back(worker *w, worker_job *j);
/* Takes it back in any case: one that runs is waited for. */
void worker_settle(worker *w, worker_job *j);

#endif
