/* Placements from bytes alone, and from files. */
#define _POSIX_C_SOURCE 200809L
#include "placement/policy.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "forward/gpu/shader_params.h"
#include "base/format_bytes.h"
#include "base/format_errno.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALL = 4096 }; /* shares of a layer's neurons are counted in 4096ths */

/* ---- devices ------------------------------------------------------------------------------------------- */

hearth_status hth_placement_open_devices(const char *list, const hearth_gpu_options *options, bool limited,
                                         hth_placement_part *parts, uint32_t *n, hearth_error *err)
{
    hth_device_names names;
    uint32_t n_limit = HEARTH_MAX_GPU;
    *n = 0;
    hearth_status st = hth_device_split_names(list, &names, err);
    while (n_limit > 0 && options->vrams[n_limit - 1] == 0) n_limit--;
    if (st == HEARTH_OK && n_limit > names.n)
        st = hth_fail(err, HEARTH_ERROR_ARGUMENT, "%u limits of memory, and %s names %u device%s", n_limit, list,
                      names.n, names.n == 1 ? "" : "s");
    for (uint32_t i = 0; st == HEARTH_OK && i < names.n; i++) {
        hth_placement_part *p = &parts[i];
        uint64_t limit = options->vrams[i] > 0 ? options->vrams[i] : options->vram;
        hth_device_spec spec = {
            .name = names.all[i], .memory = limited ? limit : 0, .shader_refs = hth_shader_ref_table,
            .only_times = true}; /* the caller looks at info->no_values */
        *p = (hth_placement_part){.budget = limit};
        st = hth_device_open(&spec, &p->device, err);
        if (st == HEARTH_OK) p->info = hth_device_get_info(p->device), ++*n;
    }
    return st;
}

/* ---- bytes --------------------------------------------------------------------------------------------- */

