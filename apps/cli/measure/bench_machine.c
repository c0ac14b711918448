/* hearth bench --limits: limits of the memory, cores and threads of this machine, without a model. Other
 * results are compared with them; bench/ measures them before each sample. docs/bench.md lists the fields of
 * --json. */
#include "base/alloc.h"
#include "cli/measure/bench.h"
#include "common/json.h"
#include "common/output.h"
#include "common/terminal/table.h"
#include "measure/machine/limits.h"
#include "measure/machine/machine.h"
#include "base/sample_stats.h"

#include <stdlib.h>

enum { MAX_REPEAT = 1000 };

/* Results for one number of threads. */
typedef struct thread_limits {
    uint32_t n_thread;
    hth_sample_stats bandwidth[HTH_N_BANDWIDTH_LOOP], peak[HTH_PEAK_MAX]; /* bytes, rounds per second */
} thread_limits;

typedef struct limits {
    hth_cpu level;
    hth_peak_probe cores;
    size_t n_repeat, n_set;
    thread_limits sets[2]; /* one thread; all threads, if that is another number */
    uint64_t huge_bytes;   /* bytes of the memory region on huge pages */
    hth_sample_stats clock, latency, spin, wake, job;
    double samples[HTH_N_BANDWIDTH_LOOP + HTH_PEAK_MAX][MAX_REPEAT];
} limits;

/* ---- measurement ---------------------------------------------------------------------- */

/* Interleaves loops of memory and of cores, so that a change of the machine affects all alike. */
static void measure_set(limits *l, thread_limits *set, hth_bandwidth_probe *region, hth_pool *pool)
{
    set->n_thread = hth_pool_n_thread(pool);
    hth_bandwidth_measure(region, pool); /* wakes the threads and touches the pages */
    for (size_t r = 0; r < l->n_repeat; r++) {
        for (int i = 0; i < HTH_N_BANDWIDTH_LOOP; i++)
            l->samples[i][r] = hth_bandwidth_pass(region, (hth_bandwidth_loop)i, pool);
        for (size_t i = 0; i < l->cores.n; i++)
            l->samples[HTH_N_BANDWIDTH_LOOP + i][r] =
                hth_peak_measure(&l->cores.peaks[i], l->cores.n_round[i], pool);
    }
    for (int i = 0; i < HTH_N_BANDWIDTH_LOOP; i++)
        set->bandwidth[i] = hth_sample_stats_of(l->samples[i], l->n_repeat);
    for (size_t i = 0; i < l->cores.n; i++)
        set->peak[i] = hth_sample_stats_of(l->samples[HTH_N_BANDWIDTH_LOOP + i], l->n_repeat);
}

static hearth_status measure_sets(limits *l, hth_bandwidth_probe *region, uint32_t n_thread,
                                  hearth_error *err)
{
    const uint32_t counts[] = {1, n_thread};
    for (size_t i = 0; i < (n_thread > 1 ? 2 : 1); i++) {
        hth_pool *pool;
        hearth_status st = hth_pool_open(counts[i], &pool, err);
        if (st != HEARTH_OK) return st;
        measure_set(l, &l->sets[l->n_set++], region, pool);
        if (i == 1)
            for (size_t r = 0; r < l->n_repeat; r++) l->samples[0][r] = hth_pool_job_measure(pool);
        hth_pool_close(pool);
    }
    if (n_thread > 1) l->job = hth_sample_stats_of(l->samples[0], l->n_repeat);
    return HEARTH_OK;
}

static hearth_status measure_waits(limits *l, hth_bandwidth_probe *region, hearth_error *err)
{
    hth_latency_probe chain;
    hearth_status st = HEARTH_OK;
    hth_latency_open(&chain, region);
    for (size_t r = 0; st == HEARTH_OK && r < l->n_repeat; r++) {
        hth_thread_latency h;
        st = hth_thread_latency_measure(&h, err);
        l->samples[0][r] = hth_latency_measure(&chain);
        l->samples[1][r] = hth_clock_rate();
        l->samples[2][r] = h.spin;
        l->samples[3][r] = h.wake;
    }
    l->latency = hth_sample_stats_of(l->samples[0], l->n_repeat);
    l->clock = hth_sample_stats_of(l->samples[1], l->n_repeat);
    l->spin = hth_sample_stats_of(l->samples[2], l->n_repeat);
    l->wake = hth_sample_stats_of(l->samples[3], l->n_repeat);
    return st;
}

