/* The part of a model on a device: which device, how many layers, and their weights from the file to it.
 * Called by model.c between the reading of vectors and of matrices and behind them, and by gpu_fallback.c in
 * mid-run. */
#include "engine/engine.h"

#include "base/format_bytes.h"
#include "base/log.h"
#include "placement/policy.h"
#include "forward/gpu/shader_params.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { DEFAULT_BATCH = 256 };

/* ---- which device ------------------------------------------------------------------------------------ */

static hearth_status open_device(hearth_model *m, const hearth_gpu_options *o, hearth_error *err)
{
    char card[32];
    const char *name = o->device;
    if (strcmp(name, "auto") == 0) {
        if (!hth_device_find_discrete(card)) return HEARTH_OK;
        name = card;
    }
    hth_device_spec spec = {.name = name, .memory = o->vram, .shader_refs = hth_shader_ref_table};
    return hth_device_open(&spec, &m->device, err);
}

/* ---- what is said of it -------------------------------------------------------------------------------- */

void hth_engine_set_gpu_status(hearth_model *m, const char *format, ...)
{
    va_list list;
    if (m->n_gpu_status == HTH_MAX_GPU_STATUS) return;
    va_start(list, format);
    vsnprintf(m->gpu_statuses[m->n_gpu_status++], sizeof m->gpu_statuses[0], format, list);
    va_end(list);
}

const char *hth_engine_gpu_status(const hearth_model *m)
{
    return m->n_gpu_status > 0 ? m->gpu_statuses[m->n_gpu_status - 1] : "";
}

/* ---- what lies there ---------------------------------------------------------------------------------- */

/* The rows of a matrix from here on are the host's: those before lie on a device with this place. */
static uint64_t rows_there(const hth_model *model, const hth_offload_params *params, const hth_matrix *w)
{
    if (w == &model->output) return params->head ? w->n_row : 0;
    for (uint32_t i = 0; i < params->n_layer; i++) {
        const hth_layer *l = &model->layers[i];
        if (w == &l->q || w == &l->k || w == &l->v || w == &l->o || w == &l->down) return w->n_row;
        if (w == &l->gate || w == &l->up || w == &l->down_t.rows) return params->n_hot[i];
        if (w == &l->predictor.in || w == &l->predictor.out) return w->n_row;
    }
    return 0;
}

/* What of the weights goes to the device, and who is told of it. */
typedef struct sender {
    const hearth_model *model;
    const hearth_model_options *options; /* NULL: nobody */
    uint64_t done, total;                /* bytes */
} sender;

static sender sender_of(const hearth_model *m, const hth_offload_params *params,
                        const hearth_model_options *options)
{
    const hth_model *model = m->model;
    sender s = {.model = m, .options = options};
    for (size_t i = 0; i < model->n_binding; i++) {
        const hth_matrix *w = model->bindings[i].matrix;
        if (w) s.total += rows_there(model, params, w) * w->row_size;
    }
    if (params->head && model->tied) s.total += model->token_embd.n_row * model->token_embd.row_size;
    return s;
}

static hearth_status show_progress(const sender *s, hearth_error *err)
{
    uint64_t done = s->done < s->total ? s->done : s->total;
    return hth_engine_report_progress(s->model, s->options, done, s->total, err);
}

/* Rows of a matrix: from memory, where a file beside the model was read to, or from the model's file. */
static hearth_status read_rows(void *user, const hth_matrix *w, uint64_t first, uint64_t n, uint8_t *rows,
                               hearth_error *err)
{
    sender *s = user;
    const hearth_model *m = s->model;
    const hth_binding *b = m->model->bindings;
    s->done += n * w->row_size;
    if (hth_engine_is_from_sidecar(m, w)) {
        memcpy(rows, w->data + first * w->row_size, n * w->row_size);
        return HEARTH_OK;
    }
    while (b->matrix != w) b++; /* each matrix has one */
    hearth_status st =
        hth_gguf_read(m->file, b->tensor, b->offset + first * w->row_size, n * w->row_size, rows, err);
    return st == HEARTH_OK ? show_progress(s, err) : st;
}

