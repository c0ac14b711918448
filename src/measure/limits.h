/* What the machine can do, measured: the yardstick that speeds are shares of. */
#ifndef HTH_MEASURE_LIMITS_H
#define HTH_MEASURE_LIMITS_H

#include "base/pool.h"

/* A region to read, larger than the caches. */
typedef struct hth_bandwidth_probe {
    uint8_t *memory;
    size_t size;
    uint64_t sum; /* of all bytes read: keeps the reads */
} hth_bandwidth_probe;

hearth_status hth_bandwidth_open(hth_bandwidth_probe *probe, size_t size, hearth_error *err);
void hth_bandwidth_close(hth_bandwidth_probe *probe);
/* One pass over the region by all threads of the pool: bytes per second. */
double hth_bandwidth_measure(hth_bandwidth_probe *probe, hth_pool *pool);

#endif
