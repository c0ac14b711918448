/* Measures what a plan for storage needs to know of this machine: its disk, by the model's own reader and file, and its
 * cores, by the calibrations of plans. */
#include "measure/storage_plan.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/system/cpu_topology.h"
#include "kernels/vector/math.h"
#include "measure/machine/limits.h"

#include <stdio.h>
#include <string.h>

/* Seconds of a round (HTH_READ_ROUNDS of them): of random reads, and of each of the other two figures. Extents are
 * measured as reads of 1 MiB at most, which the reader makes of larger ones. */
static const double ROUND_SECONDS = 0.1, SHORT_SECONDS = 0.05;
enum { MAX_EXTENT_SIZE = 1 << 20, LEAST_SIZE = 4096, QUEUED_SIZE = 48 << 20 };
/* Types with less than this part of the matrices' bytes count as the most frequent one. */
enum { MIN_PART = 64 };
/* Seconds of a read of an NVMe disk, as that of the simulated disks (store/disk_simulated.c). */
#define NVME_LATENCY 70e-6

/* ---- the disk --------------------------------------------------------------------------------------- */

/* The usual bytes of an extent. */
static uint64_t extent_size(const hth_weight_items *items)
{
    uint64_t sum = 0, n = 0;
    for (uint32_t i = 0; i < items->n; i++)
        for (uint32_t k = 0; k < items->items[i].n_extent; k++) sum += items->items[i].extents[k].size, n++;
    uint64_t size = n > 0 ? sum / n : MAX_EXTENT_SIZE;
    return size > MAX_EXTENT_SIZE ? MAX_EXTENT_SIZE : size < LEAST_SIZE ? LEAST_SIZE : size;
}

static double above(double seconds, double others) { return seconds > others ? seconds - others : 0.0; }

static hearth_status measure_reader(hth_read_rate_options *o, hth_storage_machine *out, hearth_error *err)
{
    hth_read_rate alone, one = {0};
    o->seed = hth_clock_ns(); /* one for all: what is read alone is cached as the others were */
    hearth_status st = hth_read_rate_measure(o, &one, err);
    if (st != HEARTH_OK) return st;
    out->read_rate = one.rate;
    if (one.first.min < one.rate.min) out->read_rate.min = one.first.min;
    out->reading_cores = one.cores;
    o->seconds = SHORT_SECONDS, o->sequential = true;
    if ((st = hth_read_rate_measure(o, &one, err)) != HEARTH_OK) return st;
    /* A file that is not larger than what is read ahead would tell of caches. */
    out->sequential_rate = one.rate.median > out->read_rate.median ? one.rate.median : out->read_rate.median;
    o->sequential = false, o->alone = true;
    if ((st = hth_read_rate_measure(o, &alone, err)) != HEARTH_OK) return st;
    /* The median: other programs' writes may stall a disk for longer than all of this takes. */
    double bytes = (double)o->size / out->read_rate.median;
    out->latency_least = above(alone.seconds_least, bytes);
    out->latency = above(alone.seconds_median, bytes);
    out->latency_most = above(alone.seconds_mean, bytes);
    if (out->latency_most < out->latency) out->latency_most = out->latency;
    return HEARTH_OK;
}

/* Sets read_rate, sequential_rate, latency with its range, reading_cores and reader. */
static hearth_status measure_disk(const hearth_model *m, const hth_memory_division *d, const char *io,
                                  uint64_t memory, hth_storage_machine *out, hearth_error *err)
{
    hth_reader *reader = NULL;
    uint32_t n_file = hth_gguf_n_part(m->file);
    uint64_t *sizes = hth_alloc(n_file, sizeof *sizes), largest = 0;
    if (!sizes) return hth_fail_memory(err, n_file * sizeof *sizes, "sizes of files");
    for (uint32_t i = 0; i < d->items.n; i++) { /* reads lie before the end of the last item */
        for (uint32_t k = 0; k < d->items.items[i].n_extent; k++) {
            const hth_extent *e = &d->items.items[i].extents[k];
            if (e->offset + e->size > sizes[e->i_file]) sizes[e->i_file] = e->offset + e->size;
        }
    }
    hearth_status st = hth_engine_open_reader(m->file, io, &reader, err);
    if (st != HEARTH_OK) goto done;
    for (uint32_t i = 0; i < n_file; i++)
        if (sizes[i] > largest) largest = sizes[i];
    hth_read_rate_options o = {.reader = reader,
                               .file_size = sizes,
                               .n_file = n_file,
                               .size = extent_size(&d->items),
                               .memory = memory < QUEUED_SIZE ? memory : QUEUED_SIZE,
                               .seconds = ROUND_SECONDS};
    if (o.size > largest) o.size = largest;
    if (largest > 0) st = measure_reader(&o, out, err);
    snprintf(out->reader, sizeof out->reader, "%s", hth_reader_name(reader));
    hth_reader_close(reader);
done:
    hth_free(sizes);
    return st;
}

/* ---- the cores -------------------------------------------------------------------------------------- */

/* Calibrations are kept, and other programs may have slowed one down: the fastest round is that of an idle machine. */
static void take_fastest(hth_calibration *c)
{
    for (int k = 0; k < HTH_PLAN_N_KNOT; k++) c->cpu_down[k] *= c->cpu_rate.max / c->cpu_rate.median;
    c->cpu_rate.median = c->cpu_rate.max;
    c->cpu_packed.median = c->cpu_packed.max;
}

