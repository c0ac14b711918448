/* Opening and closing a part of a model on a device, and the positions that its sequences have in the
 * caches there. */
#include "run/gpu/gpu_int.h"

#include "base/alloc.h"
#include "base/log.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- opening ---------------------------------------------------------------------------------------- */

/* The layers of which the host has a part. */
static hearth_status find_hands(hth_gpu *g, const hth_gpu_place *place, hearth_error *err)
{
    uint32_t *n_hot = hth_alloc(place->n_layer, sizeof *n_hot);
    g->hands = hth_alloc(place->n_layer, sizeof *g->hands);
    g->place.n_hot = n_hot;
    if (!n_hot || !g->hands)
        return hth_fail_memory(err, place->n_layer * sizeof *n_hot, "a model on a device");
    memcpy(n_hot, place->n_hot, place->n_layer * sizeof *n_hot);
    for (uint32_t i = 0; i < place->n_layer; i++)
        if (n_hot[i] < g->model->layers[i].d_ff) g->hands[g->n_hand++] = i;
    g->cold_tops = hth_alloc((size_t)g->n_hand * place->n_row, sizeof *g->cold_tops);
    if (g->cold_tops) return HEARTH_OK;
    return hth_fail_memory(err, (size_t)g->n_hand * place->n_row * sizeof *g->cold_tops,
                           "a model on a device");
}

/* ---- the CPU's bits ----------------------------------------------------------------------------------- */

/* Refused where they must be given. */
static hearth_status refuse(const hth_gpu *g, hearth_error *err)
{
    if (!g->place.strict || !g->strict_note[0]) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                    "%s: %s would not give the CPU's bits: %s; without --gpu-strict it computes with others",
                    hth_gguf_path(g->model->file), hth_device_get_info(g->device)->name, g->strict_note);
}

static hearth_status look_for_floats(hth_gpu *g, hearth_error *err)
{
    const hth_model *m = g->model;
    const hth_matrix *floats = hth_gpu_first_floats(m, &g->place);
    hth_text name = {"a predictor's matrix", 20}; /* of a file beside the model's */
    for (size_t i = 0; i < m->n_binding; i++)
        if (m->bindings[i].matrix == floats && m->bindings[i].tensor) name = m->bindings[i].tensor->name;
    if (floats)
        snprintf(g->strict_note, sizeof g->strict_note, "%.*s is %s", (int)(name.n < 100 ? name.n : 100),
                 name.bytes, hth_type_find(floats->type)->name);
    return refuse(g, err);
}

/* Tapes, and with them all programs that they use: without those on matrix units that the driver refuses, of
 * which one can be named already. */
static hearth_status record_with(hth_gpu *g, hth_matrices matrices, const char *why, hearth_error *err)
{
    static const char *const units[][2] = {{"the matrix units", "are"}, {"NV_cooperative_matrix2", "is"}};
    const char *path = hth_gguf_path(g->model->file), *name = hth_device_get_info(g->device)->name;
    hearth_error refused = {0};
    for (;; matrices--, why = refused.message) {
        if (why) {
            const char *const *what = units[matrices];
            hth_log(HEARTH_LOG_WARN, "%s: %s of %s %s not used: %s", path, what[0], name, what[1], why);
            hth_gpu_tapes_free(g);
        }
        g->matrices = matrices;
        hearth_status st = hth_gpu_record(g, &refused);
        if (st == HEARTH_ERROR_UNSUPPORTED && matrices > HTH_MATRICES_NONE) continue;
        if (st != HEARTH_OK && err) *err = refused;
        return st;
    }
}

/* The first that can be done without, and that differs: those above it can, too. */
static hth_matrices find_wrong(const hth_gpu *g, char (*notes)[HTH_GPU_NOTE])
{
    hth_matrices i = HTH_MATRICES_KHR;
    while (i <= g->matrices && notes[i][0] == '\0') i++;
    return i <= g->matrices ? i : HTH_MATRICES_NONE;
}

static hth_matrices matrices_of(const hth_device_info *info)
{
    if (info->features & HTH_FEATURE_MATRIX_2) return HTH_MATRICES_CM2;
    return info->n_shape > 0 ? HTH_MATRICES_KHR : HTH_MATRICES_NONE;
}

