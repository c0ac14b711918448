/* The wall clock: a thread runs command lists concurrently with the host, as a GPU would, and delays each fence
 * until its modelled time, or later where computing on the CPU takes longer. Polls, waits and signals therefore
 * interleave as with a GPU, and ThreadSanitizer sees races between both sides. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/thread.h"
#include "device/simulated/simulated_int.h"

#include <sched.h>
#include <time.h>

/* The kernel may wake a sleeper this late, or later. */
enum { SPIN_NS = 100000 };

uint64_t hth_sim_now(const hth_sim *sim) { return hth_clock_ns() - sim->opened_ns; }

static struct timespec to_timespec(const hth_sim *sim, uint64_t ns)
{
    uint64_t at = sim->opened_ns + ns;
    return (struct timespec){(time_t)(at / 1000000000u), (long)(at % 1000000000u)};
}

static void spin_until(const hth_sim *sim, uint64_t until_ns)
{
    while (hth_sim_now(sim) < until_ns) sched_yield();
}

void hth_sim_sleep_until(const hth_sim *sim, uint64_t until_ns)
{
    if (until_ns > SPIN_NS) {
        struct timespec t = to_timespec(sim, until_ns - SPIN_NS);
        while (hth_sim_now(sim) < until_ns - SPIN_NS)
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    }
    spin_until(sim, until_ns);
}

/* ---- the thread ----------------------------------------------------------------------------------- */

/* As hth_sim_sleep_until, but releases the lock meanwhile and returns early when the device ends. */
static void sleep_until(hth_sim *sim, uint64_t until_ns)
{
    while (!sim->ending && until_ns > SPIN_NS && hth_sim_now(sim) < until_ns - SPIN_NS)
        hth_cond_wait_until(&sim->changed, &sim->lock, sim->opened_ns + until_ns - SPIN_NS);
    bool ending = sim->ending;
    pthread_mutex_unlock(&sim->lock);
    if (!ending) spin_until(sim, until_ns);
    pthread_mutex_lock(&sim->lock);
}

static void run_submit(hth_sim *sim, hth_sim_submit *t)
{
    uint64_t start = hth_sim_start_of(sim, t);
    sim->running = true;
    pthread_mutex_unlock(&sim->lock);
    uint64_t end = hth_sim_execute(sim, HTH_QUEUE_MAIN, t->cmdlist, start), computed = hth_sim_now(sim);
    pthread_mutex_lock(&sim->lock);
    sim->clocks[HTH_QUEUE_MAIN].busy_ns = t->end_ns = end > computed ? end : computed;
    sleep_until(sim, t->end_ns);
    sim->running = false;
    if (!sim->ending) sim->completed = ++sim->computed;
    pthread_cond_broadcast(&sim->changed);
}

static void *thread_main(void *user)
{
    hth_sim *sim = user;
    pthread_mutex_lock(&sim->lock);
    while (!sim->ending) {
        hth_sim_submit *t = hth_sim_next(sim);
        if (t) run_submit(sim, t);
        else pthread_cond_wait(&sim->changed, &sim->lock);
    }
    pthread_mutex_unlock(&sim->lock);
    return NULL;
}

hearth_status hth_sim_start(hth_sim *sim, hearth_error *err)
{
    pthread_mutex_init(&sim->lock, NULL);
    hth_cond_init(&sim->changed);
    if (hth_thread_start(&sim->thread, thread_main, sim, "hearth-gpu-sim")) return HEARTH_OK;
    pthread_cond_destroy(&sim->changed);
    pthread_mutex_destroy(&sim->lock);
    return hth_fail(err, HEARTH_ERROR_MEMORY, "simulated %s: the system refused a thread for its clock",
                    sim->gpu.name);
}

void hth_sim_quiesce(hth_sim *sim)
{
    pthread_mutex_lock(&sim->lock);
    sim->ending = true;
    pthread_cond_broadcast(&sim->changed);
    while (sim->running) pthread_cond_wait(&sim->changed, &sim->lock);
    pthread_mutex_unlock(&sim->lock);
}

void hth_sim_stop(hth_sim *sim)
{
    hth_sim_quiesce(sim);
    pthread_join(sim->thread, NULL);
}

void hth_sim_finish(hth_sim *sim)
{
    pthread_cond_destroy(&sim->changed);
    pthread_mutex_destroy(&sim->lock);
}

/* ---- the host ---------------------------------------------------------------------------------------- */

void hth_sim_lock_when_idle(hth_sim *sim)
{
    pthread_mutex_lock(&sim->lock);
    while (sim->running || hth_sim_next(sim)) pthread_cond_wait(&sim->changed, &sim->lock);
}

hearth_status hth_sim_wait_wall(hth_device *d, hth_fence fence, uint64_t timeout_ns, bool *late,
                                hearth_error *err)
{
    hth_sim *sim = d->priv;
    const uint64_t max = (uint64_t)1 << 60; /* 36 years: within the range of the system clock */
    uint64_t now = hth_sim_now(sim), until = now + (timeout_ns < max ? timeout_ns : max), woken = 0;
    struct timespec deadline = to_timespec(sim, until);
    pthread_mutex_lock(&sim->lock);
    bool slept = sim->completed < fence;
    while (sim->completed < fence && hth_sim_now(sim) < until)
        pthread_cond_timedwait(&sim->changed, &sim->lock, &deadline);
    bool done = sim->completed >= fence;
    hearth_status st = done ? HEARTH_OK : hth_sim_not_done(d, fence, late, err);
    if (slept && done)
        woken = sim->submits[fence % HTH_QUEUE_MAX_IN_FLIGHT].end_ns +
                hth_sim_cost(sim, &sim->host_random, sim->gpu.wake_ns);
    pthread_mutex_unlock(&sim->lock);
    hth_sim_sleep_until(sim, woken);
    return st;
}
