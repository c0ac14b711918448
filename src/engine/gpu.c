/* The part of a model on a device: which device, how many layers, and their weights from the file to it. Called by
 * model.c between the reading of vectors and of matrices. */
#include "engine/engine.h"

#include "base/alloc.h"
#include "base/log.h"
#include "run/gpu/calls.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_BATCH = 256, MOST_DEVICES = 16 };

/* ---- which device ------------------------------------------------------------------------------------ */

/* The first card of its own that can be used, as "vulkan:N". */
static bool find_card(char name[32])
{
    hth_device_info found[MOST_DEVICES];
    char note[200];
    size_t n;
    hth_device_list(found, MOST_DEVICES, &n, note);
    for (size_t i = 0; i < n; i++) {
        if (found[i].kind != HTH_DEVICE_DISCRETE || found[i].problem[0]) continue;
        snprintf(name, 32, "vulkan:%zu", i);
        return true;
    }
    return false;
}

/* What is left free of what a device says that it has: others need some, and drivers take some for themselves. */
static uint64_t free_budget(const hth_device_info *info)
{
    const uint64_t least_margin = (uint64_t)256 << 20;
    uint64_t has = info->budget > 0 && info->budget < info->memory ? info->budget : info->memory;
    uint64_t margin = info->memory / 20 > least_margin ? info->memory / 20 : least_margin;
    return info->kind == HTH_DEVICE_NULL ? has : has > margin ? has - margin : 0;
}

static hearth_status open_device(hearth_model *m, const hearth_gpu_options *o, hearth_error *err)
{
    char card[32];
    const char *name = o->device;
    if (strcmp(name, "auto") == 0) {
        if (!find_card(card)) return HEARTH_OK;
        name = card;
    }
    hth_device_spec spec = {.name = name, .memory = o->vram, .functions = hth_gpu_functions};
    return hth_device_open(&spec, &m->device, err);
}

/* ---- what lies there ------------------------------------------------------------------------------------ */

/* The first layers, as many as can lie there and fit; then the head. */
static void fill_place(const hearth_model *m, const hth_gpu_bytes *bytes, uint64_t budget,
                       hth_gpu_place *place, const char **problem)
{
    uint32_t n_layer = m->model->hparams.n_layer, i = 0;
    uint64_t used = bytes->room;
    *problem = NULL;
    for (; i < n_layer; i++) {
        *problem = hth_gpu_problem(m->model, place->kv, i);
        if (*problem || used > budget || bytes->layers[i] + bytes->cache[i] > budget - used) break;
        used += bytes->layers[i] + bytes->cache[i];
    }
    place->n_layer = i;
    if (i < n_layer) return;
    *problem = hth_gpu_problem(m->model, place->kv, n_layer);
    place->head = !*problem && used <= budget && bytes->head <= budget - used;
}

/* Rows of a matrix from the file, wherever the host has them. */
static hearth_status read_rows(void *user, const hth_matrix *w, uint64_t first, uint64_t n, uint8_t *rows,
                               hearth_error *err)
{
    const hearth_model *m = user;
    const hth_binding *b = m->model->bindings;
    while (b->matrix != w) b++; /* each matrix has one */
    return hth_gguf_read(m->file, b->tensor, b->from + first * w->row_size, n * w->row_size, rows, err);
}

uint64_t hth_engine_gpu_all(const hearth_model *m, const hth_gpu_bytes *bytes)
{
    uint64_t all = bytes->room + bytes->head;
    for (uint32_t i = 0; i < m->model->hparams.n_layer; i++) all += bytes->layers[i] + bytes->cache[i];
    return all;
}

static hearth_status refuse_budget(const hearth_model *m, const hth_gpu_bytes *bytes, uint64_t budget,
                                   hearth_error *err)
{
    return hth_fail(
        err, HEARTH_ERROR_MEMORY,
        "%s: %llu bytes on %s hold no layer of this model: the least is --vram %llu, all of it takes %llu",
        hth_gguf_path(m->file), (unsigned long long)budget, hth_device_get_info(m->device)->name,
        (unsigned long long)(bytes->room + bytes->layers[0] + bytes->cache[0]),
        (unsigned long long)hth_engine_gpu_all(m, bytes));
}

/* Whole slots, as many as there can be. */
static uint32_t positions_of(uint32_t n_ctx)
{
    uint32_t n_slot = n_ctx / HTH_GPU_SLOT + (n_ctx % HTH_GPU_SLOT > 0), most = UINT32_MAX / HTH_GPU_SLOT;
    return (n_slot < most ? n_slot : most) * HTH_GPU_SLOT;
}

static hearth_status place_on_device(hearth_model *m, const hearth_gpu_options *o, hearth_error *err)
{
    const hth_device_info *info = hth_device_get_info(m->device);
    uint32_t n_ctx = o->n_ctx ? o->n_ctx : hth_session_default_context(m),
             n_row = o->n_batch ? o->n_batch : DEFAULT_BATCH;
    hth_gpu_place place = {.n_layer = m->model->hparams.n_layer, .head = true, .kv = o->kv};
    uint64_t free_bytes = free_budget(info),
             budget = o->vram > 0 && o->vram < free_bytes ? o->vram : free_bytes;
    const char *problem = NULL;
    hth_gpu_bytes bytes;
    place.n_position = positions_of(n_ctx);
    place.n_row = n_row < n_ctx ? n_row : n_ctx;
    hearth_status st = hth_gpu_count(m->model, info, &place, &bytes, err);
    if (st != HEARTH_OK) return st;
    place.head = false;
    fill_place(m, &bytes, budget, &place, &problem);
    if (place.n_layer == 0 && problem) {
        snprintf(m->gpu_note, sizeof m->gpu_note, "%s: %s", info->name, problem);
        hth_log(HEARTH_LOG_WARN, "%s: nothing of it can lie on %s: %s", hth_gguf_path(m->file), info->name,
                problem);
    } else if (place.n_layer == 0) {
        st = refuse_budget(m, &bytes, budget, err);
    } else {
        if (problem)
            hth_log(HEARTH_LOG_WARN, "%s: %s %u stays on the CPU: %s", hth_gguf_path(m->file),
                    place.n_layer == m->model->hparams.n_layer ? "the head behind layer" : "layer",
                    place.n_layer, problem);
        st = hth_gpu_open(m->model, &m->kernels, m->device, &place, read_rows, m, &m->gpu, err);
    }
    hth_gpu_count_free(&bytes);
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
    if (strcmp(o->device, "auto") != 0 || o->vram > 0) return st;
    /* Nobody asked for this device: the CPU does without it. */
    hth_log(HEARTH_LOG_WARN, "%s; all of it runs on the CPU", why.message);
    snprintf(m->gpu_note, sizeof m->gpu_note, "%.399s", why.message);
    hth_engine_close_gpu(m);
    return HEARTH_OK;
}

bool hth_engine_on_gpu(const hearth_model *m, const hth_matrix *w)
{
    if (!m->gpu || !w) return false;
    const hth_gpu_place *place = hth_gpu_where(m->gpu);
    if (w == &m->model->output) return place->head;
    for (uint32_t i = 0; i < place->n_layer; i++) {
        const hth_layer *l = &m->model->layers[i];
        if (w == &l->q || w == &l->k || w == &l->v || w == &l->o || w == &l->gate || w == &l->up ||
            w == &l->down || w == &l->neurons.rows)
            return true;
    }
    return false;
}

void hth_engine_close_gpu(hearth_model *m)
{
    hth_gpu_close(m->gpu);
    hth_device_close(m->device);
    m->gpu = NULL, m->device = NULL;
}
