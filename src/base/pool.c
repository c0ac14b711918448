/* The thread pool: a ring of queued jobs ("phases"), and one atomic word, the ticket, that holds the number of a
 * phase, its number of units and the next unit. Adding 1 claims a unit. The thread that finishes the last unit of
 * a phase advances the queue. No thread leads, so a preempted thread delays the others only while it computes a
 * unit.
 *
 * Stragglers: if a thread lost its core while computing a unit, and the job allows it (hth_pool_add_retryable), a
 * waiting thread computes the unit again. Each thread writes the result to its own scratch memory. The first
 * thread that writes the phase's number into committed[unit] commits its result. Numbers only grow, so a
 * straggler, whatever phase the other threads have reached, finds its own number or a higher one and discards its
 * result. Later phases may overwrite what a straggler reads by atomic loads: it then computes wrong values, which
 * are discarded, but never wrong addresses. A phase cannot end before all its units are committed, so the thread
 * that commits a unit has read the phase's own inputs.
 *
 * Stragglers still read the record of their phase. Each thread publishes the lowest phase whose record it may read
 * (its pin). A record is reused one ring length later, when no pin is at it or before it. */
#define _GNU_SOURCE
#include "base/pool.h"

#include "base/alloc.h"
#include "base/event.h"
#include "base/clock.h"
#include "base/system/cpu_topology.h"
#include "base/log.h"
#include "base/switches.h"
#include "base/thread.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes a value before the thread checks what another thread wrote: an exchange, not a store. The write and the
 * check must not be reordered. C guarantees that for sequentially consistent stores and loads too, but emulators
 * of Arm on x86 do not implement it (qemu-user 7.2: 117549 of 3000000 pairs). */
#define publish(place, value) ((void)atomic_exchange(place, value))

/* RING: phases that can be queued, more than one token of most models needs, so that the other threads have work
 * while the caller's thread is preempted. UNIT_LIMIT: units of a phase; longer jobs become several phases. */
enum { RING = 256, UNIT_LIMIT = 8192 };

/* How long a thread spins before it sleeps, unless hth_pool_set_spin says otherwise: longer than the gap between two
 * phases, shorter than a wait for user input. It spins SPIN_MORE_NS longer if a straggler's timeout ends by then, because
 * the kernel may return a core only at its next timer tick. A thread reads the clock once per CLOCK_EVERY pauses. */
enum { SPIN_NS = 50000, SPIN_MORE_NS = 40000, CLOCK_EVERY = 8 };

/* A wait below LATE_NS never counts as late. UNKNOWN_NS: assumed time of a unit if no unit of the phase is done
 * yet. */
enum { LATE_NS = 20000, UNKNOWN_NS = 200000 };

/* Minimum interval between two moves of pinned threads. */
enum { REPIN_NS = 10000000 };

typedef struct job {
    hth_work_fn *work, *commit; /* commit NULL: work writes its results itself */
    void *arg;
    size_t base; /* added to the claimed unit number */
} job;

typedef struct phase {
    _Alignas(64) uint64_t number;
    job job;
    uint32_t n_unit;
    _Atomic uint64_t start_ns;                          /* set only for jobs with a commit */
    _Alignas(64) _Atomic uint32_t n_done;               /* only counted for phases of several units */
    _Alignas(64) unsigned char copy[HTH_POOL_ARG_SIZE]; /* copy of what arg points to */
} phase;

typedef struct member {
    _Alignas(64) _Atomic uint64_t pin; /* PINNED and the low half of a phase's number; 0: none */
    hth_pool *pool;
    pthread_t thread;
    uint32_t index;
    uint32_t core; /* index in cores.cpu of a pinned thread's core, or of the caller's last core; NO_CORE */
} member;

#define NO_CORE UINT32_MAX

#define PINNED ((uint64_t)1 << 32)
#define RUNNING UINT64_MAX