static hearth_status refuse_budget(const hearth_model *m, const hth_placement_builder *c, hearth_error *err)
{
    const char *path = hth_gguf_path(m->file), *name = c->info->name;
    uint64_t min = hth_placement_builder_least_bytes(c), whole = hth_placement_builder_whole_bytes(c),
             is_free = hth_device_free_memory(c->info);
    if (min == UINT64_MAX)
        return hth_fail(
            err, HEARTH_ERROR_MEMORY,
            "%s: no layer of it fits into what %s binds at once; a smaller -c or --batch takes less, "
            "--gpu none does without it",
            path, name);
    if (min <= is_free)
        return hth_fail(err, HEARTH_ERROR_MEMORY,
                        "%s: %s on %s hold no layer of this model: the least is --vram %s%s%s; a smaller -c "
                        "or --batch takes less",
                        path, hth_format_bytes(c->budget).text, name, hth_format_size_arg(min).text,
                        whole < UINT64_MAX ? ", all of it takes " : "",
                        whole < UINT64_MAX ? hth_format_size_arg(whole).text : "");
    return hth_fail(
        err, HEARTH_ERROR_MEMORY,
        "%s: no layer of it fits on %s: the least is %s, and of its %s %s are free (a twentieth, at least "
        "256 MiB, is left to others); a smaller -c or --batch takes less, --gpu none does without it",
        path, name, hth_format_bytes(min).text, hth_format_bytes(c->info->memory).text,
        hth_format_bytes(is_free).text);
}

/* What stays on the CPU for another reason than memory. */
static void note_problem(hearth_model *m, const hth_placement_builder *c)
{
    const char *name = c->info->name, *path = hth_gguf_path(m->file);
    uint32_t n = c->params.n_layer;
    if (!c->unsupported_reason) return;
    if (n == 0) {
        hth_engine_set_gpu_status(m, "%s: %s", name, c->unsupported_reason);
        hth_log(HEARTH_LOG_WARN, "%s: nothing of it lies on %s: %s", path, name, c->unsupported_reason);
    } else {
        hth_log(HEARTH_LOG_WARN, "%s: %s %u stays on the CPU: %s", path,
                n == m->model->hparams.n_layer ? "the head behind layer" : "layer", n, c->unsupported_reason);
    }
}

/* By a file, or a plan, or evenly: as asked for, or as suits the device. Of one that computes on the CPU
 * no plan knows anything. */
static hearth_status choose(hearth_model *m, const hearth_gpu_options *o, hth_placement_builder *c,
                            hearth_error *err)
{
    hearth_error why = {0};
    bool plans = hth_device_is_usable_gpu(c->info);
    uint64_t n_layer;
    if (hth_placement_arg_is_path(o->placement)) return hth_placement_builder_from_file(c, o->placement, err);
    if (hth_placement_arg_layers(o->placement, &n_layer))
        return hth_placement_builder_layers(c, n_layer), HEARTH_OK;
    if (o->placement) plans = strcmp(o->placement, "plan") == 0;
    hearth_status st = HEARTH_OK;
    if (plans) st = hth_placement_builder_plan(c, m->device, &m->kernels, m->n_thread, &why);
    if (st == HEARTH_ERROR_MEMORY || st == HEARTH_ERROR_ARGUMENT) {
        hth_log(HEARTH_LOG_WARN, "%s: %s; without a plan each layer gets the same share",
                hth_gguf_path(m->file), why.message);
        plans = false, st = HEARTH_OK;
    }
    if (!plans) hth_placement_uniform(c);
    if (err && st != HEARTH_OK) *err = why;
    return st;
}

/* A device may have less than it says. What could not be had is asked for again, a tenth less than what
 * was there, a few times; then the CPU does without. */
