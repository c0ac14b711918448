/* The parts of a model on devices: opens the devices, chooses their layers, and uploads the weights from the
 * file. Called by model.c between the loading of vectors and of matrices and after both, and by gpu_fallback.c at
 * run time. */
#include "engine/engine.h"

#include "base/checked_math.h"
#include "base/format_bytes.h"
#include "base/fp_state.h"
#include "base/log.h"
#include "engine/struct_size.h"
#include "placement/policy.h"
#include "forward/gpu/shader_params.h"
#include "model/program.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- the devices ------------------------------------------------------------------------------------- */

/* The device of `auto`: a card, else an integrated GPU that is known to be faster than the CPU. */
static bool find_device(const hearth_model *m, char name[32])
{
    hth_device_info found[HTH_MAX_DEVICE];
    char note[200];
    size_t n;
    hth_device_list(found, HTH_MAX_DEVICE, &n, note);
    size_t i = hth_device_best(found, n);
    if (i == n)
        i = hth_placement_find_integrated(found, n, &m->kernels, m->n_thread,
                                          hth_model_row_type(m->model));
    if (i < n) snprintf(name, 32, "vulkan:%zu", i);
    return i < n;
}

static _Atomic bool gives_experts;
void hth_engine_give_experts(bool given) { gives_experts = given; }

/* With "auto" there may be none. */
static hearth_status open_devices(hearth_model *m, const hearth_gpu_options *o, hearth_error *err)
{
    char best[32];
    bool is_auto = strcmp(o->device, "auto") == 0;
    if (is_auto && !find_device(m, best)) return HEARTH_OK;
    hearth_status st = hth_placement_open_devices(is_auto ? best : o->device, o, true, m->devices, &m->n_device, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < m->n_device; i++)
        if (m->devices[i].info->no_values && !gives_experts)
            st = hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                          "%s computes nothing: it is for the time of given experts (hearth bench), and for plans",
                          m->devices[i].info->name);
    return st;
}

uint32_t hth_engine_device_of(const hearth_model *m, const hth_gpu *gpu)
{
    uint32_t i = 0;
    while (m->devices[i].device != hth_gpu_get_device(gpu)) i++;
    return i;
}

static void name_devices(hearth_model *m)
{
    char *to = m->gpu_names[m->n_evicted];
    const size_t size = sizeof m->gpu_names[0];
    size_t n = 0;
    for (const hth_gpu *g = m->gpu; g && n < size; g = hth_gpu_next(g)) {
        const hth_offload_params *p = hth_gpu_get_params(g);
        const char *between = g == m->gpu ? "" : hth_gpu_next(g) ? ", " : " and ";
        int more =
            snprintf(to + n, size - n, "%s%s", between, m->devices[hth_engine_device_of(m, g)].info->name);
        n += more > 0 ? (size_t)more : 0;
        if (!hth_gpu_next(m->gpu) || n >= size) continue;
        if (p->end_layer - p->first_layer == 1)
            more = snprintf(to + n, size - n, " (layer %u)", p->first_layer);
        else more = snprintf(to + n, size - n, " (layers %u to %u)", p->first_layer, p->end_layer - 1);
        n += more > 0 ? (size_t)more : 0;
    }
}

/* ---- status -------------------------------------------------------------------------------------------- */

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

/* ---- placement ---------------------------------------------------------------------------------------- */

/* Rows on a device of a matrix of an operation whose layer is there: the first ones. */
static uint64_t rows_of_op(const hth_model *model, const hth_offload_params *params, const hth_op *op,
                           const hth_matrix *w)
{
    const hth_ffn *f = op->kind == HTH_OP_FFN ? &model->layers[op->layer].ffn : NULL;
    bool is_divided = f && (w == &f->gate || w == &f->up || w == &f->down_t.rows),
         has_experts = op->layer < model->hparams.n_layer && hth_layer_divides_experts(&model->layers[op->layer]);
    if (has_experts && hth_experts_have(&model->layers[op->layer].experts, w))
        return w->n_row / model->layers[op->layer].experts.router.n_expert * params->n_hot[op->layer];
    return is_divided && !has_experts ? params->n_hot[op->layer] : w->n_row;
}

