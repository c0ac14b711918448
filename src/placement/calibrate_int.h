/* What calibrate.c and calibrate_prefill.c share: the shape of the rows that are measured, and how long a device may
 * take over them. */
#ifndef HTH_PLACE_CALIBRATE_INT_H
#define HTH_PLACE_CALIBRATE_INT_H

#include "device/device.h"

enum { N_COL = 4096, LOCAL = 64 }; /* columns of a row; invocations of a workgroup */
static const uint64_t TIMEOUT_NS = (uint64_t)60000000000;

/* Seconds on the device's clock, which is not this machine's where it is simulated. */
static inline double device_since(const hth_device *d, uint64_t start)
{
    return (double)(hth_device_time(d) - start) * 1e-9;
}

/* How many tokens of n the rows are computed for. The clock of a simulated device goes by what a tape reads,
 * and nobody looks at the results: there, of none. */
static inline uint32_t n_token(const hth_device *d, uint32_t n)
{
    return hth_device_get_info(d)->kind == HTH_DEVICE_SIMULATED ? 0 : n;
}

#endif
