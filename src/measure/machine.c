/* Facts about the machine from /proc and /sys. The kernel writes these texts, but a container may replace them,
 * so every number is read with its bounds. */
#define _GNU_SOURCE
#include "measure/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_SIZE = 16384, PATH_SIZE = 512, MAX_CPU = 4096 };

/* ---- files --------------------------------------------------------------------------------- */

/* Reads the start of a file, terminated. False: no such file. */
static bool read_text(const char *path, char text[TEXT_SIZE])
{
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    for (;;) {
        ssize_t got = read(fd, text + n, TEXT_SIZE - 1 - n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        n += (size_t)got;
    }
    close(fd);
    text[n] = '\0';
    return n > 0;
}

static bool read_at(const char *root, const char *path, char text[TEXT_SIZE])
{
    char whole[PATH_SIZE];
    int n = snprintf(whole, sizeof whole, "%s%s", root, path);
    return n > 0 && n < PATH_SIZE && read_text(whole, text);
}

/* Reads a decimal number at *p and advances *p. Saturates at the maximum. */
static uint64_t number(const char **p)
{
    uint64_t v = 0;
    for (; **p >= '0' && **p <= '9'; (*p)++)
        if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(**p - '0'), &v))
            v = UINT64_MAX;
    return v;
}

/* Start of the value of "key: value" in lines of text. NULL: no such line. */
static const char *value_of(const char *text, const char *key)
{
    size_t n = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) != 0) continue;
        const char *p = line + n;
        p += strspn(p, " \t");
        if (*p != ':') continue;
        return p + 1 + strspn(p + 1, " \t");
    }
    return NULL;
}

static uint64_t kilobytes_of(const char *text, const char *key)
{
    const char *p = value_of(text, key);
    uint64_t kb = p ? number(&p) : 0;
    return kb <= UINT64_MAX / 1024 ? kb * 1024 : UINT64_MAX;
}

/* ---- cores ---------------------------------------------------------------------------------- */

/* Marks the CPUs of a list in the kernel's form ("0-3,8"). Returns their number. */
static uint32_t mark_list(const char *p, bool in[MAX_CPU])
{
    uint32_t n = 0;
    memset(in, 0, MAX_CPU * sizeof *in);
    while (*p >= '0' && *p <= '9') {
        uint64_t first = number(&p), last = first;
        if (*p == '-') p++, last = number(&p);
        for (uint64_t i = first; i <= last && i < MAX_CPU; i++) {
            n += !in[i];
            in[i] = true;
        }
        if (*p == ',') p++;
    }
    return n;
}

/* Counts cores. CPUs that share a core list each other; the core is counted at its lowest CPU. */
static uint32_t count_cores(const char *root, const bool allowed[MAX_CPU], char text[TEXT_SIZE])
{
    bool seen[MAX_CPU] = {false};
    uint32_t n = 0;
    for (uint32_t i = 0; i < MAX_CPU; i++) {
        char path[PATH_SIZE];
        uint64_t first = i;
        if (!allowed[i]) continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", i);
        if (read_at(root, path, text)) {
            const char *p = text;
            first = number(&p);
        }
        if (first >= MAX_CPU || seen[first]) continue;
        seen[first] = true;
        n++;
    }
    return n;
}