/* Number of rows of a matrix on a device with these offload parameters. The CPU has the rows after them. */
static uint64_t rows_of_part(const hth_model *model, const hth_offload_params *params, const hth_matrix *w)
{
    const hth_program *p = model->program;
    if (w == &model->output) return params->head ? w->n_row : 0;
    for (uint32_t i = p->first_of_layer[params->first_layer]; i < p->first_of_layer[params->end_layer]; i++) {
        const hth_op *op = &p->ops[i];
        const hth_op_weights weights = hth_op_weights_of(model, op);
        const hth_ffn *f = op->kind == HTH_OP_FFN ? &model->layers[op->layer].ffn : NULL;
        bool is_its = f && (w == &f->predictor.in || w == &f->predictor.out);
        for (uint32_t k = 0; k < weights.n; k++) is_its |= w == weights.matrix[k];
        if (is_its) return hth_gpu_op_is_on_device(model, params, i) ? rows_of_op(model, params, op, w) : 0;
    }
    return 0;
}

/* Whether a matrix has the experts of a layer that divides them. */
static bool has_divided_experts(const hth_model *m, const hth_matrix *w)
{
    for (uint32_t i = 0; i < m->hparams.n_layer; i++)
        if (hth_layer_divides_experts(&m->layers[i]) && hth_experts_have(&m->layers[i].experts, w)) return true;
    return false;
}

/* Rows on devices that the host does not have, the first ones: each matrix has rows on one device at most. The host
 * keeps all experts of a layer of which it computes some. */
static uint64_t rows_given_up(const hth_model *model, const hth_gpu *gpu, const hth_matrix *w)
{
    uint64_t n = 0;
    for (; gpu && n == 0; gpu = hth_gpu_next(gpu)) n = rows_of_part(model, hth_gpu_get_params(gpu), w);
    return n < w->n_row && has_divided_experts(model, w) ? 0 : n;
}

bool hth_engine_gave_up_rows(const hth_model *model, const hth_gpu *gpu, const hth_matrix *w)
{
    return rows_given_up(model, gpu, w) > 0;
}

uint64_t hth_engine_first_row(const hearth_model *m, const hth_matrix *w)
{
    return rows_given_up(m->model, m->lost ? NULL : m->gpu, w);
}

/* The part of the chain that has an operation; NULL: the CPU has it. */
static const hth_offload_params *params_of_op(const hearth_model *m, const hth_op *op)
{
    for (const hth_gpu *g = m->lost ? NULL : m->gpu; g; g = hth_gpu_next(g)) {
        const hth_offload_params *p = hth_gpu_get_params(g);
        if (hth_gpu_op_is_on_device(m->model, p, (uint32_t)(op - m->model->program->ops))) return p;
    }
    return NULL;
}

double hth_engine_product_share(const hearth_model *m)
{
    const hth_program *p = m->model->program;
    double on_device = 0.0, all = 0.0;
    for (uint32_t i = p->first_of_layer[0]; m->gpu && i < p->n_op; i++) {
        const hth_op_weights weights = hth_op_weights_of(m->model, &p->ops[i]);
        const hth_offload_params *params = params_of_op(m, &p->ops[i]);
        for (uint32_t k = 0; k < weights.n; k++) {
            const hth_matrix *w = weights.matrix[k];
            uint64_t n = params ? rows_of_op(m->model, params, &p->ops[i], w) : 0;
            on_device += (double)n * (double)w->row_size, all += (double)w->n_row * (double)w->row_size;
        }
    }
    return all > 0.0 ? on_device / all : 0.0;
}

bool hth_engine_is_divided(const hearth_model *m, const hth_matrix *w)
{
    const hth_gpu *gpu = m->lost ? NULL : m->gpu;
    for (uint32_t i = 0; gpu && i < hth_gpu_end_layer(gpu); i++) {
        const hth_ffn *f = &m->model->layers[i].ffn;
        bool is_part = w == &f->gate || w == &f->up || w == &f->down_t.rows;
        if (is_part) return hth_gpu_n_hot(gpu, i) < f->d_ff;
    }
    return false;
}

/* Progress of an upload to devices. */
typedef struct upload {
    const hearth_model *model;
    const hearth_model_options *options; /* NULL: no progress callback */
    uint64_t done, total;                /* bytes */
} upload;