struct hth_pool {
    _Alignas(64) _Atomic uint64_t ticket; /* number << 32 | n_unit << 16 | next unit, which may exceed n_unit */
    _Alignas(64) _Atomic uint64_t n_queued; /* number of the last phase; the first is 1 */
    _Atomic uint64_t idle_at; /* the last finished phase while the queue is idle, or RUNNING */
    uint64_t free_until;      /* phases up to this one have a record in the ring */
    _Atomic bool closing;
    _Atomic bool cancelled;    /* units were skipped */
    const volatile int *watch[2]; /* flags that cancel; NULL: none */
    _Atomic bool caller_sleeps;
    _Atomic uint64_t straggler_ns, spin_ns;
    _Atomic uint64_t n_backup;
    hth_pool_hook_fn *hook;
    _Alignas(64) hth_event event;
    uint32_t n_thread, n_requested; /* number of threads that run, and that were requested */
    bool pinned;
    uint64_t moved_ns; /* when a pinned thread was last moved off the caller's core */
    hth_cpu_topology cores;
    phase *ring;             /* [RING] */
    _Atomic uint64_t *committed; /* [UNIT_LIMIT] the last phase in which each unit was committed */
    member members[];
};

static uint32_t number_of(uint64_t ticket) { return (uint32_t)(ticket >> 32); }
static uint32_t n_unit_of(uint64_t ticket) { return (uint16_t)(ticket >> 16); }
static uint32_t next_of(uint64_t ticket) { return (uint16_t)ticket; }
static bool has_work(uint64_t ticket) { return next_of(ticket) < n_unit_of(ticket); }
static uint64_t make_ticket(uint32_t number, uint32_t n_unit, uint32_t next)
{
    return (uint64_t)number << 32 | (uint64_t)n_unit << 16 | next;
}

static phase *phase_at(const hth_pool *pool, uint64_t number) { return &pool->ring[number % RING]; }

/* Adjacent units use different cache lines, because they are claimed at the same time. */
static _Atomic uint64_t *committed_at(const hth_pool *pool, uint32_t i)
{
    enum { LINE = 8 };
    return &pool->committed[i % (UNIT_LIMIT / LINE) * LINE + i / (UNIT_LIMIT / LINE)];
}

static inline void pause_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void visit(const hth_pool *pool, hth_pool_point point, uint32_t i_thread)
{
    if (pool->hook) pool->hook(point, i_thread);
}

/* Units must not queue, wait or allocate. */
#ifndef NDEBUG
static _Thread_local const hth_pool *current_pool;
static void enter_unit(const hth_pool *pool)
{
    current_pool = pool;
    hth_alloc_assert_none(1);
}
static void leave_unit(void)
{
    current_pool = NULL;
    hth_alloc_assert_none(-1);
}
static void check_outside(const hth_pool *pool) { assert(current_pool != pool); }
#else
static void enter_unit(const hth_pool *pool) { (void)pool; }
static void leave_unit(void) {}
static void check_outside(const hth_pool *pool) { (void)pool; }
#endif

/* ---- phases ------------------------------------------------------------------------------- */

/* The thread that ends a phase runs the queue alone, until it publishes the next phase of several units or reaches
 * the end of the queue and sets it idle. The first thread that sees new phases in an idle queue takes it over: the
 * thread that has just set it idle, or the caller that queues. */
static bool advance_phase(hth_pool *pool, uint64_t number)
{
    return atomic_compare_exchange_strong(&pool->idle_at, &number, RUNNING);
}

/* Called by the thread that runs the queue, which takes the first `claim` units itself. */
static void publish_phase(hth_pool *pool, phase *p, uint32_t claim)
{
    if (p->job.commit) atomic_store_explicit(&p->start_ns, hth_clock_ns(), memory_order_relaxed);
    atomic_exchange(&pool->ticket, make_ticket((uint32_t)p->number, p->n_unit, claim));
    hth_event_notify_all(&pool->event);
}

/* Returns the phase after phase `number`, which the calling thread has ended. The thread holds its first unit, or
 * the whole phase if that has only one unit. NULL at the end of the queue. */
static phase *next_phase(hth_pool *pool, uint64_t number)
{
    if (atomic_load(&pool->n_queued) == number) {
        atomic_exchange(&pool->ticket, make_ticket((uint32_t)number, 0, 0));
        publish(&pool->idle_at, number);
        if (atomic_load(&pool->n_queued) == number || !advance_phase(pool, number)) {
            if (atomic_load(&pool->caller_sleeps)) hth_event_notify_all(&pool->event);
            return NULL;
        }
    }
    phase *p = phase_at(pool, number + 1);
    if (p->n_unit > 1) publish_phase(pool, p, 1);
    return p;
}