static hearth_status open_place(hearth_model *m, hth_placement_builder *c,
                                const hearth_model_options *options, bool quiet, hearth_error *err)
{
    enum { TRIES = 4 };
    hearth_error why = {0};
    for (int i = 0; i < TRIES && c->params.n_layer > 0; i++) {
        sender s = sender_of(m, &c->params, options);
        hearth_status st = show_progress(&s, &why);
        if (st == HEARTH_OK)
            st = hth_gpu_open(m->model, &m->kernels, m->device, &c->params, read_rows, &s, &m->gpu, &why);
        m->gpu_seconds = c->seconds;
        if (st != HEARTH_ERROR_MEMORY) {
            if (err && st != HEARTH_OK) *err = why;
            return st;
        }
        if (i + 1 == TRIES) break;
        if (!quiet)
            hth_log(HEARTH_LOG_WARN, "%s: %s; less is placed there, evenly", hth_gguf_path(m->file),
                    why.message);
        uint64_t reached = hth_device_state(m->device).used_at_oom;
        c->budget = (reached > 0 && reached < c->budget ? reached : c->budget) / 10 * 9;
        hth_placement_uniform(c);
    }
    if (!quiet)
        hth_log(HEARTH_LOG_WARN, "%s: %s; all of it runs on the CPU", hth_gguf_path(m->file), why.message);
    hth_engine_set_gpu_status(m, "%.90s: %.300s", c->info->name, why.message);
    return HEARTH_OK;
}

static hearth_status place_on_device(hearth_model *m, const hearth_model_options *options, hearth_error *err)
{
    const hearth_gpu_options *o = &options->gpu;
    const hth_device_info *info = hth_device_get_info(m->device);
    uint32_t n_ctx = hth_context_for(&m->model->hparams, o->n_ctx);
    uint64_t free_bytes = hth_device_free_memory(info);
    hth_placement_builder c;
    if (o->vram > free_bytes)
        hth_log(HEARTH_LOG_WARN, "%s has %s free, less than the %s that --vram allows", info->name,
                hth_format_bytes(free_bytes).text, hth_format_bytes(o->vram).text);
    const hth_offload_params params = {
        .n_row = hth_gpu_batch_size(info, o->n_batch ? o->n_batch : DEFAULT_BATCH, n_ctx),
        .n_position = hth_gpu_positions(n_ctx),
        .kv = o->kv,
        .selector = m->selector,
        .bit_exact = o->bit_exact};
    bool allows_less = o->vram > 0 && o->vram < free_bytes;
    hearth_status st =
        hth_placement_builder_open(&c, m->model, info, allows_less ? o->vram : free_bytes, &params, err);
    c.is_user_limit = allows_less;
    if (st == HEARTH_OK) st = choose(m, o, &c, err);
    /* Before anything is said of a choice that nobody waits for: a plan may have measured for seconds. */
    if (st == HEARTH_OK) st = hth_engine_report_progress(m, options, 0, m->model->weight_size, err);
    if (st == HEARTH_OK) {
        hth_placement_set_submit_limit(&c, &m->kernels, m->n_thread);
        note_problem(m, &c);
        if (c.params.n_layer > 0) st = open_place(m, &c, options, false, err);
        else if (!c.unsupported_reason) st = refuse_budget(m, &c, err);
    }
    hth_placement_builder_close(&c);
    return st;
}

hearth_status hth_engine_replan_gpu(hearth_model *m, const hth_offload_params *before, uint64_t budget,
                                    const hearth_model_options *options, hearth_error *err)
{
    hth_placement_builder c;
    hearth_status st =
        hth_placement_builder_open(&c, m->model, hth_device_get_info(m->device), budget, before, err);
    if (st == HEARTH_OK) hth_placement_uniform(&c);
    if (st == HEARTH_OK && c.params.n_layer > 0) st = open_place(m, &c, options, true, err);
    hth_placement_builder_close(&c);
    return st;
}

/* A device that nobody asked for may fail: the CPU does without it. */
static bool is_asked_for(const hearth_gpu_options *o)
{
    return strcmp(o->device, "auto") != 0 || o->vram > 0 || o->bit_exact;
}

/* A placement that was asked for is not to be lost silently. */
static void note_unused(const hearth_model *m, const char *placement)
{
    uint64_t n_layer;
    if (hth_placement_arg_is_path(placement))
        hth_log(HEARTH_LOG_WARN, "%s: the placement %s is not used: no GPU is in use", hth_gguf_path(m->file),
                placement);
    else if (hth_placement_arg_layers(placement, &n_layer) && n_layer > 0)
        hth_log(HEARTH_LOG_WARN, "%s: no GPU is in use: no layers go there", hth_gguf_path(m->file));
}