static upload new_upload(const hearth_model *m, const hth_placement_builder *c,
                         const hearth_model_options *options)
{
    const hth_model *model = m->model;
    upload s = {.model = m, .options = options};
    for (uint32_t k = 0; k < c->n_part; k++) {
        const hth_offload_params *params = &c->parts[k].params;
        for (size_t i = 0; i < model->n_binding; i++) {
            const hth_matrix *w = model->bindings[i].matrix;
            if (w) s.total += rows_of_part(model, params, w) * w->row_size;
        }
        if (params->head && model->tied) s.total += model->token_embd.n_row * model->token_embd.row_size;
    }
    return s;
}

static hearth_status show_progress(const upload *s, hearth_error *err)
{
    uint64_t done = s->done < s->total ? s->done : s->total;
    return hth_engine_report_progress(s->model, s->options, done, s->total, err);
}

/* Reads rows of a matrix: from memory, if it was read from a sidecar, or from the model's file. */
static hearth_status read_rows(void *user, const hth_matrix *w, uint64_t first, uint64_t n, uint8_t *rows,
                               hearth_error *err)
{
    upload *s = user;
    const hearth_model *m = s->model;
    const hth_binding *b = m->model->bindings;
    s->done += n * w->row_size;
    if (hth_engine_is_from_sidecar(m, w)) {
        memcpy(rows, w->data + first * w->row_size, n * w->row_size);
        return HEARTH_OK;
    }
    while (b->matrix != w) b++; /* each matrix has one binding */
    hearth_status st =
        hth_gguf_read(m->file, b->tensor, b->offset + first * w->row_size, n * w->row_size, rows, err);
    return st == HEARTH_OK ? show_progress(s, err) : st;
}

static hearth_status fail_budget(const hearth_model *m, const hth_placement_builder *c, hearth_error *err)
{
    const hth_placement_part *p = &c->parts[0];
    const char *path = hth_gguf_path(m->file), *name = p->info->name;
    uint64_t min = hth_placement_builder_least_bytes(c), whole = hth_placement_builder_whole_bytes(c),
             is_free = hth_device_free_memory(p->info);
    if (min == UINT64_MAX)
        return hth_fail(
            err, HEARTH_ERROR_MEMORY,
            "%s: no layer of it fits into what %s binds at once; a smaller n_ctx or n_batch takes less, "
            "gpu.device none does without it",
            path, name);
    if (min <= is_free)
        return hth_fail(
            err, HEARTH_ERROR_MEMORY,
            "%s: %s on %s hold no layer of this model: the least is gpu.vram %s%s%s; a smaller n_ctx "
            "or n_batch takes less",
            path, hth_format_bytes(p->budget).text, name, hth_format_size_arg(min).text,
            whole < UINT64_MAX ? ", all of it takes " : "",
            whole < UINT64_MAX ? hth_format_size_arg(whole).text : "");
    return hth_fail(
        err, HEARTH_ERROR_MEMORY,
        "%s: no layer of it fits on %s: the least is %s, and of its %s %s are free (a twentieth, at least "
        "256 to 512 MiB, is left to others); a smaller n_ctx or n_batch takes less, gpu.device none does without it",
        path, name, hth_format_bytes(min).text, hth_format_bytes(p->info->memory).text,
        hth_format_bytes(is_free).text);
}

/* Logs which of several devices have no layers. */
static void note_empty(const hearth_model *m, const hth_placement_builder *c)
{
    for (uint32_t i = 0; i < c->n_part && c->n_part > 1; i++)
        if (c->parts[i].params.first_layer == c->parts[i].params.end_layer)
            hth_log(HEARTH_LOG_WARN, "%s: nothing of it lies on device %u, %s", hth_gguf_path(m->file), i + 1,
                    c->parts[i].info->name);
}

