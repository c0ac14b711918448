/* The thread pool. One atomic word, the ticket, holds how many units the current
 * job has and which is next; adding 1 to it claims a unit. Because both numbers
 * change together, a late thread either gets a unit of a job that cannot end
 * before it is done, or nothing: there is no epoch to compare and no lock.
 * Idle threads spin for a while, then sleep until the next job. */
#define _GNU_SOURCE
#include "base/pool.h"

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/log.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

/* ticket = n_unit << 32 | next; next may run past n_unit by one per thread. */
enum { UNIT_LIMIT = 0x7fffffff };

/* About 50 microseconds of pauses before a thread gives up its core: longer
 * than a gap between two jobs of one token, shorter than a wait for a person. */
enum { SPIN_LIMIT = 1 << 11 };

typedef struct worker {
    hth_pool *pool;
    pthread_t thread;
    uint32_t index;
} worker;

struct hth_pool {
    _Alignas(64) _Atomic uint64_t ticket;
    _Alignas(64) _Atomic size_t n_finished;
    _Alignas(64) _Atomic(hth_work_fn *) work;
    _Atomic(void *) arg;
    _Atomic size_t base; /* added to the claimed number: jobs longer than UNIT_LIMIT */
    _Atomic uint32_t n_sleeping;
    _Atomic bool closing;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    uint32_t n_thread, n_room; /* that it has, and that workers[] has room for */
    worker workers[];
};

static inline void pause_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool has_work(uint64_t ticket) { return (uint32_t)ticket < (uint32_t)(ticket >> 32); }

/* Claims and computes units until the job has none left. */
static void help(hth_pool *pool, uint32_t i_thread)
{
    for (;;) {
        if (!has_work(atomic_load_explicit(&pool->ticket, memory_order_relaxed))) return;
        uint64_t mine = atomic_fetch_add_explicit(&pool->ticket, 1, memory_order_acquire);
        if (!has_work(mine)) return;
        hth_work_fn *work = atomic_load_explicit(&pool->work, memory_order_relaxed);
        void *arg = atomic_load_explicit(&pool->arg, memory_order_relaxed);
        size_t base = atomic_load_explicit(&pool->base, memory_order_relaxed);
        work(arg, base + (uint32_t)mine, i_thread);
        atomic_fetch_add_explicit(&pool->n_finished, 1, memory_order_release);
    }
}

static void sleep_until_work(hth_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->n_sleeping, 1);
    while (!has_work(atomic_load(&pool->ticket)) && !atomic_load(&pool->closing))
        pthread_cond_wait(&pool->wake, &pool->mutex);
    atomic_fetch_sub(&pool->n_sleeping, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void *worker_main(void *p)
{
    worker *w = p;
    hth_pool *pool = w->pool;
    uint32_t spins = 0;
    while (!atomic_load_explicit(&pool->closing, memory_order_relaxed)) {
        if (has_work(atomic_load_explicit(&pool->ticket, memory_order_relaxed))) {
            help(pool, w->index);
            spins = 0;
        } else if (++spins < SPIN_LIMIT) {
            pause_core();
        } else {
            sleep_until_work(pool);
            spins = 0;
        }
    }
    return NULL;
}

hearth_status hth_pool_open(uint32_t n_thread, hth_pool **out, hearth_error *err)
{
    *out = NULL;
    if (n_thread < 1 || n_thread > HTH_POOL_MAX_THREAD)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%u threads: 1 to %d are possible", n_thread,
                        HTH_POOL_MAX_THREAD);
    size_t size = sizeof(hth_pool) + n_thread * sizeof(worker);
    hth_pool *pool = hth_pages_alloc(size);
    if (!pool) return hth_fail_memory(err, size, "a thread pool");
    pool->n_thread = pool->n_room = n_thread;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->wake, NULL);
    for (uint32_t i = 1; i < n_thread; i++) {
        worker *w = &pool->workers[i];
        *w = (worker){.pool = pool, .index = i};
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0) {
            hth_log(HEARTH_LOG_WARN, "the system refused thread %u of %u; %u do the work", i + 1, n_thread, i);
            pool->n_thread = i;
            break;
        }
    }
    *out = pool;
    return HEARTH_OK;
}

void hth_pool_close(hth_pool *pool)
{
    if (!pool) return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->closing, true);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
    for (uint32_t i = 1; i < pool->n_thread; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->mutex);
    hth_pages_free(pool, sizeof(hth_pool) + pool->n_room * sizeof(worker));
}

uint32_t hth_pool_threads(uint32_t wish)
{
    uint32_t n_core = hth_cpu_n_core();
    return wish ? wish : n_core < HTH_POOL_MAX_THREAD ? n_core : HTH_POOL_MAX_THREAD;
}

uint32_t hth_pool_n_thread(const hth_pool *pool) { return pool->n_thread; }

static void run_units(hth_pool *pool, hth_work_fn *work, void *arg, size_t base, uint32_t n_unit)
{
    atomic_store_explicit(&pool->work, work, memory_order_relaxed);
    atomic_store_explicit(&pool->arg, arg, memory_order_relaxed);
    atomic_store_explicit(&pool->base, base, memory_order_relaxed);
    atomic_store_explicit(&pool->n_finished, 0, memory_order_relaxed);
    atomic_store(&pool->ticket, (uint64_t)n_unit << 32);
    if (atomic_load(&pool->n_sleeping) > 0) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->mutex);
    }
    help(pool, 0);
    /* Another thread may still compute a unit; if its core was taken away,
     * spinning here would only keep it away. */
    for (uint32_t spins = 0; atomic_load_explicit(&pool->n_finished, memory_order_acquire) < n_unit;) {
        if (++spins < SPIN_LIMIT) {
            pause_core();
        } else {
            sched_yield();
        }
    }
}

void hth_pool_run(hth_pool *pool, hth_work_fn *work, void *arg, size_t n_unit)
{
    if (pool->n_thread == 1 || n_unit == 1) {
        for (size_t i = 0; i < n_unit; i++) work(arg, i, 0);
        return;
    }
    for (size_t base = 0; base < n_unit;) {
        size_t left = n_unit - base;
        uint32_t n = left < UNIT_LIMIT ? (uint32_t)left : UNIT_LIMIT;
        run_units(pool, work, arg, base, n);
        base += n;
    }
}