/* True while units are skipped: from the first skipped unit until the caller has read the cancelled state. */
static bool is_skipping(hth_pool *pool)
{
    if (!pool->watch[0] && !pool->watch[1]) return false;
    return atomic_load_explicit(&pool->cancelled, memory_order_relaxed) || hth_is_cancelled(pool->watch[0]) ||
           hth_is_cancelled(pool->watch[1]);
}

/* Called by the thread that ends the unit, before the phase can end. A straggler whose unit another thread has
 * committed does not call it, because the caller may have read the state already. */
static void note_skipped(hth_pool *pool)
{
    atomic_store_explicit(&pool->cancelled, true, memory_order_relaxed);
}

/* Commits a unit's result. False if another thread has committed it. skipped: there is no result. */
static bool commit(hth_pool *pool, const member *m, phase *p, uint32_t i, bool skipped)
{
    _Atomic uint64_t *committed = committed_at(pool, i);
    uint64_t was = atomic_load_explicit(committed, memory_order_relaxed);
    if (was >= p->number || !atomic_compare_exchange_strong(committed, &was, p->number)) return false;
    visit(pool, HTH_POOL_COMMITTING, m->index);
    if (skipped) note_skipped(pool);
    else p->job.commit(p->job.arg, p->job.base + i, m->index);
    return true;
}

/* Prefetches the record of the next phase, which is in the cache of the thread that queued it. */
static void prefetch_next(const hth_pool *pool, const phase *p)
{
    if (atomic_load_explicit(&pool->n_queued, memory_order_relaxed) == p->number) return;
    const phase *next = phase_at(pool, p->number + 1);
    __builtin_prefetch(next);
    __builtin_prefetch(next->copy);
    __builtin_prefetch(next->copy + 64);
}

/* Computes unit i of phase p. True if it was the last one of the phase. */
static bool compute(hth_pool *pool, const member *m, phase *p, uint32_t i)
{
    prefetch_next(pool, p);
    visit(pool, HTH_POOL_CLAIMED, m->index);
    bool skipped = is_skipping(pool);
    enter_unit(pool);
    if (!skipped) p->job.work(p->job.arg, p->job.base + i, m->index);
    else if (!p->job.commit) note_skipped(pool);
    leave_unit();
    visit(pool, HTH_POOL_COMPUTED, m->index);
    if (p->job.commit && !commit(pool, m, p, i, skipped)) return false;
    return p->n_unit == 1 || atomic_fetch_add(&p->n_done, 1) + 1 == p->n_unit;
}

/* Computes unit i of phase p, and the phases that follow while this thread runs the queue. */
static void compute_on(hth_pool *pool, const member *m, phase *p, uint32_t i)
{
    for (; p && compute(pool, m, p, i); i = 0) p = next_phase(pool, p->number);
}

/* Claims and computes units until there are none. The pin is set before the claim, to a phase not after the one
 * that is claimed from. A thread that sees the ticket past that phase therefore sees the pin too. */
static void run_units(hth_pool *pool, member *m)
{
    for (;;) {
        uint64_t t = atomic_load_explicit(&pool->ticket, memory_order_acquire);
        if (!has_work(t)) return;
        atomic_store_explicit(&m->pin, PINNED | number_of(t), memory_order_relaxed);
        t = atomic_fetch_add(&pool->ticket, 1);
        if (has_work(t)) compute_on(pool, m, phase_at(pool, number_of(t)), next_of(t));
        atomic_store_explicit(&m->pin, 0, memory_order_release);
    }
}

/* ---- pinning ------------------------------------------------------------------------------ */

/* By CPU: whether a pool of this process has pinned a thread to the core of which it is the first one. */
static _Atomic bool is_taken[HTH_CORES_MAX];

static _Atomic bool *taken_at(const hth_pool *pool, uint32_t core) { return &is_taken[pool->cores.cpu[core]]; }

/* Takes the first core, from one on, that no pool has, and where the caller does not run. NO_CORE: there is none. */
static uint32_t take_core(const hth_pool *pool, uint32_t from)
{
    for (uint32_t k = 0, n = pool->cores.n_core; k < n; k++) {
        uint32_t core = (from + k) % n;
        if (core != pool->members[0].core && !atomic_exchange(taken_at(pool, core), true)) return core;
    }
    return NO_CORE;
}