/* Logs what stays on the CPU for another reason than memory. */
static void note_problem(hearth_model *m, const hth_placement_builder *c)
{
    const char *name = c->parts[0].info->name, *path = hth_gguf_path(m->file);
    uint32_t n = hth_placement_builder_n_layer(c);
    if (!c->unsupported_reason) return;
    if (n == 0) {
        hth_engine_set_gpu_status(m, "%s: %s", name, c->unsupported_reason);
        hth_log(HEARTH_LOG_WARN, "%s: nothing of it lies on %s: %s", path, name, c->unsupported_reason);
    } else {
        hth_log(HEARTH_LOG_WARN, "%s: %s %u stays on the CPU: %s", path,
                n == m->model->hparams.n_layer ? "the head after layer" : "layer", n, c->unsupported_reason);
    }
}

static bool are_gpus(const hth_placement_builder *c)
{
    for (uint32_t i = 0; i < c->n_part; i++)
        if (!hth_device_is_usable_gpu(c->parts[i].info)) return false;
    return true;
}

/* Chooses a placement: from a file, by a plan, or uniform; as requested, or as suits the devices. Plans exist for
 * GPUs only, not for devices that compute on the CPU. */
static hearth_status choose(hearth_model *m, const hearth_gpu_options *o, hth_placement_builder *c,
                            hearth_error *err)
{
    hearth_error why = {0};
    bool plans = are_gpus(c);
    hth_placement_layers layers;
    if (hth_placement_arg_is_path(o->placement)) return hth_placement_builder_from_file(c, o->placement, err);
    if (hth_placement_arg_layers(o->placement, &layers)) {
        for (uint32_t i = 0; i < c->n_part; i++) c->parts[i].params.crosses = strcmp(o->placement, "all") == 0;
        hth_placement_let_experts_pass(c, &layers, &m->kernels, m->n_thread);
        return hth_placement_builder_layers(c, &layers, err);
    }
    if (o->placement) plans = strcmp(o->placement, "plan") == 0;
    hearth_status st = HEARTH_OK;
    if (plans) st = hth_placement_builder_plan(c, &m->kernels, m->n_thread, &why);
    if (st == HEARTH_ERROR_MEMORY || st == HEARTH_ERROR_ARGUMENT) {
        hth_log(HEARTH_LOG_WARN, "%s: %s; without a plan each layer gets the same share",
                hth_gguf_path(m->file), why.message);
        plans = false, st = HEARTH_OK;
    }
    if (!plans) hth_placement_uniform(c);
    if (err && st != HEARTH_OK) *err = why;
    return st;
}

/* Opens the parts on all devices that have layers. failed: the index of the one that did not open. */
static hearth_status open_parts(hearth_model *m, const hth_placement_builder *c,
                                const hearth_model_options *options, uint32_t *failed, hearth_error *err)
{
    upload s = new_upload(m, c, options);
    hth_gpu *last = NULL;
    hearth_status st = show_progress(&s, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < c->n_part; i++) {
        const hth_placement_part *p = &c->parts[i];
        hth_gpu *gpu;
        *failed = i;
        if (p->params.first_layer == p->params.end_layer) continue;
        st = hth_gpu_open(m->model, &m->kernels, p->device, &p->params, read_rows, &s, &gpu, err);
        if (st != HEARTH_OK) break;
        if (last) hth_gpu_append(last, gpu);
        else m->gpu = gpu;
        last = gpu;
    }
    if (st != HEARTH_OK) {
        hth_gpu_close(m->gpu);
        m->gpu = NULL;
    }
    name_devices(m);
    return st;
}

/* Keeps the parameters with which parts were placed, for later placements. */
static void keep_params(hearth_model *m, const hth_placement_builder *c)
{
    for (uint32_t i = 0; i < c->n_part; i++)
        for (uint32_t k = 0; k < m->n_device; k++)
            if (m->devices[k].device == c->parts[i].device) {
                m->devices[k] = c->parts[i];
                m->devices[k].params.n_hot = NULL; /* the builder's */
            }
}

/* Steps are large where weights pass through the devices in them. Sessions have steps as large. */
static void settle_batch(hearth_model *m, const hearth_gpu_options *o, hth_placement_builder *c)
{
    uint32_t n_ctx = hth_context_for(&m->model->hparams, o->n_ctx), n = 0;
    for (uint32_t i = 0; o->n_batch == HEARTH_BATCH_AUTO && i < c->n_part; i++) {
        hth_placement_part *p = &c->parts[i];
        if (p->params.streams[0].n_tok == 0) p->params.n_row = hth_gpu_batch_size(p->info, o->n_batch, n_ctx);
        n = hth_max_u32(n, p->params.n_row);
    }
    m->n_batch = hth_max_u32(n, HTH_DEFAULT_BATCH);
}

