/* hearth plan without a GPU: which weights stay in memory, which are read when they are needed, the tokens per second
 * to expect, and what more memory, a faster disk or packing would give. plan.c calls it. */
#include "cli/device/plan_storage.h"

#include "base/alloc.h"
#include "base/format_bytes.h"
#include "cli/device/calibration.h"
#include "common/json.h"
#include "common/options/model_args.h"
#include "common/placement_info.h"
#include "common/options/route_option.h"
#include "common/storage_forecast.h"

#include <stdlib.h>
#include <string.h>

enum { N_MEMORY = 5, N_DISK = 2, PROMPT_TOKENS = 512 };
static const double disks[N_DISK] = {3.5e9, 7e9};

/* The expected reads of a packed file, of which a token needs only the clusters that a predictor selects. */
typedef struct packing {
    bool applies;               /* networks are read whole now */
    double seconds, read_bytes; /* per token; 0: unknown without a profile */
} packing;

typedef struct storage_plan {
    const args *a;
    const char *no_gpu;
    route_option route;
    storage_forecast f;
    struct {
        uint64_t limit;
        hth_storage_speed speed;
    } memory[N_MEMORY];
    size_t n_memory;
    hth_storage_speed disk[N_DISK];
    packing packed;
} storage_plan;

/* ---- computing ----------------------------------------------------------------------------------------- */

/* The limit with which all weights are in memory. */
static uint64_t whole_limit(const hth_memory_division *d)
{
    return d->matrices + d->rest + d->announced + d->streamed;
}

/* Larger limits, evenly up to all in memory. */
static hearth_status try_memory(storage_plan *p, hearth_error *err)
{
    hth_memory_division d = p->f.division;
    uint64_t all = whole_limit(&d), now = d.limit;
    hearth_status st = HEARTH_OK;
    if (d.whole) return HEARTH_OK;
    for (uint64_t i = 1; i <= N_MEMORY && st == HEARTH_OK; i++) {
        uint64_t limit = i == N_MEMORY ? all : now + (all - now) / N_MEMORY * i;
        if (!hth_memory_divide_again(&d, limit)) continue;
        p->memory[p->n_memory].limit = limit;
        st = storage_forecast_at(&p->f, &d, &p->f.machine, &p->memory[p->n_memory++].speed, err);
    }
    return st;
}

static hearth_status try_disks(storage_plan *p, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    for (int i = 0; i < N_DISK && st == HEARTH_OK && !p->f.division.fits; i++) {
        const hth_storage_machine machine = hth_storage_machine_with_disk(&p->f.machine, disks[i]);
        st = storage_forecast_at(&p->f, &p->f.division, &machine, &p->disk[i], err);
    }
    return st;
}

