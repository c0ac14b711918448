/* The monotonic clock: for rates, remaining time and benchmarks; never part of a result. And the time of day. */
#ifndef HTH_BASE_CLOCK_H
#define HTH_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds since a fixed point; never decreases. */
uint64_t hth_clock_ns(void);
/* Seconds since the clock read start_ns. */
double hth_clock_since(uint64_t start_ns);
/* Seconds since 1970, of UTC. */
int64_t hth_clock_unix_s(void);

#endif