static void release_core(const hth_pool *pool, member *m)
{
    if (m->core != NO_CORE) atomic_store(taken_at(pool, m->core), false);
    m->core = NO_CORE;
}

static bool set_affinity(const hth_pool *pool, const member *m, uint32_t first, uint32_t n)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (uint32_t i = 0; i < n; i++) CPU_SET(pool->cores.cpu[first + i], &set);
    return pthread_setaffinity_np(m->thread, sizeof set, &set) == 0;
}

/* False: no core is free, or the system refuses; the thread may run on all cores. */
static bool pin(hth_pool *pool, member *m, uint32_t from)
{
    m->core = take_core(pool, from);
    if (m->core != NO_CORE && set_affinity(pool, m, m->core, 1)) return true;
    release_core(pool, m);
    return false;
}

static void unpin(hth_pool *pool, member *m)
{
    if (m->core != NO_CORE) set_affinity(pool, m, 0, pool->cores.n_cpu);
    release_core(pool, m);
}

/* The index of the calling thread's core; the previous one if the system does not report it. */
static uint32_t current_core(const hth_pool *pool)
{
    int cpu = sched_getcpu();
    return cpu >= 0 && cpu < HTH_CORES_MAX ? pool->cores.core_of[cpu] : pool->members[0].core;
}

uint32_t hth_pool_pin(hth_pool *pool)
{
    if (!hth_switch_is_on(HTH_SWITCH_PIN)) return 0;
    hth_cpu_topology_read(NULL, &pool->cores);
    uint32_t n_core = pool->cores.n_core, n = 0;
    if (pool->n_thread > n_core) return 0;
    pool->members[0].core = current_core(pool);
    for (uint32_t i = 1; i < pool->n_thread; i++) n += pin(pool, &pool->members[i], pool->members[0].core + i);
    pool->pinned = n > 0;
    return n;
}

void hth_pool_unpin(hth_pool *pool)
{
    for (uint32_t i = 1; i < pool->n_thread; i++) unpin(pool, &pool->members[i]);
    pool->pinned = false;
}

/* The kernel may move the caller's thread, which is not pinned, to the core of a pinned one. Both would then share
 * that core for long, because the kernel sees no gain in moving it back to the core that it left. This function
 * moves the pinned thread to that core. */
static void repin_if_shared(hth_pool *pool, uint64_t now)
{
    if (!pool->pinned || now - pool->moved_ns < REPIN_NS) return;
    uint32_t here = current_core(pool), left = pool->members[0].core;
    if (here == left) return;
    pool->moved_ns = now;
    pool->members[0].core = here;
    for (uint32_t i = 1; i < pool->n_thread; i++) {
        member *m = &pool->members[i];
        if (m->core != here) continue;
        unpin(pool, m);
        (void)pin(pool, m, left);
    }
}

/* ---- waiting ------------------------------------------------------------------------------ */

/* How long to wait, counted from `since`, for the units of a phase that other threads compute: twice the average
 * time of a unit, plus the straggler timeout. UINT64_MAX: the units cannot be retried. */
static uint64_t timeout_for(const hth_pool *pool, const phase *p, uint64_t since)
{
    uint64_t timeout = atomic_load_explicit(&pool->straggler_ns, memory_order_relaxed);
    uint32_t n_done = atomic_load(&p->n_done);
    if (!p->job.commit || timeout == 0 || n_done == p->n_unit) return UINT64_MAX;
    uint64_t start = atomic_load_explicit(&p->start_ns, memory_order_relaxed), unit = UNKNOWN_NS;
    if (n_done > 0) unit = since > start ? (since - start) * pool->n_requested / n_done : 0;
    return timeout + 2 * unit;
}

/* Computes every unit that is not committed yet. True if there was one. Each thread starts at another unit. */
static bool run_backup(hth_pool *pool, member *m, phase *p)
{
    bool any = false;
    for (uint32_t k = 0; k < p->n_unit; k++) {
        uint32_t i = (k + m->index * 5) % p->n_unit;
        if (atomic_load(committed_at(pool, i)) >= p->number) continue;
        atomic_fetch_add_explicit(&pool->n_backup, 1, memory_order_relaxed);
        compute_on(pool, m, p, i);
        any = true;
    }
    return any;
}

