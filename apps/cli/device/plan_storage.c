/* hearth plan without a GPU: which weights stay in memory, which are read when they are needed, the tokens per second to
 * expect, and what more memory or a faster disk would give. plan.c calls it. */
#include "cli/device/plan_storage.h"

#include "base/format_bytes.h"
#include "cli/measure/bench.h"
#include "common/json.h"
#include "common/model_args.h"
#include "common/placement_info.h"
#include "common/storage_forecast.h"

#include <string.h>

enum { N_MEMORY = 5, N_DISK = 2 };
static const double disks[N_DISK] = {3.5e9, 7e9};

typedef struct storage_plan {
    const args *a;
    const char *no_gpu;
    bench_route route;
    storage_forecast f;
    struct {
        uint64_t limit;
        hth_storage_speed speed;
    } memory[N_MEMORY];
    size_t n_memory;
    hth_storage_speed disk[N_DISK];
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
        uint64_t limit = now + (all - now) / N_MEMORY * i + (i == N_MEMORY ? (all - now) % N_MEMORY : 0);
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

static hearth_status make(storage_plan *p, hearth_error *err)
{
    hearth_model_options o = wanted_model(p->a, args_operand(p->a, 0), 0);
    if (o.ram == 0) o.ram = HEARTH_RAM_AUTO;
    uint32_t n = (uint32_t)args_uint(p->a, "predict", FORECAST_TOKENS);
    hearth_status st = storage_forecast_open(&p->f, args_operand(p->a, 0), &o, p->route.given ? &p->route.spec : NULL, n, err);
    if (st == HEARTH_OK) st = try_memory(p, err);
    return st == HEARTH_OK ? try_disks(p, err) : st;
}

/* What the speed is limited by. */
static const char *limit_of(const hth_storage_speed *s)
{
    if (s->disk_seconds == 0.0) return "cpu";
    return s->disk_seconds > s->compute_seconds ? "disk" : "cpu";
}

/* ---- bytes ---------------------------------------------------------------------------------------------- */

/* Of weights by what happens to them. */
typedef struct shares {
    uint64_t resident, cached, pinned, streamed, rows;
    uint32_t n_kept; /* items that the store holds */
} shares;

static uint64_t item_size(const hth_store_item *item)
{
    uint64_t size = 0;
    for (uint32_t k = 0; k < item->n_extent; k++) size += item->extents[k].size;
    return size;
}

static shares shares_of(const storage_plan *p)
{
    const hth_memory_division *d = &p->f.division;
    shares s = {.resident = d->matrices - (d->whole ? 0 : d->tables) + (d->fits ? d->streamed : 0),
                .rows = d->whole ? 0 : d->tables};
    if (d->fits) return s;
    uint64_t kept = d->store < d->streamed ? d->store : d->streamed;
    bool cached = d->items.n > 0 && d->items.items[0].residence == HTH_STORE_CACHED;
    s.n_kept = (uint32_t)(kept / (d->streamed / d->items.n));
    if (cached) s.cached = kept;
    else s.pinned = kept;
    s.streamed = d->streamed - kept;
    (void)item_size;
    return s;
}

/* ---- output --------------------------------------------------------------------------------------------- */

static void print_speed(json *j, const char *key, const hth_storage_speed *s)
{
    json_open(j, key, '{');
    json_float(j, "tokens_per_second", tokens_per_second(s->seconds), 6);
    json_float(j, "first_tokens_per_second", tokens_per_second(s->first_seconds), 6);
    json_float(j, "compute_seconds", s->compute_seconds, 6);
    json_float(j, "disk_seconds", s->disk_seconds, 6);
    json_float(j, "read_bytes", s->read_bytes, 9);
    json_float(j, "hits", s->hits, 6);
    json_close(j, '}');
}

static void print_json(const storage_plan *p)
{
    json j = json_begin(stdout);
    shares s = shares_of(p);
    print_speed(&j, "expected", &p->f.expected);
    print_speed(&j, "least", &p->f.least);
    print_speed(&j, "most", &p->f.most);
    json_word(&j, "limit", limit_of(&p->f.expected));
    json_uint(&j, "resident", s.resident);
    json_uint(&j, "cached", s.cached);
    json_float(&j, "disk", p->f.machine.read_rate.median, 6);
    json_float(&j, "seq", p->f.machine.sequential_rate, 6);
    json_float(&j, "latency", p->f.machine.latency, 6);
    json_float(&j, "cores", p->f.machine.reading_cores, 6);
    json_float(&j, "job", p->f.machine.job, 6);
    for (size_t i = 0; i < p->f.machine.n_rate; i++) {
        json_float(&j, "rows", p->f.machine.rates[i].cpu_rate.median, 6);
        json_float(&j, "packed", p->f.machine.rates[i].cpu_packed.median, 6);
    }
    for (size_t i = 0; i < p->n_memory; i++) print_speed(&j, "memory", &p->memory[i].speed);
    for (size_t i = 0; i < N_DISK; i++) print_speed(&j, "disk", &p->disk[i]);
    json_end(&j);
}

int plan_storage(const args *a, const char *no_gpu)
{
    storage_plan p = {.a = a, .no_gpu = no_gpu};
    hearth_error err;
    const char *route = args_text(a, "route", NULL);
    int status = route ? bench_parse_route("plan", route, &p.route) : 0;
    if (status) return status;
    if (!bench_read_route(&p.route)) return EXIT_OTHER;
    hearth_status st = make(&p, &err);
    if (st == HEARTH_OK) print_json(&p);
    storage_forecast_close(&p.f);
    bench_close_route(&p.route);
    return st == HEARTH_OK ? 0 : report(&err);
}
