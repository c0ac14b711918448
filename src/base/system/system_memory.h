/* Memory of the machine, of the control groups that this process is in, and of the process, as the system counts it. */
#ifndef HTH_BASE_SYSTEM_MEMORY_H
#define HTH_BASE_SYSTEM_MEMORY_H

#include <stdint.h>

/* Values that the system does not report are 0. */
typedef struct hth_system_memory {
    uint64_t total, available, swap; /* bytes of the machine; available: without swapping */
    uint64_t group_limit; /* bytes allowed by the control group with the least limit; 0: none has one */
    uint64_t group_used;  /* bytes that this group has, page cache included */
    uint64_t group_available; /* the least that any limit leaves: without what the group has that is not page cache */
    uint64_t n_limit_event; /* how often groups have reached a limit */
    double pressure;        /* percent of the last 10 s in which a task waited for memory; the largest one known */
    uint32_t overcommit;    /* 0 guess, 1 always, 2 never */
} hth_system_memory;

/* root is the prefix of every path: "" for this machine, a folder in tests. */
void hth_system_memory_read(const char *root, hth_system_memory *out);

/* Bytes of this process in memory, shared ones included; 0: the system does not say. */
uint64_t hth_memory_resident(void);

#endif