static uint64_t plus(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

/* UINT64_MAX bytes cannot be offloaded, not even without a limit. */
static bool is_within(uint64_t bytes, uint64_t budget) { return bytes <= budget && bytes < UINT64_MAX; }

/* Bytes of layer i with n_hot of its units; UINT64_MAX: it cannot be offloaded. */
static uint64_t layer_bytes(const hth_model *m, const hth_placement_part *p, uint32_t i, uint32_t n_hot)
{
    uint64_t weights, cache, max = p->info->max_binding_size;
    bool fits = hth_gpu_layer_bytes(m, max, &p->params, i, n_hot, &weights) &&
                hth_gpu_cache_bytes(m, max, &p->params, i, &cache);
    return fits ? plus(weights, cache) : UINT64_MAX;
}

static uint64_t workspace_bytes(const hth_model *m, const hth_placement_part *p)
{
    uint64_t bytes;
    return hth_gpu_workspace_bytes(m, p->info->max_binding_size, &p->params, &bytes) ? bytes : UINT64_MAX;
}

static uint64_t head_bytes(const hth_model *m, const hth_placement_part *p)
{
    uint64_t bytes;
    return hth_gpu_head_bytes(m, p->info->max_binding_size, &p->params, &bytes) ? bytes : UINT64_MAX;
}

/* The part with all layers and the head: its workspace is the largest. */
static hth_placement_part whole_part(const hth_model *m, const hth_placement_part *p)
{
    hth_placement_part all = *p;
    all.params.first_layer = 0, all.params.end_layer = m->hparams.n_layer, all.params.head = true;
    return all;
}

/* Units of layer i in n of 4096 shares, rounded down to the split granularity, and at most what the bindings of a device
 * hold. */
static uint32_t share_of(const hth_placement_builder *c, const hth_placement_part *p, uint32_t i, uint32_t n)
{
    const hth_model *m = c->model;
    bool is_host = hth_layer_set_has(&c->parts[0].params.host_experts, i) && hth_layer_divides_experts(&m->layers[i]);
    uint32_t n_unit = hth_layer_n_unit(&m->layers[i]), grain = hth_gpu_split_granularity(m, i),
             most = hth_gpu_max_units(m, p->info->max_binding_size, &p->params, i);
    if (is_host) return 0;
    if (n == ALL || grain == 0) return most;
    return hth_min_u32((uint32_t)((uint64_t)n_unit * n / ALL) / grain * grain, most);
}

static bool divides_any(const hth_model *m)
{
    for (uint32_t i = 0; i < m->hparams.n_layer; i++)
        if (hth_gpu_split_granularity(m, i) > 0) return true;
    return false;
}

uint64_t hth_placement_builder_bytes(const hth_placement_builder *c, uint32_t i_part)
{
    const hth_placement_part *p = &c->parts[i_part];
    if (p->params.first_layer == p->params.end_layer) return 0;
    uint64_t all = plus(workspace_bytes(c->model, p), p->params.head ? head_bytes(c->model, p) : 0);
    for (uint32_t i = p->params.first_layer; i < p->params.end_layer; i++)
        all = plus(all, layer_bytes(c->model, p, i, c->n_hot[i]));
    return all;
}

const hth_placement_part *hth_placement_builder_exceeds(const hth_placement_builder *c)
{
    for (uint32_t i = 0; i < c->n_part; i++)
        if (!is_within(hth_placement_builder_bytes(c, i), c->parts[i].budget)) return &c->parts[i];
    return NULL;
}

/* All layers and the head on the first device, with n of 4096 shares of the neurons. */
static uint64_t bytes_with_share(const hth_placement_builder *c, uint32_t n)
{
    const hth_placement_part all = whole_part(c->model, &c->parts[0]);
    uint64_t bytes = plus(workspace_bytes(c->model, &all), head_bytes(c->model, &all));
    for (uint32_t i = 0; i < all.params.end_layer; i++)
        bytes = plus(bytes, layer_bytes(c->model, &all, i, share_of(c, &all, i, n)));
    return bytes;
}

uint64_t hth_placement_builder_whole_bytes(const hth_placement_builder *c)
{
    return bytes_with_share(c, ALL);
}

uint64_t hth_placement_builder_least_bytes(const hth_placement_builder *c)
{
    const hth_placement_part first = whole_part(c->model, &c->parts[0]);
    uint64_t one = plus(workspace_bytes(c->model, &first),
                        layer_bytes(c->model, &first, 0, share_of(c, &first, 0, ALL)));
    uint64_t none_hot = divides_any(c->model) ? bytes_with_share(c, 0) : one;
    return none_hot < one ? none_hot : one;
}

/* ---- open and close ---------------------------------------------------------------------------------- */

static bool has_bindings(const hth_model *m, const hth_placement_part *p, uint32_t n_session)
{
    hth_offload_params params = p->params;
    uint64_t bytes;
    bool fits = true;
    params.n_session = n_session;
    for (uint32_t i = 0; i < m->hparams.n_layer && fits; i++)
        fits = hth_gpu_cache_bytes(m, p->info->max_binding_size, &params, i, &bytes);
    return fits;
}

/* A binding has the states of all sessions. Where one does not hold them, all devices have those of fewer sessions, as
 * the pages of all have the same numbers. */
static void limit_sessions(hth_placement_builder *c)
{
    uint32_t fewest = UINT32_MAX;
    for (uint32_t i = 0; i < c->n_part; i++) {
        const hth_placement_part *p = &c->parts[i];
        uint32_t n = hth_gpu_n_state(c->model, &p->params) / HTH_N_STATE_COPY_ON_DEVICE;
        if (n == 0) continue;
        while (n > 1 && !has_bindings(c->model, p, n)) n--;
        if (n < fewest) fewest = n;
    }
    for (uint32_t i = 0; i < c->n_part && fewest < UINT32_MAX; i++) c->parts[i].params.n_session = fewest;
}

static hearth_status check_bindings(const hth_model *m, const hth_placement_part *p, hearth_error *err)
{
    const hth_device_info *info = p->info;
    uint64_t bytes;
    /* Caches first: they are the largest of what depends on positions. */
    for (uint32_t i = 0; i < m->hparams.n_layer; i++)
        if (!hth_gpu_cache_bytes(m, info->max_binding_size, &p->params, i, &bytes))
            return hth_fail(
                err, HEARTH_ERROR_ARGUMENT,
                "%s: keys of %u positions are too large for a binding of %s; ask for less with n_ctx, or keep them in "
                "host memory with gpu.host_kv",
                info->name, p->params.n_position, hth_format_bytes(info->max_binding_size).text);
    if (workspace_bytes(m, p) == UINT64_MAX)
        return hth_fail(
            err, HEARTH_ERROR_ARGUMENT,
            "%s: the values of %u tokens are too large for a binding of %s; ask for less with n_batch",
            info->name, p->params.n_row, hth_format_bytes(info->max_binding_size).text);
    return HEARTH_OK;
}

/* A card named twice, perhaps by two drivers, has its memory once. */
static hearth_status check_different(const hth_placement_part *parts, uint32_t n_part, hearth_error *err)
{
    for (uint32_t i = 1; i < n_part; i++)
        for (uint32_t k = 0; k < i; k++)
            if (hth_device_is_usable_gpu(parts[i].info) &&
                memcmp(parts[k].info->uuid, parts[i].info->uuid, sizeof parts[i].info->uuid) == 0)
                return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "GPUs %u and %u of the list are the same: %s",
                                k + 1, i + 1, parts[i].info->name);
    return HEARTH_OK;
}