/* Tapes, then the test of the programs that they use. It writes where the values of steps will lie. */
static hearth_status record_and_test(hth_gpu *g, hearth_error *err)
{
    hth_gpu_notes notes;
    const hth_device_info *info = hth_device_get_info(g->device);
    hearth_status st = record_with(g, matrices_of(info), NULL, err);
    if (st != HEARTH_OK || (g->strict_note[0] && g->matrices == HTH_MATRICES_NONE)) return st;
    hth_matrices wrong = HTH_MATRICES_NONE;
    do {
        if (wrong) st = record_with(g, wrong - 1, notes[wrong], err);
        if (st == HEARTH_OK) st = hth_gpu_selftest(g->device, g->room.memory, notes, err);
        if (st != HEARTH_OK) return st;
        wrong = find_wrong(g, notes);
    } while (wrong);
    if (g->strict_note[0]) return st;
    memcpy(g->strict_note, notes[HTH_MATRICES_NONE], sizeof g->strict_note);
    st = refuse(g, err);
    if (st == HEARTH_OK && g->strict_note[0])
        hth_log(HEARTH_LOG_WARN, "%s: %s does not give the CPU's bits: %s", hth_gguf_path(g->model->file),
                info->name, g->strict_note);
    return st;
}

/* A card ends some submissions in far less (work.c); drivers that compute on the CPU share it with others. */
static uint64_t patience_with(const hth_device *device)
{
    return (hth_device_get_info(device)->kind == HTH_DEVICE_DISCRETE ? 10u : 600u) * (uint64_t)1000000000;
}

hearth_status hth_gpu_open(const hth_model *model, const hth_kernels *kernels, hth_device *device,
                           const hth_gpu_place *place, hth_gpu_read_fn *read, void *user, hth_gpu **out,
                           hearth_error *err)
{
    *out = NULL;
    hth_gpu *g = hth_alloc(1, sizeof *g);
    if (!g) return hth_fail_memory(err, sizeof *g, "a model on a device");
    *g = (hth_gpu){.model = model,
                   .kernels = kernels,
                   .device = device,
                   .place = *place,
                   .patience_ns = patience_with(device)};
    g->place.n_hot = NULL;
    if (g->place.n_work == 0) g->place.n_work = hth_gpu_usual_submission(hth_device_get_info(device));
    g->gate = hth_queue_gate(device); /* others may have used it */
    pthread_mutex_init(&g->turn, NULL);
    g->n_slot = place->n_position / HTH_GPU_SLOT;
    g->layers = hth_alloc(place->n_layer, sizeof *g->layers);
    g->taken = hth_alloc(g->n_slot, 1);
    hearth_status st =
        g->layers && g->taken ? HEARTH_OK : hth_fail_memory(err, g->n_slot, "a model on a device");
    if (st == HEARTH_OK) st = find_hands(g, place, err);
    if (st == HEARTH_OK) st = look_for_floats(g, err);
    if (st == HEARTH_OK) st = hth_gpu_room_open(g, err);
    if (st == HEARTH_OK) st = hth_gpu_caches_open(g, err);
    if (st == HEARTH_OK) st = hth_gpu_weights_open(g, read, user, err);
    if (st == HEARTH_OK && g->n_hand == 0) st = record_and_test(g, err);
    if (st == HEARTH_OK) *out = g;
    else hth_gpu_close(g);
    return st;
}

/* What it has on the device. A thread of a session that comes late may still look at the host's layers. */
static void give_back(hth_gpu *g)
{
    hth_queue_settle(g->device, g->patience_ns, NULL); /* else its memory is given back with the device */
    hth_gpu_tapes_free(g);
    hth_gpu_weights_close(g);
    hth_gpu_caches_close(g);
    hth_gpu_room_close(g);
}

void hth_gpu_close(hth_gpu *g)
{
    if (!g) return;
    if (!g->left) give_back(g);
    pthread_mutex_destroy(&g->turn);
    hth_gpu_passages_close(g);
    hth_free(g->layers);
    hth_free(g->taken);
    hth_free(g->ticks);
    hth_free(g->turns);
    hth_free(g->cold_tops);
    hth_free(g->hands);
    hth_free((void *)(uintptr_t)g->place.n_hot);
    hth_free(g);
}

void hth_gpu_leave(hth_gpu *g)
{
    pthread_mutex_lock(&g->turn);
    give_back(g);
    g->left = true;
    pthread_mutex_unlock(&g->turn);
}

