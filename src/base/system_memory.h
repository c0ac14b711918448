/* Memory of this process, as the system counts it. */
#ifndef HTH_BASE_SYSTEM_MEMORY_H
#define HTH_BASE_SYSTEM_MEMORY_H

#include <stdint.h>

/* Bytes in memory, shared ones included; 0: the system does not say. */
uint64_t hth_memory_resident(void);

#endif
