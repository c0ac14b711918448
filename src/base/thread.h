/* Threads that the library starts, and how they wait for one another. */
#ifndef HTH_BASE_THREAD_H
#define HTH_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Starts a thread that gets no signals but those of its own faults, and computes with the default floating-point state.
 * name: at most 15 characters, which ps, top and debuggers show. False: the system cannot. */
bool hth_thread_start(pthread_t *thread, void *(*run)(void *), void *arg, const char *name);

/* A condition whose waits end by the clock of base/clock.h. */
void hth_cond_init(pthread_cond_t *cond);
/* Waits until end_ns at most; UINT64_MAX: without a limit. False: the time has come. */
bool hth_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t end_ns);

/* Whether a flag that cancels is set; NULL: there is none. */
bool hth_is_cancelled(const volatile int *flag);
/* Waits for 50 ms at most: so often a thread looks at such a flag, of which no condition tells. */
void hth_cond_wait_poll(pthread_cond_t *cond, pthread_mutex_t *lock);

#endif
