/* measure/machine/machine.c: what is read of /proc and /sys, in folders that stand in for them;
 * cores that share, quotas of groups, and texts that no kernel writes. */
#include "measure/machine/machine.h"
#include "support/system_root.h"

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
    CHECK(m.memory.total > 0 && m.memory.available <= m.memory.total);
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
    system_root_put(root, "/proc/cpuinfo", "processor\t: 0\nmodel name\t: Some \x1b CPU\nflags : x\n");
    system_root_put(root, "/sys/devices/system/cpu/online", "0-7\n");
    system_root_put(root, "/proc/self/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-2,4,5\n");
    for (int i = 0; i < 8; i++) {
        char path[80], pair[16];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i);
        snprintf(pair, sizeof pair, "%d,%d\n", i % 4, i % 4 + 4);
        system_root_put(root, path, pair);
    }
    hth_machine m = read_root(root);
    CHECK_TEXT(m.cpu_name, "Some \\x1b CPU");
    CHECK_INT(m.n_online, 8);
    CHECK_INT(m.n_allowed, 5);
    CHECK_INT(m.n_core, 3); /* 0 with 4, 1 with 5, 2 */
}

TEST(without_sys_the_cpus_are_those_allowed)
{
    const char *root = test_scratch("no-sys");
    system_root_put(root, "/proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-2,5\n");
    hth_machine m = read_root(root);
    CHECK(m.n_online == 4 && m.n_allowed == 4 && m.n_core == 4);
}

TEST(modes_of_huge_pages_are_read)
{
    static const char *const modes[] = {"always [madvise] never\n", "always madvise [never]\n", "[always] madvise never\n"};
    static const hth_huge_mode expected[] = {HTH_HUGE_MADVISE, HTH_HUGE_NEVER, HTH_HUGE_ALWAYS};
    const char *root = test_scratch("huge");
    for (int i = 0; i < 3; i++) {
        system_root_put(root, "/sys/kernel/mm/transparent_hugepage/enabled", modes[i]);
        CHECK_INT(read_root(root).huge, expected[i]);
    }
}

TEST(the_least_quota_of_all_groups_above_counts)
{
    const char *root = test_scratch("v2");
    system_root_put(root, "/proc/self/cgroup", "0::/a/b\n");
    system_root_put(root, "/sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
    system_root_put(root, "/sys/fs/cgroup/a/cpu.max", "max 100000\n");
    hth_machine m = read_root(root);
    CHECK(m.cpu_quota > 1.49 && m.cpu_quota < 1.51);
}

TEST(quotas_of_the_first_version_are_read_too)
{
    const char *root = test_scratch("v1");
    system_root_put(root, "/proc/self/cgroup", "5:memory:/a\n3:cpu,cpuacct:/c\n2:cpuset:/\n0::/\n");
    system_root_put(root, "/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "50000\n");
    system_root_put(root, "/sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
    system_root_put(root, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    hth_machine m = read_root(root);
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
        for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) system_root_put(root, paths[k], texts[i]);
        snprintf(list, sizeof list, "Cpus_allowed_list: %s", texts[i]);
        system_root_put(root, "/proc/self/status", list);
        hth_machine m = read_root(root);
        CHECK(m.n_core <= 4096 && m.n_allowed <= 4096 && m.n_online <= 4096 && m.memory.group_limit == 0);
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
