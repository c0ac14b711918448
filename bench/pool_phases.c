/* The cost of starting a job: nanoseconds for a job of the pool with as many units as threads,
 * none of which does anything, while all threads are awake; and for one of a single unit.
 *
 *     pool_phases [THREADS]...
 *
 * Medians (min-max) of 9 series of 20000 jobs. */
#include "base/clock.h"
#include "base/pool.h"

#include <stdio.h>
#include <stdlib.h>

enum { N_SERIES = 9, N_JOB = 20000 };

static void nothing(void *arg, size_t i_unit, uint32_t i_thread) { (void)arg, (void)i_unit, (void)i_thread; }

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef enum how { PLAIN, TWICE, ONE_BY_ONE } how;

static double series(hth_pool *pool, size_t n_unit, how h)
{
    char job[HTH_POOL_ARG_SIZE - 56] = {0}; /* as large as a product's */
    uint64_t start = hth_clock_ns();
    for (int i = 0; i < N_JOB; i++) {
        if (h == PLAIN) hth_pool_add(pool, nothing, job, sizeof job, n_unit);
        else if (h == TWICE) hth_pool_add_retryable(pool, nothing, nothing, job, sizeof job, n_unit);
        else hth_pool_run(pool, nothing, job, n_unit);
    }
    hth_pool_finish(pool);
    return (double)(hth_clock_ns() - start) / N_JOB;
}

static void measure(hth_pool *pool, const char *name, size_t n_unit, how h)
{
    double ns[N_SERIES];
    series(pool, n_unit, h);
    for (int i = 0; i < N_SERIES; i++) ns[i] = series(pool, n_unit, h);
    qsort(ns, N_SERIES, sizeof *ns, by_size);
    printf("| %u | %s | %zu | %.0f (%.0f-%.0f) |\n", hth_pool_n_thread(pool), name, n_unit, ns[N_SERIES / 2],
           ns[0], ns[N_SERIES - 1]);
}

int main(int argc, char **argv)
{
    printf("| threads | job | units | ns |\n|---|---|---|---|\n");
    for (int i = 1; i < argc || i == 1; i++) {
        hth_pool *pool;
        hearth_error err;
        uint32_t n = i < argc ? (uint32_t)strtoul(argv[i], NULL, 10) : hth_pool_default_threads(0);
        if (hth_pool_open(n, &pool, &err) != HEARTH_OK) {
            fprintf(stderr, "%s\n", err.message);
            return 1;
        }
        hth_pool_pin(pool);
        measure(pool, "queued", 1, PLAIN);
        measure(pool, "queued", 2 * (size_t)n, PLAIN);
        measure(pool, "queued, may be done twice", 2 * (size_t)n, TWICE);
        measure(pool, "run and waited for", 2 * (size_t)n, ONE_BY_ONE);
        hth_pool_close(pool);
    }
    return 0;
}
