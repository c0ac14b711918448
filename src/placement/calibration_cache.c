/* Disk cache of calibrations: one file per machine and device, one record per weight type. */
#define _GNU_SOURCE
#include "placement/calibrate.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/disk_cache.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Incremented when what is measured changes. */
enum { VERSION = 12, MAX_TYPES = 32 };

typedef struct cached {
    size_t n;
    hth_calibration *types; /* freed by hth_free */
} cached;

static void name_of(uint64_t fingerprint, char name[HTH_DISKCACHE_NAME])
{
    snprintf(name, HTH_DISKCACHE_NAME, "calibration-%016llx", (unsigned long long)fingerprint);
}

static cached read_cached(uint64_t fingerprint)
{
    char name[HTH_DISKCACHE_NAME];
    size_t n;
    name_of(fingerprint, name);
    uint8_t *bytes = hth_diskcache_get(name, fingerprint, &n);
    if (bytes && n % sizeof(hth_calibration) == 0 && n / sizeof(hth_calibration) <= MAX_TYPES)
        return (cached){n / sizeof(hth_calibration), (hth_calibration *)(void *)bytes};
    hth_free(bytes);
    return (cached){0, NULL};
}

static uint64_t add_text(uint64_t fingerprint, const char *text)
{
    return hth_hash_more(fingerprint, text, strlen(text) + 1);
}

uint64_t hth_calibration_fingerprint(const hth_device_info *info, const hth_kernels *kernels, uint32_t n_thread)
{
    struct utsname system = {0};
    uint64_t numbers[] = {VERSION,
                          sizeof(hth_calibration),
                          kernels->level,
                          n_thread,
                          info->kind,
                          info->memory,
                          info->features,
                          (uint64_t)sysconf(_SC_PHYS_PAGES),
                          (uint64_t)sysconf(_SC_NPROCESSORS_CONF)};
    uname(&system);
    uint64_t fingerprint = hth_hash(numbers, sizeof numbers);
    fingerprint = add_text(add_text(fingerprint, system.nodename), system.machine);
    fingerprint = add_text(add_text(fingerprint, info->name), info->driver);
    return hth_hash_more(fingerprint, info->uuid, sizeof info->uuid);
}

uint64_t hth_calibration_cpu_fingerprint(const hth_kernels *kernels, uint32_t n_thread)
{
    const hth_device_info none = {.name = "this CPU"};
    return hth_calibration_fingerprint(&none, kernels, n_thread);
}

static bool are_above_zero(const double *figures, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(figures[i] > 0.0 && figures[i] < 1e18)) return false;
    return true;
}

static bool are_not_negative(const double *figures, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(figures[i] >= 0.0 && figures[i] < 1e18)) return false;
    return true;
}

/* Whether a plan can use it: each figure is finite and above zero. */
static bool is_sound(const hth_calibration *c)
{
    double cpu[] = {c->cpu_rate.min, c->cpu_rate.median, c->cpu_rate.max};
    double figures[] = {c->device_rate.min,
                        c->device_rate.median,
                        c->device_rate.max,
                        c->sync_latency[0],
                        c->sync_latency[1],
                        c->sync_latency_99[0],
                        c->sync_latency_99[1],
                        c->dispatch,
                        c->h2d_rate,
                        c->d2h_rate};
    if (!are_above_zero(cpu, sizeof cpu / sizeof *cpu) || !are_above_zero(c->cpu_down, HTH_PLAN_N_KNOT)) return false;
    const double alone[] = {c->cpu_packed.median, c->cpu_packed.max, c->cpu_prompt, c->cpu_prompt_rows,
                            c->cpu_attention};
    if (c->bytes == 0) return are_above_zero(alone, sizeof alone / sizeof *alone); /* without a device */
    if (!are_above_zero(figures, sizeof figures / sizeof *figures)) return false;
    const double others[] = {c->device_prompt, c->cpu_prompt, c->pack_rate, c->read_rate}; /* 0: unknown, or not at all */
    return are_not_negative(others, sizeof others / sizeof *others) && are_not_negative(c->device_prompts, HTH_N_COOPMAT_LEVEL);
}

