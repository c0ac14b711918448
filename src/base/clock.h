/* The monotonic clock: for rates, time left and benchmarks; never part of a result. */
#ifndef HTH_BASE_CLOCK_H
#define HTH_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds since some fixed point; never goes back. */
uint64_t hth_clock_ns(void);
/* Seconds since it said start_ns. */
double hth_clock_since(uint64_t start_ns);

#endif
