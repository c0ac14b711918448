/* The monotonic clock, read without a system call on Linux. */
#define _GNU_SOURCE
#include "base/clock.h"

#include <time.h>

uint64_t hth_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int64_t hth_clock_unix_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec;
}

double hth_clock_since(uint64_t start_ns) { return (double)(hth_clock_ns() - start_ns) * 1e-9; }