static void read_cores(const char *root, hth_machine *m, char text[TEXT_SIZE])
{
    bool in[MAX_CPU];
    const char *p;
    if (read_at(root, "/proc/cpuinfo", text) && (p = value_of(text, "model name")) != NULL)
        hth_escape(m->cpu_name, sizeof m->cpu_name, p, strcspn(p, "\n"));
    if (read_at(root, "/sys/devices/system/cpu/online", text)) m->n_online = mark_list(text, in);
    if (!read_at(root, "/proc/self/status", text) || !(p = value_of(text, "Cpus_allowed_list"))) return;
    m->n_allowed = mark_list(p, in);
    m->n_core = count_cores(root, in, text);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void read_memory(const char *root, hth_machine *m, char text[TEXT_SIZE])
{
    if (read_at(root, "/proc/meminfo", text)) {
        m->memory = kilobytes_of(text, "MemTotal");
        m->available = kilobytes_of(text, "MemAvailable");
        m->swap = kilobytes_of(text, "SwapTotal");
    }
    if (read_at(root, "/sys/kernel/mm/transparent_hugepage/enabled", text))
        m->huge = strstr(text, "[always]")    ? HTH_HUGE_ALWAYS
                  : strstr(text, "[madvise]") ? HTH_HUGE_MADVISE
                                              : HTH_HUGE_NEVER;
    if (read_at(root, "/proc/sys/vm/overcommit_memory", text)) {
        const char *p = text;
        m->overcommit = (uint32_t)number(&p);
    }
}

uint64_t hth_huge_page_bytes(void)
{
    char text[TEXT_SIZE];
    return read_text("/proc/self/smaps_rollup", text) ? kilobytes_of(text, "AnonHugePages") : 0;
}

/* ---- control groups ------------------------------------------------------------------------- */

/* A limit applies from the group itself and from every group above it: the folders from the process's own up to
 * the controller's. read reads the values of one. */
typedef void limit_fn(const char *folder, hth_machine *m, char text[TEXT_SIZE]);

static void walk_up(const char *mount, const char *group, limit_fn *read, hth_machine *m,
                    char text[TEXT_SIZE])
{
    char folder[PATH_SIZE];
    size_t floor = strlen(mount), n = strcspn(group, "\n");
    if (floor + n >= sizeof folder) return;
    memcpy(folder, mount, floor);
    memcpy(folder + floor, group, n);
    for (n += floor;; n--) {
        while (n > floor && folder[n - 1] == '/') n--;
        folder[n] = '\0';
        read(folder, m, text);
        while (n > floor && folder[n - 1] != '/') n--;
        if (n <= floor) return;
    }
}

static bool read_in(const char *folder, const char *name, char text[TEXT_SIZE])
{
    char path[PATH_SIZE];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && n < PATH_SIZE && read_text(path, text);
}

static void take_memory(const char *folder, const char *limit_name, const char *used_name, hth_machine *m,
                        char text[TEXT_SIZE])
{
    const uint64_t none = (uint64_t)1 << 60; /* v1 writes a number near 2^63 */
    if (!read_in(folder, limit_name, text) || text[0] < '0' || text[0] > '9') return; /* "max" */
    const char *p = text;
    uint64_t limit = number(&p);
    if (limit >= none || (m->group_limit && limit >= m->group_limit)) return;
    m->group_limit = limit;
    p = text;
    m->group_used = read_in(folder, used_name, text) ? number(&p) : 0;
}

static void take_quota(uint64_t quota, uint64_t period, hth_machine *m)
{
    if (quota == 0 || period == 0) return;
    double cpus = (double)quota / (double)period;
    if (m->cpu_quota <= 0.0 || cpus < m->cpu_quota) m->cpu_quota = cpus;
}

static void read_v2(const char *folder, hth_machine *m, char text[TEXT_SIZE])
{
    take_memory(folder, "memory.max", "memory.current", m, text);
    if (!read_in(folder, "cpu.max", text)) return;
    const char *p = text; /* "max 100000" or "50000 100000" */
    uint64_t quota = number(&p);
    p += strspn(p, " max");
    take_quota(quota, number(&p), m);
}

static void read_v1_memory(const char *folder, hth_machine *m, char text[TEXT_SIZE])
{
    take_memory(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", m, text);
}

static void read_v1_cpu(const char *folder, hth_machine *m, char text[TEXT_SIZE])
{
    if (!read_in(folder, "cpu.cfs_quota_us", text)) return;
    const char *p = text; /* "-1": none */
    uint64_t quota = number(&p);
    if (quota == 0 || !read_in(folder, "cpu.cfs_period_us", text)) return;
    p = text;
    take_quota(quota, number(&p), m);
}

static bool has_word(const char *list, const char *end, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; p < end; p += strcspn(p, ",:") + 1)
        if (strcspn(p, ",:") == n && memcmp(p, word, n) == 0) return true;
    return false;
}

/* Reads lines of /proc/self/cgroup: "0::/group" of v2, "4:cpu,cpuacct:/group" of v1. */
static void read_groups(const char *root, hth_machine *m, char text[TEXT_SIZE])
{
    char groups[TEXT_SIZE], mount[PATH_SIZE];
    if (strlen(root) > PATH_SIZE / 2 || !read_at(root, "/proc/self/cgroup", groups)) return;
    for (const char *line = groups; *line;) {
        const char *end = line + strcspn(line, "\n"), *list = strchr(line, ':'), *group;
        if (!list || list >= end || !(group = strchr(list + 1, ':')) || group >= end) return;
        list++;
        if (list == group) {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
            walk_up(mount, group + 1, read_v2, m, text);
        } else if (has_word(list, group, "memory")) {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/memory", root);
            walk_up(mount, group + 1, read_v1_memory, m, text);
        } else if (has_word(list, group, "cpu")) {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/cpu", root);
            walk_up(mount, group + 1, read_v1_cpu, m, text);
        }
        line = end + (*end == '\n');
    }
}

void hth_machine_read(const char *root, hth_machine *out)
{
    char text[TEXT_SIZE];
    *out = (hth_machine){0};
    read_cores(root, out, text);
    read_memory(root, out, text);
    read_groups(root, out, text);
}
