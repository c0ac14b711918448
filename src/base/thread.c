/* A new thread inherits the mask of signals and the floating-point state of the thread that creates it. */
#define _GNU_SOURCE
#include "base/thread.h"

#include "base/clock.h"
#include "base/fp_state.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

/* The signals that a thread's own instructions raise. The system ends the process if they are blocked, although the
 * program may have a handler: of SIGBUS for files that become shorter, of others for its reports of crashes. */
static const int own_faults[] = {SIGBUS, SIGSEGV, SIGILL, SIGFPE, SIGTRAP, SIGSYS};

bool hth_thread_start(pthread_t *thread, void *(*run)(void *), void *arg, const char *name)
{
    HTH_FP_SCOPE;
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof own_faults / sizeof *own_faults; i++) sigdelset(&blocked, own_faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int error = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) (void)pthread_setname_np(*thread, name);
    return error == 0;
}

void hth_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

bool hth_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t end_ns)
{
    enum { SECOND = 1000000000 };
    struct timespec end = {.tv_sec = (time_t)(end_ns / SECOND), .tv_nsec = (long)(end_ns % SECOND)};
    if (end_ns == UINT64_MAX) return pthread_cond_wait(cond, lock) == 0;
    return pthread_cond_timedwait(cond, lock, &end) != ETIMEDOUT;
}

bool hth_is_cancelled(const volatile int *flag) { return flag && __atomic_load_n(flag, __ATOMIC_RELAXED); }

void hth_cond_wait_poll(pthread_cond_t *cond, pthread_mutex_t *lock)
{
    enum { POLL_NS = 50000000 };
    hth_cond_wait_until(cond, lock, hth_clock_ns() + POLL_NS);
}
