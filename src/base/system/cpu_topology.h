/* Which CPUs belong to which physical core: for the number of threads and for pinning them. */
#ifndef HTH_BASE_CPU_TOPOLOGY_H
#define HTH_BASE_CPU_TOPOLOGY_H

#include <stdint.h>

enum { HTH_CORES_MAX = 1024 };

/* CPUs that the calling thread may run on (its affinity, which a cpuset restricts): first one CPU of each physical
 * core, ascending, then their siblings. */
typedef struct hth_cpu_topology {
    uint32_t n_cpu, n_core; /* at least 1; cpu[n_core..] share a core with an earlier one */
    uint16_t cpu[HTH_CORES_MAX];
    uint16_t core_of[HTH_CORES_MAX]; /* by CPU number: index of its core in cpu[]; for allowed CPUs only */
} hth_cpu_topology;

/* root NULL: /sys/devices/system/cpu; tests name a folder with the same layout. A CPU without sibling data counts
 * as a core. */
void hth_cpu_topology_read(const char *root, hth_cpu_topology *cores);

#endif
