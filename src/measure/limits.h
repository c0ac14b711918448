/* What the machine can do, measured: the yardstick that speeds are shares of. Every
 * function gives one sample; callers take several and quote the median. What cores
 * compute is in peaks.h. */
#ifndef HTH_MEASURE_LIMITS_H
#define HTH_MEASURE_LIMITS_H

#include "base/pool.h"

/* ---- memory (bandwidth.c) ---------------------------------------------------------------- */

/* How a region is read; which is fastest differs between machines and pages. */
typedef enum hth_bandwidth_loop {
    HTH_BANDWIDTH_PLAIN,    /* line after line */
    HTH_BANDWIDTH_STREAMS,  /* four places at once */
    HTH_BANDWIDTH_PREFETCH, /* line after line, asked for 4 KiB ahead */
    HTH_N_BANDWIDTH_LOOP
} hth_bandwidth_loop;

/* "plain", "four streams", "prefetch" */
const char *hth_bandwidth_name(hth_bandwidth_loop loop);

/* A region to read, larger than the caches. */
typedef struct hth_bandwidth_probe {
    uint8_t *memory;
    size_t size;
    uint64_t sum; /* of what was read: keeps the reads */
} hth_bandwidth_probe;

/* size is rounded down to whole MiB, at least one. */
hearth_status hth_bandwidth_open(hth_bandwidth_probe *probe, size_t size, hearth_error *err);
void hth_bandwidth_close(hth_bandwidth_probe *probe);
/* One pass over the region by all threads of the pool: bytes per second. */
double hth_bandwidth_pass(hth_bandwidth_probe *probe, hth_bandwidth_loop loop, hth_pool *pool);
/* The best of one pass by each loop: the limit of a sample that follows. */
double hth_bandwidth_measure(hth_bandwidth_probe *probe, hth_pool *pool);

/* ---- waiting (latency.c) ------------------------------------------------------------------ */

/* Nanoseconds for a line whose address comes out of the last one, in an order that no
 * prefetcher predicts. The probe writes over the region. */
typedef struct hth_latency_probe {
    hth_bandwidth_probe *region;
    uint32_t at, n_line; /* a power of two */
} hth_latency_probe;
void hth_latency_open(hth_latency_probe *probe, hth_bandwidth_probe *region);
double hth_latency_measure(hth_latency_probe *probe);

/* Cycles per second that this core makes now, by a chain of dependent instructions. */
double hth_clock_rate(void);

/* One thread answering another, in nanoseconds. */
typedef struct hth_thread_latency {
    double spin; /* there and back, both spinning on a word */
    double wake; /* from waking a thread that sleeps until it answers */
} hth_thread_latency;
/* MEMORY where the system refuses a thread. */
hearth_status hth_thread_latency_measure(hth_thread_latency *out, hearth_error *err);
/* One job of a unit for each thread, none with anything to do, in nanoseconds. */
double hth_pool_job_measure(hth_pool *pool);

#endif