/* Checks a phase (of ticket t) that has had no unclaimed unit since `since`. Returns how long to wait, 0 if backup
 * units were computed, UINT64_MAX if there is nothing to do. */
static uint64_t check_stragglers(hth_pool *pool, member *m, uint64_t t, uint64_t since, uint64_t now)
{
    uint64_t left = UINT64_MAX;
    if (n_unit_of(t) == 0) return left;
    publish(&m->pin, PINNED | number_of(t));
    if (number_of(atomic_load(&pool->ticket)) == number_of(t)) {
        phase *p = phase_at(pool, number_of(t));
        uint64_t timeout = timeout_for(pool, p, since);
        if (timeout != UINT64_MAX) left = timeout > now - since ? timeout - (now - since) : 0;
        if (left == 0 && !run_backup(pool, m, p)) left = UINT64_MAX;
    }
    atomic_store_explicit(&m->pin, 0, memory_order_release);
    return left;
}

static bool all_done(const hth_pool *pool)
{
    return atomic_load(&pool->idle_at) == atomic_load(&pool->n_queued);
}

/* The condition that ends a wait: units to claim; for the caller also the end of the queue. */
static bool work_available(const hth_pool *pool, const member *m, uint64_t t)
{
    return has_work(t) || (m->index == 0 ? all_done(pool) : atomic_load(&pool->closing));
}

/* Sleeps unless there is work. False on timeout without a notification. */
static bool sleep_wait(hth_pool *pool, const member *m, uint64_t timeout_ns)
{
    uint32_t seen = hth_event_prepare_wait(&pool->event);
    bool rang = true;
    if (m->index == 0) publish(&pool->caller_sleeps, true);
    if (!work_available(pool, m, atomic_load(&pool->ticket)))
        rang = hth_event_wait(&pool->event, seen, timeout_ns);
    if (m->index == 0) atomic_store(&pool->caller_sleeps, false);
    return rang;
}

/* Spins for a while, then sleeps, until there is work. Runs backup units for stragglers meanwhile. */
static void wait_for_work(hth_pool *pool, member *m)
{
    uint64_t awake_since = 0, phase_since = 0, seen = 0;
    const uint64_t spin_ns = atomic_load_explicit(&pool->spin_ns, memory_order_relaxed), last_ns = spin_ns + SPIN_MORE_NS;
    for (uint32_t spins = 0;; spins++) {
        uint64_t t = atomic_load_explicit(&pool->ticket, memory_order_acquire);
        if (work_available(pool, m, t)) return;
        pause_core();
        if (spins % CLOCK_EVERY != 0) continue;
        uint64_t now = hth_clock_ns(), left = UINT64_MAX;
        if (m->index == 0) repin_if_shared(pool, now);
        if (awake_since == 0) awake_since = now;
        if (phase_since == 0 || seen != number_of(t)) phase_since = now, seen = number_of(t);
        if (now - phase_since >= LATE_NS) left = check_stragglers(pool, m, t, phase_since, now);
        if (left == 0) {
            awake_since = phase_since = 0;
        } else if (now - awake_since >= spin_ns) {
            if (now - phase_since < LATE_NS) left = LATE_NS;
            bool soon = left < last_ns && now - awake_since + left < last_ns;
            if (!soon && sleep_wait(pool, m, left)) awake_since = 0;
        }
    }
}

static void *member_main(void *p)
{
    member *m = p;
    while (!atomic_load_explicit(&m->pool->closing, memory_order_relaxed)) {
        run_units(m->pool, m);
        wait_for_work(m->pool, m);
    }
    return NULL;
}

/* ---- the queue ------------------------------------------------------------------------------ */

/* The lowest phase whose record is in use: the current one, or one that a thread has pinned. */
static uint64_t lowest_in_use(const hth_pool *pool)
{
    uint64_t last = atomic_load(&pool->n_queued);
    uint64_t behind = (uint32_t)last - number_of(atomic_load(&pool->ticket));
    for (uint32_t i = 1; i < pool->n_thread; i++) {
        uint64_t pin = atomic_load(&pool->members[i].pin);
        uint64_t n = (uint32_t)((uint32_t)last - (uint32_t)pin);
        if (pin && n > behind) behind = n;
    }
    return last - behind;
}

