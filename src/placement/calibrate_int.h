/* Shared by calibrate.c and calibrate_prefill.c: the shape of the measured rows, and the timeout. */
#ifndef HTH_PLACEMENT_CALIBRATE_INT_H
#define HTH_PLACEMENT_CALIBRATE_INT_H

#include "device/device.h"

enum { N_COL = 4096, LOCAL = 64 }; /* columns of a row; invocations of a workgroup */
static const uint64_t TIMEOUT_NS = (uint64_t)60000000000;

/* Seconds on the device's clock, which is virtual on a simulated device. */
static inline double device_since(const hth_device *d, uint64_t start)
{
    return (double)(hth_device_time(d) - start) * 1e-9;
}

/* Number of tokens, of n, to compute. A simulated device's clock depends only on the bytes that a command list
 * reads, and the results are unused: there, 0. */
static inline uint32_t n_token(const hth_device *d, uint32_t n)
{
    return hth_device_get_info(d)->kind == HTH_DEVICE_SIMULATED ? 0 : n;
}

#endif