static int compare_counts(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static int compare_shares(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The chance that any neuron of each cluster fires, of neurons in the order of how often they do: as hearth pack lays
 * them out. wanted: a number for each cluster; returns their number. */
static size_t sort_neurons(const hth_profile *profile, uint32_t *counts, double *wanted)
{
    size_t n = 0;
    for (uint32_t i = 0; i < profile->n_layer; i++) {
        uint32_t d_ff = profile->layers[i].d_ff;
        memcpy(counts, profile->layers[i].n_fired, d_ff * sizeof *counts);
        qsort(counts, d_ff, sizeof *counts, compare_counts);
        for (uint32_t at = 0; at < d_ff; n++) {
            double none = 1.0;
            for (uint32_t end = at + HTH_CLUSTER_NEURONS; at < end && at < d_ff; at++)
                none *= 1.0 - (double)counts[at] / (double)profile->n_done;
            wanted[n] = 1.0 - none;
        }
    }
    return n;
}

/* The clusters that are wanted most stay in memory, as far as it goes; a token reads others when it wants them. */
static hearth_status try_packing(storage_plan *p, hearth_error *err)
{
    const hth_memory_division *d = &p->f.division;
    const hth_model *m = p->f.model->model;
    const hth_profile *profile = p->f.profile;
    size_t n = 0;
    p->packed.applies = !d->fits && m->hparams.experts.n_expert == 0 && !m->down_transposed &&
                        hth_activation_is_sparse(m->hparams.activation);
    if (!p->packed.applies || !profile) return HEARTH_OK;
    for (uint32_t i = 0; i < profile->n_layer; i++) n += hth_n_cluster(profile->layers[i].d_ff);
    double *wanted = hth_alloc(n, sizeof *wanted);
    uint32_t *counts = hth_alloc(m->hparams.d_ff, sizeof *counts);
    if (wanted && counts) {
        double size = (double)d->streamed / (double)sort_neurons(profile, counts, wanted), sum = 0.0;
        qsort(wanted, n, sizeof *wanted, compare_shares);
        for (size_t i = (size_t)((double)d->store / size); i < n; i++) sum += wanted[i];
        p->packed.read_bytes = sum * size;
        double reading = p->packed.read_bytes / p->f.machine.read_rate.median;
        p->packed.seconds = reading > p->f.expected.compute_seconds ? reading : p->f.expected.compute_seconds;
    }
    bool ok = wanted && counts;
    hth_free(wanted);
    hth_free(counts);
    return ok ? HEARTH_OK : hth_fail_memory(err, n * sizeof *wanted, "a plan");
}

static hearth_status make(storage_plan *p, hearth_error *err)
{
    hearth_model_options o = wanted_model(p->a, args_operand(p->a, 0), 0);
    forecast_options forecast = {.route = p->route.given ? &p->route.spec : NULL,
                                 .profile = args_text(p->a, "profile", NULL),
                                 .n = (uint32_t)args_uint(p->a, "predict", FORECAST_TOKENS),
                                 .memory = HTH_CALIBRATION_SIZE};
    forecast.n_prompt = (uint32_t)args_uint(p->a, "prompt", PROMPT_TOKENS);
    forecast.n_batch = session_options(p->a, 0).n_batch;
    forecast.again = args_has(p->a, "again");
    hearth_status st = hth_engine_choose_io(&o, err);
    if (st == HEARTH_OK && o.mmap && o.ram == 0)
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                        "without a GPU plan divides a limit of memory, which mapped weights have none of; --io auto "
                        "plans for weights that are read");
    if (st != HEARTH_OK) return st;
    if (o.ram == 0) o.ram = HEARTH_RAM_AUTO;
    st = storage_forecast_open(&p->f, args_operand(p->a, 0), &o, &forecast, err);
    if (st == HEARTH_OK) st = try_memory(p, err);
    if (st == HEARTH_OK) st = try_disks(p, err);
    return st == HEARTH_OK ? try_packing(p, err) : st;
}

/* Seconds of a token in which nothing is computed, or more slowly because the cores read. */
static double wait_seconds(const storage_plan *p)
{
    double wait = p->f.expected.seconds - p->f.expected.compute_seconds;
    return wait > 0.0 ? wait : 0.0;
}

/* Whether the disk limits the speed: reads overlap with computation, and the reads take longer, or the wait for them
 * does, as with a disk of long latency. */
static bool disk_limits(const storage_plan *p)
{
    double disk = p->f.expected.disk_seconds, wait = wait_seconds(p);
    return (disk > wait ? disk : wait) > p->f.expected.compute_seconds;
}

/* ---- bytes ---------------------------------------------------------------------------------------------- */

/* Bytes of weights by what becomes of them. */
typedef struct weight_bytes {
    uint64_t resident, cached, pinned, streamed, by_rows;
    uint32_t n_kept; /* items */
} weight_bytes;

static weight_bytes divide_weights(const storage_plan *p)
{
    const hth_memory_division *d = &p->f.division;
    weight_bytes w = {.resident = d->matrices - (d->whole ? 0 : d->tables) + (d->fits ? d->streamed : 0),
                      .by_rows = d->whole ? 0 : d->tables,
                      .n_kept = d->items.n};
    if (d->fits) return w;
    uint64_t read = (uint64_t)p->f.expected.read_bytes,
             kept = d->store < d->streamed ? d->store : d->streamed;
    const hth_model *m = p->f.model->model;
    if (m->hparams.experts.n_expert > 0 || m->down_transposed) w.cached = kept;
    else
        w.pinned = kept = read < d->streamed ? d->streamed - read : 0; /* each piece is read once, or never */
    w.streamed = d->streamed - kept;
    w.n_kept = (uint32_t)((double)kept / (double)d->streamed * d->items.n);
    return w;
}

static const char *name_of_items(const storage_plan *p)
{
    const hth_model *m = p->f.model->model;
    return m->hparams.experts.n_expert > 0 ? "experts"
           : m->down_transposed            ? "bundles of neurons"
                                           : "pieces of networks";
}

/* ---- text ----------------------------------------------------------------------------------------------- */

static void print_bytes(const char *what, uint64_t bytes, const char *of)
{
    if (bytes > 0) printf("%-12s %12s  %s\n", what, hth_format_bytes(bytes).text, of);
}

static void print_memory(const storage_plan *p)
{
    const hth_memory_division *d = &p->f.division;
    weight_bytes w = divide_weights(p);
    char kept[100];
    printf("\n");
    print_bytes("resident", w.resident, d->fits ? "all weights" : "weights that every token reads");
    snprintf(kept, sizeof kept, "about %u of %u %s, %s in all", w.n_kept, d->items.n, name_of_items(p),
             hth_format_bytes(d->streamed).text);
    print_bytes("cached", w.cached, kept);
    print_bytes("pinned", w.pinned, kept);
    print_bytes("session", d->announced, "KV cache and workspace (-c, --batch)");
    print_bytes("process", d->rest, "vocabulary, buffers and others");
    print_bytes("in the file", w.streamed,
                w.cached > 0 ? "read when they are needed" : "read for each token, in order");
    print_bytes("in the file", w.by_rows, "tables, of which rows are read");
}

static void print_rates(const storage_plan *p)
{
    const hth_storage_machine *m = &p->f.machine;
    printf("\nMeasured: ");
    if (m->read_rate.median > 0.0)
        printf("%s %.2f GB/s (%.2f to %.2f), latency %.0f us (%.0f to %.0f), %.2f cores for reading; ", m->reader,
               m->read_rate.median * 1e-9, m->read_rate.min * 1e-9, m->read_rate.max * 1e-9, m->latency * 1e6,
               m->latency_least * 1e6, m->latency_most * 1e6, m->reading_cores);
    printf("rows of %s %.1f GB/s, packed %.1f GB/s (%u threads)\n",
           hth_type_find((uint32_t)m->rates[0].type)->name, m->rates[0].cpu_rate.median * 1e-9,
           m->rates[0].cpu_packed.median * 1e-9, m->n_thread);
    print_calibration_date("The cores were", m->rates[0].measured_at);
    if (strncmp(m->reader, "simulated", 9) == 0) printf("The disk is simulated.\n");
}

static void print_expected(const storage_plan *p)
{
    const storage_forecast *f = &p->f;
    const hth_storage_speed *s = &f->expected;
    printf("Expected: %.2f tokens/s (%.2f to %.2f)", tokens_per_second(s->seconds),
           tokens_per_second(f->least.seconds), tokens_per_second(f->most.seconds));
    if (f->division.fits) printf("; the CPU limits\n");
    if (f->n_prompt > 0 && f->division.fits)
        printf("A prompt of %u: %.1f tokens/s\n", f->n_prompt, tokens_per_second(f->prompt.seconds));
    if (f->division.fits) return;
    printf(" after %u tokens; these %.2f\n", f->tokens.n, tokens_per_second(s->first_seconds));
    printf("The %s limits: a token takes %.1f ms, %.1f computing and %.1f waiting for the disk, whose bytes take "
           "%.1f; %.1f MiB read",
           disk_limits(p) ? "disk" : "CPU", s->seconds * 1e3, s->compute_seconds * 1e3, wait_seconds(p) * 1e3,
           s->disk_seconds * 1e3, s->read_bytes * 0x1p-20);
    if (f->model->model->hparams.experts.n_expert > 0)
        printf(", %.1f %% of the experts in memory when asked for", s->hits * 100.0);
    printf("\n");
    if (f->n_prompt > 0)
        printf("A prompt of %u: %.1f tokens/s, a second one %.1f; %.1f MiB read for a token of it\n",
               f->n_prompt, tokens_per_second(f->prompt.first_seconds), tokens_per_second(f->prompt.seconds),
               f->prompt.first_read_bytes * 0x1p-20);
    if (f->assumed)
        printf("Experts are assumed: mildly skewed, 30 %% as for the token before; the least: all alike. "
               "--route says "
               "others.\n");
    else if (p->route.given)
        printf("Experts are %s: %s\n", p->route.is_trace ? "recorded" : "drawn",
               describe_route(&p->route, p->f.model->model).text);
}

static void print_others(const storage_plan *p)
{
    if (p->n_memory == 0) return;
    printf("\n%-22s %10s\n", "with memory of", "tokens/s");
    for (size_t i = 0; i < p->n_memory; i++)
        printf("%-22s %10.2f%s\n", hth_format_bytes(p->memory[i].limit).text,
               tokens_per_second(p->memory[i].speed.seconds), i + 1 == p->n_memory ? "  all in memory" : "");
    for (int i = 0; i < N_DISK && !p->f.division.fits; i++)
        printf("a disk of %.1f GB/s %13.2f\n", disks[i] * 1e-9, tokens_per_second(p->disk[i].seconds));
    if (p->packed.seconds > 0.0)
        printf("packed, with predictors %9.2f  at most: %.1f MiB read for a token (hearth predictors, hearth "
               "pack)\n",
               tokens_per_second(p->packed.seconds), p->packed.read_bytes * 0x1p-20);
    else if (p->packed.applies)
        printf("packed, with predictors   unknown  without --profile (hearth profile, hearth predictors, "
               "hearth pack)\n");
}

static void print_text(const storage_plan *p)
{
    const hearth_model_info info = model_info(p->f.model);
    printf("%s, %s of weights, selector %s, memory of %s%s%s\n", printable(args_operand(p->a, 0)),
           hth_format_bytes(info.weight_bytes).text, hearth_selector_name(info.selector),
           hth_format_bytes(p->f.division.limit).text, *p->no_gpu ? "; " : "", p->no_gpu);
    if (info.synthetic) printf("The weights are synthetic.\n");
    print_memory(p);
    print_rates(p);
    print_expected(p);
    print_others(p);
}

/* ---- JSON ----------------------------------------------------------------------------------------------- */

static void json_memory(json *j, const storage_plan *p)
{
    const hth_memory_division *d = &p->f.division;
    weight_bytes w = divide_weights(p);
    json_open(j, "memory", '{');
    json_uint(j, "limit_bytes", d->limit);
    json_uint(j, "least_bytes", d->least);
    json_uint(j, "whole_bytes", whole_limit(d));
    json_bool(j, "fits", d->fits);
    json_uint(j, "resident_bytes", w.resident);
    json_uint(j, "cached_bytes", w.cached);
    json_uint(j, "pinned_bytes", w.pinned);
    json_uint(j, "streamed_bytes", w.streamed);
    json_uint(j, "table_bytes", w.by_rows);
    json_uint(j, "session_bytes", d->announced);
    json_uint(j, "process_bytes", d->rest);
    json_uint(j, "parts", d->items.n);
    json_uint(j, "parts_in_memory", w.n_kept);
    json_close(j, '}');
}

static void json_machine(json *j, const storage_plan *p)
{
    const hth_storage_machine *m = &p->f.machine;
    if (m->read_rate.median > 0.0) {
        json_open(j, "disk", '{');
        json_word(j, "reader", m->reader);
        json_float(j, "bytes_per_second", m->read_rate.median, 6);
        json_float(j, "bytes_per_second_least", m->read_rate.min, 6);
        json_float(j, "bytes_per_second_most", m->read_rate.max, 6);
        json_float(j, "sequential_bytes_per_second", m->sequential_rate, 6);
        json_float(j, "latency_seconds", m->latency, 6);
        json_float(j, "latency_seconds_least", m->latency_least, 6);
        json_float(j, "latency_seconds_most", m->latency_most, 6);
        json_float(j, "cores", m->reading_cores, 6);
        json_close(j, '}');
    }
    json_open(j, "cpu", '[');
    for (size_t i = 0; i < m->n_rate; i++) {
        json_open_compact(j, NULL, '{');
        json_word(j, "type", hth_type_find((uint32_t)m->rates[i].type)->name);
        json_float(j, "row_bytes_per_second", m->rates[i].cpu_rate.median, 6);
        json_float(j, "packed_bytes_per_second", m->rates[i].cpu_packed.median, 6);
        json_int(j, "measured_at", m->rates[i].measured_at);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void json_others(json *j, const storage_plan *p)
{
    json_open(j, "with_memory", '[');
    for (size_t i = 0; i < p->n_memory; i++) {
        json_open_compact(j, NULL, '{');
        json_uint(j, "limit_bytes", p->memory[i].limit);
        json_float(j, "tokens_per_second", tokens_per_second(p->memory[i].speed.seconds), 6);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_open(j, "with_disk", '[');
    for (int i = 0; i < N_DISK && !p->f.division.fits; i++) {
        json_open_compact(j, NULL, '{');
        json_float(j, "bytes_per_second", disks[i], 6);
        json_float(j, "tokens_per_second", tokens_per_second(p->disk[i].seconds), 6);
        json_close(j, '}');
    }
    json_close(j, ']');
    if (p->packed.seconds > 0.0)
        json_float(j, "packed_tokens_per_second_most", tokens_per_second(p->packed.seconds), 6);
}

static void print_json(const storage_plan *p)
{
    const storage_forecast *f = &p->f;
    const hth_storage_speed *s = &f->expected;
    const hearth_model_info info = model_info(f->model);
    json j = json_begin(stdout);
    json_word(&j, "model", args_operand(p->a, 0));
    if (info.synthetic) json_bool(&j, "synthetic_weights", true);
    json_word(&j, "selector", hearth_selector_name(info.selector));
    if (*p->no_gpu) json_word(&j, "no_gpu", p->no_gpu);
    json_uint(&j, "threads", f->machine.n_thread);
    json_memory(&j, p);
    json_machine(&j, p);
    if (f->assumed) json_bool(&j, "assumed_experts", true);
    json_route(&j, &p->route, f->model->model);
    json_uint(&j, "tokens", f->tokens.n);
    json_float(&j, "tokens_per_second", tokens_per_second(s->seconds), 6);
    json_float(&j, "tokens_per_second_least", tokens_per_second(f->least.seconds), 6);
    json_float(&j, "tokens_per_second_most", tokens_per_second(f->most.seconds), 6);
    json_float(&j, "tokens_per_second_first", tokens_per_second(s->first_seconds), 6);
    json_word(&j, "limited_by", disk_limits(p) ? "disk" : "cpu");
    json_float(&j, "compute_seconds", s->compute_seconds, 6);
    json_float(&j, "disk_seconds", s->disk_seconds, 6);
    json_float(&j, "read_bytes", s->read_bytes, 9);
    json_float(&j, "hits", s->hits, 6);
    if (f->n_prompt > 0) {
        json_uint(&j, "prompt_tokens", f->n_prompt);
        json_float(&j, "prompt_tokens_per_second", tokens_per_second(f->prompt.seconds), 6);
        json_float(&j, "prompt_read_bytes", f->prompt.read_bytes, 9);
        json_float(&j, "prompt_tokens_per_second_first", tokens_per_second(f->prompt.first_seconds), 6);
        json_float(&j, "prompt_read_bytes_first", f->prompt.first_read_bytes, 9);
    }
    json_others(&j, p);
    json_end(&j);
}

int plan_storage(const args *a, const char *no_gpu)
{
    storage_plan p = {.a = a, .no_gpu = no_gpu};
    hearth_error err;
    const char *route = args_text(a, "route", NULL);
    int status = route ? parse_route("plan", route, &p.route) : 0;
    if (status) return status;
    if (!read_route(&p.route)) return EXIT_OTHER;
    hearth_status st = make(&p, &err);
    if (st == HEARTH_OK && args_has(a, "json")) print_json(&p);
    else if (st == HEARTH_OK) print_text(&p);
    storage_forecast_close(&p.f);
    close_route(&p.route);
    return st == HEARTH_OK ? 0 : report(&err);
}
