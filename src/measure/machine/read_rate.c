/* Keeps loads of one size queued at a reader for some time. plans and bench/read_disk.c call it. A model reads the same
 * weights again and again, which the host of a virtual disk or a controller may have cached then: places are read once,
 * and then the same ones again. */
#define _GNU_SOURCE
#include "measure/machine/read_rate.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/random.h"

#include <pthread.h>
#include <time.h>

/* Loads that are queued at once. */
enum { MAX_LOAD = 48, MIN_LOAD = 4 };
/* Times of reads that are kept: the last ones. */
enum { MAX_TIME = 1000 };
/* Bytes per second. Hard disks read less at random places, and the few places that are read in this time fit into their
 * own cache, so these are not read again. */
#define MAX_HARD_DISK_RATE 200e6

typedef struct loads {
    const hth_read_rate_options *o;
    hth_load load[MAX_LOAD];
    uint32_t n;
    uint8_t *memory;
    size_t memory_size;
    uint64_t total; /* bytes at which an extent can begin, in all files */
    /* The places of the next extent and of the first one: seeds of random places; bytes of sequential places. */
    uint64_t seed, first_seed, next, first;
    uint64_t n_started, n_place; /* n_place: after so many the same places follow again */
    double times[MAX_TIME], time_sum; /* seconds of reads that are alone */
    uint64_t start_ns, n_time;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t changed;
    bool is_free[MAX_LOAD];
    uint32_t n_done; /* since the round began */
    hth_load_failure failure;
    bool failed;
} loads;

