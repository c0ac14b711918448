/* Devices: enumeration, opening, device loss, and fault injection for tests. Each interface call that can fail
 * goes through hth_device_begin_call and hth_device_end_call, so that a lost device fails at once. */
#include "base/alloc.h"
#include "base/clock.h"
#include "device/device_int.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Fault injection for devices that code other than the test opens. */
static _Atomic uint64_t opened_fail_at;
static _Atomic int opened_fail_with;
static _Atomic bool opened_failed;
static _Atomic bool opened_times_commands;

hearth_status hth_device_begin_call(hth_device *d, hearth_error *err)
{
    d->n_call++;
    if (d->n_call >= d->fail_at && d->n_call < d->fail_end && !d->lost) {
        atomic_store(&opened_failed, true);
        d->lost = d->fail_with == HEARTH_ERROR_DEVICE;
        return hth_fail(err, d->fail_with, "%s: a test made call %llu fail", d->info.name,
                        (unsigned long long)d->n_call);
    }
    if (d->lost) return hth_fail(err, HEARTH_ERROR_DEVICE, "%s was lost", d->info.name);
    for (size_t i = 0; i < d->n_fault; i++) {
        const hth_fault *f = &d->faults[i];
        if (f->call + 1 != d->n_call) continue; /* counted from after the opening */
        d->lost = f->status == HEARTH_ERROR_DEVICE;
        return hth_fail(err, f->status, "%s: its description makes call %llu fail: %s", d->info.name,
                        (unsigned long long)f->call, f->what);
    }
    return HEARTH_OK;
}

hearth_status hth_device_end_call(hth_device *d, hearth_status st)
{
    if (st == HEARTH_ERROR_DEVICE) d->lost = true;
    return st;
}

/* ---- enumeration --------------------------------------------------------------------------------- */

#if HTH_VULKAN
static hearth_status list_vulkan(hth_device_info *out, size_t capacity, size_t *n, hearth_error *err)
{
    return hth_vk_list(out, capacity, n, err);
}
static const hth_backend *const vulkan = &hth_backend_vulkan;
#else
static hearth_status list_vulkan(hth_device_info *out, size_t capacity, size_t *n, hearth_error *err)
{
    (void)out, (void)capacity;
    *n = 0;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "this build has no Vulkan");
}
static const hth_backend *const vulkan = NULL;
#endif

bool hth_device_has_vulkan(void) { return vulkan != NULL; }

void hth_device_list(hth_device_info *out, size_t capacity, size_t *n, char note[200])
{
    hearth_error err = {0};
    list_vulkan(out, capacity, n, &err);
    snprintf(note, 200, "%.199s", err.message);
}

bool hth_device_is_usable_gpu(const hth_device_info *info)
{
    return info->kind == HTH_DEVICE_DISCRETE && !info->unsupported_reason[0];
}

/* Loaders list the GPU of the screen first, and a card once for each of its drivers. */
static bool is_better(const hth_device_info *a, const hth_device_info *b)
{
    if (!hth_device_is_usable_gpu(a) || !b) return hth_device_is_usable_gpu(a);
    if (a->memory != b->memory) return a->memory > b->memory;
    return __builtin_popcount(a->features) > __builtin_popcount(b->features);
}

size_t hth_device_best(const hth_device_info *found, size_t n)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++)
        if (is_better(&found[i], best < n ? &found[best] : NULL)) best = i;
    return best;
}

bool hth_device_find_discrete(char name[32])
{
    hth_device_info found[HTH_MAX_DEVICE];
    char note[200];
    size_t n;
    hth_device_list(found, HTH_MAX_DEVICE, &n, note);
    size_t best = hth_device_best(found, n);
    if (best < n) snprintf(name, 32, "vulkan:%zu", best);
    return best < n;
}

hearth_status hth_device_split_names(const char *list, hth_device_names *out, hearth_error *err)
{
    out->n = 0;
    for (const char *p = list;; p++) {
        size_t n = strcspn(p, ",");
        if (out->n == HEARTH_MAX_GPU)
            return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%.200s: more than %d devices", list,
                            HEARTH_MAX_GPU);
        if (n >= HTH_DEVICE_NAME)
            return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%.200s...: the name of a device is too long", p);
        char *name = out->all[out->n++];
        memcpy(name, p, n);
        name[n] = '\0';
        bool alone = out->n == 1 && !p[n];
        if (!alone && (n == 0 || strcmp(name, "auto") == 0 || strcmp(name, "none") == 0))
            return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                            "%.200s: names of several devices are wanted, as in vulkan:0,vulkan:1: not '%s'",
                            list, name);
        p += n;
        if (!*p) return HEARTH_OK;
    }
}