/* Opens the parts on devices. A device may have less memory than it reports: on failure retries with a tenth less than
 * what was reached, a few times, then leaves all to the CPU. */
static hearth_status open_or_shrink(hearth_model *m, hth_placement_builder *c,
                                    const hearth_model_options *options, bool quiet, hearth_error *err)
{
    enum { TRIES = 4 };
    hearth_error why = {0};
    uint32_t failed = 0;
    for (int i = 0; i < TRIES && hth_placement_builder_n_layer(c) > 0; i++) {
        if (options) settle_batch(m, &options->gpu, c); /* else there are sessions, with steps of their own */
        hearth_status st = open_parts(m, c, options, &failed, &why);
        m->gpu_seconds = c->seconds;
        keep_params(m, c);
        if (st != HEARTH_ERROR_MEMORY) {
            if (err && st != HEARTH_OK) *err = why;
            return st;
        }
        if (i + 1 == TRIES) break;
        if (!quiet)
            hth_log(HEARTH_LOG_WARN, "%s: %s; less is placed there, evenly", hth_gguf_path(m->file),
                    why.message);
        hth_placement_part *p = &c->parts[failed];
        uint64_t reached = hth_device_state(p->device).used_at_oom;
        p->budget = (reached > 0 && reached < p->budget ? reached : p->budget) / 10 * 9;
        hth_placement_uniform(c);
    }
    if (!quiet)
        hth_log(HEARTH_LOG_WARN, "%s: %s; all of it runs on the CPU", hth_gguf_path(m->file), why.message);
    hth_engine_set_gpu_status(m, "%.90s: %.300s", c->parts[failed].info->name, why.message);
    m->n_batch = HTH_DEFAULT_BATCH;
    return HEARTH_OK;
}

/* Whether experts may pass through the device in prompts: they lie in memory of the process's own, and the placement
 * knows from how many tokens on that gains. */
static bool may_pass_experts(const hearth_model_options *options, const hth_device_info *info)
{
    hth_placement_layers layers;
    const char *placement = options->gpu.placement;
    if (options->ram > 0 || (options->mmap && !info->no_values)) return false;
    if (hth_placement_arg_layers(placement, &layers)) return layers.n_cpu_experts > 0 || layers.cpu;
    return placement ? strcmp(placement, "even") != 0 : hth_device_is_usable_gpu(info);
}

/* The budget of a device, whose limit hth_placement_open_devices set, and what the options say of it. */
static void set_budget(const hearth_model *m, const hearth_model_options *options, hth_placement_part *p)
{
    const hearth_gpu_options *o = &options->gpu;
    uint32_t n_ctx = hth_context_for(&m->model->hparams, o->n_ctx);
    uint64_t free_bytes = hth_device_free_memory(p->info), vram = p->budget;
    if (vram > free_bytes)
        hth_log(HEARTH_LOG_WARN, "%s has %s free, less than the %s that gpu.vram allows", p->info->name,
                hth_format_bytes(free_bytes).text, hth_format_bytes(vram).text);
    p->params = (hth_offload_params){.n_position = hth_gpu_positions(n_ctx),
                                     .n_session = (uint32_t)hth_min_u64(o->n_session, HTH_GPU_MAX_SESSION),
                                     .kv = o->kv,
                                     .selector = m->selector,
                                     .n_thread = m->n_thread,
                                     .streams_experts = options->ram > 0,
                                     .has_given_experts = gives_experts,
                                     .bit_exact = o->bit_exact,
                                     .host_kv = o->host_kv};
    p->is_user_limit = vram > 0 && vram < free_bytes;
    p->budget = p->is_user_limit ? vram : free_bytes;
    p->params.n_row = may_pass_experts(options, p->info) ? hth_placement_step_rows(m->model, p, o->n_batch, n_ctx)
                                                         : hth_gpu_batch_size(p->info, o->n_batch, n_ctx);
}

