/* Threads that share out numbered units of work. The caller cuts work into units by its
 * shape, never by the number of threads, so results do not depend on who computes what.
 * Jobs are queued and done in order, one after the other; no thread leads: whichever has a
 * core goes on with the queue, so a core that is taken away costs its share and no more. */
#ifndef HTH_BASE_POOL_H
#define HTH_BASE_POOL_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct hth_pool hth_pool;

/* Computes unit i_unit. i_thread (0 is the caller's thread) selects scratch. */
typedef void hth_work_fn(void *arg, size_t i_unit, uint32_t i_thread);

enum { HTH_POOL_MAX_THREAD = 256, HTH_POOL_ARG_SIZE = 256 };

/* Threads for a wish of 0: one for each physical core, as far as a pool goes. */
uint32_t hth_pool_default_threads(uint32_t wish);

/* n_thread counts the calling thread: 1 starts none. Where the system refuses a thread,
 * those that started do the work, and a warning says so. ARGUMENT, MEMORY. */
hearth_status hth_pool_open(uint32_t n_thread, hth_pool **out, hearth_error *err);
/* NULL is allowed. */
void hth_pool_close(hth_pool *pool);
/* Bytes that a pool allocates. */
size_t hth_pool_size(uint32_t n_thread);
uint32_t hth_pool_n_thread(const hth_pool *pool);

/* ARGUMENT where HEARTH_PIN is set to anything but 0 and 1. */
hearth_status hth_pool_check_pin(hearth_error *err);

/* Keeps each thread of the pool but the caller's on a physical core of its own, beside the
 * one where the caller runs now. Nothing happens with HEARTH_PIN=0 in the environment,
 * nor where there are fewer cores than threads. The caller's
 * thread belongs to somebody else and is left alone; where the system moves it onto the core of
 * another, that one makes way: one system call then. Returns the number of threads that were pinned. */
uint32_t hth_pool_pin(hth_pool *pool);

/* Runs work(arg, i, thread) for every i below n_unit and returns when all are done, those
 * queued before too; what they wrote is visible then. One caller at a time, never from
 * within a unit. Cannot fail, allocates nothing, makes no system call while the threads
 * are awake and stay where they are; nor do the functions below. */
void hth_pool_run(hth_pool *pool, hth_work_fn *work, void *arg, size_t n_unit);

/* ---- queues of jobs ----------------------------------------------------------------------- */

/* Queues a job: its units begin when all units of the jobs before are done, and see what
 * those wrote. size bytes at arg (at most HTH_POOL_ARG_SIZE) are copied; with size 0 units
 * get arg itself, which must stay until hth_pool_finish. */
void hth_pool_add(hth_pool *pool, hth_work_fn *work, void *arg, size_t size, size_t n_unit);

/* As hth_pool_add for units that may be computed twice: where a thread keeps others waiting
 * because its core was taken away, another one does its unit in its place. compute writes
 * only scratch of its own thread; commit, called once for each unit, carries that over. A
 * thread that comes late may still read what the job reads, long after the job is over: until
 * hth_pool_quiesce all of that must stay. What later jobs write compute must read by atomic loads,
 * and must not take an address from it. */
void hth_pool_add_retryable(hth_pool *pool, hth_work_fn *compute, hth_work_fn *commit, void *arg, size_t size,
                        size_t n_unit);

/* Returns when all units of all jobs are done; what they wrote is visible then. */
void hth_pool_finish(hth_pool *pool);

/* Waits for threads that are still at units which others did in their place: call it before
 * memory is given back that such jobs read. */
void hth_pool_quiesce(hth_pool *pool);

/* ---- cancelling ------------------------------------------------------------------------------ */

/* While *flag is not 0, units that have not begun are skipped, of all jobs. A signal handler or another thread
 * may set it; it must stay until hth_pool_quiesce. NULL: never. While the pool is idle only. */
void hth_pool_watch(hth_pool *pool, const volatile int *flag);
/* Whether they are skipped from here on, as the flag was set: hth_pool_take_cancelled says so then. Of the caller's
 * thread. */
bool hth_pool_is_cancelled(hth_pool *pool);
/* Whether units were skipped since the last call: what the jobs wrote is not to be used. After
 * hth_pool_finish. */
bool hth_pool_take_cancelled(hth_pool *pool);

/* The unit that is claimed i-th, where threads that claim in turn are to walk through a stretch of
 * units each, so that what one asks memory for ahead it will mostly meet itself. */
static inline size_t hth_pool_block_index(size_t i, size_t n_unit, size_t n_thread)
{
    size_t n_more = n_unit % n_thread, stretch = i % n_thread; /* n_more have one unit more */
    return stretch * (n_unit / n_thread) + (stretch < n_more ? stretch : n_more) + i / n_thread;
}

/* ---- for tests ------------------------------------------------------------------------------ */

/* How long a unit may keep others waiting, besides twice the time of a unit, before it is
 * computed again; 0: never. */
void hth_pool_set_straggler_timeout(hth_pool *pool, uint64_t ns);
uint64_t hth_pool_straggler_timeout(const hth_pool *pool);
enum { HTH_POOL_STRAGGLER_NS = 30000 };
/* Units that were computed in place of a late thread. */
uint64_t hth_pool_n_backup(const hth_pool *pool);

/* Called by each thread at these points of each unit, for sleeps in awkward places. */
typedef enum hth_pool_point { HTH_POOL_CLAIMED, HTH_POOL_COMPUTED, HTH_POOL_COMMITTING } hth_pool_point;
typedef void hth_pool_hook_fn(hth_pool_point point, uint32_t i_thread);
/* While the pool is idle only. NULL: none. */
void hth_pool_set_hook(hth_pool *pool, hth_pool_hook_fn *hook);

#endif
