/* The part of a model on a device: which device, how many layers, and their weights from the file to it.
 * Called by model.c between the reading of vectors and of matrices. */
#include "engine/engine.h"

#include "base/alloc.h"
#include "base/log.h"
#include "plan/placement.h"
#include "run/gpu/calls.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_BATCH = 256 };

/* ---- which device ------------------------------------------------------------------------------------ */

static hearth_status open_device(hearth_model *m, const hearth_gpu_options *o, hearth_error *err)
{
    char card[32];
    const char *name = o->device;
    if (strcmp(name, "auto") == 0) {
        if (!hth_device_find_card(card)) return HEARTH_OK;
        name = card;
    }
    hth_device_spec spec = {.name = name, .memory = o->vram, .functions = hth_gpu_functions};
    return hth_device_open(&spec, &m->device, err);
}

/* ---- what lies there ---------------------------------------------------------------------------------- */

/* A place as it is being chosen. */
typedef struct choice {
    const hth_model *model;
    hth_gpu_place place;
    uint64_t most, budget; /* bytes of a binding; of all */
    uint32_t *n_hot;
    const char
        *problem; /* why the layer behind the last, or the head, stays on the CPU; NULL: for want of memory */
} choice;

/* Bytes of layer i with n_hot of its neurons; UINT64_MAX: it cannot lie there. */
static uint64_t layer_bytes(const choice *c, uint32_t i, uint32_t n_hot)
{
    uint64_t weights, cache;
    bool fits = hth_gpu_layer_bytes(c->model, c->most, &c->place, i, n_hot, &weights) &&
                hth_gpu_cache_bytes(c->model, c->most, &c->place, i, &cache);
    return fits ? weights + cache : UINT64_MAX;
}

static uint64_t room_bytes(const choice *c)
{
    uint64_t bytes;
    return hth_gpu_room_bytes(c->model, c->most, &c->place, &bytes) ? bytes : UINT64_MAX;
}

static uint64_t head_bytes(const choice *c)
{
    uint64_t bytes;
    return hth_gpu_head_bytes(c->model, c->most, &bytes) ? bytes : UINT64_MAX;
}

