/* A thread pool that runs numbered units of work. The caller divides work into units by its shape, never by the
 * number of threads, so results do not depend on which thread computes a unit. Jobs are queued and run in order.
 * No thread leads: any running thread advances the queue, so a preempted thread costs only its share. */
#ifndef HTH_BASE_POOL_H
#define HTH_BASE_POOL_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct hth_pool hth_pool;

/* Computes unit i_unit. i_thread (0 is the caller's thread) selects scratch. */
typedef void hth_work_fn(void *arg, size_t i_unit, uint32_t i_thread);

enum { HTH_POOL_MAX_THREAD = 256, HTH_POOL_ARG_SIZE = 448 };

/* Number of threads for a requested n_thread; 0: one per physical core, at most HTH_POOL_MAX_THREAD. */
uint32_t hth_pool_default_threads(uint32_t n_thread);

/* n_thread includes the calling thread: 1 starts none. If the system cannot create a thread, the pool runs with
 * those that started and logs a warning. ARGUMENT, MEMORY. */
hearth_status hth_pool_open(uint32_t n_thread, hth_pool **out, hearth_error *err);
/* NULL is allowed. */
void hth_pool_close(hth_pool *pool);
/* Bytes that a pool allocates. */
size_t hth_pool_size(uint32_t n_thread);
uint32_t hth_pool_n_thread(const hth_pool *pool);

/* Pins each thread of the pool, except the caller's, to its own physical core, other than the one where the caller
 * runs now, and those that other pools of the process have; threads for which none is left may run on all. Does nothing
 * if HEARTH_PIN=0 is set in the environment, or if there are fewer cores than threads. The caller's thread belongs to the
 * application and is never pinned; if the kernel moves it to the core of a pool thread, that thread moves away, which
 * costs one system call. Returns the number of pinned threads. */
uint32_t hth_pool_pin(hth_pool *pool);
/* Gives the cores back: its threads may run on all. */
void hth_pool_unpin(hth_pool *pool);

/* Runs work(arg, i, thread) for every i below n_unit and returns when all units are done, including those queued
 * before. What they wrote is then visible. One caller at a time, never from within a unit. Cannot fail and
 * allocates nothing. Makes no system call while the threads are awake and stay on their cores. The same holds for
 * the functions below. */
void hth_pool_run(hth_pool *pool, hth_work_fn *work, void *arg, size_t n_unit);

/* ---- queues of jobs ----------------------------------------------------------------------- */

/* Queues a job. Its units start when all units of earlier jobs are done, and see what those wrote. size bytes at
 * arg (at most HTH_POOL_ARG_SIZE) are copied. With size 0 units get arg itself, which must stay valid until
 * hth_pool_finish. */
void hth_pool_add(hth_pool *pool, hth_work_fn *work, void *arg, size_t size, size_t n_unit);

/* hth_pool_add for units that may be computed twice: if a thread delays the others because it was preempted,
 * another thread computes its unit as a backup. compute writes only scratch memory of its own thread. commit,
 * called once per unit, copies that to the result. A straggler may read the job's inputs long after the job is
 * done: they must stay valid until hth_pool_quiesce. compute must read memory that later jobs write by atomic
 * loads, and must not take an address from it. */
void hth_pool_add_retryable(hth_pool *pool, hth_work_fn *compute, hth_work_fn *commit, void *arg, size_t size,
                        size_t n_unit);

/* Returns when all units of all jobs are done. What they wrote is then visible. */
void hth_pool_finish(hth_pool *pool);

/* Waits for stragglers that still compute units which other threads have committed. Call it before freeing memory
 * that such jobs read. */
void hth_pool_quiesce(hth_pool *pool);

/* ---- cancelling ------------------------------------------------------------------------------ */

/* While *flag or *other is not 0, units of all jobs that have not started are skipped. A signal handler or another thread
 * may set them. They must stay valid until hth_pool_quiesce. NULL: never. Call only while the pool is idle. */
void hth_pool_watch(hth_pool *pool, const volatile int *flag, const volatile int *other);
/* True if units are skipped from now on because the flag is set; hth_pool_take_cancelled then returns true. Call
 * from the caller's thread. */
bool hth_pool_is_cancelled(hth_pool *pool);
/* True if units were skipped since the last call: the results of the jobs are then invalid. Call after
 * hth_pool_finish. */
bool hth_pool_take_cancelled(hth_pool *pool);

/* Maps the i-th claim to a unit such that threads that claim in turn each iterate over a contiguous range of
 * units. A thread then mostly computes the units whose memory it prefetched itself. */
static inline size_t hth_pool_block_index(size_t i, size_t n_unit, size_t n_thread)
{
    size_t n_more = n_unit % n_thread, stretch = i % n_thread; /* the first n_more ranges have one unit more */
    return stretch * (n_unit / n_thread) + (stretch < n_more ? stretch : n_more) + i / n_thread;
}

/* From now on threads without work spin so long before they sleep: where gaps between phases are longer than usual. */
void hth_pool_set_spin(hth_pool *pool, uint64_t ns);

/* ---- for tests ------------------------------------------------------------------------------ */

/* How long a unit may delay the other threads, in addition to twice the time of a unit, before a backup runs; 0:
 * never. */
void hth_pool_set_straggler_timeout(hth_pool *pool, uint64_t ns);
uint64_t hth_pool_straggler_timeout(const hth_pool *pool);
enum { HTH_POOL_STRAGGLER_NS = 30000 };
/* Units that were computed as a backup for a straggler. */
uint64_t hth_pool_n_backup(const hth_pool *pool);

/* Called by each thread at these points of each unit, so that tests can sleep there. */
typedef enum hth_pool_point { HTH_POOL_CLAIMED, HTH_POOL_COMPUTED, HTH_POOL_COMMITTING } hth_pool_point;
typedef void hth_pool_hook_fn(hth_pool_point point, uint32_t i_thread);
/* Call only while the pool is idle. NULL: none. */
void hth_pool_set_hook(hth_pool *pool, hth_pool_hook_fn *hook);

#endif