static hearth_status place_on_devices(hearth_model *m, const hearth_model_options *options, hearth_error *err)
{
    const hearth_gpu_options *o = &options->gpu;
    hth_placement_builder c;
    for (uint32_t i = 0; i < m->n_device; i++) set_budget(m, options, &m->devices[i]);
    hearth_status st = hth_placement_builder_open(&c, m->model, m->devices, m->n_device, err);
    if (st == HEARTH_OK) st = choose(m, o, &c, err);
    /* Checks for cancellation before messages about the placement are logged: a plan may have measured for
     * seconds. */
    if (st == HEARTH_OK) st = hth_engine_report_progress(m, options, 0, m->model->weight_size, err);
    if (st == HEARTH_OK) {
        hth_placement_set_rates(&c, &m->kernels, m->n_thread);
        note_problem(m, &c);
        if (hth_placement_builder_n_layer(&c) > 0) {
            note_empty(m, &c);
            st = open_or_shrink(m, &c, options, false, err);
            if (st == HEARTH_OK && m->gpu) hth_speed_check_expect(&m->speed_check, &c, &m->kernels, m->n_thread);
        } else if (!c.unsupported_reason) st = fail_budget(m, &c, err);
    }
    hth_placement_builder_close(&c);
    return st;
}

hearth_status hth_engine_replan_gpu(hearth_model *m, const hearth_model_options *options, hearth_error *err)
{
    hth_placement_builder c;
    hth_placement_part parts[HEARTH_MAX_GPU];
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_device; i++)
        if (!m->excluded[i]) parts[n++] = m->devices[i];
    hearth_status st = hth_placement_builder_open(&c, m->model, parts, n, err);
    if (st == HEARTH_OK) hth_placement_uniform(&c);
    if (st == HEARTH_OK && hth_placement_builder_n_layer(&c) > 0)
        st = open_or_shrink(m, &c, options, true, err);
    hth_placement_builder_close(&c);
    return st;
}

/* A device that was not requested explicitly may fail: the CPU is used instead. */
static bool is_asked_for(const hearth_gpu_options *o)
{
    bool limits = o->vram > 0;
    for (int i = 0; i < HEARTH_MAX_GPU; i++) limits |= o->vrams[i] > 0;
    return strcmp(o->device, "auto") != 0 || limits || o->bit_exact ||
           hth_placement_arg_is_path(o->placement);
}

/* Warns if a requested placement is not used. */
static void note_unused(const hearth_model *m, const char *placement)
{
    hth_placement_layers layers;
    if (hth_placement_arg_is_path(placement))
        hth_log(HEARTH_LOG_WARN, "%s: the placement %s is not used: no GPU is in use", hth_gguf_path(m->file),
                placement);
    else if (hth_placement_arg_layers(placement, &layers) && layers.n > 0)
        hth_log(HEARTH_LOG_WARN, "%s: no GPU is in use: no layers go there", hth_gguf_path(m->file));
}

static void fall_back_to_cpu(hearth_model *m, const char *why)
{
    hth_log(HEARTH_LOG_WARN, "%s; all of it runs on the CPU", why);
    hth_engine_set_gpu_status(m, "%s", why);
    m->speed_check = (hth_speed_check){0};
    hth_engine_close_gpu(m);
    m->n_batch = HTH_DEFAULT_BATCH;
}

