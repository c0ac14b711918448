/* Placements from bytes alone, and from files. */
#define _POSIX_C_SOURCE 200809L
#include "placement/policy.h"

#include "base/alloc.h"
#include "base/format_bytes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALL = 4096 }; /* shares of a layer's neurons are counted in 4096ths */

/* ---- bytes --------------------------------------------------------------------------------------------- */

static uint64_t plus(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

/* Bytes of layer i with n_hot of its neurons; UINT64_MAX: it cannot be offloaded. */
static uint64_t layer_bytes(const hth_placement_builder *c, uint32_t i, uint32_t n_hot)
{
    uint64_t weights, cache;
    bool fits = hth_gpu_layer_bytes(c->model, c->info->max_binding_size, &c->params, i, n_hot, &weights) &&
                hth_gpu_cache_bytes(c->model, c->info->max_binding_size, &c->params, i, &cache);
    return fits ? plus(weights, cache) : UINT64_MAX;
}

static uint64_t workspace_bytes(const hth_placement_builder *c)
{
    uint64_t bytes;
    return hth_gpu_workspace_bytes(c->model, c->info->max_binding_size, &c->params, &bytes) ? bytes
                                                                                            : UINT64_MAX;
}

static uint64_t head_bytes(const hth_placement_builder *c)
{
    uint64_t bytes;
    return hth_gpu_head_bytes(c->model, c->info->max_binding_size, &bytes) ? bytes : UINT64_MAX;
}

/* Neurons of layer i in n of 4096 shares, rounded down to the split granularity. */
static uint32_t share_of(const hth_placement_builder *c, uint32_t i, uint32_t n)
{
    uint32_t d_ff = c->model->layers[i].ffn.d_ff, grain = hth_gpu_split_granularity(c->model, i);
    if (n == ALL || grain == 0) return d_ff;
    return (uint32_t)((uint64_t)d_ff * n / ALL) / grain * grain;
}

/* All layers and the head, with n of 4096 shares of the neurons. */
static uint64_t bytes_with_share(const hth_placement_builder *c, uint32_t n)
{
    hth_placement_builder all = *c;
    all.params.n_layer = c->model->hparams.n_layer, all.params.head = true;
    uint64_t bytes = plus(workspace_bytes(&all), head_bytes(&all));
    for (uint32_t i = 0; i < all.params.n_layer; i++)
        bytes = plus(bytes, layer_bytes(&all, i, share_of(&all, i, n)));
    return bytes;
}

uint64_t hth_placement_builder_bytes(const hth_placement_builder *c)
{
    uint64_t all = plus(workspace_bytes(c), c->params.head ? head_bytes(c) : 0);
    for (uint32_t i = 0; i < c->params.n_layer; i++) all = plus(all, layer_bytes(c, i, c->n_hot[i]));
    return all;
}

uint64_t hth_placement_builder_whole_bytes(const hth_placement_builder *c)
{
    return bytes_with_share(c, ALL);
}

uint64_t hth_placement_builder_least_bytes(const hth_placement_builder *c)
{
    hth_placement_builder first = *c;
    first.params.n_layer = c->model->hparams.n_layer, first.params.head = true;
    uint64_t one = plus(workspace_bytes(&first), layer_bytes(&first, 0, c->model->layers[0].ffn.d_ff));
    uint64_t none_hot = c->model->down_transposed ? bytes_with_share(c, 0) : one;
    return none_hot < one ? none_hot : one;
}

/* ---- open and close ---------------------------------------------------------------------------------- */

static hearth_status check_bindings(const hth_placement_builder *c, hearth_error *err)
{
    const hth_device_info *info = c->info;
    uint64_t bytes;
    /* Caches first: they are the largest of what depends on positions. */
    for (uint32_t i = 0; i < c->model->hparams.n_layer; i++)
        if (!hth_gpu_cache_bytes(c->model, info->max_binding_size, &c->params, i, &bytes))
            return hth_fail(
                err, HEARTH_ERROR_ARGUMENT,
                "%s: keys of %u positions are too large for a binding of %s; ask for less with -c",
                info->name, c->params.n_position, hth_format_bytes(info->max_binding_size).text);
    if (workspace_bytes(c) == UINT64_MAX)
        return hth_fail(
            err, HEARTH_ERROR_ARGUMENT,
            "%s: the values of %u tokens are too large for a binding of %s; ask for less with --batch",
            info->name, c->params.n_row, hth_format_bytes(info->max_binding_size).text);
    return HEARTH_OK;
}

hearth_status hth_placement_builder_open(hth_placement_builder *c, const hth_model *model,
                                         const hth_device_info *info, uint64_t budget,
                                         const hth_offload_params *params, hearth_error *err)
{
    uint32_t n_layer = model->hparams.n_layer;
    *c = (hth_placement_builder){.model = model, .info = info, .params = *params, .budget = budget};
    c->n_hot = hth_alloc(n_layer, sizeof *c->n_hot);
    if (!c->n_hot) return hth_fail_memory(err, n_layer * sizeof *c->n_hot, "a placement");
    c->params.n_hot = c->n_hot, c->params.n_layer = n_layer, c->params.head = true;
    return check_bindings(c, err);
}

hth_budget_text hth_budget_text_of(const hth_placement_builder *c)
{
    hth_budget_text limit;
    snprintf(limit.text, sizeof limit.text, "%s%s%s", c->is_user_limit ? "--vram allows " : "",
             hth_format_bytes(c->budget).text, c->is_user_limit ? "" : " are free");
    return limit;
}

void hth_placement_builder_close(hth_placement_builder *c)
{
    hth_free(c->n_hot);
    c->n_hot = NULL;
}

/* ---- uniform placement --------------------------------------------------------------------------------- */

/* The largest share of all neurons that fits with everything else; false: not even none fits. */
static bool divide_neurons(hth_placement_builder *c)
{
    uint32_t low = 0, high = ALL;
    if (!c->model->down_transposed || bytes_with_share(c, 0) > c->budget) return false;
    while (low < high) {
        uint32_t middle = (low + high + 1) / 2;
        if (bytes_with_share(c, middle) <= c->budget) low = middle;
        else high = middle - 1;
    }
    for (uint32_t i = 0; i < c->params.n_layer; i++) c->n_hot[i] = share_of(c, i, low);
    return true;
}

/* The first layers, as many as fit whole, then the head: at most `max` of them, the head counted last. */
static void take_layers(hth_placement_builder *c, uint64_t max)
{
    uint32_t n_layer = c->model->hparams.n_layer, i = 0;
    uint64_t used = workspace_bytes(c);
    for (; i < n_layer && i < max; i++) {
        c->unsupported_reason = hth_gpu_unsupported_reason(c->model, &c->params, i);
        c->n_hot[i] = c->model->layers[i].ffn.d_ff;
        if (c->unsupported_reason || plus(used, layer_bytes(c, i, c->n_hot[i])) > c->budget) break;
        used += layer_bytes(c, i, c->n_hot[i]);
    }
    c->params.n_layer = i;
    c->params.head = false;
    if (i < n_layer || max <= n_layer) return;
    c->unsupported_reason = hth_gpu_unsupported_reason(c->model, &c->params, n_layer);
    c->params.head = !c->unsupported_reason && plus(used, head_bytes(c)) <= c->budget;
}

static bool can_offload_all(const hth_placement_builder *c)
{
    for (uint32_t i = 0; i <= c->model->hparams.n_layer; i++)
        if (hth_gpu_unsupported_reason(c->model, &c->params, i)) return false;
    return true;
}

void hth_placement_uniform(hth_placement_builder *c)
{
    memset(c->params.streams, 0, sizeof c->params.streams);
    c->unsupported_reason = NULL, c->seconds = 0.0;
    if (c->params.max_layer > 0) {
        take_layers(c, c->params.max_layer);
        return;
    }
    c->params.n_layer = c->model->hparams.n_layer, c->params.head = true;
    if (can_offload_all(c) && hth_placement_builder_whole_bytes(c) > c->budget && divide_neurons(c)) return;
    take_layers(c, UINT64_MAX);
}

/* ---- placement by number of layers --------------------------------------------------------------------- */

bool hth_placement_arg_layers(const char *placement, uint64_t *n)
{
    static const char word[] = "layers:";
    if (!placement || strncmp(placement, word, sizeof word - 1) != 0) return false;
    *n = 0;
    for (const char *p = placement + sizeof word - 1; *p; p++) {
        if (*p < '0' || *p > '9') return false;
        *n = *n < UINT32_MAX ? *n * 10 + (uint64_t)(*p - '0') : UINT32_MAX;
    }
    return placement[sizeof word - 1] != '\0';
}

void hth_placement_builder_layers(hth_placement_builder *c, uint64_t n)
{
    c->params.max_layer = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
    if (n > 0) hth_placement_uniform(c);
    else c->params.n_layer = 0, c->params.head = false;
}

/* ---- placement from a file ----------------------------------------------------------------------------- */

bool hth_placement_arg_is_path(const char *placement)
{
    uint64_t n;
    return placement && strcmp(placement, "plan") != 0 && strcmp(placement, "even") != 0 &&
           !hth_placement_arg_layers(placement, &n);
}

hearth_status hth_placement_arg_check(const char *placement, hearth_error *err)
{
    struct stat about;
    char why[100] = "it is a folder";
    if (!hth_placement_arg_is_path(placement)) return HEARTH_OK;
    bool there = stat(placement, &about) == 0 && access(placement, R_OK) == 0;
    if (there && !S_ISDIR(about.st_mode)) return HEARTH_OK;
    if (!there && strerror_r(errno, why, sizeof why) != 0) snprintf(why, sizeof why, "it cannot be read");
    return hth_fail(err, HEARTH_ERROR_IO,
                    "%.200s: no such placement: neither plan, even nor layers:N, nor a file that can be read "
                    "(%s); hearth "
                    "plan -o FILE makes one",
                    *placement ? placement : "''", why);
}

/* Checks that everything the file places can be offloaded. */
static hearth_status check_placement(const hth_placement_builder *c, const hth_placement *p, const char *path,
                                     hearth_error *err)
{
    uint32_t n_layer = c->model->hparams.n_layer, n = p->head ? n_layer + 1 : p->n_layer;
    for (uint32_t i = 0; i < n; i++) {
        const char *problem = hth_gpu_unsupported_reason(c->model, &c->params, i);
        uint32_t grain = i < n_layer ? hth_gpu_split_granularity(c->model, i) : 0;
        if (problem)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: %s %u cannot lie on a device: %s", path,
                            i == n_layer ? "the head behind layer" : "layer", i, problem);
        if (grain > 0 && p->n_hot[i] < c->model->layers[i].ffn.d_ff && p->n_hot[i] % grain > 0)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                            "%s: %u neurons of layer %u: they are divided in multiples of %u", path,
                            p->n_hot[i], i, grain);
    }
    return HEARTH_OK;
}

