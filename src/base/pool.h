/* Threads that share out numbered units of work. The caller cuts work into
 * units by its shape, never by the number of threads, so results do not depend
 * on who computes what. */
#ifndef HTH_BASE_POOL_H
#define HTH_BASE_POOL_H

#include "base/status.h"

#include <stdint.h>

typedef struct hth_pool hth_pool;

/* Computes unit i_unit. i_thread (0 is the caller's thread) selects scratch. */
typedef void hth_work_fn(void *arg, size_t i_unit, uint32_t i_thread);

enum { HTH_POOL_MAX_THREAD = 256 };

/* Threads for a wish of 0: one for each core, as far as a pool goes. */
uint32_t hth_pool_threads(uint32_t wish);

/* n_thread counts the calling thread: 1 starts none. Where the system refuses a thread,
 * those that started do the work, and a warning says so. ARGUMENT, MEMORY. */
hearth_status hth_pool_open(uint32_t n_thread, hth_pool **out, hearth_error *err);
/* NULL is allowed. */
void hth_pool_close(hth_pool *pool);
uint32_t hth_pool_n_thread(const hth_pool *pool);

/* Runs work(arg, i, thread) for every i below n_unit and returns when all are
 * done; what they wrote is visible then. One caller at a time. Cannot fail,
 * allocates nothing, and makes no system call while the threads are awake. */
void hth_pool_run(hth_pool *pool, hth_work_fn *work, void *arg, size_t n_unit);

#endif
