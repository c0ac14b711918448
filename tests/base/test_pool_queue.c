/* base/pool.c, queues of jobs: each unit once, jobs in order, whichever threads sleep; units
 * that are late are done by others, and what comes late changes nothing. */
#include "base/alloc.h"
#include "base/pool.h"
#include "support/test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

static void sleep_ns(long ns)
{
    struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&time, NULL);
}

static hth_pool *open_pool(uint32_t n_thread)
{
    hth_pool *pool = OPENED(hth_pool, n_thread);
    return pool;
}

/* ---- a chain of jobs whose results show order and number ------------------------------------ */

enum { WIDTH = 37, MAX_THREAD = 9 };

/* Job k adds to each of its values a mix of two values of job k - 1: any unit left out, done
 * twice, or begun too early changes the end. */
static uint64_t values[2][WIDTH], scratch[MAX_THREAD];
static _Atomic uint64_t n_call, n_commit;

typedef struct chain_link {
    uint32_t number, n_unit;
} chain_link;

/* Late threads read what later jobs write: by atomic operations, as base/pool.h asks. */
static uint64_t get(const uint64_t *value) { return __atomic_load_n(value, __ATOMIC_RELAXED); }
static void put(uint64_t *value, uint64_t x) { __atomic_store_n(value, x, __ATOMIC_RELAXED); }

static uint64_t mix(const chain_link *l, size_t i)
{
    const uint64_t *from = values[(l->number + 1) % 2];
    uint64_t x = get(&from[i]) * 6364136223846793005u + get(&from[(i + 5) % WIDTH]) + l->number;
    return x ^ x >> 29;
}

static void add_to_value(const chain_link *l, size_t i, uint64_t x)
{
    uint64_t *value = &values[l->number % 2][i];
    put(value, get(value) + x);
}

static void link_unit(void *arg, size_t i, uint32_t i_thread)
{
    const chain_link *l = arg;
    atomic_fetch_add(&n_call, 1);
    add_to_value(l, i, mix(l, i));
}

static void link_compute(void *arg, size_t i, uint32_t i_thread)
{
    atomic_fetch_add(&n_call, 1);
    scratch[i_thread] = mix(arg, i);
}

static void link_commit(void *arg, size_t i, uint32_t i_thread)
{
    const chain_link *l = arg;
    atomic_fetch_add(&n_commit, 1);
    add_to_value(l, i, scratch[i_thread]);
}

static uint32_t units_of(uint32_t k, uint32_t seed)
{
    return (k * 7 + seed) % 5 == 0 ? 1 : 1 + (k * 11 + seed) % WIDTH;
}

static void reset(void)
{
    for (size_t i = 0; i < WIDTH; i++) put(&values[0][i], i + 1), put(&values[1][i], 3 * i);
    atomic_store(&n_call, 0);
    atomic_store(&n_commit, 0);
}

/* n jobs, every third as units that may be done twice; how many units they have. */
static uint64_t run_chain(hth_pool *pool, uint32_t n, uint32_t seed)
{
    uint64_t n_unit = 0;
    for (uint32_t k = 0; k < n; k++) {
        chain_link l = {k, units_of(k, seed)};
        n_unit += l.n_unit;
        if (k % 3 == 0) hth_pool_add_retryable(pool, link_compute, link_commit, &l, sizeof l, l.n_unit);
        else hth_pool_add(pool, link_unit, &l, sizeof l, l.n_unit);
        memset(&l, 255, sizeof l); /* it was copied */
    }
    hth_pool_finish(pool);
    return n_unit;
}

static void chain_alone(uint32_t n, uint32_t seed, uint64_t expected[2][WIDTH])
{
    reset();
    for (uint32_t k = 0; k < n; k++)
        for (size_t i = 0; i < units_of(k, seed); i++) link_unit(&(chain_link){k, 0}, i, 0);
    memcpy(expected, values, sizeof values);
}

