/* base/system/cpu_topology.c: physical cores of made-up machines, and of this one. */
#include "base/system/cpu_topology.h"
#include "base/pool.h"
#include "support/test.h"

#include <sched.h>
#include <sys/stat.h>

static char root[300];

/* A folder as the system's, in which CPU i has the siblings lists[i]; NULL: nothing is said. */
static void make_machine(const char *file, const char *const *lists, int n)
{
    static int n_machine;
    char name[20];
    snprintf(name, sizeof name, "cores-%d", n_machine++);
    snprintf(root, sizeof root, "%s", test_scratch(name));
    mkdir(root, 0700);
    for (int i = 0; i < n; i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/cpu%d", root, i);
        mkdir(path, 0700);
        if (!lists[i]) continue;
        snprintf(path, sizeof path, "%s/cpu%d/topology", root, i);
        mkdir(path, 0700);
        snprintf(path, sizeof path, "%s/cpu%d/topology/%s", root, i, file);
        CHECK(test_write_file(path, lists[i], strlen(lists[i])));
    }
}

static const cpu_set_t *made_up; /* what the system says is allowed; NULL: the truth */

int __real_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set);
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set);
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    if (!made_up) return __real_sched_getaffinity(pid, size, set);
    *set = *made_up;
    return 0;
}

static void allow(unsigned cpus)
{
    static cpu_set_t set;
    CPU_ZERO(&set);
    for (unsigned i = 0; i < 2; i++)
        if (cpus >> i & 1) CPU_SET(i, &set);
    made_up = &set;
}

/* What is read with CPUs 0 and 1 allowed of a machine whose lists are these. */
static hth_cpu_topology read_pair(const char *file, const char *zero, const char *one)
{
    hth_cpu_topology cores;
    make_machine(file, (const char *const[]){zero, one}, 2);
    hth_cpu_topology_read(root, &cores);
    return cores;
}

TEST(siblings_count_once)
{
    static const char *const files[] = {"core_cpus_list", "thread_siblings_list"};
    allow(3);
    for (int i = 0; i < 2; i++) {
        hth_cpu_topology c = read_pair(files[i], "0-1\n", "0-1\n");
        CHECK_INT(c.n_core, 1);
        CHECK_INT(c.n_cpu, 2);
        CHECK(c.cpu[0] == 0 && c.cpu[1] == 1 && c.core_of[1] == 0);
        c = read_pair(files[i], "0,8\n", "1,9\n");
        CHECK_INT(c.n_core, 2);
        CHECK(c.cpu[0] == 0 && c.cpu[1] == 1 && c.core_of[1] == 1);
        c = read_pair(files[i], "0,8-9\n", "1,4,10\n");
        CHECK_INT(c.n_core, 2);
    }
    made_up = NULL;
}

TEST(what_is_not_understood_is_a_core)
{
    static const char *const lists[] = {NULL, "", "\n", "-", "x", "0-", "99999999999999999999", ",", "1-0"};
    allow(3);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        hth_cpu_topology c = read_pair("core_cpus_list", lists[i], lists[i]);
        CHECK_INT(c.n_core, 2);
        CHECK_INT(c.n_cpu, 2);
    }
    made_up = NULL;
}

TEST(cpus_that_are_not_allowed_do_not_count)
{
    allow(2);
    hth_cpu_topology c = read_pair("core_cpus_list", "0-1\n", "0-1\n");
    CHECK_INT(c.n_core, 1);
    CHECK_INT(c.n_cpu, 1);
    CHECK_INT(c.cpu[0], 1);
    CHECK_INT(hth_pool_default_threads(0), 1);
    made_up = NULL;
}

TEST(this_machine_has_a_core)
{
    hth_cpu_topology c;
    hth_cpu_topology_read(NULL, &c);
    CHECK(c.n_core >= 1 && c.n_cpu >= c.n_core);
    CHECK(c.n_core > HTH_POOL_MAX_THREAD || hth_pool_default_threads(0) == c.n_core);
    CHECK_INT(hth_pool_default_threads(7), 7);
}

/* ---- pinning --------------------------------------------------------------------------------- */

static cpu_set_t seen[2];
static void look(void *arg, size_t i, uint32_t i_thread)
{
    sched_getaffinity(0, sizeof seen[i_thread], &seen[i_thread]);
    usleep(20000); /* so that both threads come to see */
}

static void check_pins(const hth_cpu_topology *cores)
{
    hth_pool *pool = NULL;
    cpu_set_t was;
    for (int pin = 0; pin < 2; pin++) {
        sched_getaffinity(0, sizeof was, &was);
        setenv("HEARTH_PIN", pin ? "1" : "0", 1);
        CHECK_OK(hth_pool_open(2, &pool, err));
        CHECK_INT(hth_pool_pin(pool), pin);
        CPU_ZERO(&seen[1]);
        for (int i = 0; i < 200 && CPU_COUNT(&seen[1]) == 0; i++) hth_pool_run(pool, look, NULL, 8);
        CHECK(CPU_EQUAL(&seen[0], &was));
        CHECK_INT(CPU_COUNT(&seen[1]), pin ? 1 : CPU_COUNT(&was));
        hth_pool_close(pool);
    }
    unsetenv("HEARTH_PIN");
    CHECK_OK(hth_pool_open(cores->n_core + 1 < HTH_POOL_MAX_THREAD ? cores->n_core + 1 : HTH_POOL_MAX_THREAD,
                           &pool, err));
    if (cores->n_core < HTH_POOL_MAX_THREAD) CHECK_INT(hth_pool_pin(pool), 0);
    hth_pool_close(pool);
}

/* The only CPU of a set, or -1. */
static int only_cpu(const cpu_set_t *set)
{
    for (unsigned i = 0; CPU_COUNT(set) == 1 && i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, set)) return (int)i;
    return -1;
}

/* With two cores, the caller's thread is moved to the other one's core, and sees where that one is then. */
static void check_makes_way(const hth_cpu_topology *cores)
{
    cpu_set_t was, one, two;
    sched_getaffinity(0, sizeof was, &was);
    CPU_ZERO(&two);
    for (int i = 0; i < 2; i++) CPU_SET(cores->cpu[i], &two);
    CHECK_INT(sched_setaffinity(0, sizeof two, &two), 0);
    CLOSED(hth_pool) *pool = OPENED(hth_pool, 2);
    CHECK_INT(hth_pool_pin(pool), 1);
    for (int round = 0; round < 4; round++) {
        int before = -1, after = -1;
        CPU_ZERO(&seen[1]);
        for (int i = 0; i < 50 && (before = only_cpu(&seen[1])) < 0; i++) hth_pool_run(pool, look, NULL, 3);
        if (!CHECK(before >= 0)) break;
        CPU_ZERO(&one);
        CPU_SET((unsigned)before, &one);
        sched_setaffinity(0, sizeof one, &one);
        for (int i = 0; i < 50; i++) {
            hth_pool_run(pool, look, NULL, 3); /* of three naps by two threads one is waited for */
            if ((after = only_cpu(&seen[1])) != before) break;
        }
        CHECK(after >= 0 && after != before);
        CHECK_INT(only_cpu(&seen[0]), before);
    }
    sched_setaffinity(0, sizeof was, &was);
}

TEST(threads_but_the_caller_s_are_pinned_to_another_core_than_its)
{
    hth_cpu_topology cores;
    hth_cpu_topology_read(NULL, &cores);
    if (cores.n_core < 2) {
        test_skip("one core");
        return;
    }
    check_pins(&cores);
    check_makes_way(&cores);
}
