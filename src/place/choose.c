/* Places by bytes alone, and as files say. */
#define _POSIX_C_SOURCE 200809L
#include "place/choose.h"

#include "base/alloc.h"
#include "base/bytes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALL = 4096 }; /* shares of a layer's neurons are counted in 4096ths */

/* ---- bytes --------------------------------------------------------------------------------------------- */

static uint64_t plus(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

/* Bytes of layer i with n_hot of its neurons; UINT64_MAX: it cannot lie there. */
static uint64_t layer_bytes(const hth_choice *c, uint32_t i, uint32_t n_hot)
{
    uint64_t weights, cache;
    bool fits = hth_gpu_layer_bytes(c->model, c->info->most, &c->place, i, n_hot, &weights) &&
                hth_gpu_cache_bytes(c->model, c->info->most, &c->place, i, &cache);
    return fits ? plus(weights, cache) : UINT64_MAX;
}

static uint64_t room_bytes(const hth_choice *c)
{
    uint64_t bytes;
    return hth_gpu_room_bytes(c->model, c->info->most, &c->place, &bytes) ? bytes : UINT64_MAX;
}

static uint64_t head_bytes(const hth_choice *c)
{
    uint64_t bytes;
    return hth_gpu_head_bytes(c->model, c->info->most, &bytes) ? bytes : UINT64_MAX;
}

/* n of 4096 shares of layer i's neurons, in whole grains. */
static uint32_t share_of(const hth_choice *c, uint32_t i, uint32_t n)
{
    uint32_t d_ff = c->model->layers[i].d_ff, grain = hth_gpu_grain(c->model, i);
    if (n == ALL || grain == 0) return d_ff;
    return (uint32_t)((uint64_t)d_ff * n / ALL) / grain * grain;
}

/* All layers and the head, with that share of the neurons. */
static uint64_t bytes_with_share(const hth_choice *c, uint32_t n)
{
    hth_choice all = *c;
    all.place.n_layer = c->model->hparams.n_layer, all.place.head = true;
    uint64_t bytes = plus(room_bytes(&all), head_bytes(&all));
    for (uint32_t i = 0; i < all.place.n_layer; i++)
        bytes = plus(bytes, layer_bytes(&all, i, share_of(&all, i, n)));
    return bytes;
}

uint64_t hth_choice_bytes(const hth_choice *c)
{
    uint64_t all = plus(room_bytes(c), c->place.head ? head_bytes(c) : 0);
    for (uint32_t i = 0; i < c->place.n_layer; i++) all = plus(all, layer_bytes(c, i, c->n_hot[i]));
    return all;
}

uint64_t hth_choice_whole_bytes(const hth_choice *c) { return bytes_with_share(c, ALL); }

uint64_t hth_choice_least_bytes(const hth_choice *c)
{
    hth_choice first = *c;
    first.place.n_layer = c->model->hparams.n_layer, first.place.head = true;
    uint64_t one = plus(room_bytes(&first), layer_bytes(&first, 0, c->model->layers[0].d_ff));
    uint64_t none_hot = c->model->by_neurons ? bytes_with_share(c, 0) : one;
    return none_hot < one ? none_hot : one;
}

/* ---- the beginning and the end ----------------------------------------------------------------------- */

static hearth_status check_bindings(const hth_choice *c, hearth_error *err)
{
    const hth_device_info *info = c->info;
    uint64_t bytes;
    /* Caches first: of what depends on positions they are the largest. */
    for (uint32_t i = 0; i < c->model->hparams.n_layer; i++)
        if (!hth_gpu_cache_bytes(c->model, info->most, &c->place, i, &bytes))
            return hth_fail(
                err, HEARTH_ERROR_ARGUMENT,
                "%s: keys of %u positions are too large for a binding of %s; ask for less with -c",
                info->name, c->place.n_position, hth_bytes_shown(info->most).text);
    if (room_bytes(c) == UINT64_MAX)
        return hth_fail(
            err, HEARTH_ERROR_ARGUMENT,
            "%s: the values of %u tokens are too large for a binding of %s; ask for less with --batch",
            info->name, c->place.n_row, hth_bytes_shown(info->most).text);
    return HEARTH_OK;
}

hearth_status hth_choice_open(hth_choice *c, const hth_model *model, const hth_device_info *info,
                              uint64_t budget, const hth_gpu_place *place, hearth_error *err)
{
    uint32_t n_layer = model->hparams.n_layer;
    *c = (hth_choice){.model = model, .info = info, .place = *place, .budget = budget};
    c->n_hot = hth_alloc(n_layer, sizeof *c->n_hot);
    if (!c->n_hot) return hth_fail_memory(err, n_layer * sizeof *c->n_hot, "a place for a model");
    c->place.n_hot = c->n_hot, c->place.n_layer = n_layer, c->place.head = true;
    return check_bindings(c, err);
}

hth_limit hth_choice_limit(const hth_choice *c)
{
    hth_limit limit;
    snprintf(limit.text, sizeof limit.text, "%s%s%s", c->is_allowance ? "--vram allows " : "",
             hth_bytes_shown(c->budget).text, c->is_allowance ? "" : " are free");
    return limit;
}

void hth_choice_close(hth_choice *c)
{
    hth_free(c->n_hot);
    c->n_hot = NULL;
}

/* ---- evenly -------------------------------------------------------------------------------------------- */

/* The largest share of all neurons that fits beside everything else; false: not even none does. */
static bool divide_neurons(hth_choice *c)
{
    uint32_t low = 0, high = ALL;
    if (!c->model->by_neurons || bytes_with_share(c, 0) > c->budget) return false;
    while (low < high) {
        uint32_t middle = (low + high + 1) / 2;
        if (bytes_with_share(c, middle) <= c->budget) low = middle;
        else high = middle - 1;
    }
    for (uint32_t i = 0; i < c->place.n_layer; i++) c->n_hot[i] = share_of(c, i, low);
    return true;
}

/* The first layers, as many as can lie there whole, then the head: `most` of them, the head being the last. */
static void take_layers(hth_choice *c, uint64_t most)
{
    uint32_t n_layer = c->model->hparams.n_layer, i = 0;
    uint64_t used = room_bytes(c);
    for (; i < n_layer && i < most; i++) {
        c->problem = hth_gpu_problem(c->model, &c->place, i);
        c->n_hot[i] = c->model->layers[i].d_ff;
        if (c->problem || plus(used, layer_bytes(c, i, c->n_hot[i])) > c->budget) break;
        used += layer_bytes(c, i, c->n_hot[i]);
    }
    c->place.n_layer = i;
    c->place.head = false;
    if (i < n_layer || most <= n_layer) return;
    c->problem = hth_gpu_problem(c->model, &c->place, n_layer);
    c->place.head = !c->problem && plus(used, head_bytes(c)) <= c->budget;
}

static bool can_all_lie_there(const hth_choice *c)
{
    for (uint32_t i = 0; i <= c->model->hparams.n_layer; i++)
        if (hth_gpu_problem(c->model, &c->place, i)) return false;
    return true;
}

void hth_choice_evenly(hth_choice *c)
{
    memset(c->place.streams, 0, sizeof c->place.streams);
    c->problem = NULL, c->seconds = 0.0;
    if (c->place.max_layer > 0) {
        take_layers(c, c->place.max_layer);
        return;
    }
    c->place.n_layer = c->model->hparams.n_layer, c->place.head = true;
    if (can_all_lie_there(c) && hth_choice_whole_bytes(c) > c->budget && divide_neurons(c)) return;
    take_layers(c, UINT64_MAX);
}

/* ---- by number ----------------------------------------------------------------------------------------- */

bool hth_choice_names_layers(const char *placement, uint64_t *n)
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

void hth_choice_layers(hth_choice *c, uint64_t n)
{
    c->place.max_layer = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
    if (n > 0) hth_choice_evenly(c);
    else c->place.n_layer = 0, c->place.head = false;
}

/* ---- as a file says ------------------------------------------------------------------------------------ */

bool hth_choice_names_file(const char *placement)
{
    uint64_t n;
    return placement && strcmp(placement, "plan") != 0 && strcmp(placement, "even") != 0 &&
           !hth_choice_names_layers(placement, &n);
}

hearth_status hth_choice_check_word(const char *placement, hearth_error *err)
{
    struct stat about;
    char why[100] = "it is a folder";
    if (!hth_choice_names_file(placement)) return HEARTH_OK;
    bool there = stat(placement, &about) == 0 && access(placement, R_OK) == 0;
    if (there && !S_ISDIR(about.st_mode)) return HEARTH_OK;
    if (!there && strerror_r(errno, why, sizeof why) != 0) snprintf(why, sizeof why, "it cannot be read");
    return hth_fail(err, HEARTH_ERROR_IO,
                    "%.200s: no such placement: neither plan, even nor layers:N, nor a file that can be read "
                    "(%s); hearth "
                    "plan -o FILE makes one",
                    *placement ? placement : "''", why);
}

/* What lies there by the file must be able to. */
static hearth_status check_placement(const hth_choice *c, const hth_placement *p, const char *path,
                                     hearth_error *err)
{
    uint32_t n_layer = c->model->hparams.n_layer, n = p->head ? n_layer + 1 : p->n_layer;
    for (uint32_t i = 0; i < n; i++) {
        const char *problem = hth_gpu_problem(c->model, &c->place, i);
        uint32_t grain = i < n_layer ? hth_gpu_grain(c->model, i) : 0;
        if (problem)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: %s %u cannot lie on a device: %s", path,
                            i == n_layer ? "the head behind layer" : "layer", i, problem);
        if (grain > 0 && p->n_hot[i] < c->model->layers[i].d_ff && p->n_hot[i] % grain > 0)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                            "%s: %u neurons of layer %u: they are divided in multiples of %u", path,
                            p->n_hot[i], i, grain);
    }
    return HEARTH_OK;
}

hearth_status hth_choice_from_file(hth_choice *c, const char *path, hearth_error *err)
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
    c->place.n_layer = p.n_layer, c->place.head = p.head;
    c->place.handoff = p.submitted ? HTH_GPU_SUBMITTED : HTH_GPU_QUEUED;
    memcpy(c->place.streams, p.streams, sizeof p.streams);
    c->seconds = p.seconds;
    uint64_t all = hth_choice_bytes(c);
    if (st == HEARTH_OK && all == UINT64_MAX)
        st = hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: what it places is too large for the bindings of %s",
                      path, info->name);
    if (st == HEARTH_OK && all > c->budget)
        st = hth_fail(err, HEARTH_ERROR_MEMORY,
                      "%s: it takes %s on %s, and %s: make it again with hearth plan, or give the -c and "
                      "--batch that it was made for",
                      path, hth_bytes_shown(all).text, info->name, hth_choice_limit(c).text);
    hth_placement_close(&p);
    return st;
}