/* Rates of the types of the model's matrices; the most frequent one first. */
static hearth_status measure_rates(const hearth_model *m, hth_pool *pool, uint64_t memory,
                                   hth_storage_machine *out, hearth_error *err)
{
    uint64_t size[HTH_TYPE_LIMIT] = {0}, all = 0;
    hearth_status st = HEARTH_OK;
    for (size_t i = 0; i < m->model->n_binding; i++) {
        const hth_binding *b = &m->model->bindings[i];
        if (b->matrix && (uint32_t)b->matrix->type < HTH_TYPE_LIMIT)
            size[b->matrix->type] += b->size, all += b->size;
    }
    for (;;) {
        hth_type best = 0;
        for (uint32_t t = 1; t < HTH_TYPE_LIMIT; t++)
            if (size[t] > size[best]) best = (hth_type)t;
        if (size[best] == 0 || (out->n_rate > 0 && size[best] < all / MIN_PART)) return st;
        size[best] = 0;
        st = hth_calibration_cache_get_cpu(&m->kernels, pool, best, memory, &out->rates[out->n_rate++], err);
        if (st != HEARTH_OK) return st;
        take_fastest(&out->rates[out->n_rate - 1]);
    }
}

hearth_status hth_storage_machine_measure(const hearth_model *m, const hth_memory_division *d, const char *io,
                                          uint32_t n_thread, uint64_t memory, hth_storage_machine *out,
                                          hearth_error *err)
{
    hth_pool *pool = NULL;
    hth_cpu_topology cores;
    hth_cpu_topology_read(NULL, &cores);
    *out = (hth_storage_machine){.n_thread = hth_pool_default_threads(n_thread), .n_core = cores.n_core};
    hearth_status st = d->items.n > 0 && !d->whole ? measure_disk(m, d, io, memory, out, err) : HEARTH_OK;
    if (st == HEARTH_OK) st = hth_pool_open(out->n_thread, &pool, err);
    if (st == HEARTH_OK) {
        hth_pool_pin(pool);
        st = measure_rates(m, pool, memory, out, err);
    }
    if (st == HEARTH_OK) out->job = hth_pool_job_measure(pool) * 1e-9;
    hth_pool_close(pool);
    return st;
}

/* ---- other machines --------------------------------------------------------------------------------- */

hth_storage_machine hth_storage_machine_at(const hth_storage_machine *machine, hth_estimate estimate)
{
    hth_storage_machine m = *machine;
    double factor = m.read_rate.median > 0.0 ? hth_estimate_rate(m.read_rate, estimate) / m.read_rate.median : 1.0;
    m.sequential_rate *= factor;
    m.read_rate.median = hth_estimate_rate(m.read_rate, estimate);
    if (estimate == HTH_ESTIMATE_WORST) m.latency = m.latency_most;
    if (estimate == HTH_ESTIMATE_BEST) m.latency = m.latency_least;
    for (size_t i = 0; i < m.n_rate; i++) {
        hth_calibration *c = &m.rates[i];
        for (int k = 0; k < HTH_PLAN_N_KNOT; k++)
            c->cpu_down[k] *= hth_estimate_rate(c->cpu_rate, estimate) / c->cpu_rate.median;
        c->cpu_rate.median = hth_estimate_rate(c->cpu_rate, estimate);
        c->cpu_packed.median = hth_estimate_rate(c->cpu_packed, estimate);
    }
    return m;
}

hth_storage_machine hth_storage_machine_with_disk(const hth_storage_machine *machine, double rate)
{
    hth_storage_machine m = *machine;
    if (m.read_rate.median > 0.0) m.reading_cores *= rate / m.read_rate.median;
    if (m.reading_cores > m.n_core) m.reading_cores = m.n_core; /* its bytes were few while the disk was stalled */
    m.read_rate = (hth_sample_stats){rate, rate, rate};
    m.sequential_rate = rate;
    m.latency = m.latency_least = m.latency_most = NVME_LATENCY;
    return m;
}

/* ---- experts of which nothing is known ---------------------------------------------------------------- */

#define USUAL_STICKY 0.3

hearth_status hth_storage_usual_route(const hearth_model *m, double **frequency, hth_route_trace_spec *out,
                                      hearth_error *err)
{
    size_t n = 0;
    for (uint32_t i = 0; i < m->model->hparams.n_layer; i++)
        if (hth_has_experts(m->model->layers[i].network)) n += m->model->layers[i].experts.router.n_expert;
    *frequency = hth_alloc(n, sizeof **frequency);
    if (!*frequency) return hth_fail_memory(err, n * sizeof **frequency, "frequencies of experts");
    *out =
        (hth_route_trace_spec){.frequency = *frequency, .n_frequency = n, .sticky = USUAL_STICKY, .seed = 1};
    double *at = *frequency;
    for (uint32_t i = 0; i < m->model->hparams.n_layer; i++) {
        if (!hth_has_experts(m->model->layers[i].network)) continue;
        /* The most used eighth gets about 30 %, the most used half 70 %. */
        for (uint32_t e = 0; e < m->model->layers[i].experts.router.n_expert; e++)
            *at++ = 1.0 / hth_sqrt_d(1.0 + e);
    }
    return HEARTH_OK;
}
