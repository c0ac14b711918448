/* measure/machine.c: what is read of /proc and /sys, in folders that stand in for them;
 * cores that share, groups in groups, and texts that no kernel writes. */
#include "measure/machine.h"
#include "support/test.h"

#include <errno.h>
#include <sys/stat.h>

/* Writes a file below a folder of this case, and the folders it needs. */
static void put(const char *root, const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *p = whole + 1; *p; p++) {
        if (*p != '/') continue;
        *p = '\0';
        CHECK(mkdir(whole, 0700) == 0 || errno == EEXIST);
        *p = '/';
    }
    CHECK(test_write_file(whole, text, strlen(text)));
}

static hth_machine read_root(const char *root)
{
    hth_machine m;
    memset(&m, 0xff, sizeof m);
    hth_machine_read(root, &m);
    return m;
}

TEST(this_machine_has_cores_and_memory)
{
    hth_machine m = read_root("");
    CHECK(m.n_core >= 1 && m.n_core <= m.n_allowed && m.n_allowed <= m.n_online);
    CHECK(m.memory > 0 && m.available <= m.memory);
}

TEST(an_empty_machine_is_all_zero)
{
    hth_machine none = {0}, m = read_root(test_scratch("no-such-root"));
    CHECK_INT(memcmp(&m.n_online, &none.n_online, sizeof m - offsetof(hth_machine, n_online)), 0);
    CHECK_TEXT(m.cpu_name, "");
}

TEST(threads_of_one_core_count_once)
{
    const char *root = test_scratch("cores");
    put(root, "/proc/cpuinfo", "processor\t: 0\nmodel name\t: Some \x1b CPU\nflags : x\n");
    put(root, "/sys/devices/system/cpu/online", "0-7\n");
    put(root, "/proc/self/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-2,4,5\n");
    for (int i = 0; i < 8; i++) {
        char path[80], pair[16];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i);
        snprintf(pair, sizeof pair, "%d,%d\n", i % 4, i % 4 + 4);
        put(root, path, pair);
    }
    hth_machine m = read_root(root);
    CHECK_TEXT(m.cpu_name, "Some \\x1b CPU");
    CHECK_INT(m.n_online, 8);
    CHECK_INT(m.n_allowed, 5);
    CHECK_INT(m.n_core, 3); /* 0 with 4, 1 with 5, 2 */
}

TEST(memory_and_its_modes_are_read)
{
    const char *root = test_scratch("memory");
    put(root, "/proc/meminfo", "MemTotal:       1000 kB\nMemFree: 7 kB\nMemAvailable:    300 kB\nSwapTotal: 20 kB\n");
    put(root, "/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    put(root, "/proc/sys/vm/overcommit_memory", "2\n");
    hth_machine m = read_root(root);
    CHECK_INT(m.memory, 1024000);
    CHECK_INT(m.available, 307200);
    CHECK_INT(m.swap, 20480);
    CHECK_INT(m.huge, HTH_HUGE_MADVISE);
    CHECK_INT(m.overcommit, 2);
    put(root, "/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    CHECK_INT(read_root(root).huge, HTH_HUGE_NEVER);
    put(root, "/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
    CHECK_INT(read_root(root).huge, HTH_HUGE_ALWAYS);
}

TEST(the_least_limit_of_all_groups_above_counts)
{
    const char *root = test_scratch("v2");
    put(root, "/proc/self/cgroup", "0::/a/b\n");
    put(root, "/sys/fs/cgroup/a/b/memory.max", "max\n");
    put(root, "/sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
    put(root, "/sys/fs/cgroup/a/memory.max", "4000\n");
    put(root, "/sys/fs/cgroup/a/memory.current", "123\n");
    put(root, "/sys/fs/cgroup/a/cpu.max", "max 100000\n");
    put(root, "/sys/fs/cgroup/memory.max", "5000\n");
    hth_machine m = read_root(root);
    CHECK_INT(m.group_limit, 4000);
    CHECK_INT(m.group_used, 123);
    CHECK(m.cpu_quota > 1.49 && m.cpu_quota < 1.51);
}

TEST(groups_of_the_first_version_are_read_too)
{
    const char *root = test_scratch("v1");
    put(root, "/proc/self/cgroup", "5:memory:/a\n3:cpu,cpuacct:/c\n2:cpuset:/\n0::/\n");
    put(root, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "7000\n");
    put(root, "/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "70\n");
    put(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put(root, "/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "50000\n");
    put(root, "/sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
    put(root, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    hth_machine m = read_root(root);
    CHECK_INT(m.group_limit, 7000);
    CHECK_INT(m.group_used, 70);
    CHECK(m.cpu_quota > 0.49 && m.cpu_quota < 0.51);
}

TEST(odd_texts_do_no_harm)
{
    static const char *const texts[] = {"",
                                        ":",
                                        "::",
                                        "0:",
                                        "0::",
                                        "\n\n",
                                        "a:memory",
                                        "5:memory:\n",
                                        "0::////\n",
                                        "99999999999999999999999",
                                        "0-99999999999",
                                        "5-3,,7",
                                        "-",
                                        "0::/../..\n"};
    static const char *const paths[] = {"/proc/self/cgroup", "/proc/self/status", "/proc/meminfo",
                                        "/sys/devices/system/cpu/online", "/proc/cpuinfo"};
    const char *root = test_scratch("odd");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char list[64];
        for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) put(root, paths[k], texts[i]);
        snprintf(list, sizeof list, "Cpus_allowed_list: %s", texts[i]);
        put(root, "/proc/self/status", list);
        hth_machine m = read_root(root);
        CHECK(m.n_core <= 4096 && m.n_allowed <= 4096 && m.n_online <= 4096 && m.group_limit == 0);
    }
}

TEST(a_watched_second_has_no_more_work_than_cores)
{
    hth_cpu_load l;
    if (!hth_cpu_load_sample(50, &l)) {
        test_skip("/proc/stat is not there");
        return;
    }
    CHECK(l.busy >= 0.0 && l.busy < 1.5 * read_root("").n_online + 1.0);
    CHECK(l.pid == 0 || l.name[0] != '\0');
    CHECK(l.pid != (int)getpid());
}

TEST(a_file_is_read_to_its_end_or_the_limit)
{
    enum { SIZE = 5 << 20 };
    static char text[SIZE];
    const char *path = test_scratch("disk");
    double rate;
    uint64_t n;
    hearth_error why;
    CHECK(test_write_file(path, text, SIZE));
    hearth_status st = hth_disk_read_rate(path, (uint64_t)1 << 30, &rate, &n, &why);
    if (st == HEARTH_ERROR_UNSUPPORTED) {
        CHECK(strstr(why.message, path) != NULL);
        test_skip("%s", why.message);
        return;
    }
    CHECK_INT(st, HEARTH_OK);
    CHECK_INT(n, SIZE);
    CHECK(rate > 0.0);
    remove(path);
    CHECK_INT(hth_disk_read_rate(test_scratch("missing"), 1, &rate, &n, &why), HEARTH_ERROR_IO);
    CHECK(strstr(why.message, "missing") && rate <= 0.0 && n == 0);
}
