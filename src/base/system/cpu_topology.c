/* Physical cores from Linux sysfs: cpuN/topology/core_cpus_list (thread_siblings_list in older kernels) names the
 * CPUs that share a core with CPU N. Called when a pool opens. */
#define _GNU_SOURCE
#include "base/system/cpu_topology.h"

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

/* Reads a small file into text, NUL-terminated. False if there is none. */
static bool read_text(const char *path, char *text, size_t capacity)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    ssize_t n = read(file, text, capacity - 1);
    close(file);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static const char *read_number(const char *p, unsigned *n)
{
    if (*p < '0' || *p > '9') return NULL;
    for (*n = 0; *p >= '0' && *p <= '9'; p++)
        if (*n < HTH_CORES_MAX) *n = *n * 10 + (unsigned)(*p - '0');
    return p;
}

/* The first allowed CPU of a list such as "0,4-7", at most cpu. cpu itself if there is none or the text is
 * malformed. */
static unsigned first_allowed(const char *p, const cpu_set_t *allowed, unsigned cpu)
{
    for (;;) {
        unsigned from, to;
        if (!(p = read_number(p, &from))) return cpu;
        to = from;
        if (*p == '-' && !(p = read_number(p + 1, &to))) return cpu;
        for (unsigned i = from; i <= to && i < HTH_CORES_MAX; i++)
            if (CPU_ISSET(i, allowed)) return i < cpu ? i : cpu;
        if (*p++ != ',') return cpu;
    }
}

/* The CPU that represents cpu's core: its first allowed one. */
static unsigned core_of(const char *root, const cpu_set_t *allowed, unsigned cpu)
{
    static const char *const names[] = {"core_cpus_list", "thread_siblings_list"};
    for (int i = 0; i < 2; i++) {
        char path[512], text[512];
        int n = snprintf(path, sizeof path, "%s/cpu%u/topology/%s", root, cpu, names[i]);
        if (n > 0 && (size_t)n < sizeof path && read_text(path, text, sizeof text))
            return first_allowed(text, allowed, cpu);
    }
    return cpu;
}

void hth_cpu_topology_read(const char *root, hth_cpu_topology *cores)
{
    cpu_set_t allowed;
    *cores = (hth_cpu_topology){0};
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        CPU_ZERO(&allowed);
        CPU_SET(0, &allowed);
    }
    if (!root) root = "/sys/devices/system/cpu";
    uint16_t siblings[HTH_CORES_MAX];
    uint32_t n_sibling = 0;
    for (unsigned i = 0; i < HTH_CORES_MAX && i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &allowed)) continue;
        unsigned first = core_of(root, &allowed, i);
        if (first == i) {
            cores->core_of[i] = (uint16_t)cores->n_core;
            cores->cpu[cores->n_core++] = (uint16_t)i;
        } else {
            cores->core_of[i] = cores->core_of[first];
            siblings[n_sibling++] = (uint16_t)i;
        }
    }
    cores->n_cpu = cores->n_core;
    for (uint32_t i = 0; i < n_sibling; i++) cores->cpu[cores->n_cpu++] = siblings[i];
    if (cores->n_cpu == 0) cores->n_cpu = cores->n_core = 1;
}
