/* Facts about the machine from /proc and /sys. */
#include "measure/machine/machine.h"

#include "base/system/control_group.h"
#include "base/system/system_file.h"

#include <stdio.h>
#include <string.h>

enum { MAX_CPU = 4096 };

/* ---- cores ---------------------------------------------------------------------------------- */

/* Marks the CPUs of a list in the kernel's form ("0-3,8"). Returns their number. */
static uint32_t mark_list(const char *p, bool in[MAX_CPU])
{
    uint32_t n = 0;
    memset(in, 0, MAX_CPU * sizeof *in);
    while (*p >= '0' && *p <= '9') {
        uint64_t first = hth_system_number(&p), last = first;
        if (*p == '-') p++, last = hth_system_number(&p);
        for (uint64_t i = first; i <= last && i < MAX_CPU; i++) {
            n += !in[i];
            in[i] = true;
        }
        if (*p == ',') p++;
    }
    return n;
}

/* Counts cores. CPUs that share a core list each other; the core is counted at its lowest CPU. */
static uint32_t count_cores(const char *root, const bool allowed[MAX_CPU], char text[HTH_SYSTEM_TEXT])
{
    bool seen[MAX_CPU] = {false};
    uint32_t n = 0;
    for (uint32_t i = 0; i < MAX_CPU; i++) {
        char path[HTH_SYSTEM_PATH];
        uint64_t first = i;
        if (!allowed[i]) continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", i);
        if (hth_system_read(root, path, text)) {
            const char *p = text;
            first = hth_system_number(&p);
        }
        if (first >= MAX_CPU || seen[first]) continue;
        seen[first] = true;
        n++;
    }
    return n;
}

static void read_cores(const char *root, hth_machine *m, char text[HTH_SYSTEM_TEXT])
{
    bool in[MAX_CPU];
    const char *p;
    if (hth_system_read(root, "/proc/cpuinfo", text) && (p = hth_system_value(text, "model name")) != NULL)
        hth_escape(m->cpu_name, sizeof m->cpu_name, p, strcspn(p, "\n"));
    if (hth_system_read(root, "/sys/devices/system/cpu/online", text)) m->n_online = mark_list(text, in);
    if (!hth_system_read(root, "/proc/self/status", text) || !(p = hth_system_value(text, "Cpus_allowed_list"))) return;
    m->n_allowed = mark_list(p, in);
    if (m->n_online < m->n_allowed) m->n_online = m->n_allowed; /* no /sys, as in a bare chroot */
    m->n_core = count_cores(root, in, text);
}

/* ---- huge pages ----------------------------------------------------------------------------- */

static void read_huge_mode(const char *root, hth_machine *m, char text[HTH_SYSTEM_TEXT])
{
    if (hth_system_read(root, "/sys/kernel/mm/transparent_hugepage/enabled", text))
        m->huge = strstr(text, "[always]")    ? HTH_HUGE_ALWAYS
                  : strstr(text, "[madvise]") ? HTH_HUGE_MADVISE
                                              : HTH_HUGE_NEVER;
}

uint64_t hth_huge_page_bytes(void)
{
    char text[HTH_SYSTEM_TEXT];
    return hth_system_read("", "/proc/self/smaps_rollup", text) ? hth_system_kilobytes(text, "AnonHugePages") : 0;
}

/* ---- limits of CPU time ----------------------------------------------------------------------- */

static void take_quota(uint64_t quota, uint64_t period, hth_machine *m)
{
    if (quota == 0 || period == 0) return;
    double cpus = (double)quota / (double)period;
    if (m->cpu_quota <= 0.0 || cpus < m->cpu_quota) m->cpu_quota = cpus;
}

static void read_v2_quota(const char *folder, void *machine)
{
    char text[HTH_SYSTEM_TEXT];
    if (!hth_system_read(folder, "cpu.max", text)) return;
    const char *p = text; /* "max 100000" or "50000 100000" */
    uint64_t quota = hth_system_number(&p);
    p += strspn(p, " max");
    take_quota(quota, hth_system_number(&p), machine);
}

static void read_v1_quota(const char *folder, void *machine)
{
    char text[HTH_SYSTEM_TEXT];
    if (!hth_system_read(folder, "cpu.cfs_quota_us", text)) return;
    const char *p = text; /* "-1": none */
    uint64_t quota = hth_system_number(&p);
    if (quota == 0 || !hth_system_read(folder, "cpu.cfs_period_us", text)) return;
    p = text;
    take_quota(quota, hth_system_number(&p), machine);
}

void hth_machine_read(const char *root, hth_machine *out)
{
    char text[HTH_SYSTEM_TEXT];
    *out = (hth_machine){0};
    read_cores(root, out, text);
    read_huge_mode(root, out, text);
    hth_system_memory_read(root, &out->memory);
    hth_control_group_visit(root, "cpu", read_v1_quota, read_v2_quota, out);
}
