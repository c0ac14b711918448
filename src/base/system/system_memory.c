/* Reads /proc/meminfo, the files of control groups, pressure stall information, and /proc/self/statm. */
#define _GNU_SOURCE
#include "base/system/system_memory.h"

#include "base/system/control_group.h"
#include "base/system/system_file.h"

#include <string.h>
#include <unistd.h>

/* ---- control groups ------------------------------------------------------------------------- */

static uint64_t number_in(const char *folder, const char *name)
{
    char text[HTH_SYSTEM_TEXT];
    const char *p = text;
    return hth_system_read(folder, name, text) ? hth_system_number(&p) : 0;
}

static uint64_t value_in(const char *text, const char *key)
{
    const char *p = hth_system_value(text, key);
    return p ? hth_system_number(&p) : 0;
}

/* A limit in a file; UINT64_MAX: none, "max" in version 2, a number near 2^63 in version 1. */
static uint64_t limit_in(const char *folder, const char *name)
{
    char text[HTH_SYSTEM_TEXT];
    const char *p = text;
    if (!hth_system_read(folder, name, text) || *p < '0' || *p > '9') return UINT64_MAX;
    uint64_t limit = hth_system_number(&p);
    return limit < (uint64_t)1 << 60 ? limit : UINT64_MAX;
}

/* Pages that the system can take back: those of files. */
static uint64_t page_cache_in(const char *folder, const char *inactive, const char *active)
{
    char text[HTH_SYSTEM_TEXT];
    if (!hth_system_read(folder, "memory.stat", text)) return 0;
    return value_in(text, inactive) + value_in(text, active);
}

static void add_group(hth_system_memory *m, uint64_t limit, uint64_t used, uint64_t page_cache)
{
    uint64_t kept = used > page_cache ? used - page_cache : 0, left = limit > kept ? limit - kept : 0;
    bool is_first = m->group_limit == 0;
    if (is_first || limit < m->group_limit) m->group_limit = limit, m->group_used = used;
    if (is_first || left < m->group_available) m->group_available = left;
}

/* "some avg10=1.50 avg60=..." */
static void add_pressure(hth_system_memory *m, const char *folder, const char *name)
{
    char text[HTH_SYSTEM_TEXT];
    const char *p = hth_system_read(folder, name, text) ? strstr(text, "some avg10=") : NULL;
    if (!p) return;
    p += strlen("some avg10=");
    double percent = (double)hth_system_number(&p);
    for (double place = 0.1; *p == '.' || (*p >= '0' && *p <= '9'); p++)
        if (*p != '.') percent += place * (*p - '0'), place *= 0.1;
    if (percent > m->pressure) m->pressure = percent;
}

/* memory.high makes a group wait that exceeds it. */
static void add_v2(const char *folder, void *user)
{
    char text[HTH_SYSTEM_TEXT];
    hth_system_memory *m = user;
    uint64_t limit = limit_in(folder, "memory.max"), high = limit_in(folder, "memory.high");
    if (high < limit) limit = high;
    if (limit == UINT64_MAX) return;
    add_group(m, limit, number_in(folder, "memory.current"), page_cache_in(folder, "inactive_file", "active_file"));
    add_pressure(m, folder, "memory.pressure");
    if (hth_system_read(folder, "memory.events", text))
        m->n_limit_event += value_in(text, "high") + value_in(text, "max");
}

static void add_v1(const char *folder, void *user)
{
    hth_system_memory *m = user;
    uint64_t limit = limit_in(folder, "memory.limit_in_bytes");
    if (limit == UINT64_MAX) return;
    add_group(m, limit, number_in(folder, "memory.usage_in_bytes"),
              page_cache_in(folder, "total_inactive_file", "total_active_file"));
    m->n_limit_event += number_in(folder, "memory.failcnt");
}

/* ---- all of it -------------------------------------------------------------------------------- */

void hth_system_memory_read(const char *root, hth_system_memory *out)
{
    char text[HTH_SYSTEM_TEXT];
    *out = (hth_system_memory){0};
    if (hth_system_read(root, "/proc/meminfo", text)) {
        out->total = hth_system_kilobytes(text, "MemTotal");
        out->available = hth_system_kilobytes(text, "MemAvailable");
        out->swap = hth_system_kilobytes(text, "SwapTotal");
    }
    out->overcommit = (uint32_t)number_in(root, "/proc/sys/vm/overcommit_memory");
    add_pressure(out, root, "/proc/pressure/memory");
    hth_control_group_visit(root, "memory", add_v1, add_v2, out);
}

uint64_t hth_memory_resident(void)
{
    char text[HTH_SYSTEM_TEXT];
    const char *p = text;
    if (!hth_system_read("", "/proc/self/statm", text)) return 0;
    hth_system_number(&p); /* pages of the program; then those in memory */
    p += *p == ' ';
    return hth_system_number(&p) * (uint64_t)sysconf(_SC_PAGESIZE);
}