/* Waits until phase `number` has a free record in the ring. */
static void wait_for_record(hth_pool *pool, uint64_t number)
{
    for (;;) {
        pool->free_until = lowest_in_use(pool) + RING - 1;
        if (number <= pool->free_until) return;
        run_units(pool, &pool->members[0]);
        wait_for_work(pool, &pool->members[0]);
        /* All phases are done and there is still no free record: a thread has been late for a whole ring length.
         * It needs a core, so this thread sleeps and does not spin. */
        if (all_done(pool)) hth_event_wait(&pool->event, atomic_load(&pool->event.n_notify), SPIN_NS);
    }
}

static void queue(hth_pool *pool, const job *j, size_t size, uint32_t n_unit)
{
    uint64_t number = atomic_load_explicit(&pool->n_queued, memory_order_relaxed) + 1;
    if (number > pool->free_until) wait_for_record(pool, number);
    phase *p = phase_at(pool, number);
    p->number = number;
    p->job = *j;
    if (size > 0) p->job.arg = memcpy(p->copy, j->arg, size);
    p->n_unit = n_unit;
    atomic_store_explicit(&p->n_done, 0, memory_order_relaxed);
    publish(&pool->n_queued, number);
    if (atomic_load(&pool->idle_at) == number - 1 && advance_phase(pool, number - 1)) publish_phase(pool, p, 0);
}

static void queue_all(hth_pool *pool, job *j, size_t size, size_t n_unit)
{
    check_outside(pool);
    assert(size <= HTH_POOL_ARG_SIZE);
    for (j->base = 0; j->base < n_unit; j->base += UNIT_LIMIT) {
        size_t left = n_unit - j->base;
        queue(pool, j, size, left < UNIT_LIMIT ? (uint32_t)left : UNIT_LIMIT);
    }
}

static void run_alone(hth_pool *pool, hth_work_fn *work, void *arg, size_t n_unit)
{
    check_outside(pool);
    enter_unit(pool);
    for (size_t i = 0; i < n_unit && !hth_pool_is_cancelled(pool); i++) work(arg, i, 0);
    leave_unit();
}

void hth_pool_add(hth_pool *pool, hth_work_fn *work, void *arg, size_t size, size_t n_unit)
{
    if (pool->n_thread == 1) run_alone(pool, work, arg, n_unit);
    else queue_all(pool, &(job){.work = work, .arg = arg}, size, n_unit);
}

void hth_pool_add_retryable(hth_pool *pool, hth_work_fn *work, hth_work_fn *commit_fn, void *arg, size_t size,
                            size_t n_unit)
{
    if (pool->n_thread > 1) {
        queue_all(pool, &(job){.work = work, .commit = commit_fn, .arg = arg}, size, n_unit);
        return;
    }
    for (size_t i = 0; i < n_unit && !hth_pool_is_cancelled(pool); i++) work(arg, i, 0), commit_fn(arg, i, 0);
}

void hth_pool_finish(hth_pool *pool)
{
    check_outside(pool);
    if (pool->n_thread == 1) return;
    member *m = &pool->members[0];
    for (run_units(pool, m); !all_done(pool); run_units(pool, m)) wait_for_work(pool, m);
}

void hth_pool_run(hth_pool *pool, hth_work_fn *work, void *arg, size_t n_unit)
{
    if (n_unit == 1) {
        hth_pool_finish(pool);
        run_alone(pool, work, arg, 1);
    } else {
        hth_pool_add(pool, work, arg, 0, n_unit);
        hth_pool_finish(pool);
    }
}

void hth_pool_watch(hth_pool *pool, const volatile int *flag, const volatile int *other)
{
    pool->watch[0] = flag, pool->watch[1] = other;
}

bool hth_pool_is_cancelled(hth_pool *pool)
{
    bool is = is_skipping(pool);
    if (is) note_skipped(pool);
    return is;
}

bool hth_pool_take_cancelled(hth_pool *pool)
{
    return (pool->watch[0] || pool->watch[1]) && atomic_exchange(&pool->cancelled, false);
}