static void fall_back_to_cpu(hearth_model *m, const char *why)
{
    hth_log(HEARTH_LOG_WARN, "%s; all of it runs on the CPU", why);
    hth_engine_set_gpu_status(m, "%s", why);
    hth_engine_close_gpu(m);
}

hearth_status hth_engine_open_gpu(hearth_model *m, const hearth_model_options *options, hearth_error *err)
{
    const hearth_gpu_options *o = &options->gpu;
    hearth_error why = {0};
    if (!o->device || strcmp(o->device, "none") == 0) {
        note_unused(m, o->placement);
        return HEARTH_OK;
    }
    if ((uint32_t)o->kv >= HTH_N_KV_TYPE)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "%s: KV cache of type %d on a device: 0 (F16), 1 (F32) and 2 (Q8_0) exist",
                        hth_gguf_path(m->file), (int)o->kv);
    hearth_status st = hth_placement_arg_check(o->placement, &why);
    if (st != HEARTH_OK) {
        if (err) *err = why;
        return st;
    }
    st = open_device(m, o, &why);
    if (st == HEARTH_OK && m->device) st = place_on_device(m, options, &why);
    else if (st == HEARTH_OK) note_unused(m, o->placement);
    if (st == HEARTH_OK) return st;
    if (err) *err = why;
    if (is_asked_for(o) || st == HEARTH_ERROR_CANCELLED) return st;
    fall_back_to_cpu(m, why.message);
    return HEARTH_OK;
}

/* What a refusal leaves room for. */
static uint64_t budget_below(const hth_device *device)
{
    hth_device_usage use = hth_device_state(device);
    return (use.used_at_oom > 0 && use.used_at_oom < use.used ? use.used_at_oom : use.used) / 10 * 9;
}

/* Evenly less of it, as memory for what comes last was refused. Nobody steps yet, so what the host had read is
 * given back first: no more of its memory is in use than without a device. why: of the refusal, then of what
 * came of it. */
static hearth_status open_less(hearth_model *m, const hearth_model_options *options, hearth_error *why)
{
    hth_gpu *before = m->gpu;
    uint64_t budget = budget_below(m->device);
    hth_log(HEARTH_LOG_WARN, "%s: %s; less is placed there, evenly", hth_gguf_path(m->file), why->message);
    hth_gpu_unload(before);
    hth_engine_unload(m);
    m->gpu = NULL;
    hearth_status st = hth_engine_replan_gpu(m, hth_gpu_get_params(before), budget, options, why);
    hth_gpu_close(before);
    return st == HEARTH_OK && !m->gpu ? HEARTH_ERROR_MEMORY : st;
}

hearth_status hth_engine_finish_gpu_load(hearth_model *m, const hearth_model_options *options,
                                         hearth_error *err)
{
    hearth_error why = {0};
    hearth_status st = m->gpu ? hth_gpu_bind_cpu_rows(m->gpu, &why) : HEARTH_OK;
    if (st == HEARTH_ERROR_MEMORY) {
        st = open_less(m, options, &why);
        hearth_status loaded = st == HEARTH_OK ? hth_engine_load(m, options, err) : HEARTH_OK;
        if (loaded != HEARTH_OK) return loaded;
        if (st == HEARTH_OK) st = hth_gpu_bind_cpu_rows(m->gpu, &why);
    }
    if (st == HEARTH_OK) return st;
    if (st == HEARTH_ERROR_CANCELLED || (st != HEARTH_ERROR_MEMORY && is_asked_for(&options->gpu))) {
        if (err) *err = why;
        return st;
    }
    fall_back_to_cpu(m, why.message);
    hth_engine_unload(m);
    return hth_engine_load(m, options, err);
}

uint64_t hth_engine_first_row(const hearth_model *m, const hth_matrix *w)
{
    return m->gpu && !m->lost ? rows_there(m->model, hth_gpu_get_params(m->gpu), w) : 0;
}

void hth_engine_close_gpu(hearth_model *m)
{
    hth_gpu_close(m->gpu);
    for (uint32_t i = 0; i < m->n_evicted; i++) hth_gpu_close(m->evicted[i]);
    hth_device_close(m->device);
    m->gpu = NULL, m->device = NULL, m->n_evicted = 0;
}
