/* Measured limits of the machine, to which speeds are compared. Every function returns one sample; callers take
 * several and report the median. peaks.h measures compute limits. */
#ifndef HTH_MEASURE_LIMITS_H
#define HTH_MEASURE_LIMITS_H

#include "base/pool.h"

/* ---- memory (bandwidth.c) ---------------------------------------------------------------- */

/* How a region is read. The fastest loop depends on the machine and on the page size. */
typedef enum hth_bandwidth_loop {
    HTH_BANDWIDTH_PLAIN,    /* line by line */
    HTH_BANDWIDTH_STREAMS,  /* four streams at once */
    HTH_BANDWIDTH_PREFETCH, /* line by line, prefetched 4 KiB ahead */
    HTH_N_BANDWIDTH_LOOP
} hth_bandwidth_loop;

/* "plain", "four streams", "prefetch" */
const char *hth_bandwidth_name(hth_bandwidth_loop loop);

/* A memory region for reads, larger than the caches. */
typedef struct hth_bandwidth_probe {
    uint8_t *memory;
    size_t size;
    uint64_t sum; /* sum of the data, which keeps compilers from removing the reads */
} hth_bandwidth_probe;

/* size is rounded down to whole MiB, at least one. */
hearth_status hth_bandwidth_open(hth_bandwidth_probe *probe, size_t size, hearth_error *err);
void hth_bandwidth_close(hth_bandwidth_probe *probe);
/* One pass over the region by all threads of the pool: bytes per second. */
double hth_bandwidth_pass(hth_bandwidth_probe *probe, hth_bandwidth_loop loop, hth_pool *pool);
/* The best of one pass by each loop: the limit for the following sample. */
double hth_bandwidth_measure(hth_bandwidth_probe *probe, hth_pool *pool);

/* ---- latency (latency.c) ------------------------------------------------------------------ */

/* Nanoseconds for a line whose address comes from the previous one, in an order that no prefetcher predicts.
 * The probe overwrites the region. */
typedef struct hth_latency_probe {
    hth_bandwidth_probe *region;
    uint32_t at, n_line; /* n_line: a power of two */
} hth_latency_probe;
void hth_latency_open(hth_latency_probe *probe, hth_bandwidth_probe *region);
double hth_latency_measure(hth_latency_probe *probe);

/* Current cycles per second of this core, from a chain of dependent instructions. */
double hth_clock_rate(void);

/* Time until another thread answers, in nanoseconds. */
typedef struct hth_thread_latency {
    double spin; /* round trip, both threads spin on a word */
    double wake; /* from the wake-up of a sleeping thread to its answer */
} hth_thread_latency;
/* MEMORY: the system did not create a thread. */
hearth_status hth_thread_latency_measure(hth_thread_latency *out, hearth_error *err);
/* Nanoseconds of a pool job with one empty unit per thread. */
double hth_pool_job_measure(hth_pool *pool);

#endif