void hth_pool_quiesce(hth_pool *pool)
{
    uint64_t start = 0;
    for (uint32_t i = 1; i < pool->n_thread; i++)
        for (uint32_t spins = 0; atomic_load(&pool->members[i].pin); spins++) {
            pause_core(); /* mostly the thread has computed its unit already */
            if (spins % CLOCK_EVERY != 0) continue;
            uint64_t now = hth_clock_ns();
            if (start == 0) start = now;
            if (now - start >= SPIN_NS)
                hth_event_wait(&pool->event, atomic_load(&pool->event.n_notify), SPIN_NS);
        }
}

/* ---- opening ------------------------------------------------------------------------------ */

static size_t round_up(size_t n) { return (n + 63) & ~(size_t)63; }

static size_t head_size(uint32_t n_thread) { return round_up(sizeof(hth_pool) + n_thread * sizeof(member)); }

/* A single thread needs no queue. */
size_t hth_pool_size(uint32_t n_thread)
{
    return head_size(n_thread) + (n_thread > 1 ? RING * sizeof(phase) + UNIT_LIMIT * sizeof(uint64_t) : 0);
}

static hth_pool *allocate(uint32_t n_thread)
{
    uint8_t *memory = hth_pages_alloc(hth_pool_size(n_thread));
    if (!memory) return NULL;
    hth_pool *pool = (hth_pool *)(void *)memory;
    pool->ring = (phase *)(void *)(memory + head_size(n_thread));
    pool->committed = (_Atomic uint64_t *)(void *)(pool->ring + RING);
    pool->n_thread = pool->n_requested = n_thread;
    return pool;
}

static bool start_member(member *m)
{
    char name[16];
    snprintf(name, sizeof name, "hearth-work-%u", m->index % 1000);
    return hth_thread_start(&m->thread, member_main, m, name);
}

hearth_status hth_pool_open(uint32_t n_thread, hth_pool **out, hearth_error *err)
{
    *out = NULL;
    if (n_thread < 1 || n_thread > HTH_POOL_MAX_THREAD)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%u threads: 1 to %d are possible", n_thread,
                        HTH_POOL_MAX_THREAD);
    hth_pool *pool = allocate(n_thread);
    if (!pool) return hth_fail_memory(err, hth_pool_size(n_thread), "a thread pool");
    pool->free_until = RING - 1;
    atomic_store(&pool->straggler_ns, HTH_POOL_STRAGGLER_NS);
    atomic_store(&pool->spin_ns, SPIN_NS);
    for (uint32_t i = 0; i < n_thread; i++) {
        member *m = &pool->members[i];
        m->pool = pool, m->index = i, m->core = i == 0 ? 0 : NO_CORE;
        if (i == 0 || start_member(m)) continue;
        hth_log(HEARTH_LOG_WARN, "the system refused thread %u of %u; %u do the work", i + 1, n_thread, i);
        pool->n_thread = i;
        break;
    }
    *out = pool;
    return HEARTH_OK;
}

void hth_pool_close(hth_pool *pool)
{
    if (!pool) return;
    publish(&pool->closing, true);
    hth_event_notify_all(&pool->event);
    for (uint32_t i = 1; i < pool->n_thread; i++) pthread_join(pool->members[i].thread, NULL);
    for (uint32_t i = 1; i < pool->n_thread; i++) release_core(pool, &pool->members[i]);
    hth_pages_free(pool, hth_pool_size(pool->n_requested));
}

uint32_t hth_pool_default_threads(uint32_t requested)
{
    if (requested) return requested;
    hth_cpu_topology cores;
    hth_cpu_topology_read(NULL, &cores);
    return cores.n_core < HTH_POOL_MAX_THREAD ? cores.n_core : HTH_POOL_MAX_THREAD;
}

uint32_t hth_pool_n_thread(const hth_pool *pool) { return pool->n_thread; }

void hth_pool_set_spin(hth_pool *pool, uint64_t ns) { atomic_store(&pool->spin_ns, ns); }

/* ---- for tests ------------------------------------------------------------------------------ */

void hth_pool_set_straggler_timeout(hth_pool *pool, uint64_t ns) { atomic_store(&pool->straggler_ns, ns); }
uint64_t hth_pool_straggler_timeout(const hth_pool *pool) { return atomic_load(&pool->straggler_ns); }
uint64_t hth_pool_n_backup(const hth_pool *pool) { return atomic_load(&pool->n_backup); }
void hth_pool_set_hook(hth_pool *pool, hth_pool_hook_fn *hook) { pool->hook = hook; }