uint64_t hth_device_free_memory(const hth_device_info *info)
{
    const uint64_t most = (uint64_t)512 << 20, least = (uint64_t)256 << 20, quarter = info->memory / 4;
    uint64_t has = info->budget > 0 && info->budget < info->memory ? info->budget : info->memory;
    uint64_t margin = quarter < least ? least : quarter < most ? quarter : most;
    if (info->memory / 20 > margin) margin = info->memory / 20;
    return info->kind == HTH_DEVICE_REF ? has : has > margin ? has - margin : 0;
}

uint64_t hth_device_submit_timeout_ns(const hth_device_info *info)
{
    return (info->kind == HTH_DEVICE_DISCRETE ? 10u : 600u) * (uint64_t)1000000000;
}

enum { UUID_DIGITS = 32, DASHED_DIGITS = 36 };

static bool is_uuid(const char *name)
{
    return strlen(name) == UUID_DIGITS && strspn(name, "0123456789abcdef") == UUID_DIGITS;
}

/* Accepts 32 hex digits, or 8-4-4-4-12 with dashes, in either case; writes 32 lower-case digits. false: not a
 * UUID. */
static bool read_uuid(const char *name, char digits[UUID_DIGITS + 1])
{
    size_t n = 0, length = strlen(name);
    bool dashed = length == DASHED_DIGITS;
    if (!dashed && length != UUID_DIGITS) return false;
    for (size_t i = 0; i < length; i++) {
        bool dash = dashed && (i == 8 || i == 13 || i == 18 || i == 23);
        if (dash != (name[i] == '-')) return false;
        if (!dash) digits[n++] = name[i] >= 'A' && name[i] <= 'F' ? (char)(name[i] - 'A' + 'a') : name[i];
    }
    digits[n] = '\0';
    return is_uuid(digits);
}

/* Error messages for names that match no device. */
static hearth_status fail_name(const char *name, hearth_error *err)
{
    if (!*name)
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                        "the name of a device is empty: auto, none, or a name that hearth devices shows");
    if (strcmp(name, "sim:") == 0)
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                        "sim: names no file: sim:FILE takes the description of a GPU, as in bench/devices");
    if (strchr(name, ','))
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: one device is expected here, not several", name);
    return hth_fail(
        err, HEARTH_ERROR_UNSUPPORTED, "%s: there is no such device; known are null, sim:FILE%s", name,
        vulkan ? ", vulkan:0 and on, and UUIDs: see hearth devices" : " (this build has no Vulkan)");
}

static const hth_backend *backend_of(const char *name)
{
    if (strchr(name, ',')) return NULL;
    if (strcmp(name, "null") == 0) return &hth_backend_ref;
    if (strncmp(name, "sim:", 4) == 0 && name[4]) return &hth_backend_simulated;
    return strncmp(name, "vulkan:", 7) == 0 || is_uuid(name) ? vulkan : NULL;
}

hearth_status hth_device_open(const hth_device_spec *spec, hth_device **out, hearth_error *err)
{
    char digits[UUID_DIGITS + 1];
    hth_device_spec named = *spec;
    *out = NULL;
    if (read_uuid(spec->name, digits)) named.name = digits;
    const hth_backend *back = backend_of(named.name);
    if (!back) return fail_name(named.name, err);
    hth_device *d = hth_alloc(1, sizeof *d);
    if (!d) return hth_fail_memory(err, sizeof *d, "a device");
    d->backend = back;
    d->opened_ns = hth_clock_ns();
    d->times_commands = atomic_load(&opened_times_commands);
    hth_device_inject_fault(d, atomic_load(&opened_fail_at), (hearth_status)atomic_load(&opened_fail_with));
    snprintf(d->info.name, sizeof d->info.name, "%s", named.name);
    hearth_status st = hth_device_begin_call(d, err);
    if (st == HEARTH_OK) st = d->backend->open(d, &named, err);
    if (st != HEARTH_OK) {
        hth_free(d);
        return st;
    }
    d->limit = spec->memory > 0 && spec->memory < d->info.memory ? spec->memory : d->info.memory;
    if (back->probe && !spec->no_half_conversion) st = back->probe(d, err);
    if (st == HEARTH_OK) *out = d;
    else hth_device_close(d);
    return st;
}

