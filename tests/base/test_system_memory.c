/* base/system/system_memory.c: what is read of /proc and of control groups, in folders that stand in for them. */
#include "base/system/system_memory.h"
#include "support/system_root.h"

static hth_system_memory read_root(const char *root)
{
    hth_system_memory m;
    memset(&m, 0xff, sizeof m);
    hth_system_memory_read(root, &m);
    return m;
}

TEST(this_machine_and_process_have_memory)
{
    hth_system_memory m = read_root("");
    CHECK(m.total > 0 && m.available <= m.total);
    CHECK(hth_memory_resident() > 0 && hth_memory_resident() < m.total);
}

TEST(what_a_system_does_not_tell_is_zero)
{
    hth_system_memory none = {0}, m = read_root(test_scratch("no-such-root"));
    CHECK_BYTES(&m, &none, sizeof m);
}

TEST(memory_of_the_machine_is_read)
{
    const char *root = test_scratch("memory");
    system_root_put(root, "/proc/meminfo",
                    "MemTotal:       1000 kB\nMemFree: 7 kB\nMemAvailable:    300 kB\nSwapTotal: 20 kB\n");
    system_root_put(root, "/proc/sys/vm/overcommit_memory", "2\n");
    system_root_put(root, "/proc/pressure/memory",
                    "some avg10=12.25 avg60=1.00 avg300=0.00 total=9\nfull avg10=50.00 avg60=0.00 avg300=0.00 total=1\n");
    hth_system_memory m = read_root(root);
    CHECK_INT(m.total, 1024000);
    CHECK_INT(m.available, 307200);
    CHECK_INT(m.swap, 20480);
    CHECK_INT(m.overcommit, 2);
    CHECK(m.pressure > 12.24 && m.pressure < 12.26);
    CHECK(m.group_limit == 0 && m.group_available == 0);
}

TEST(the_least_limit_of_all_groups_above_counts)
{
    const char *root = test_scratch("v2");
    system_root_put(root, "/proc/self/cgroup", "0::/a/b\n");
    system_root_put(root, "/sys/fs/cgroup/a/b/memory.max", "max\n");
    system_root_put(root, "/sys/fs/cgroup/a/memory.max", "4000\n");
    system_root_put(root, "/sys/fs/cgroup/a/memory.current", "123\n");
    system_root_put(root, "/sys/fs/cgroup/memory.max", "5000\n");
    hth_system_memory m = read_root(root);
    CHECK_INT(m.group_limit, 4000);
    CHECK_INT(m.group_used, 123);
    CHECK_INT(m.group_available, 4000 - 123);
}

/* A group above with a larger limit leaves less if others in it have more. */
TEST(the_group_that_leaves_least_counts)
{
    const char *root = test_scratch("tight");
    system_root_put(root, "/proc/self/cgroup", "0::/a\n");
    system_root_put(root, "/sys/fs/cgroup/a/memory.max", "4000\n");
    system_root_put(root, "/sys/fs/cgroup/a/memory.current", "1000\n");
    system_root_put(root, "/sys/fs/cgroup/memory.max", "5000\n");
    system_root_put(root, "/sys/fs/cgroup/memory.current", "4800\n");
    system_root_put(root, "/sys/fs/cgroup/memory.stat", "anon 3700\ninactive_file 700\nactive_file 400\n");
    system_root_put(root, "/sys/fs/cgroup/memory.events", "low 0\nhigh 2\nmax 5\noom 0\n");
    system_root_put(root, "/sys/fs/cgroup/a/memory.pressure", "some avg10=7.00 avg60=0.00 avg300=0.00 total=0\n");
    hth_system_memory m = read_root(root);
    CHECK_INT(m.group_limit, 4000);
    CHECK_INT(m.group_available, 5000 - (4800 - 1100));
    CHECK_INT(m.n_limit_event, 7);
    CHECK(m.pressure > 6.99 && m.pressure < 7.01);
    system_root_put(root, "/sys/fs/cgroup/a/memory.high", "2000\n"); /* a group may wait before it reaches its limit */
    CHECK_INT(read_root(root).group_limit, 2000);
    system_root_put(root, "/sys/fs/cgroup/a/memory.current", "2500\n");
    CHECK_INT(read_root(root).group_available, 0);
}

TEST(groups_of_the_first_version_are_read_too)
{
    const char *root = test_scratch("v1");
    system_root_put(root, "/proc/self/cgroup", "5:memory:/a\n3:cpu,cpuacct:/c\n2:cpuset:/\n0::/\n");
    system_root_put(root, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "7000\n");
    system_root_put(root, "/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "70\n");
    system_root_put(root, "/sys/fs/cgroup/memory/a/memory.stat",
                    "cache 9\nactive_file 1\ntotal_inactive_file 20\ntotal_active_file 10\n");
    system_root_put(root, "/sys/fs/cgroup/memory/a/memory.failcnt", "3\n");
    system_root_put(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    hth_system_memory m = read_root(root);
    CHECK_INT(m.group_limit, 7000);
    CHECK_INT(m.group_used, 70);
    CHECK_INT(m.group_available, 7000 - 40);
    CHECK_INT(m.n_limit_event, 3);
}

TEST(odd_texts_do_no_harm)
{
    static const char *const texts[] = {"", ":", "::", "0:", "0::", "\n\n", "a:memory", "5:memory:\n", "0::////\n",
                                        "99999999999999999999999", "-", "0::/../..\n", "some avg10=", "some avg10=...",
                                        "MemTotal", "MemTotal:", "MemTotal: 99999999999999999999 kB\n"};
    static const char *const paths[] = {"/proc/self/cgroup", "/proc/meminfo", "/proc/pressure/memory",
                                        "/proc/sys/vm/overcommit_memory"};
    const char *root = test_scratch("odd");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) system_root_put(root, paths[k], texts[i]);
        hth_system_memory m = read_root(root);
        CHECK(m.group_limit == 0 && m.pressure == 0.0 && (m.total == 0 || m.total == UINT64_MAX));
    }
}