static hearth_status measure(limits *l, uint32_t n_thread, hearth_error *err)
{
    hth_bandwidth_probe region = {0};
    uint64_t before = hth_huge_page_bytes();
    hearth_status st = hth_cpu_choose(NULL, &l->level, err);
    if (st == HEARTH_OK) st = hth_bandwidth_open(&region, BENCH_REGION_SIZE, err);
    if (st == HEARTH_OK) {
        uint64_t after = hth_huge_page_bytes();
        l->huge_bytes = after > before ? after - before : 0;
        if (l->huge_bytes > BENCH_REGION_SIZE) l->huge_bytes = BENCH_REGION_SIZE;
        hth_peak_probe_open(&l->cores, l->level);
        st = measure_sets(l, &region, n_thread, err);
    }
    if (st == HEARTH_OK) st = measure_waits(l, &region, err);
    hth_bandwidth_close(&region);
    return st;
}

/* ---- results ---------------------------------------------------------------------------- */

static double best_bandwidth(const thread_limits *set)
{
    double best = 0.0;
    for (int i = 0; i < HTH_N_BANDWIDTH_LOOP; i++)
        if (set->bandwidth[i].median > best) best = set->bandwidth[i].median;
    return best;
}

/* Operations per second of the fastest loop of a kind; 0: the level has none. */
static double best_peak(const limits *l, const thread_limits *set, hth_peak_kind kind)
{
    double best = 0.0;
    for (size_t i = 0; i < l->cores.n; i++) {
        double rate = 2.0 * set->peak[i].median * l->cores.peaks[i].n_product;
        if (l->cores.peaks[i].kind == kind && rate > best) best = rate;
    }
    return best;
}

static void print_spread(const hth_sample_stats *s, double factor, int digits, const char *unit)
{
    table_add(" %.*f (%.*f-%.*f) %s |", digits, s->median * factor, digits, s->min * factor, digits,
           s->max * factor, unit);
}

static void print_wait(const char *what, const hth_sample_stats *s, double factor, int digits,
                       const char *unit)
{
    table_add("| %s |", what);
    print_spread(s, factor, digits, unit);
    table_add("\n");
}

static void print_text(const limits *l)
{
    printf("%s, medians (min-max) of %zu\n\n", hth_cpu_name(l->level), l->n_repeat);
    table_begin(0);
    table_add("| memory, %d MiB, %.0f %% on huge pages |", BENCH_REGION_SIZE >> 20,
              100.0 * (double)l->huge_bytes / BENCH_REGION_SIZE);
    for (size_t s = 0; s < l->n_set; s++) table_add(" %u thread(s) |", l->sets[s].n_thread);
    table_add("\n|---|%s\n", l->n_set > 1 ? "---|---|" : "---|");
    for (int i = 0; i < HTH_N_BANDWIDTH_LOOP; i++) {
        table_add("| %s |", hth_bandwidth_name((hth_bandwidth_loop)i));
        for (size_t s = 0; s < l->n_set; s++) print_spread(&l->sets[s].bandwidth[i], 1e-9, 1, "GB/s");
        table_add("\n");
    }
    for (size_t i = 0; i < l->cores.n; i++) {
        const hth_peak *p = &l->cores.peaks[i];
        table_add("| %s, %s |", p->name, hth_peak_kind_name(p->kind));
        for (size_t s = 0; s < l->n_set; s++)
            print_spread(&l->sets[s].peak[i], 2e-9 * p->n_product, 0, "GOP/s");
        table_add("\n");
    }
    table_end();
    printf("\n");
    table_begin(0);
    table_add("| waits | |\n|---|---|\n");
    if (l->clock.median > 0.0) print_wait("clock", &l->clock, 1e-9, 2, "GHz");
    print_wait("latency of memory", &l->latency, 1.0, 0, "ns");
    print_wait("answer of a spinning thread, round trip", &l->spin, 1.0, 0, "ns");
    if (l->spin.median > l->wake.median)
        table_add("| (a spinning thread later than a sleeping one: other programs keep a core busy) | |\n");
    print_wait("answer of a sleeping thread", &l->wake, 1e-3, 1, "us");
    if (l->n_set > 1) print_wait("empty job on all threads", &l->job, 1e-3, 2, "us");
    table_end();
}