uint64_t hth_gpu_usage(hth_gpu *g, uint64_t *budget)
{
    pthread_mutex_lock(&g->turn);
    *budget = hth_device_budget(g->device);
    uint64_t used = hth_device_state(g->device).used;
    pthread_mutex_unlock(&g->turn);
    return used;
}

/* ---- the host's neurons ------------------------------------------------------------------------------- */

/* n rows of a matrix, of which skipped ones stand before the first; an absent one has none. */
static hth_matrix some_rows(const hth_matrix *m, uint32_t n_skip, uint32_t n)
{
    hth_matrix some = *m;
    if (m->n_row == 0) return some;
    some.data = m->data + n_skip * m->row_size;
    some.n_row = n;
    return some;
}

/* What a layer's neurons from `first` on send to is the same; of their rows n_skip stand before the first. */
static hth_layer neurons_of(const hth_layer *l, uint32_t first, uint32_t n, uint32_t n_skip)
{
    hth_layer some = *l;
    some.d_ff = n;
    some.gate = some_rows(&l->gate, n_skip, n);
    some.up = some_rows(&l->up, n_skip, n);
    some.neurons.rows = some_rows(&l->neurons.rows, n_skip, n);
    some.gate_bias = l->gate_bias ? l->gate_bias + first : NULL;
    some.up_bias = l->up_bias ? l->up_bias + first : NULL;
    some.floor = l->floor ? l->floor + first : NULL;
    return some;
}

hth_layer hth_gpu_some_neurons(const hth_layer *l, uint32_t first, uint32_t n)
{
    return neurons_of(l, first, n, first);
}

/* Of the rows that the host read the device's are not: they begin with its own. */
static hth_layer cold_layer(const hth_layer *l, uint32_t n_hot)
{
    return neurons_of(l, n_hot, l->d_ff - n_hot, 0);
}

hearth_status hth_gpu_take_host_rows(hth_gpu *g, hearth_error *err)
{
    for (uint32_t i = 0; i < g->n_hand; i++) {
        hth_gpu_layer *to = &g->layers[g->hands[i]];
        const hth_layer *l = &g->model->layers[g->hands[i]];
        to->scale_top = l->neurons.scale_top;
        to->cold = to->agreed = cold_layer(l, to->n_hot);
    }
    if (g->n_hand == 0) return HEARTH_OK;
    hearth_status st = hth_gpu_passages_open(g, err);
    return st == HEARTH_OK ? record_and_test(g, err) : st;
}

const hth_gpu_place *hth_gpu_where(const hth_gpu *g) { return &g->place; }
bool hth_gpu_is_strict(const hth_gpu *g) { return g->strict_note[0] == '\0'; }
const char *hth_gpu_strict_note(const hth_gpu *g) { return g->strict_note; }
float hth_gpu_scale_top(const hth_gpu *g, uint32_t i_layer) { return g->layers[i_layer].scale_top; }
hth_gpu_counts hth_gpu_count(const hth_gpu *g) { return g->counts; }

/* ---- sequences ---------------------------------------------------------------------------------------- */

enum { FREE, TAKEN, FIRST };

hearth_status hth_gpu_reserve(hth_gpu *g, uint32_t n_ctx, uint32_t *slot, hearth_error *err)
{
    uint32_t n = n_ctx / HTH_GPU_SLOT + (n_ctx % HTH_GPU_SLOT > 0), run = 0, end = 0;
    pthread_mutex_lock(&g->turn);
    for (; end < g->n_slot && run < n; end++) run = g->taken[end] == FREE ? run + 1 : 0;
    if (run == n) {
        *slot = (end - n) * HTH_GPU_SLOT;
        memset(g->taken + (end - n), TAKEN, n);
        g->taken[end - n] = FIRST;
    }
    pthread_mutex_unlock(&g->turn);
    if (run == n) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_MEMORY,
                    "%s: no room for %u positions beside other sessions: the model was opened for %u in all",
                    hth_device_get_info(g->device)->name, n_ctx, g->place.n_position);
}

void hth_gpu_inherit(hth_gpu *g, hth_gpu *from)
{
    assert(g->n_slot == from->n_slot);
    memcpy(g->taken, from->taken, g->n_slot);
}

void hth_gpu_release(hth_gpu *g, uint32_t slot)
{
    uint32_t i = slot / HTH_GPU_SLOT;
    pthread_mutex_lock(&g->turn);
    do g->taken[i++] = FREE;
    while (i < g->n_slot && g->taken[i] == TAKEN);
    pthread_mutex_unlock(&g->turn);
}
