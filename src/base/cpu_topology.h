/* Which CPUs make up which physical cores: for the number of threads and for pinning them. */
#ifndef HTH_BASE_CORES_H
#define HTH_BASE_CORES_H

#include <stdint.h>

enum { HTH_CORES_MAX = 1024 };

/* CPUs that the calling thread may run on (its affinity, which a cpuset narrows): first one
 * of each physical core, ascending, then their siblings. */
typedef struct hth_cpu_topology {
    uint32_t n_cpu, n_core; /* at least 1; cpu[n_core..] share a core with one before */
    uint16_t cpu[HTH_CORES_MAX];
    uint16_t core_of[HTH_CORES_MAX]; /* by number of a CPU: its core's index in cpu[]; for allowed CPUs */
} hth_cpu_topology;

/* root NULL: /sys/devices/system/cpu; tests name a folder of the same form. A CPU about
 * whose siblings the system says nothing counts as a core. */
void hth_cpu_topology_read(const char *root, hth_cpu_topology *cores);

#endif