hearth_status hth_engine_open_gpu(hearth_model *m, const hearth_model_options *options, hearth_error *err)
{
    const hearth_gpu_options *o = &options->gpu;
    hearth_error why = {0};
    hth_placement_layers layers;
    bool no_layer = hth_placement_arg_layers(o->placement, &layers) && layers.n == 0;
    if (!o->device || strcmp(o->device, "none") == 0 || no_layer) {
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
    st = open_devices(m, o, &why);
    if (st == HEARTH_OK && m->n_device > 0) st = place_on_devices(m, options, &why);
    if (m->gpu) m->max_tokens = hth_gpu_max_tokens(m->gpu);
    else if (st == HEARTH_OK) note_unused(m, o->placement);
    if (st == HEARTH_OK) return st;
    if (err) *err = why;
    if (is_asked_for(o) || st == HEARTH_ERROR_CANCELLED) return st;
    fall_back_to_cpu(m, why.message);
    return HEARTH_OK;
}

/* The budget after an allocation failed. */
static uint64_t budget_below(const hth_device *device)
{
    hth_device_usage use = hth_device_state(device);
    return (use.used_at_oom > 0 && use.used_at_oom < use.used ? use.used_at_oom : use.used) / 10 * 9;
}

/* Re-plans with less after the last allocations failed. No session exists yet, so the CPU's weights are freed
 * first, and CPU memory never exceeds that of a run without a device. why: the reason of the failure on entry,
 * then the error of this function. */
static hearth_status reopen_smaller(hearth_model *m, const hearth_model_options *options, hearth_error *why)
{
    hth_gpu *before = m->gpu;
    for (const hth_gpu *g = before; g; g = hth_gpu_next(g))
        if (hth_gpu_has_failed(g))
            m->devices[hth_engine_device_of(m, g)].budget = budget_below(hth_gpu_get_device(g));
    hth_log(HEARTH_LOG_WARN, "%s: %s; less is placed there, evenly", hth_gguf_path(m->file), why->message);
    hth_gpu_unload(before);
    hth_engine_unload(m);
    m->gpu = NULL;
    hearth_status st = hth_engine_replan_gpu(m, options, why);
    m->speed_check = (hth_speed_check){0};
    hth_gpu_close(before);
    return st == HEARTH_OK && !m->gpu ? HEARTH_ERROR_MEMORY : st;
}

hearth_status hth_engine_finish_gpu_load(hearth_model *m, const hearth_model_options *options,
                                         hearth_error *err)
{
    hearth_error why = {0};
    hearth_status st = m->gpu ? hth_gpu_bind_cpu_rows(m->gpu, &why) : HEARTH_OK;
    if (st == HEARTH_ERROR_MEMORY) {
        st = reopen_smaller(m, options, &why);
        hearth_status loaded = st == HEARTH_OK ? hth_engine_follow_placement(m, err) : HEARTH_OK;
        if (st == HEARTH_OK && loaded == HEARTH_OK) loaded = hth_engine_load(m, options, err);
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
    st = hth_engine_follow_placement(m, err);
    return st == HEARTH_OK ? hth_engine_load(m, options, err) : st;
}

void hth_engine_close_gpu(hearth_model *m)
{
    hth_gpu_close(m->gpu);
    for (uint32_t i = 0; i < m->n_evicted; i++) hth_gpu_close(m->evicted[i]);
    for (uint32_t i = 0; i < m->n_device; i++) hth_device_close(m->devices[i].device);
    memset(m->devices, 0, sizeof m->devices);
    m->gpu = NULL, m->n_device = 0, m->n_evicted = 0;
}

/* ---- counts ------------------------------------------------------------------------------------------------ */

bool hth_engine_divides_experts(const hearth_model *m)
{
    bool divides = false;
    for (uint32_t i = 0; m->gpu && i < hth_gpu_end_layer(m->gpu); i++) {
        const hth_layer *l = &m->model->layers[i];
        divides |= hth_layer_divides_experts(l) && hth_gpu_n_expert(m->gpu, i) < hth_layer_n_unit(l);
    }
    return divides;
}

bool hearth_model_get_expert_stats(const hearth_model *m, hearth_expert_stats *stats)
{
    HTH_FP_SCOPE;
    hearth_expert_stats all = {0};
    if (!m || !hth_engine_can_write_result(&hth_size_of_hearth_expert_stats, stats)) return false;
    pthread_mutex_t *lock = &((hearth_model *)(uintptr_t)m)->gpu_lock;
    pthread_mutex_lock(lock);
    bool is_there = m->model && hth_engine_divides_experts(m);
    if (is_there) {
        hth_gpu_counts c = hth_gpu_count(m->gpu);
        all.n_chosen = c.n_chosen, all.n_on_device = c.n_chosen_there;
        all.n_upload = c.n_moved, all.upload_bytes = c.moved_bytes;
        all.n_wait = c.n_split, all.n_wait_empty = c.n_split_empty;
    }
    pthread_mutex_unlock(lock);
    hth_engine_write_result(&hth_size_of_hearth_expert_stats, &all, stats);
    return is_there;
}