void hth_device_close(hth_device *d)
{
    if (!d) return;
    if (d->backend->stop) d->backend->stop(d);
    while (d->cmdlists) hth_cmdlist_free(d->cmdlists);
    while (d->buffers) hth_buffer_free(d->buffers);
    hth_device_reclaim(d, true);
    for (hth_pipeline *p = d->pipelines, *next; p; p = next) {
        next = p->next;
        if (d->backend->pipeline_free && !p->pending) d->backend->pipeline_free(d, p);
        hth_free(p);
    }
    d->backend->close(d);
    hth_free(d);
}

const hth_device_info *hth_device_get_info(const hth_device *d) { return &d->info; }

hth_device_usage hth_device_state(const hth_device *d)
{
    return (hth_device_usage){.used = d->used,
                              .used_device = d->used_device,
                              .limit = d->limit,
                              .peak = d->peak,
                              .used_at_oom = d->used_at_oom,
                              .lost = d->lost,
                              .pipeline_cache_bytes = d->pipeline_cache_bytes,
                              .n_validation_error = d->backend->n_validation_error ? d->backend->n_validation_error(d) : 0};
}

uint64_t hth_device_budget(const hth_device *d)
{
    uint64_t says = d->backend->budget ? d->backend->budget(d) : 0;
    return says > 0 && says < d->limit ? says : d->limit;
}

void hth_device_time_commands_on_open(bool on) { atomic_store(&opened_times_commands, on); }

static void pass_time(hth_cmd *c, hth_command_time_fn *fn, void *user)
{
    static const char *const others[] = {[HTH_CMD_COPY] = "copy", [HTH_CMD_BARRIER] = "barrier"};
    hth_command_time time = {.read_bytes = c->read_bytes, .n_run = c->n_run, .ns = c->ns};
    if (c->pipeline) {
        const hth_shader_info *shader = &hth_shader_infos[c->pipeline->id];
        time.name = shader->name, time.consts = c->pipeline->consts, time.n_const = shader->n_const;
        memcpy(time.grid, c->grid, sizeof time.grid);
    } else time.name = others[c->kind];
    if (c->n_run > 0) fn(user, &time);
    c->n_run = c->ns = 0;
}

void hth_device_command_times(hth_device *d, hth_command_time_fn *fn, void *user)
{
    for (hth_cmdlist *t = d->cmdlists; t; t = t->next) {
        if (t->ended && d->backend->cmdlist_read_times) d->backend->cmdlist_read_times(t);
        for (size_t i = 0; i < t->n_cmd; i++) pass_time(&t->cmds[i], fn, user);
    }
}

uint64_t hth_device_time(const hth_device *d)
{
    return d->backend->time ? d->backend->time(d) : hth_clock_ns() - d->opened_ns;
}

void hth_device_advance_clock(hth_device *d, uint64_t time_ns)
{
    if (d->backend->advance_clock) d->backend->advance_clock(d, time_ns);
}

void hth_device_charge_host(hth_device *d, uint64_t bytes, double products)
{
    if (d->backend->charge_host) d->backend->charge_host(d, bytes, products);
}

void hth_device_inject_fault(hth_device *d, uint64_t n, hearth_status status)
{
    hth_device_inject_faults(d, n, 1, status);
}

void hth_device_inject_faults(hth_device *d, uint64_t n, uint64_t n_call, hearth_status status)
{
    d->fail_at = d->n_call + n, d->fail_with = status;
    d->fail_end = n > 0 ? d->fail_at + n_call : 0;
}

void hth_device_inject_fault_on_open(uint64_t n, hearth_status status)
{
    atomic_store(&opened_failed, false);
    atomic_store(&opened_fail_with, (int)status);
    atomic_store(&opened_fail_at, n);
}

bool hth_device_open_fault_was_hit(void) { return atomic_load(&opened_failed); }

uint64_t hth_device_n_call(const hth_device *d) { return d->n_call; }
