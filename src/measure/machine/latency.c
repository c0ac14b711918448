/* Latencies: of a line of memory, of a dependent instruction, of another thread. bench --limits calls it. The
 * loops are dependent chains, so nothing overlaps. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/thread.h"
#include "measure/machine/limits.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

/* ---- memory ------------------------------------------------------------------------------ */

enum { LINE_SIZE = 64, N_HOP = 100000 };

static uint32_t load_line(const hth_latency_probe *p, uint32_t i)
{
    uint32_t next;
    memcpy(&next, p->region->memory + (size_t)i * LINE_SIZE, sizeof next);
    return next;
}

/* Each line holds the index of the next: i -> a i + c modulo a power of two visits all of them when c is odd
 * and a - 1 is a multiple of 4 (Hull and Dobell 1962). */
void hth_latency_open(hth_latency_probe *p, hth_bandwidth_probe *region)
{
    *p = (hth_latency_probe){.region = region, .n_line = 1};
    while (p->n_line <= UINT32_MAX / 2 && (size_t)p->n_line * 2 * LINE_SIZE <= region->size) p->n_line *= 2;
    for (uint32_t i = 0; i < p->n_line; i++) {
        uint32_t next = (i * 1664525u + 1013904223u) & (p->n_line - 1);
        memcpy(region->memory + (size_t)i * LINE_SIZE, &next, sizeof next);
    }
}

double hth_latency_measure(hth_latency_probe *p)
{
    uint32_t at = p->at;
    uint64_t start = hth_clock_ns();
    for (int i = 0; i < N_HOP; i++) at = load_line(p, at);
    double ns = (double)(hth_clock_ns() - start);
    p->at = at; /* continues at the last position, so that no sample finds its lines in a cache */
    return ns / N_HOP;
}

/* ---- clock ----------------------------------------------------------------------------- */

/* Eight dependent instructions of CYCLES each. No CPU of the level executes them faster. */
#if defined(__x86_64__)
enum { CYCLES = 3 }; /* latency of a 64-bit multiplication, on every x86-64 core since 2008 */
static inline uint64_t eight(uint64_t x)
{
    __asm__ volatile("imul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0\n\t"
                     "imul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0"
                     : "+r"(x)
                     :
                     : "cc");
    return x;
}
#elif defined(__aarch64__)
enum { CYCLES = 1 };
static inline uint64_t eight(uint64_t x)
{
    __asm__ volatile("add %0, %0, %0\n\tadd %0, %0, %0\n\tadd %0, %0, %0\n\tadd %0, %0, %0\n\t"
                     "add %0, %0, %0\n\tadd %0, %0, %0\n\tadd %0, %0, %0\n\tadd %0, %0, %0"
                     : "+r"(x));
    return x;
}
#else
enum { CYCLES = 0 }; /* unknown */
static inline uint64_t eight(uint64_t x) { return x; }
#endif

double hth_clock_rate(void)
{
    enum { N_ROUND = 50000 };
    uint64_t x = 3, start = hth_clock_ns();
    for (int i = 0; i < N_ROUND; i++) x = eight(x);
    double ns = (double)(hth_clock_ns() - start);
    return ns > 0.0 ? 8.0 * CYCLES * N_ROUND / (ns * 1e-9) : 0.0;
}

/* ---- threads ----------------------------------------------------------------------------- */

/* Round trips also end after LIMIT_NS: on a single core each takes a time slice of the scheduler. */
enum { N_TRIP = 2000, N_WAKE = 20, LIMIT_NS = 100000000, REST_NS = 300000 };

typedef struct partner {
    _Alignas(64) _Atomic uint32_t asked;
    _Alignas(64) _Atomic uint32_t answered;
    _Atomic bool sleeps, closing; /* sleeps: it waits asleep; closing: it must end */
    pthread_mutex_t mutex;
    pthread_cond_t wake;
} partner;

static void pause_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void wait_asleep(partner *p, uint32_t seen)
{
    pthread_mutex_lock(&p->mutex);
    while (atomic_load(&p->asked) == seen && !atomic_load(&p->closing))
        pthread_cond_wait(&p->wake, &p->mutex);
    pthread_mutex_unlock(&p->mutex);
}

static void *answer(void *arg)
{
    partner *p = arg;
    uint32_t seen = 0;
    while (!atomic_load(&p->closing)) {
        if (atomic_load(&p->sleeps)) wait_asleep(p, seen);
        uint32_t asked = atomic_load_explicit(&p->asked, memory_order_acquire);
        if (asked == seen) pause_core();
        else atomic_store_explicit(&p->answered, seen = asked, memory_order_release);
    }
    return NULL;
}

static void ask(partner *p, bool sleeper)
{
    if (sleeper) pthread_mutex_lock(&p->mutex);
    uint32_t number = atomic_fetch_add(&p->asked, 1) + 1;
    if (sleeper) {
        pthread_cond_signal(&p->wake);
        pthread_mutex_unlock(&p->mutex);
    }
    while (atomic_load_explicit(&p->answered, memory_order_acquire) != number) pause_core();
}

static double time_spinning(partner *p)
{
    uint64_t start = hth_clock_ns(), now = start, n = 0;
    for (; n < N_TRIP && now - start < LIMIT_NS; n++, now = n % 16 ? now : hth_clock_ns()) ask(p, false);
    return (double)(hth_clock_ns() - start) / (double)n;
}

static double time_waking(partner *p)
{
    const struct timespec rest = {.tv_nsec = REST_NS}; /* until it sleeps */
    uint64_t sum = 0;
    for (int i = 0; i < N_WAKE; i++) {
        nanosleep(&rest, NULL);
        uint64_t start = hth_clock_ns();
        ask(p, true);
        sum += hth_clock_ns() - start;
    }
    return (double)sum / N_WAKE;
}

hearth_status hth_thread_latency_measure(hth_thread_latency *out, hearth_error *err)
{
    partner p = {.mutex = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};
    pthread_t thread;
    *out = (hth_thread_latency){0};
    if (!hth_thread_start(&thread, answer, &p, "hearth-latency"))
        return hth_fail(err, HEARTH_ERROR_MEMORY, "the system did not create a second thread");
    ask(&p, false); /* it is running */
    out->spin = time_spinning(&p);
    atomic_store(&p.sleeps, true);
    out->wake = time_waking(&p);
    pthread_mutex_lock(&p.mutex);
    atomic_store(&p.closing, true);
    pthread_cond_signal(&p.wake);
    pthread_mutex_unlock(&p.mutex);
    pthread_join(thread, NULL);
    pthread_cond_destroy(&p.wake);
    pthread_mutex_destroy(&p.mutex);
    return HEARTH_OK;
}

static void do_nothing(void *arg, size_t i, uint32_t i_thread) { (void)arg, (void)i, (void)i_thread; }

double hth_pool_job_measure(hth_pool *pool)
{
    enum { N_JOB = 1000 };
    uint32_t n = hth_pool_n_thread(pool);
    hth_pool_run(pool, do_nothing, NULL, n); /* wakes the threads */
    uint64_t start = hth_clock_ns();
    for (int i = 0; i < N_JOB; i++) hth_pool_run(pool, do_nothing, NULL, n);
    return (double)(hth_clock_ns() - start) / N_JOB;
}