hearth_status hth_placement_builder_open(hth_placement_builder *c, const hth_model *model,
                                         const hth_placement_part *parts, uint32_t n_part, hearth_error *err)
{
    uint32_t n_layer = model->hparams.n_layer;
    *c = (hth_placement_builder){.model = model, .n_part = n_part};
    c->n_hot = hth_alloc(n_layer, sizeof *c->n_hot);
    if (!c->n_hot) return hth_fail_memory(err, n_layer * sizeof *c->n_hot, "a placement");
    hearth_status st = check_different(parts, n_part, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < n_part; i++) {
        c->parts[i] = whole_part(model, &parts[i]);
        c->parts[i].params.n_hot = c->n_hot;
        c->parts[i].params.reads_host = parts[i].info->features & HTH_FEATURE_IMPORT;
    }
    if (st == HEARTH_OK) limit_sessions(c);
    for (uint32_t i = 0; st == HEARTH_OK && i < n_part; i++) st = check_bindings(model, &c->parts[i], err);
    return st;
}

void hth_placement_builder_set_ends(hth_placement_builder *c, const uint32_t *ends, bool head)
{
    for (uint32_t i = 0, first = 0; i < c->n_part; first = ends[i++]) {
        hth_offload_params *p = &c->parts[i].params;
        p->first_layer = first, p->end_layer = ends[i];
        p->head = head && first < ends[i] && ends[i] == ends[c->n_part - 1];
    }
}

uint32_t hth_placement_builder_n_layer(const hth_placement_builder *c)
{
    return c->parts[c->n_part - 1].params.end_layer;
}

bool hth_placement_builder_has_head(const hth_placement_builder *c)
{
    for (uint32_t i = 0; i < c->n_part; i++)
        if (c->parts[i].params.head) return true;
    return false;
}

hth_budget_text hth_budget_text_of(const hth_placement_part *p)
{
    hth_budget_text limit;
    snprintf(limit.text, sizeof limit.text, "%s%s%s", p->is_user_limit ? "gpu.vram allows " : "",
             hth_format_bytes(p->budget).text, p->is_user_limit ? "" : " are free");
    return limit;
}

void hth_placement_builder_close(hth_placement_builder *c)
{
    hth_free(c->n_hot);
    c->n_hot = NULL;
}

/* ---- uniform placement --------------------------------------------------------------------------------- */

/* Layers from *next on, until `end`, as many as fit, with `share` of 4096 of their neurons; then the head, if `head`.
 * If all layers fit but the head does not and another device follows, the last layer is left to that one: *left_layer.
 * Returns whether all that was asked for is on devices now. */
static bool fill_part(hth_placement_builder *c, hth_placement_part *p, uint32_t share, uint32_t end,
                      bool head, uint32_t *next, bool *left_layer)
{
    const hth_model *m = c->model;
    hth_placement_part whole = whole_part(m, p);
    whole.params.head = head;
    uint64_t used = workspace_bytes(m, &whole);
    bool is_last = p == &c->parts[c->n_part - 1];
    p->params.first_layer = *next, p->params.head = false;
    for (; *next < end; ++*next) {
        c->n_hot[*next] = share_of(c, p, *next, share);
        c->unsupported_reason = hth_gpu_unsupported_reason(m, &p->params, *next);
        uint64_t size = layer_bytes(m, p, *next, c->n_hot[*next]);
        if (c->unsupported_reason || !is_within(plus(used, size), p->budget)) break;
        used += size;
    }
    if (*next == end && head) {
        c->unsupported_reason = hth_gpu_unsupported_reason(m, &p->params, m->hparams.n_layer);
        p->params.head = !c->unsupported_reason && is_within(plus(used, head_bytes(m, p)), p->budget);
        if (!p->params.head && !c->unsupported_reason && !is_last && end > p->params.first_layer)
            --*next, *left_layer = true;
    }
    p->params.end_layer = *next;
    return *next == end && p->params.head == head;
}