static void done(hth_load *load)
{
    loads *l = load->user;
    pthread_mutex_lock(&l->lock);
    if (l->o->alone) {
        double seconds = hth_clock_since(l->start_ns);
        l->times[l->n_time++ % MAX_TIME] = seconds, l->time_sum += seconds;
    }
    l->is_free[load - l->load] = true;
    l->n_done++;
    if (load->failed) l->failed = true, l->failure = load->failure;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

/* A load that is free, after waiting for one; NULL: one has failed. */
static hth_load *take_free(loads *l)
{
    uint32_t i;
    pthread_mutex_lock(&l->lock);
    for (;; pthread_cond_wait(&l->changed, &l->lock)) {
        for (i = 0; i < l->n && !l->is_free[i]; i++) {
        }
        if (i < l->n) break;
    }
    bool failed = l->failed;
    l->is_free[i] = failed;
    pthread_mutex_unlock(&l->lock);
    return failed ? NULL : &l->load[i];
}

static void wait_for_all(loads *l)
{
    pthread_mutex_lock(&l->lock);
    for (uint32_t i = 0; i < l->n; i++)
        while (!l->is_free[i]) pthread_cond_wait(&l->changed, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The places of a file at which an extent can begin. */
static uint64_t places_of(const hth_read_rate_options *o, uint32_t i)
{
    return o->file_size[i] >= o->size ? o->file_size[i] - o->size + 1 : 0;
}

/* From the first place on; the same n_place places again and again. */
static void rewind_places(loads *l, uint64_t n_place)
{
    l->seed = l->first_seed, l->next = l->first;
    l->n_started = 0, l->n_place = n_place;
}

static hth_extent next_extent(loads *l)
{
    const hth_read_rate_options *o = l->o;
    uint64_t at = o->sequential ? l->next : hth_random_next(&l->seed) % l->total;
    uint32_t i = 0;
    if (++l->n_started % l->n_place == 0) l->seed = l->first_seed, l->next = l->first;
    else l->next = (at + o->size) % l->total;
    while (at >= places_of(o, i)) at -= places_of(o, i++);
    return (hth_extent){i, at, o->size};
}

/* Bytes that were read in some seconds, with the reads that were queued before them. */
static double read_for(loads *l, double seconds)
{
    uint64_t start = hth_clock_ns();
    pthread_mutex_lock(&l->lock);
    l->n_done = 0;
    pthread_mutex_unlock(&l->lock);
    while (hth_clock_since(start) < seconds) {
        hth_load *load = take_free(l);
        if (!load) break;
        load->extents[0] = next_extent(l), load->n_extent = 1, load->next = NULL;
        l->start_ns = hth_clock_ns(); /* used if no other read runs */
        hth_reader_start(l->o->reader, load);
    }
    pthread_mutex_lock(&l->lock);
    double rate = (double)l->n_done * (double)l->o->size / hth_clock_since(start);
    pthread_mutex_unlock(&l->lock);
    return rate;
}

static hearth_status open_loads(loads *l, const hth_read_rate_options *o, hearth_error *err)
{
    const hth_extent worst = {0, HTH_BUFFER_ALIGN - 1, o->size};
    size_t each = 0;
    *l = (loads){.o = o,
                 .n = MAX_LOAD,
                 .first_seed = o->seed ? o->seed : hth_clock_ns(),
                 .lock = PTHREAD_MUTEX_INITIALIZER,
                 .changed = PTHREAD_COND_INITIALIZER};
    for (uint32_t i = 0; i < o->n_file; i++) l->total += places_of(o, i);
    if (o->size == 0 || l->total == 0 || !hth_reader_buffer_size(&worst, 1, &each))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "no file has %llu bytes to read",
                        (unsigned long long)o->size);
    while (l->n > MIN_LOAD && each * l->n > o->memory) l->n--;
    if (o->alone) l->n = 1;
    l->first = hth_random_next(&(uint64_t){l->first_seed}) % l->total;
    rewind_places(l, UINT64_MAX);
    l->memory_size = each * l->n;
    l->memory = hth_pages_alloc(l->memory_size);
    if (!l->memory) return hth_fail_memory(err, l->memory_size, "reads");
    for (uint32_t i = 0; i < l->n; i++) {
        l->load[i] = (hth_load){.to = l->memory + i * each, .done = done, .user = l};
        l->is_free[i] = true;
    }
    return HEARTH_OK;
}

static hth_sample_stats measure_rounds(loads *l)
{
    double rates[HTH_READ_ROUNDS];
    uint64_t start = hth_clock_ns();
    pthread_mutex_lock(&l->lock);
    l->n_time = 0, l->time_sum = 0.0;
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < HTH_READ_ROUNDS; i++) rates[i] = read_for(l, l->o->seconds);
    wait_for_all(l);
    for (int i = 0; i < HTH_READ_ROUNDS; i++) /* the disk is slower than one read in a round */
        if (rates[i] <= 0.0) rates[i] = (double)l->n * (double)l->o->size / hth_clock_since(start);
    return hth_sample_stats_of(rates, HTH_READ_ROUNDS);
}

static void tell_times(const loads *l, hth_read_rate *out)
{
    size_t n = l->n_time < MAX_TIME ? (size_t)l->n_time : MAX_TIME;
    out->seconds_least = n > 0 ? hth_kth_smallest(l->times, n, n / 4) : 0.0;
    out->seconds_median = hth_sample_stats_of(l->times, n).median;
    out->seconds_mean = n > 0 ? l->time_sum / (double)l->n_time : 0.0;
}

hearth_status hth_read_rate_measure(const hth_read_rate_options *o, hth_read_rate *out, hearth_error *err)
{
    static const double warm_up = 0.2; /* part of a round after which the queue is full */
    loads l;
    hearth_status st = open_loads(&l, o, err);
    if (st != HEARTH_OK) return st;
    read_for(&l, o->seconds * warm_up);
    double cpu = cpu_seconds();
    uint64_t start = hth_clock_ns();
    out->rate = out->first = measure_rounds(&l);
    if (out->first.median > MAX_HARD_DISK_RATE && !l.failed) {
        rewind_places(&l, l.n_started);
        out->rate = measure_rounds(&l);
    }
    out->cores = (cpu_seconds() - cpu) / hth_clock_since(start);
    tell_times(&l, out);
    out->depth = hth_reader_get_stats(o->reader).depth;
    if (l.failed) st = hth_reader_describe(o->reader, &l.failure, err);
    hth_pages_free(l.memory, l.memory_size);
    return st;
}