TEST(every_unit_of_every_job_once_and_in_order)
{
    enum { N_JOB = 1000 };
    for (uint32_t n_thread = 1; n_thread <= MAX_THREAD; n_thread++) {
        uint64_t expected[2][WIDTH];
        CLOSED(hth_pool) *pool = open_pool(n_thread);
        hth_pool_set_straggler_timeout(pool, 0);
        chain_alone(N_JOB, n_thread, expected);
        reset();
        uint64_t n_unit = run_chain(pool, N_JOB, n_thread);
        CHECK_INT(atomic_load(&n_call), n_unit);
        CHECK_BYTES(values, expected, sizeof values);
    }
}

static _Atomic uint64_t sum;
static void add_number(void *arg, size_t i, uint32_t i_thread) { atomic_fetch_add(&sum, i + 1); }

TEST(jobs_of_no_unit_and_of_very_many)
{
    CLOSED(hth_pool) *pool = open_pool(3);
    atomic_store(&sum, 0);
    hth_pool_add(pool, add_number, NULL, 0, 0);
    hth_pool_add(pool, add_number, NULL, 0, 20000);
    hth_pool_add(pool, add_number, NULL, 0, 0);
    hth_pool_finish(pool);
    CHECK_INT(atomic_load(&sum), 20000ull * 20001 / 2);
    hth_pool_finish(pool);
}

/* ---- late threads --------------------------------------------------------------------------- */

static _Atomic uint64_t random_state;
static _Atomic uint32_t one_in; /* a nap at one point of so many; 0: never */
static long longest_nap_ns;

static uint64_t random_number(void)
{
    uint64_t x = atomic_fetch_add(&random_state, 0x9e3779b97f4a7c15u);
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    return (x ^ x >> 27) * 0x94d049bb133111ebu >> 11;
}

static void nap_sometimes(hth_pool_point point, uint32_t i_thread)
{
    uint32_t n = atomic_load(&one_in);
    if (n > 0 && random_number() % n == 0) sleep_ns((long)(random_number() % (uint64_t)longest_nap_ns));
}

/* Chains under naps at every point of a unit; how many units were rescued. */
static uint64_t nap_through(uint32_t n_thread, uint32_t n_round, uint32_t n_job, uint64_t timeout_ns)
{
    uint64_t expected[2][WIDTH], n_rescued;
    CLOSED(hth_pool) *pool = open_pool(n_thread);
    atomic_store(&one_in, 40);
    longest_nap_ns = 300000;
    hth_pool_set_hook(pool, nap_sometimes);
    hth_pool_set_straggler_timeout(pool, timeout_ns);
    for (uint32_t round = 0; round < n_round; round++) {
        uint64_t n_twice = 0;
        chain_alone(n_job, round, expected);
        reset();
        uint64_t n_unit = run_chain(pool, n_job, round);
        for (uint32_t k = 0; k < n_job; k += 3) n_twice += units_of(k, round);
        CHECK_INT(atomic_load(&n_commit), n_twice);
        CHECK(atomic_load(&n_call) >= n_unit);
        if (!CHECK_BYTES(values, expected, sizeof values)) break;
        if (round % 4 == 3) sleep_ns(200000); /* they fall asleep between rounds, or not */
    }
    n_rescued = hth_pool_n_backup(pool);
    hth_pool_quiesce(pool);
    return n_rescued;
}

TEST(naps_anywhere_change_nothing)
{
    uint32_t n_round = test_is_long() ? 200 : 2;
    for (uint32_t n_thread = 2; n_thread <= MAX_THREAD; n_thread++)
        CHECK_INT(nap_through(n_thread, n_round, 60, 0), 0);
}

TEST(units_of_late_threads_are_done_by_others)
{
    uint32_t n_round = test_is_long() ? 400 : 4;
    uint64_t n_rescued = 0;
    for (uint32_t n_thread = 2; n_thread <= MAX_THREAD; n_thread++)
        n_rescued += nap_through(n_thread, n_round, 90, 1);
    CHECK(n_rescued > 0);
}

/* Holds thread `held` at a point until it is let go. */
static _Atomic uint32_t held;
static _Atomic bool is_held, let_go;
static hth_pool_point held_at;
static void hold(hth_pool_point point, uint32_t i_thread)
{
    if (point != held_at || i_thread != atomic_load(&held) || atomic_load(&let_go)) return;
    atomic_store(&is_held, true);
    while (!atomic_load(&let_go)) sleep_ns(50000);
}