/* The first layers on all devices in turn, with `share` of their neurons, and then the head: at most `max` of them,
 * the head counted last. Returns whether all of them fit. */
static bool fill(hth_placement_builder *c, uint32_t share, uint64_t max)
{
    uint32_t n_layer = c->model->hparams.n_layer, next = 0, end = max < n_layer ? (uint32_t)max : n_layer;
    uint32_t i_left = c->n_part; /* the last device that left a layer to the next one */
    bool done = false;
    for (uint32_t i = 0; i < c->n_part; i++) {
        hth_placement_part *p = &c->parts[i];
        bool left_layer = false;
        if (done || c->unsupported_reason)
            p->params.first_layer = p->params.end_layer = next, p->params.head = false;
        else done = fill_part(c, p, share, end, max > n_layer, &next, &left_layer);
        if (left_layer) i_left = i;
    }
    if (i_left < c->n_part && next < end) { /* no other device holds the layer that was left to it */
        c->parts[i_left].params.end_layer = end;
        for (uint32_t i = i_left + 1; i < c->n_part; i++)
            c->parts[i].params.first_layer = c->parts[i].params.end_layer = end;
    }
    return done;
}

/* With the largest share of all units that fits with everything else; false: not even none fits. */
static bool divide_units(hth_placement_builder *c)
{
    uint32_t low = 0, high = ALL;
    if (!divides_any(c->model) || !fill(c, 0, UINT64_MAX)) return false;
    while (low < high) {
        uint32_t middle = (low + high + 1) / 2;
        if (fill(c, middle, UINT64_MAX)) low = middle;
        else high = middle - 1;
    }
    return fill(c, low, UINT64_MAX);
}

static bool can_offload_all(const hth_placement_builder *c)
{
    for (uint32_t i = 0; i <= c->model->hparams.n_layer; i++)
        if (hth_gpu_unsupported_reason(c->model, &c->parts[0].params, i)) return false;
    return true;
}

static void expect_nothing(hth_placement_builder *c) { c->seconds = c->seconds_empty = c->seconds_full = 0.0; }

/* Whether layers that share keys and values may be placed: on one device that has all layers. */
static void allow_sharing(hth_placement_builder *c, bool allow)
{
    for (uint32_t i = 0; i < c->n_part; i++) c->parts[i].params.has_all_layers = allow && c->n_part == 1;
}

static bool has_divided_experts(const hth_model *m)
{
    for (uint32_t i = 0; i < m->hparams.n_layer; i++)
        if (hth_layer_divides_experts(&m->layers[i])) return true;
    return false;
}

uint32_t hth_placement_step_rows(const hth_model *model, const hth_placement_part *part, uint32_t n_batch, uint32_t n_ctx)
{
    enum { MOST = 4096, BUDGET_PART = 16 };
    hth_offload_params params = part->params;
    uint64_t bytes;
    uint32_t otherwise = hth_gpu_batch_size(part->info, n_batch, n_ctx);
    if (n_batch != HEARTH_BATCH_AUTO || !(part->info->features & HTH_FEATURE_IMPORT) || model->weight_size <= part->budget ||
        !has_divided_experts(model))
        return otherwise;
    params.end_layer = model->hparams.n_layer, params.head = true, params.streams[0].n_tok = 1;
    for (params.n_row = MOST; params.n_row > HTH_DEFAULT_BATCH; params.n_row /= 2)
        if (hth_gpu_workspace_bytes(model, part->info->max_binding_size, &params, &bytes) &&
            bytes <= part->budget / BUDGET_PART)
            return hth_min_u32(params.n_row, n_ctx);
    return otherwise;
}

static bool has_all_layers(const hth_placement_builder *c)
{
    return hth_placement_builder_n_layer(c) == c->model->hparams.n_layer;
}