hearth_status hth_placement_builder_from_file(hth_placement_builder *c, const char *path, hearth_error *err)
{
    const hth_device_info *info = c->info;
    char device[120], driver[120];
    hth_placement p;
    hearth_status st = hth_placement_open(&p, path, c->model, err);
    if (st != HEARTH_OK) return st;
    memcpy(c->n_hot, p.n_hot, p.n_layer * sizeof *p.n_hot);
    if (strcmp(p.device, info->name) != 0 || strcmp(p.driver, info->driver) != 0)
        st =
            hth_fail(err, HEARTH_ERROR_ARGUMENT,
                     "%s was made for %s (%s), not for %.100s (%.100s): make it again with hearth plan", path,
                     hth_escape(device, sizeof device, p.device, strlen(p.device)),
                     hth_escape(driver, sizeof driver, p.driver, strlen(p.driver)), info->name, info->driver);
    if (st == HEARTH_OK) st = check_placement(c, &p, path, err);
    c->params.n_layer = p.n_layer, c->params.head = p.head;
    c->params.submit_mode = p.submit_on_demand ? HTH_SUBMIT_ON_DEMAND : HTH_SUBMIT_UPFRONT;
    memcpy(c->params.streams, p.streams, sizeof p.streams);
    c->seconds = p.seconds;
    uint64_t all = hth_placement_builder_bytes(c);
    if (st == HEARTH_OK && all == UINT64_MAX)
        st = hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: what it places is too large for the bindings of %s",
                      path, info->name);
    if (st == HEARTH_OK && all > c->budget)
        st = hth_fail(err, HEARTH_ERROR_MEMORY,
                      "%s: it takes %s on %s, and %s: make it again with hearth plan, or give the -c and "
                      "--batch that it was made for",
                      path, hth_format_bytes(all).text, info->name, hth_budget_text_of(c).text);
    hth_placement_close(&p);
    return st;
}
