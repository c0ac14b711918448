/* The real clock: a thread runs tapes as a device would, beside the host, and holds back each tick until the
 * model's time for it has come; later where computing it here takes longer. So polls, waits and gates meet
 * as they do with a card, and a race between both sides is one that a sanitizer of threads sees. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "device/simulated/simulated_int.h"

#include <sched.h>
#include <signal.h>
#include <time.h>

/* The system wakes a sleeper so much late, or more. */
enum { AWAKE_NS = 100000 };

uint64_t hth_sim_now(const hth_sim *own) { return hth_clock_ns() - own->opened_ns; }

static struct timespec moment(const hth_sim *own, uint64_t ns)
{
    uint64_t at = own->opened_ns + ns;
    return (struct timespec){(time_t)(at / 1000000000u), (long)(at % 1000000000u)};
}

static void stay_awake(const hth_sim *own, uint64_t until_ns)
{
    while (hth_sim_now(own) < until_ns) sched_yield();
}

void hth_sim_sleep_until(const hth_sim *own, uint64_t until_ns)
{
    if (until_ns > AWAKE_NS) {
        struct timespec t = moment(own, until_ns - AWAKE_NS);
        while (hth_sim_now(own) < until_ns - AWAKE_NS)
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    }
    stay_awake(own, until_ns);
}

/* ---- the thread ----------------------------------------------------------------------------------- */

/* As hth_sim_sleep_until, with the lock, which it gives away meanwhile; shorter when the device ends. */
static void hold_back(hth_sim *own, uint64_t until_ns)
{
    while (!own->ending && until_ns > AWAKE_NS && hth_sim_now(own) < until_ns - AWAKE_NS) {
        struct timespec t = moment(own, until_ns - AWAKE_NS);
        pthread_cond_timedwait(&own->changed, &own->lock, &t);
    }
    bool ending = own->ending;
    pthread_mutex_unlock(&own->lock);
    if (!ending) stay_awake(own, until_ns);
    pthread_mutex_lock(&own->lock);
}

static void run_turn(hth_sim *own, hth_sim_submit *t)
{
    uint64_t start = t->ready_ns > own->device_ns ? t->ready_ns : own->device_ns;
    own->running = true;
    pthread_mutex_unlock(&own->lock);
    uint64_t end = hth_sim_execute(own, t->cmdlist, start), computed = hth_sim_now(own);
    pthread_mutex_lock(&own->lock);
    own->device_ns = t->end_ns = end > computed ? end : computed;
    hold_back(own, t->end_ns);
    own->running = false;
    if (!own->ending) own->completed = ++own->computed;
    pthread_cond_broadcast(&own->changed);
}

static void *thread_main(void *user)
{
    hth_sim *own = user;
    pthread_mutex_lock(&own->lock);
    while (!own->ending) {
        hth_sim_submit *t = hth_sim_next(own);
        if (t) run_turn(own, t);
        else pthread_cond_wait(&own->changed, &own->lock);
    }
    pthread_mutex_unlock(&own->lock);
    return NULL;
}

hearth_status hth_sim_start(hth_sim *own, hearth_error *err)
{
    pthread_condattr_t monotonic;
    sigset_t all, before;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&own->lock, NULL);
    pthread_cond_init(&own->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    /* Signals are for the caller's threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int refused = pthread_create(&own->thread, NULL, thread_main, own);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!refused) return HEARTH_OK;
    pthread_cond_destroy(&own->changed);
    pthread_mutex_destroy(&own->lock);
    return hth_fail(err, HEARTH_ERROR_MEMORY, "simulated %s: the system refused a thread for its clock",
                    own->gpu.name);
}

void hth_sim_quiesce(hth_sim *own)
{
    pthread_mutex_lock(&own->lock);
    own->ending = true;
    pthread_cond_broadcast(&own->changed);
    while (own->running) pthread_cond_wait(&own->changed, &own->lock);
    pthread_mutex_unlock(&own->lock);
}

void hth_sim_stop(hth_sim *own)
{
    hth_sim_quiesce(own);
    pthread_join(own->thread, NULL);
}

void hth_sim_finish(hth_sim *own)
{
    pthread_cond_destroy(&own->changed);
    pthread_mutex_destroy(&own->lock);
}

/* ---- the host ---------------------------------------------------------------------------------------- */

void hth_sim_lock_when_idle(hth_sim *own)
{
    pthread_mutex_lock(&own->lock);
    while (own->running || hth_sim_next(own)) pthread_cond_wait(&own->changed, &own->lock);
}

hearth_status hth_sim_wait_wall(hth_device *d, hth_fence fence, uint64_t timeout_ns, bool *late,
                                hearth_error *err)
{
    hth_sim *own = d->priv;
    const uint64_t most = (uint64_t)1 << 60; /* 36 years: what a system's clock can be asked for */
    uint64_t now = hth_sim_now(own), until = now + (timeout_ns < most ? timeout_ns : most), woken = 0;
    struct timespec deadline = moment(own, until);
    pthread_mutex_lock(&own->lock);
    bool slept = own->completed < fence;
    while (own->completed < fence && hth_sim_now(own) < until)
        pthread_cond_timedwait(&own->changed, &own->lock, &deadline);
    bool done = own->completed >= fence;
    hearth_status st = done ? HEARTH_OK : hth_sim_not_done(d, fence, late, err);
    if (slept && done)
        woken = own->submits[fence % HTH_QUEUE_MAX_IN_FLIGHT].end_ns +
                hth_sim_cost(own, &own->host_random, own->gpu.wake_ns);
    pthread_mutex_unlock(&own->lock);
    hth_sim_sleep_until(own, woken);
    return st;
}