bool hth_calibration_cache_load(uint64_t fingerprint, hth_type type, uint64_t bytes, hth_calibration *out)
{
    cached all = read_cached(fingerprint);
    bool found = false;
    for (size_t i = 0; i < all.n && !found; i++) {
        const hth_calibration *c = &all.types[i];
        if (c->type != type || c->bytes < bytes || !is_sound(c)) continue;
        *out = *c;
        found = true;
    }
    hth_free(all.types);
    return found;
}

void hth_calibration_cache_store(uint64_t fingerprint, const hth_calibration *c)
{
    char name[HTH_DISKCACHE_NAME];
    hth_calibration list[MAX_TYPES];
    cached before = read_cached(fingerprint);
    size_t n = 0;
    memset(list, 0, sizeof list);
    list[n++] = *c;
    for (size_t i = 0; i < before.n && n < MAX_TYPES; i++)
        if (before.types[i].type != c->type) list[n++] = before.types[i];
    hth_free(before.types);
    name_of(fingerprint, name);
    hth_diskcache_put(name, fingerprint, list, n * sizeof *list);
}

bool hth_calibration_cache_doubt(uint64_t fingerprint, hth_type type, double ratio)
{
    enum { MOST = 2 }; /* a machine that is busy in every other run must not measure for ever */
    hth_calibration c;
    bool is_off = ratio > 1.0 + HTH_CALIBRATION_TOLERANCE || ratio < 1.0 - HTH_CALIBRATION_TOLERANCE;
    if (!is_off || !hth_calibration_cache_load(fingerprint, type, 0, &c)) return false;
    bool same_side = c.n_doubt > 0 && (ratio > 1.0) == (c.doubt_ratio > 1.0);
    if (c.is_doubted || c.n_doubt >= MOST || same_side) return false;
    c.doubt_ratio = ratio, c.n_doubt++, c.is_doubted = true;
    hth_calibration_cache_store(fingerprint, &c);
    return true;
}

/* ---- rows for many tokens ------------------------------------------------------------------------------ */

/* The record of a type in the file of a device. */
typedef struct prompts {
    uint64_t type;
    double rates[HTH_N_COOPMAT_LEVEL];
} prompts;

/* The file name and the key of prompt rates, which depend only on the device. */
static uint64_t name_prompts(const hth_device_info *info, char name[HTH_DISKCACHE_NAME])
{
    uint64_t numbers[] = {VERSION, sizeof(prompts), info->kind, info->features};
    uint64_t key = add_text(add_text(hth_hash(numbers, sizeof numbers), info->name), info->driver);
    key = hth_hash_more(key, info->uuid, sizeof info->uuid);
    snprintf(name, HTH_DISKCACHE_NAME, "prompts-%016llx", (unsigned long long)key);
    return key;
}

static size_t read_prompts(const hth_device_info *info, prompts out[MAX_TYPES])
{
    char name[HTH_DISKCACHE_NAME];
    size_t n = 0;
    uint64_t key = name_prompts(info, name);
    uint8_t *bytes = hth_diskcache_get(name, key, &n);
    if (!bytes || n % sizeof *out != 0 || n / sizeof *out > MAX_TYPES) n = 0;
    if (n > 0) memcpy(out, bytes, n);
    hth_free(bytes);
    return n / sizeof *out;
}

bool hth_calibration_cache_load_prompts(const hth_device_info *info, hth_type type, double rates[HTH_N_COOPMAT_LEVEL])
{
    prompts all[MAX_TYPES];
    size_t n = read_prompts(info, all);
    for (size_t i = 0; i < n; i++) {
        if (all[i].type != type || !are_above_zero(all[i].rates, 1) ||
            !are_not_negative(all[i].rates, HTH_N_COOPMAT_LEVEL))
            continue;
        memcpy(rates, all[i].rates, sizeof all[i].rates);
        return true;
    }
    return false;
}