static void fill_most(hth_placement_builder *c, uint64_t max)
{
    if (fill(c, ALL, max) || max < UINT64_MAX || !can_offload_all(c)) return;
    if (!divide_units(c)) fill(c, ALL, max);
}

static void fill_evenly(hth_placement_builder *c)
{
    uint64_t max = c->parts[0].params.max_layer > 0 ? c->parts[0].params.max_layer : UINT64_MAX;
    c->unsupported_reason = NULL;
    expect_nothing(c);
    allow_sharing(c, true);
    fill_most(c, max);
    hth_placement_builder_keep_sharing(c);
}

void hth_placement_uniform(hth_placement_builder *c)
{
    for (uint32_t i = 0; i < c->n_part; i++)
        memset(c->parts[i].params.streams, 0, sizeof c->parts[i].params.streams);
    expect_nothing(c);
    fill_evenly(c);
}

void hth_placement_builder_keep_sharing(hth_placement_builder *c)
{
    bool allowed = c->parts[0].params.has_all_layers;
    if (!allowed || has_all_layers(c)) return;
    uint64_t max = c->parts[0].params.max_layer > 0 ? c->parts[0].params.max_layer : UINT64_MAX;
    allow_sharing(c, false);
    if (can_offload_all(c)) return; /* no layers share */
    c->unsupported_reason = NULL, c->seconds = 0.0;
    fill_most(c, max);
}

/* ---- placement by number of layers --------------------------------------------------------------------- */

/* The number behind a word at the beginning of a text, clamped. Returns what is behind it; NULL: there is none. */
static const char *number_behind(const char *text, const char *word, uint64_t *n)
{
    size_t size = strlen(word);
    if (strncmp(text, word, size) != 0 || text[size] < '0' || text[size] > '9') return NULL;
    *n = 0;
    for (text += size; *text >= '0' && *text <= '9'; text++)
        *n = *n < UINT32_MAX ? *n * 10 + (uint64_t)(*text - '0') : UINT32_MAX;
    return text;
}

bool hth_placement_arg_layers(const char *placement, hth_placement_layers *out)
{
    *out = (hth_placement_layers){.n = UINT32_MAX};
    if (placement && strcmp(placement, "all") == 0) return true;
    const char *end = placement ? number_behind(placement, "layers:", &out->n) : NULL;
    if (end && strncmp(end, ",cpu:", 5) == 0 && end[5]) return out->cpu = end + 5, true;
    if (end && *end) end = number_behind(end, ",cpu-experts:", &out->n_cpu_experts);
    return end && !*end;
}

hearth_status hth_placement_builder_layers(hth_placement_builder *c, const hth_placement_layers *layers, hearth_error *err)
{
    hth_layer_set host_experts;
    hearth_status st = hth_placement_find_host_experts(c->model, layers, &host_experts, err);
    if (st != HEARTH_OK) return st;
    for (uint32_t i = 0; i < c->n_part; i++) {
        hth_offload_params *p = &c->parts[i].params;
        p->max_layer = layers->n < UINT32_MAX ? (uint32_t)layers->n : UINT32_MAX;
        p->host_experts = host_experts;
        p->first_layer = p->end_layer = 0, p->head = false;
    }
    if (layers->n > 0) fill_evenly(c);
    return HEARTH_OK;
}

/* ---- placement from a file ----------------------------------------------------------------------------- */

bool hth_placement_arg_is_path(const char *placement)
{
    hth_placement_layers layers;
    return placement && strcmp(placement, "plan") != 0 && strcmp(placement, "even") != 0 &&
           !hth_placement_arg_layers(placement, &layers);
}

hearth_status hth_placement_arg_check(const char *placement, hearth_error *err)
{
    struct stat about;
    hth_placement_layers layers;
    if (hth_placement_arg_layers(placement, &layers) && layers.cpu) return hth_placement_check_rules(layers.cpu, err);
    if (!hth_placement_arg_is_path(placement)) return HEARTH_OK;
    bool there = stat(placement, &about) == 0 && access(placement, R_OK) == 0;
    if (there && !S_ISDIR(about.st_mode)) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_IO,
                    "%.200s: no such placement: neither plan, even, all nor layers:N, nor a file that can be read "
                    "(%s); hearth plan makes one",
                    *placement ? placement : "''", there ? "it is a folder" : hth_format_errno(errno).text);
}

