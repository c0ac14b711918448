/* base/pool.c: every unit once, whichever thread computes it, however many jobs follow. */
#include "base/alloc.h"
#include "base/pool.h"
#include "support/test.h"

#include <stdatomic.h>
#include <time.h>

enum { MAX_UNIT = 100000 };

typedef struct job {
    _Atomic uint32_t count[MAX_UNIT];
    _Atomic uint32_t wrong_thread;
    _Atomic uint64_t seen; /* a bit for each thread that took part */
    uint32_t n_thread;
    long nap_ns; /* of each unit */
} job;

static job the_job;

static void sleep_ns(long ns)
{
    struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&time, NULL);
}

static void count_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    job *j = arg;
    atomic_fetch_add(&j->count[i_unit], 1);
    atomic_fetch_or(&j->seen, (uint64_t)1 << i_thread);
    if (i_thread >= j->n_thread) atomic_fetch_add(&j->wrong_thread, 1);
    if (j->nap_ns) sleep_ns(j->nap_ns);
}

static hth_pool *open_pool(uint32_t n_thread)
{
    memset(&the_job, 0, sizeof the_job);
    the_job.n_thread = n_thread;
    hth_pool *pool = OPENED(hth_pool, n_thread);
    return pool;
}

/* Every unit so often, and none behind the last. */
static bool each_counted(size_t n_unit, uint32_t times)
{
    size_t end = n_unit + 20 < MAX_UNIT ? n_unit + 20 : MAX_UNIT;
    for (size_t i = 0; i < end; i++)
        if (the_job.count[i] != (i < n_unit ? times : 0)) return false;
    return the_job.wrong_thread == 0;
}

TEST(every_unit_is_computed_once)
{
    static const uint32_t threads[] = {1, 2, 3, 4, 7, 16};
    static const size_t units[] = {0, 1, 2, 1000, 100000};
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            CLOSED(hth_pool) *pool = open_pool(threads[t]);
            CHECK_INT(hth_pool_n_thread(pool), threads[t]);
            hth_pool_run(pool, count_unit, &the_job, units[u]);
            CHECK(each_counted(units[u], 1));
        }
    }
}

TEST(many_jobs_in_a_row_stay_apart)
{
    static const uint32_t threads[] = {2, 4, 16};
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        CLOSED(hth_pool) *pool = open_pool(threads[t]);
        for (uint32_t i = 1; i <= 3000; i++) {
            hth_pool_run(pool, count_unit, &the_job, 7);
            if (!each_counted(7, i)) {
                test_fail(__FILE__, __LINE__, "job %u of %u threads", i, threads[t]);
                break;
            }
        }
    }
}

/* Long pauses put the workers to sleep; units that sleep themselves leave the caller
 * no way to do all the work alone in the time of one thread. */
TEST(sleeping_workers_wake_for_a_job)
{
    CLOSED(hth_pool) *pool = open_pool(4);
    for (uint32_t i = 1; i <= 3; i++) {
        sleep_ns(30000000);
        the_job.seen = 0;
        the_job.nap_ns = 20000000;
        hth_pool_run(pool, count_unit, &the_job, 8);
        CHECK(each_counted(8, i));
        CHECK(the_job.seen != 1);
    }
}

TEST(a_pool_holds_what_it_says)
{
    for (uint32_t n = 1; n <= 5; n += 2) {
        uint64_t held = hth_alloc_in_use();
        hth_pool *pool = open_pool(n);
        held = hth_alloc_in_use() - held;
        CHECK(held >= hth_pool_size(n) && held < hth_pool_size(n) + 4096);
        hth_pool_close(pool);
    }
}

TEST(impossible_numbers_of_threads_are_refused)
{
    hth_pool *pool = NULL;
    hearth_error err = {0};
    CHECK_INT(hth_pool_open(0, &pool, &err), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hth_pool_open(HTH_POOL_MAX_THREAD + 1, &pool, &err), HEARTH_ERROR_ARGUMENT);
    CHECK(pool == NULL);
    hth_pool_close(NULL);
}