static uint64_t plus(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

/* n of 4096 shares of layer i's neurons, in whole grains; all at 4096. */
static uint32_t share_of(const choice *c, uint32_t i, uint32_t n)
{
    uint32_t d_ff = c->model->layers[i].d_ff, grain = hth_gpu_grain(c->model, i);
    if (n == 4096 || grain == 0) return d_ff;
    return (uint32_t)((uint64_t)d_ff * n / 4096) / grain * grain;
}

/* All layers and the head, with that share of the neurons. */
static uint64_t bytes_with_share(const choice *c, uint32_t n)
{
    uint64_t all = plus(room_bytes(c), head_bytes(c));
    for (uint32_t i = 0; i < c->place.n_layer; i++) all = plus(all, layer_bytes(c, i, share_of(c, i, n)));
    return all;
}

/* The largest share of all neurons that fits beside everything else; false: not even none does. */
static bool divide_neurons(choice *c)
{
    uint32_t low = 0, high = 4096;
    if (!c->model->by_neurons || bytes_with_share(c, 0) > c->budget) return false;
    while (low < high) {
        uint32_t middle = (low + high + 1) / 2;
        if (bytes_with_share(c, middle) <= c->budget) low = middle;
        else high = middle - 1;
    }
    for (uint32_t i = 0; i < c->place.n_layer; i++) c->n_hot[i] = share_of(c, i, low);
    return true;
}

/* The first layers, as many as can lie there whole, then the head. */
static void take_layers(choice *c)
{
    uint32_t n_layer = c->model->hparams.n_layer, i = 0;
    uint64_t used = room_bytes(c);
    for (; i < n_layer; i++) {
        c->problem = hth_gpu_problem(c->model, &c->place, i);
        c->n_hot[i] = c->model->layers[i].d_ff;
        if (c->problem || plus(used, layer_bytes(c, i, c->n_hot[i])) > c->budget) break;
        used += layer_bytes(c, i, c->n_hot[i]);
    }
    c->place.n_layer = i;
    c->place.head = false;
    if (i < n_layer) return;
    c->problem = hth_gpu_problem(c->model, &c->place, n_layer);
    c->place.head = !c->problem && plus(used, head_bytes(c)) <= c->budget;
}

static bool can_all_lie_there(const choice *c)
{
    for (uint32_t i = 0; i <= c->model->hparams.n_layer; i++)
        if (hth_gpu_problem(c->model, &c->place, i)) return false;
    return true;
}

/* What lies there by the file must be able to. */
static hearth_status check_placement(const choice *c, const hth_placement *p, const char *path,
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

/* As a file says, where it is of this device. */
static hearth_status take_placement(hearth_model *m, const char *path, choice *c, hearth_error *err)
{
    const hth_device_info *info = hth_device_get_info(m->device);
    hth_placement p;
    hearth_status st = hth_placement_open(&p, path, c->model, err);
    if (st != HEARTH_OK) return st;
    memcpy(c->n_hot, p.n_hot, p.n_layer * sizeof *p.n_hot);
    if (strcmp(p.device, info->name) != 0 || strcmp(p.driver, info->driver) != 0)
        st = hth_fail(
            err, HEARTH_ERROR_ARGUMENT,
            "%s was made for %.100s (%.100s), not for %.100s (%.100s): make it again with hearth plan", path,
            p.device, p.driver, info->name, info->driver);
    if (st == HEARTH_OK) st = check_placement(c, &p, path, err);
    c->place.n_layer = p.n_layer, c->place.head = p.head;
    c->place.handoff = p.submitted ? HTH_GPU_SUBMITTED : HTH_GPU_QUEUED;
    uint64_t all = plus(room_bytes(c), p.head ? head_bytes(c) : 0);
    for (uint32_t i = 0; i < p.n_layer; i++) all = plus(all, layer_bytes(c, i, c->n_hot[i]));
    if (st == HEARTH_OK && all > c->budget)
        st = hth_fail(err, HEARTH_ERROR_MEMORY,
                      "%s: it takes %llu bytes on %s, and %llu are free: make it again with hearth plan",
                      path, (unsigned long long)all, info->name, (unsigned long long)c->budget);
    m->gpu_seconds = p.seconds;
    hth_placement_close(&p);
    return st;
}

static void choose_place(choice *c)
{
    if (can_all_lie_there(c) && bytes_with_share(c, 4096) > c->budget && divide_neurons(c)) return;
    take_layers(c);
}

static bool lies_beside(const hearth_model *m, const hth_matrix *w)
{
    return m->predictors && w->data >= m->predictors && w->data < m->predictors + m->predictors_size;
}

/* Rows of a matrix: from memory, where a file beside the model was read to, or from the model's file. */
static hearth_status read_rows(void *user, const hth_matrix *w, uint64_t first, uint64_t n, uint8_t *rows,
                               hearth_error *err)
{
    const hearth_model *m = user;
    const hth_binding *b = m->model->bindings;
    if (lies_beside(m, w)) {
        memcpy(rows, w->data + first * w->row_size, n * w->row_size);
        return HEARTH_OK;
    }
    while (b->matrix != w) b++; /* each matrix has one */
    return hth_gguf_read(m->file, b->tensor, b->from + first * w->row_size, n * w->row_size, rows, err);
}

static hearth_status refuse_budget(const hearth_model *m, const choice *c, hearth_error *err)
{
    choice whole = *c;
    whole.place.n_layer = m->model->hparams.n_layer, whole.place.head = true;
    uint64_t one = plus(room_bytes(&whole), layer_bytes(&whole, 0, m->model->layers[0].d_ff));
    uint64_t least = m->model->by_neurons ? bytes_with_share(&whole, 0) : one;
    return hth_fail(
        err, HEARTH_ERROR_MEMORY,
        "%s: %llu bytes on %s hold no layer of this model: the least is --vram %llu, all of it takes %llu",
        hth_gguf_path(m->file), (unsigned long long)c->budget, hth_device_get_info(m->device)->name,
        (unsigned long long)(least < one ? least : one), (unsigned long long)bytes_with_share(&whole, 4096));
}

/* What stays on the CPU for another reason than memory. */
static void note_problem(hearth_model *m, const choice *c)
{
    const char *name = hth_device_get_info(m->device)->name, *path = hth_gguf_path(m->file);
    uint32_t n = c->place.n_layer;
    if (!c->problem) return;
    if (n == 0) {
        snprintf(m->gpu_note, sizeof m->gpu_note, "%s: %s", name, c->problem);
        hth_log(HEARTH_LOG_WARN, "%s: nothing of it can lie on %s: %s", path, name, c->problem);
    } else {
        hth_log(HEARTH_LOG_WARN, "%s: %s %u stays on the CPU: %s", path,
                n == m->model->hparams.n_layer ? "the head behind layer" : "layer", n, c->problem);
    }
}

static hearth_status check_bindings(const hearth_model *m, const choice *c, hearth_error *err)
{
    const char *name = hth_device_get_info(m->device)->name;
    uint64_t bytes;
    /* Caches first: of what depends on positions they are the largest. */
    for (uint32_t i = 0; i < c->model->hparams.n_layer; i++)
        if (!hth_gpu_cache_bytes(c->model, c->most, &c->place, i, &bytes))
            return hth_fail(
                err, HEARTH_ERROR_ARGUMENT,
                "%s: keys of %u positions are too large for a binding of %llu bytes; ask for less with -c",
                name, c->place.n_position, (unsigned long long)c->most);
    if (room_bytes(c) == UINT64_MAX)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "%s: the values of %u tokens are too large for a binding of %llu bytes; ask for less "
                        "with --batch",
                        name, c->place.n_row, (unsigned long long)c->most);
    return HEARTH_OK;
}

/* A device may have less than it says. What could not be had is asked for again, a tenth less than what
 * was there, a few times; then the CPU does without. */
static hearth_status open_place(hearth_model *m, choice *c, hearth_error *err)
{
    enum { TRIES = 4 };
    const char *name = hth_device_get_info(m->device)->name;
    hearth_error why = {0};
    for (int i = 0; i < TRIES && c->place.n_layer > 0; i++) {
        hearth_status st =
            hth_gpu_open(m->model, &m->kernels, m->device, &c->place, read_rows, m, &m->gpu, &why);
        if (st != HEARTH_ERROR_MEMORY) {
            if (err && st != HEARTH_OK) *err = why;
            return st;
        }
        hth_log(HEARTH_LOG_WARN, "%s: %s; less is placed there, evenly", hth_gguf_path(m->file), why.message);
        uint64_t reached = hth_device_state(m->device).refused;
        c->budget = (reached > 0 && reached < c->budget ? reached : c->budget) / 10 * 9;
        c->place.n_layer = m->model->hparams.n_layer, c->place.head = true;
        choose_place(c);
    }
    hth_log(HEARTH_LOG_WARN, "%s: %s; all of it runs on the CPU", hth_gguf_path(m->file), why.message);
    snprintf(m->gpu_note, sizeof m->gpu_note, "%.90s: %.300s", name, why.message);
    return HEARTH_OK;
}

static hearth_status place_on_device(hearth_model *m, const hearth_gpu_options *o, hearth_error *err)
{
    const hth_device_info *info = hth_device_get_info(m->device);
    uint32_t n_ctx = o->n_ctx ? o->n_ctx : hth_default_context(&m->model->hparams),
             n_layer = m->model->hparams.n_layer;
    uint64_t free_bytes = hth_device_free_memory(info);
    choice c = {.model = m->model, .most = info->most, .n_hot = hth_alloc(n_layer, sizeof *c.n_hot)};
    if (!c.n_hot) return hth_fail_memory(err, n_layer * sizeof *c.n_hot, "a place for a model");
    c.budget = o->vram > 0 && o->vram < free_bytes ? o->vram : free_bytes;
    if (o->vram > free_bytes)
        hth_log(HEARTH_LOG_WARN, "%s has %llu bytes free, fewer than the %llu that are allowed", info->name,
                (unsigned long long)free_bytes, (unsigned long long)o->vram);
    c.place = (hth_gpu_place){.n_layer = n_layer,
                              .n_hot = c.n_hot,
                              .head = true,
                              .n_row = hth_gpu_rows(info, o->n_batch ? o->n_batch : DEFAULT_BATCH, n_ctx),
                              .n_position = hth_gpu_positions(n_ctx),
                              .kv = o->kv,
                              .selector = m->selector,
                              .strict = o->strict};
    hearth_status st = check_bindings(m, &c, err);
    if (st == HEARTH_OK && o->placement) st = take_placement(m, o->placement, &c, err);
    if (st == HEARTH_OK) {
        if (!o->placement) choose_place(&c);
        note_problem(m, &c);
        if (c.place.n_layer > 0) st = open_place(m, &c, err);
        else if (!c.problem) st = refuse_budget(m, &c, err);
    }
    hth_free(c.n_hot);
    return st;
}

hearth_status hth_engine_place_again(hearth_model *m, const hth_gpu_place *before, uint64_t budget,
                                     hearth_error *err)
{
    uint32_t n_layer = m->model->hparams.n_layer;
    choice c = {.model = m->model,
                .place = *before,
                .most = hth_device_get_info(m->device)->most,
                .budget = budget,
                .n_hot = hth_alloc(n_layer, sizeof *c.n_hot)};
    if (!c.n_hot) return hth_fail_memory(err, n_layer * sizeof *c.n_hot, "a place for a model");
    c.place.n_layer = n_layer, c.place.n_hot = c.n_hot, c.place.head = true;
    choose_place(&c);
    hearth_status st = c.place.n_layer > 0 ? open_place(m, &c, err) : HEARTH_OK;
    hth_free(c.n_hot);
    return st;
}

hearth_status hth_engine_open_gpu(hearth_model *m, const hearth_gpu_options *o, hearth_error *err)
{
    hearth_error why = {0};
    if (!o->device || strcmp(o->device, "none") == 0) return HEARTH_OK;
    if ((uint32_t)o->kv >= HTH_N_CACHE)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "%s: KV cache of type %d on a device: 0 (F16), 1 (F32) and 2 (Q8_0) exist",
                        hth_gguf_path(m->file), (int)o->kv);
    hearth_status st = open_device(m, o, &why);
    if (st == HEARTH_OK && m->device) st = place_on_device(m, o, &why);
    if (st == HEARTH_OK) return st;
    if (err) *err = why;
    if (strcmp(o->device, "auto") != 0 || o->vram > 0 || o->strict) return st;
    /* Nobody asked for this device: the CPU does without it. */
    hth_log(HEARTH_LOG_WARN, "%s; all of it runs on the CPU", why.message);
    snprintf(m->gpu_note, sizeof m->gpu_note, "%.399s", why.message);
    hth_engine_close_gpu(m);
    return HEARTH_OK;
}

uint64_t hth_engine_first_row(const hearth_model *m, const hth_matrix *w)
{
    if (!m->gpu || m->lost) return 0;
    const hth_gpu_place *place = hth_gpu_where(m->gpu);
    if (w == &m->model->output) return place->head ? w->n_row : 0;
    for (uint32_t i = 0; i < place->n_layer; i++) {
        const hth_layer *l = &m->model->layers[i];
        if (w == &l->q || w == &l->k || w == &l->v || w == &l->o || w == &l->down) return w->n_row;
        if (w == &l->gate || w == &l->up || w == &l->neurons.rows) return place->n_hot[i];
        if (w == &l->predictor.in || w == &l->predictor.out) return w->n_row;
    }
    return 0;
}

void hth_engine_close_gpu(hearth_model *m)
{
    hth_gpu_close(m->gpu);
    for (uint32_t i = 0; i < m->n_left; i++) hth_gpu_close(m->left[i]);
    hth_device_close(m->device);
    m->gpu = NULL, m->device = NULL;
}