/* Checks that everything the file places can be offloaded. */
static hearth_status check_placement(const hth_placement_builder *c, const hth_placement *p, const char *path,
                                     hearth_error *err)
{
    uint32_t n_layer = c->model->hparams.n_layer, n = p->head ? n_layer + 1 : p->n_layer;
    for (uint32_t i = 0; i < n; i++) {
        const char *problem = hth_gpu_unsupported_reason(c->model, &c->parts[0].params, i);
        uint32_t grain = i < n_layer ? hth_gpu_split_granularity(c->model, i) : 0;
        if (problem)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: %s %u cannot lie on a device: %s", path,
                            i == n_layer ? "the head behind layer" : "layer", i, problem);
        if (grain > 0 && p->n_hot[i] < hth_layer_n_unit(&c->model->layers[i]) && p->n_hot[i] % grain > 0)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                            "%s: %u neurons of layer %u: they are divided in multiples of %u", path,
                            p->n_hot[i], i, grain);
    }
    return HEARTH_OK;
}

static hearth_status check_device(const hth_placement_device *d, const hth_device_info *info,
                                  const char *path, hearth_error *err)
{
    char device[120], driver[120];
    if (strcmp(d->name, info->name) == 0 && strcmp(d->driver, info->driver) == 0) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                    "%s was made for %s (%s), not for %.100s (%.100s): make it again with hearth plan", path,
                    hth_escape(device, sizeof device, d->name, strlen(d->name)),
                    hth_escape(driver, sizeof driver, d->driver, strlen(d->driver)), info->name,
                    info->driver);
}

static hearth_status check_budgets(const hth_placement_builder *c, const char *path, hearth_error *err)
{
    for (uint32_t i = 0; i < c->n_part; i++) {
        const hth_placement_part *p = &c->parts[i];
        uint64_t all = hth_placement_builder_bytes(c, i);
        if (all == UINT64_MAX)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                            "%s: what it places is too large for the bindings of %s", path, p->info->name);
        if (all > p->budget)
            return hth_fail(
                err, HEARTH_ERROR_MEMORY,
                "%s: it takes %s on %s, and %s: make it again with hearth plan, or give the n_ctx and "
                "n_batch that it was made for",
                path, hth_format_bytes(all).text, p->info->name, hth_budget_text_of(p).text);
    }
    return HEARTH_OK;
}

static void take_placement(hth_placement_builder *c, const hth_placement *p)
{
    uint32_t ends[HEARTH_MAX_GPU];
    memcpy(c->n_hot, p->n_hot, p->n_layer * sizeof *p->n_hot);
    for (uint32_t i = 0; i < c->n_part; i++) {
        const hth_placement_device *d = &p->devices[i];
        hth_offload_params *to = &c->parts[i].params;
        ends[i] = d->end_layer;
        to->submit_mode = d->submit_on_demand ? HTH_SUBMIT_ON_DEMAND : HTH_SUBMIT_UPFRONT;
        memcpy(to->streams, d->streams, sizeof d->streams);
        to->read_experts = p->read_experts;
    }
    hth_placement_builder_set_ends(c, ends, p->head);
    c->seconds = p->seconds;
}

hearth_status hth_placement_builder_from_file(hth_placement_builder *c, const char *path, hearth_error *err)
{
    hth_placement p;
    hearth_status st = hth_placement_open(&p, path, c->model, err);
    if (st != HEARTH_OK) return st;
    if (p.n_device != c->n_part)
        st = hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s was made for %u GPU%s, and gpu.device names %u", path,
                      p.n_device, p.n_device == 1 ? "" : "s", c->n_part);
    for (uint32_t i = 0; st == HEARTH_OK && i < c->n_part; i++)
        st = check_device(&p.devices[i], c->parts[i].info, path, err);
    for (uint32_t i = 0; i < c->n_part; i++) c->parts[i].params.host_kv |= p.host_kv;
    if (st == HEARTH_OK) allow_sharing(c, p.n_layer == c->model->hparams.n_layer);
    if (st == HEARTH_OK) st = check_placement(c, &p, path, err);
    if (st == HEARTH_OK) {
        take_placement(c, &p);
        st = check_budgets(c, path, err);
    }
    hth_placement_close(&p);
    return st;
}