static void spread_json(json *j, const char *key, const hth_sample_stats *s, double factor)
{
    json_open_compact(j, key, '{');
    json_float(j, "median", s->median * factor, 6);
    json_float(j, "min", s->min * factor, 6);
    json_float(j, "max", s->max * factor, 6);
    json_close(j, '}');
}

static void set_json(json *j, const limits *l, const thread_limits *set)
{
    static const char *const keys[] = {"int8_operations_per_second", "fp32_operations_per_second",
                                       "bf16_operations_per_second"};
    json_open(j, NULL, '{');
    json_uint(j, "threads", set->n_thread);
    json_float(j, "bytes_per_second", best_bandwidth(set), 6);
    for (int k = 0; k < HTH_N_PEAK_KIND; k++) {
        double best = best_peak(l, set, (hth_peak_kind)k);
        if (best > 0.0) json_float(j, keys[k], best, 6);
    }
    json_open(j, "memory", '[');
    for (int i = 0; i < HTH_N_BANDWIDTH_LOOP; i++) {
        json_open(j, NULL, '{');
        json_word(j, "loop", hth_bandwidth_name((hth_bandwidth_loop)i));
        spread_json(j, "bytes_per_second", &set->bandwidth[i], 1.0);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_open(j, "peaks", '[');
    for (size_t i = 0; i < l->cores.n; i++) {
        const hth_peak *p = &l->cores.peaks[i];
        json_open(j, NULL, '{');
        json_word(j, "instructions", p->name);
        json_word(j, "type", hth_peak_kind_name(p->kind));
        spread_json(j, "instructions_per_second", &set->peak[i], p->n_instruction);
        spread_json(j, "operations_per_second", &set->peak[i], 2.0 * p->n_product);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_close(j, '}');
}

static void print_json(const limits *l)
{
    json j = json_begin(stdout);
    json_word(&j, "cpu", hth_cpu_name(l->level));
    json_uint(&j, "repeat", l->n_repeat);
    json_uint(&j, "region_bytes", BENCH_REGION_SIZE);
    json_uint(&j, "huge_page_bytes", l->huge_bytes);
    json_open(&j, "limits", '[');
    for (size_t s = 0; s < l->n_set; s++) set_json(&j, l, &l->sets[s]);
    json_close(&j, ']');
    if (l->clock.median > 0.0) spread_json(&j, "clock_hz", &l->clock, 1.0);
    spread_json(&j, "latency_ns", &l->latency, 1.0);
    spread_json(&j, "spinning_thread_ns", &l->spin, 1.0);
    spread_json(&j, "sleeping_thread_ns", &l->wake, 1.0);
    if (l->n_set > 1) spread_json(&j, "empty_job_ns", &l->job, 1.0);
    json_end(&j);
}

/* ---- entry point -------------------------------------------------------------------------- */

int bench_limits(const args *a)
{
    static const char *const others[] = {"prompt", "predict", "parallel", "depth", "ctx",    "kv",  "io",   "mmap",      "batch",
                                         "bf16-dot", "fire",  "file",     "chunks", "gpu",  "vram", "placement", "gpu-strict"};
    hearth_error err;
    if (args_operand(a, 0)) return usage_error("bench --limits looks at the machine: it takes no model");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (args_has(a, others[i])) return usage_error("bench --limits has no use for --%s", others[i]);
    limits *l = calloc(1, sizeof *l);
    if (!l) return report_text("out of memory");
    l->n_repeat = args_uint(a, "repeat", 5);
    install_signal_handlers();
    interrupt_at_once(true);
    int status = 0;
    if (measure(l, hth_pool_default_threads((uint32_t)args_uint(a, "threads", 0)), &err) != HEARTH_OK)
        status = report(&err);
    else if (args_has(a, "json")) print_json(l);
    else print_text(l);
    free(l);
    return status;
}