/* As link_compute, but the caller's thread waits in it until the other one is held. */
static void compute_when_held(void *arg, size_t i, uint32_t i_thread)
{
    while (i_thread == 0 && !atomic_load(&is_held) && !atomic_load(&let_go)) sleep_ns(20000);
    link_compute(arg, i, i_thread);
}

static void *let_go_later(void *arg)
{
    sleep_ns(30000000);
    atomic_store(&let_go, true);
    return NULL;
}

static void start_chain(hth_pool *pool, hth_pool_point point)
{
    static chain_link first = {0, 2};
    hth_pool_set_straggler_timeout(pool, 1000);
    held_at = point;
    atomic_store(&held, 1), atomic_store(&is_held, false), atomic_store(&let_go, false);
    hth_pool_set_hook(pool, hold);
    reset();
    hth_pool_add_retryable(pool, compute_when_held, link_commit, &first, 0, 2);
}

/* A worker stays in its first unit while the caller does all the rest, gets its results and
 * begins again; when the worker is let go, what it computes is thrown away. */
static void check_held(hth_pool_point point)
{
    enum { N_JOB = 100 };
    uint64_t expected[2][WIDTH], again[2][WIDTH];
    CLOSED(hth_pool) *pool = open_pool(2);
    start_chain(pool, point);
    hth_pool_finish(pool);
    CHECK_INT(hth_pool_n_backup(pool), 1);
    CHECK_INT(atomic_load(&n_commit), 2);
    chain_alone(N_JOB, 3, expected);
    reset();
    run_chain(pool, N_JOB, 3);
    CHECK_BYTES(values, expected, sizeof values);
    atomic_store(&let_go, true);
    hth_pool_quiesce(pool);
    CHECK_BYTES(values, expected, sizeof values);
    for (int i = 0; i < 4; i++) {
        reset();
        run_chain(pool, N_JOB, 3);
        memcpy(again, values, sizeof again);
        CHECK_BYTES(again, expected, sizeof again);
    }
}

TEST(a_blocked_thread_delays_no_other)
{
    check_held(HTH_POOL_CLAIMED);
    check_held(HTH_POOL_COMPUTED);
}

/* ---- cancelling --------------------------------------------------------------------------- */

static volatile int cancel_flag;

static void set_flag_at_3(void *arg, size_t i, uint32_t i_thread)
{
    add_number(arg, i, i_thread);
    if (i == 3) __atomic_store_n(&cancel_flag, 1, __ATOMIC_RELAXED);
}

TEST(units_are_skipped_from_when_a_flag_is_set_until_it_is_not)
{
    enum { N_JOB = 200 };
    for (uint32_t n_thread = 1; n_thread <= MAX_THREAD; n_thread++) {
        uint64_t expected[2][WIDTH], before[2][WIDTH];
        CLOSED(hth_pool) *pool = open_pool(n_thread);
        hth_pool_set_straggler_timeout(pool, 0);
        hth_pool_watch(pool, &cancel_flag, NULL);
        chain_alone(N_JOB, n_thread, expected);
        reset();
        memcpy(before, values, sizeof before);
        cancel_flag = 1;
        run_chain(pool, N_JOB, n_thread);
        CHECK_INT(atomic_load(&n_call), 0);
        CHECK_BYTES(values, before, sizeof values);
        CHECK(hth_pool_take_cancelled(pool));
        cancel_flag = 0;
        CHECK(!hth_pool_take_cancelled(pool) && !hth_pool_is_cancelled(pool));
        atomic_store(&sum, 0);
        hth_pool_add(pool, set_flag_at_3, NULL, 0, 4);
        run_chain(pool, N_JOB, n_thread);
        CHECK(atomic_load(&sum) >= 4);
        CHECK_INT(atomic_load(&n_call), 0); /* jobs behind the one that set it */
        CHECK(hth_pool_take_cancelled(pool));
        cancel_flag = 0;
        reset();
        run_chain(pool, N_JOB, n_thread);
        CHECK_BYTES(values, expected, sizeof values);
        CHECK(!hth_pool_take_cancelled(pool));
    }
}