void hth_calibration_cache_store_prompts(const hth_device_info *info, hth_type type,
                                         const double rates[HTH_N_COOPMAT_LEVEL])
{
    char name[HTH_DISKCACHE_NAME];
    prompts before[MAX_TYPES], all[MAX_TYPES];
    size_t n_before = read_prompts(info, before), n = 0;
    memset(all, 0, sizeof all);
    all[n].type = type;
    memcpy(all[n++].rates, rates, sizeof all[0].rates);
    for (size_t i = 0; i < n_before && n < MAX_TYPES; i++)
        if (before[i].type != type) all[n++] = before[i];
    uint64_t key = name_prompts(info, name);
    hth_diskcache_put(name, key, all, n * sizeof *all);
}

/* ---- calibrations of devices ---------------------------------------------------------------------------- */

static bool is_among(hth_type type, const hth_type *types, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (types[i] == type) return true;
    return false;
}

void hth_calibration_cache_evict_others(uint64_t fingerprint, const hth_type *types, size_t n)
{
    char name[HTH_DISKCACHE_NAME];
    cached all = read_cached(fingerprint);
    size_t n_left = 0;
    for (size_t i = 0; i < all.n; i++)
        if (is_among(all.types[i].type, types, n)) all.types[n_left++] = all.types[i];
    name_of(fingerprint, name);
    if (n_left < all.n) hth_diskcache_put(name, fingerprint, all.types, n_left * sizeof *all.types);
    hth_free(all.types);
}

hearth_status hth_calibration_cache_get(hth_device *device, const hth_kernels *kernels, hth_pool *pool,
                                  hth_type type, bool again, hth_calibration *out, hearth_error *err)
{
    const hth_device_info *info = hth_device_get_info(device);
    bool cacheable = info->kind != HTH_DEVICE_SIMULATED;
    uint64_t fingerprint = hth_calibration_fingerprint(info, kernels, hth_pool_n_thread(pool));
    hth_calibration last = {0};
    if (cacheable && !again && hth_calibration_cache_load(fingerprint, type, 0, &last) && !last.is_doubted &&
        last.bytes >= hth_calibration_bytes(device, type)) {
        *out = last;
        return HEARTH_OK;
    }
    if (info->host_rate == 0.0) /* the description gives all figures: nothing is measured, and it takes no time */
        hth_log(HEARTH_LOG_INFO, "measuring %s and this CPU with weights of %s, for plans: some seconds",
                info->name, hth_type_find((uint32_t)type)->name);
    hearth_status st = hth_calibrate(device, kernels, pool, type, out, err);
    out->measured_at = info->host_rate == 0.0 ? hth_clock_unix_s() : 0;
    out->n_doubt = last.n_doubt, out->is_doubted = false, out->doubt_ratio = last.doubt_ratio;
    if (st == HEARTH_OK && cacheable) hth_calibration_cache_store(fingerprint, out);
    return st;
}

hearth_status hth_calibration_cache_get_cpu(const hth_kernels *kernels, hth_pool *pool, hth_type type,
                                            uint64_t max_size, hth_calibration *out, hearth_error *err)
{
    uint64_t fingerprint = hth_calibration_cpu_fingerprint(kernels, hth_pool_n_thread(pool));
    if (hth_calibration_cache_load(fingerprint, type, 0, out)) return HEARTH_OK;
    hth_log(HEARTH_LOG_INFO, "measuring this CPU with weights of %s, for plans", hth_type_find((uint32_t)type)->name);
    *out = (hth_calibration){.type = type, .measured_at = hth_clock_unix_s()};
    hearth_status st = hth_calibrate_cpu(kernels, pool, type, max_size, out, err);
    if (st == HEARTH_OK) st = hth_calibrate_cpu_prompts(kernels, pool, type, out, err);
    if (st == HEARTH_OK) st = hth_calibrate_attention(kernels, pool, out, err);
    if (st == HEARTH_OK && max_size >= HTH_CALIBRATION_SIZE) hth_calibration_cache_store(fingerprint, out);
    return st;
}