/* What a thread skips that comes late to a unit, which another has done, is no news. */
TEST(a_late_thread_cancels_nothing)
{
    CLOSED(hth_pool) *pool = open_pool(2);
    hth_pool_watch(pool, &cancel_flag, NULL);
    start_chain(pool, HTH_POOL_CLAIMED);
    hth_pool_finish(pool);
    CHECK_INT(hth_pool_n_backup(pool), 1);
    CHECK(!hth_pool_take_cancelled(pool));
    cancel_flag = 1;
    run_chain(pool, 10, 3);
    CHECK(hth_pool_take_cancelled(pool));
    atomic_store(&let_go, true);
    hth_pool_quiesce(pool);
    cancel_flag = 0;
    CHECK(!hth_pool_take_cancelled(pool));
}

/* Later than the ring is long: the queue waits for it before a record is used again. And a
 * thread that carries a result over must be waited for. */
TEST(a_thread_that_is_very_late_is_waited_for)
{
    static const hth_pool_point points[] = {HTH_POOL_CLAIMED, HTH_POOL_COMPUTED, HTH_POOL_COMMITTING};
    enum { N_JOB = 2000 };
    for (int i = 0; i < 3; i++) {
        uint64_t expected[2][WIDTH];
        pthread_t clock;
        CLOSED(hth_pool) *pool = open_pool(2);
        start_chain(pool, points[i]);
        if (!CHECK_INT(pthread_create(&clock, NULL, let_go_later, NULL), 0)) return;
        hth_pool_finish(pool);
        CHECK_INT(atomic_load(&n_commit), 2);
        chain_alone(N_JOB, 1, expected);
        reset();
        run_chain(pool, N_JOB, 1);
        CHECK(atomic_load(&let_go));
        CHECK_BYTES(values, expected, sizeof values);
        pthread_join(clock, NULL);
    }
}

/* ---- waiting ---------------------------------------------------------------------------------- */

static void nap(void *arg, size_t i, uint32_t i_thread) { sleep_ns(60000000); }

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Threads that wait for work, for another's unit, and for the end of the queue spin for some
 * 50 us each time; here they wait for more than two seconds, taken together. */
TEST(who_waits_sleeps)
{
    CLOSED(hth_pool) *pool = open_pool(4);
    double before = cpu_seconds();
    for (int i = 0; i < 5; i++) {
        hth_pool_add(pool, nap, NULL, 0, 2);
        hth_pool_add_retryable(pool, nap, add_number, NULL, 0, 1);
        hth_pool_finish(pool);
        sleep_ns(60000000);
    }
    double seconds = cpu_seconds() - before;
    if (seconds > 0.2) test_fail(__FILE__, __LINE__, "%.3f s of computing while all wait", seconds);
}

/* ---- misuse ----------------------------------------------------------------------------------- */

static void run_within(void *arg, size_t i, uint32_t i_thread) { hth_pool_run(arg, add_number, NULL, 2); }

static void finish_within(void *arg, size_t i, uint32_t i_thread) { hth_pool_finish(arg); }

static void allocate_within(void *arg, size_t i, uint32_t i_thread) { hth_free(hth_alloc(1, 1)); }

/* Whether a child that runs work ends by an assertion. */
static bool asserts(hth_work_fn *work, uint32_t n_thread)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        hth_pool *pool = NULL;
        hearth_error err;
        if (!freopen("/dev/null", "w", stderr) || hth_pool_open(n_thread, &pool, &err) != HEARTH_OK) _exit(0);
        alarm(20);
        hth_pool_run(pool, work, pool, 3);
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

TEST_IF(hth_alloc_asserts(), jobs_and_allocations_within_units_are_refused_by_assertions)
{
    for (uint32_t n_thread = 1; n_thread <= 2; n_thread++) {
        CHECK(asserts(run_within, n_thread));
        CHECK(asserts(finish_within, n_thread));
        CHECK(asserts(allocate_within, n_thread));
        CHECK(!asserts(add_number, n_thread));
    }
}
