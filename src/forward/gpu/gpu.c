/* Opens and closes the offloaded part of a model. */
#include "forward/gpu/gpu_int.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

/* ---- opening ---------------------------------------------------------------------------------------- */

/* Collects the layers that are divided between host and device. */
static hearth_status find_split_layers(hth_gpu *g, const hth_offload_params *params, hearth_error *err)
{
    uint32_t *n_hot = hth_alloc(params->end_layer, sizeof *n_hot);
    g->split_layers = hth_alloc(params->end_layer, sizeof *g->split_layers);
    g->params.n_hot = n_hot;
    if (!n_hot || !g->split_layers)
        return hth_fail_memory(err, params->end_layer * sizeof *n_hot, "a model on a device");
    memcpy(n_hot, params->n_hot, params->end_layer * sizeof *n_hot);
    for (uint32_t i = params->first_layer; i < params->end_layer; i++) {
        g->n_divided_mixture += hth_gpu_divides_experts(g, i);
        if (hth_layer_divides_experts(&g->model->layers[i])) continue;
        if (n_hot[i] < g->model->layers[i].ffn.d_ff && hth_gpu_has_ffn(g, i)) g->split_layers[g->n_split_layer++] = i;
    }
    return HEARTH_OK;
}

/* ---- bit exactness ------------------------------------------------------------------------------------ */

/* UNSUPPORTED if bit-exact results are required and there is a reason against them. */
static hearth_status check_bit_exact(const hth_gpu *g, hearth_error *err)
{
    if (!g->params.bit_exact || !g->bit_exact_reason[0]) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                    "%s: %s would not give the CPU's bits: %s; without gpu.bit_exact it computes with others",
                    hth_gguf_path(g->model->file), hth_device_get_info(g->device)->name, g->bit_exact_reason);
}

static hearth_status check_floats(hth_gpu *g, hearth_error *err)
{
    const hth_model *m = g->model;
    const hth_matrix *floats = hth_gpu_first_floats(m, &g->params);
    hth_str name = {"a predictor's matrix", 20}; /* for a matrix of a separate predictor file */
    for (size_t i = 0; i < m->n_binding; i++)
        if (m->bindings[i].matrix == floats && m->bindings[i].tensor) name = m->bindings[i].tensor->name;
    if (floats)
        snprintf(g->bit_exact_reason, sizeof g->bit_exact_reason, "%.*s is %s",
                 (int)(name.n < 100 ? name.n : 100), name.bytes, hth_type_find(floats->type)->name);
    if (hth_device_get_info(g->device)->no_values)
        snprintf(g->bit_exact_reason, sizeof g->bit_exact_reason, "it computes nothing");
    return check_bit_exact(g, err);
}

/* The highest level that is not slow, from this one on down. */
static hth_coopmat_level level_from(const hth_gpu *g, hth_coopmat_level level)
{
    while (level > HTH_COOPMAT_NONE && g->params.slow_levels >> level & 1) level--;
    return level;
}

/* Records the command lists, which creates all pipelines they use; steps down a cooperative matrix level when the
 * driver rejects one. why: a known reason against the level above. */
static hearth_status record_with(hth_gpu *g, hth_coopmat_level level, const char *why, hearth_error *err)
{
    static const char *const units[][2] = {{"the matrix units", "are"}, {"NV_cooperative_matrix2", "is"}};
    const char *path = hth_gguf_path(g->model->file), *name = hth_device_get_info(g->device)->name;
    hearth_error level_err = {0};
    for (;; level = level_from(g, level - 1), why = level_err.message) {
        if (why) {
            const char *const *what = units[level];
            hth_log(HEARTH_LOG_WARN, "%s: %s of %s %s not used: %s", path, what[0], name, what[1], why);
            hth_gpu_segments_free(g);
        }
        g->coopmat = level;
        hearth_status st = hth_gpu_record(g, &level_err);
        if (st == HEARTH_ERROR_UNSUPPORTED && level > HTH_COOPMAT_NONE) continue;
        if (st != HEARTH_OK && err) *err = level_err;
        return st;
    }
}

/* The first optional level that differs: levels above it can be skipped too. */
static hth_coopmat_level find_differing(const hth_gpu *g, char (*messages)[HTH_GPU_MESSAGE_MAX])
{
    hth_coopmat_level i = HTH_COOPMAT_KHR;
    while (i <= g->coopmat && (messages[i][0] == '\0' || g->params.slow_levels >> i & 1)) i++;
    return i <= g->coopmat ? i : HTH_COOPMAT_NONE;
}

static hth_coopmat_level coopmat_level_of(const hth_gpu *g)
{
    const hth_device_info *info = hth_device_get_info(g->device);
    if (info->features & HTH_FEATURE_COOPMAT2) return level_from(g, HTH_COOPMAT_CM2);
    return level_from(g, info->n_shape > 0 ? HTH_COOPMAT_KHR : HTH_COOPMAT_NONE);
}

/* Records the command lists, then runs the self-test of the shaders they use. The test writes into the step
 * workspace. */
static hearth_status record_and_test_all(hth_gpu *g, hearth_error *err)
{
    hth_gpu_messages messages;
    const hth_device_info *info = hth_device_get_info(g->device);
    hearth_status st = hth_gpu_upload_scale_max(g, err);
    if (st == HEARTH_OK) st = record_with(g, coopmat_level_of(g), NULL, err);
    if (st != HEARTH_OK || (g->bit_exact_reason[0] && g->coopmat == HTH_COOPMAT_NONE)) return st;
    const hth_pipeline *rules; /* is in no command list */
    st = hth_pipeline_get(g->device, HTH_SHADER_float_rules, NULL, &rules, err);
    if (st != HEARTH_OK) return st;
    hth_coopmat_level differing = HTH_COOPMAT_NONE;
    do {
        if (differing) st = record_with(g, level_from(g, differing - 1), messages[differing], err);
        if (st == HEARTH_OK) st = hth_gpu_selftest(g->device, g->workspace.memory, messages, err);
        if (st != HEARTH_OK) return st;
        differing = find_differing(g, messages);
    } while (differing);
    if (g->bit_exact_reason[0]) return st;
    memcpy(g->bit_exact_reason, messages[HTH_COOPMAT_NONE], sizeof g->bit_exact_reason);
    st = check_bit_exact(g, err);
    if (st == HEARTH_OK && g->bit_exact_reason[0])
        hth_log(HEARTH_LOG_WARN, "%s: %s does not give the CPU's bits: %s", hth_gguf_path(g->model->file),
                info->name, g->bit_exact_reason);
    return st;
}

/* Whether the host computes neurons or experts of a layer that is here: then it loads them before command lists are
 * recorded. */
static bool has_host_rows(const hth_gpu *g) { return g->n_split_layer + g->n_divided_mixture > 0; }

/* Compiled pipelines are saved before the first token, whatever happens to the process after it. */
static hearth_status record_and_test(hth_gpu *g, hearth_error *err)
{
    hearth_status st = record_and_test_all(g, err);
    hth_pipeline_save(g->device);
    return st;
}

hearth_status hth_gpu_open(const hth_model *model, const hth_kernels *kernels, hth_device *device,
                           const hth_offload_params *params, hth_gpu_read_fn *read, void *user, hth_gpu **out,
                           hearth_error *err)
{
    *out = NULL;
    hth_gpu *g = hth_alloc(1, sizeof *g);
    if (!g) return hth_fail_memory(err, sizeof *g, "a model on a device");
    *g = (hth_gpu){.model = model,
                   .kernels = kernels,
                   .device = device,
                   .params = *params,
                   .timeout_ns = hth_device_submit_timeout_ns(hth_device_get_info(device))};
    g->params.n_hot = NULL;
    if (g->params.max_work == 0)
        g->params.max_work = hth_gpu_default_submit_work(hth_device_get_info(device));
    g->host_value = hth_queue_host_value(device); /* earlier users may have advanced it */
    pthread_mutex_init(&g->step_lock, NULL);
    g->layers = hth_alloc(params->end_layer, sizeof *g->layers);
    g->ops = hth_alloc(model->program->n_op, sizeof *g->ops);
    hearth_status st =
        g->layers && g->ops ? HEARTH_OK
                  : hth_fail_memory(err, params->end_layer * sizeof *g->layers, "a model on a device");
    if (st == HEARTH_OK) st = hth_gpu_crossings_open(g, err);
    if (st == HEARTH_OK) st = find_split_layers(g, params, err);
    if (st == HEARTH_OK) st = check_floats(g, err);
    if (st == HEARTH_OK) st = hth_gpu_workspace_open(g, err);
    if (st == HEARTH_OK) st = hth_gpu_expert_slots_open(g, err);
    if (st == HEARTH_OK) st = hth_gpu_caches_open(g, err);
    if (st == HEARTH_OK) st = hth_gpu_weights_open(g, read, user, err);
    if (st == HEARTH_OK && !has_host_rows(g)) st = record_and_test(g, err);
    if (st == HEARTH_OK) *out = g;
    else hth_gpu_close(g);
    return st;
}

/* Frees the device memory. A straggler thread of a session may still read the host's layers. */
static void release_memory(hth_gpu *g)
{
    hth_queue_drain(g->device, g->timeout_ns, NULL); /* if this fails, the memory is freed with the device */
    hth_gpu_segments_free(g);
    hth_gpu_passing_close(g);
    hth_gpu_moves_close(g);
    hth_gpu_weights_close(g);
    hth_gpu_caches_close(g);
    hth_gpu_workspace_close(g);
}

static void close_part(hth_gpu *g)
{
    if (!g->unloaded) release_memory(g);
    pthread_mutex_destroy(&g->step_lock);
    hth_weight_streams_close(g);
    hth_gpu_expert_slots_close(g);
    hth_free(g->layers);
    hth_free(g->ops);
    hth_gpu_crossings_close(g);
    hth_free(g->fences);
    hth_free(g->submits);
    hth_free(g->split_layers);
    hth_free((void *)(uintptr_t)g->params.n_hot);
    hth_free(g);
}

void hth_gpu_close(hth_gpu *g)
{
    for (hth_gpu *next; g; g = next) {
        next = g->next;
        close_part(g);
    }
}

void hth_gpu_unload(hth_gpu *g)
{
    for (; g; g = g->next) {
        pthread_mutex_lock(&g->step_lock);
        release_memory(g);
        g->unloaded = true;
        pthread_mutex_unlock(&g->step_lock);
    }
}

hth_device_usage hth_gpu_usage(hth_gpu *g, uint64_t *budget)
{
    pthread_mutex_lock(&g->step_lock);
    *budget = hth_device_budget(g->device);
    hth_device_usage used = hth_device_state(g->device);
    pthread_mutex_unlock(&g->step_lock);
    return used;
}

/* ---- CPU neurons -------------------------------------------------------------------------------------- */

static hearth_status bind_part(hth_gpu *g, hearth_error *err)
{
    for (uint32_t i = 0; i < g->n_split_layer; i++) {
        hth_gpu_layer *to = &g->layers[g->split_layers[i]];
        const hth_ffn *f = &g->model->layers[g->split_layers[i]].ffn;
        /* The host loaded only its own rows, so its matrices begin with them. */
        to->cold = hth_ffn_slice(f, to->n_hot, f->d_ff - to->n_hot, 0);
    }
    if (!has_host_rows(g)) return HEARTH_OK;
    /* Rows that are read when they are needed are computed on the host, also for prompts. */
    bool in_memory = g->n_split_layer == 0 || g->layers[g->split_layers[0]].cold.up.data != NULL;
    hearth_status st = hth_gpu_moves_open(g, err);
    if (st == HEARTH_OK) st = hth_gpu_passing_open(g, err);
    if (st == HEARTH_OK) st = in_memory ? hth_weight_streams_open(g, err) : hth_gpu_open_shared_sums(g, err);
    return st == HEARTH_OK ? record_and_test(g, err) : st;
}

hearth_status hth_gpu_bind_cpu_rows(hth_gpu *g, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    for (; g && st == HEARTH_OK; g = g->next) {
        st = bind_part(g, err);
        hth_gpu_note_status(g, st);
    }
    return st;
}

/* ---- chains ------------------------------------------------------------------------------------------- */

void hth_gpu_append(hth_gpu *last, hth_gpu *next) { last->next = next; }
hth_gpu *hth_gpu_next(const hth_gpu *g) { return g->next; }
hth_device *hth_gpu_get_device(const hth_gpu *g) { return g->device; }
const hth_offload_params *hth_gpu_get_params(const hth_gpu *g) { return &g->params; }

bool hth_gpu_is_device_failure(hearth_status st)
{
    return st == HEARTH_ERROR_DEVICE || st == HEARTH_ERROR_MEMORY || st == HEARTH_ERROR_UNSUPPORTED;
}

void hth_gpu_note_status(hth_gpu *g, hearth_status st)
{
    __atomic_store_n(&g->failed, hth_gpu_is_device_failure(st), __ATOMIC_RELEASE);
}
bool hth_gpu_has_failed(const hth_gpu *g) { return __atomic_load_n(&g->failed, __ATOMIC_ACQUIRE); }

static const hth_gpu *last_of(const hth_gpu *g)
{
    while (g->next) g = g->next;
    return g;
}

uint32_t hth_gpu_end_layer(const hth_gpu *g) { return last_of(g)->params.end_layer; }
uint32_t hth_gpu_n_hot(const hth_gpu *g, uint32_t i_layer)
{
    while (i_layer >= g->params.end_layer) g = g->next;
    const hth_layer *l = &g->model->layers[i_layer];
    return hth_layer_divides_experts(l) ? l->ffn.d_ff : g->params.n_hot[i_layer];
}
uint32_t hth_gpu_n_expert(const hth_gpu *g, uint32_t i_layer)
{
    while (i_layer >= g->params.end_layer) g = g->next;
    const hth_layer *l = &g->model->layers[i_layer];
    return hth_layer_divides_experts(l) ? g->params.n_hot[i_layer] : 0;
}
bool hth_gpu_has_ffn(const hth_gpu *g, uint32_t i_layer)
{
    while (g && i_layer >= g->params.end_layer) g = g->next;
    uint32_t i_op = g ? g->model->program->ffn_of_layer[i_layer] : UINT32_MAX;
    return i_op != UINT32_MAX && g->ops[i_op].is_on_device;
}

static bool has_op(const hth_gpu *g, hth_op_kind kind)
{
    for (uint32_t i = 0; i < g->model->program->n_op; i++)
        if (g->ops[i].is_on_device && g->model->program->ops[i].kind == kind) return true;
    return false;
}

bool hth_gpu_returns_to_drafts(const hth_gpu *g)
{
    while (g && !has_op(g, HTH_OP_KDA) && !has_op(g, HTH_OP_SCAN)) g = g->next;
    return g == NULL;
}

bool hth_gpu_has_head(const hth_gpu *g) { return last_of(g)->params.head; }

bool hth_gpu_divides_layers(const hth_gpu *g)
{
    for (; g; g = g->next)
        if (g->n_split_layer > 0 && hth_device_is_gpu(hth_device_get_info(g->device))) return true;
    return false;
}

/* Whether the host computes operations in between that need all tokens of a step. */
static bool has_host_ops(const hth_gpu *g)
{
    for (uint32_t i = 0; i < g->crossings.n_run; i++)
        for (uint32_t k = g->crossings.runs[i].first; k < g->crossings.runs[i].end; k++)
            if (!hth_gpu_host_attends(g->model, &g->params, &g->model->program->ops[k])) return true;
    return false;
}

uint32_t hth_gpu_max_tokens(const hth_gpu *g)
{
    uint32_t n = UINT32_MAX;
    for (; g; g = g->next)
        if (has_host_ops(g)) n = hth_min_u32(n, g->params.n_row);
    return n;
}

const char *hth_gpu_bit_exact_reason(const hth_gpu *g)
{
    while (!g->bit_exact_reason[0] && g->next) g = g->next;
    return g->bit_exact_reason;
}
bool hth_gpu_is_bit_exact(const hth_gpu *g) { return hth_gpu_bit_exact_reason(g)[0] == '\0'; }

hth_gpu_counts hth_gpu_count(const hth_gpu *g)
{
    hth_gpu_counts all = {0};
    for (; g; g = g->next) {
        all.n_step += g->counts.n_step;
        all.n_split += g->counts.n_split, all.n_split_empty += g->counts.n_split_empty;
        all.n_chosen += g->counts.n_chosen, all.n_chosen_there += g->counts.n_chosen_there;
        all.n_moved += g->counts.n_moved, all.moved_bytes += g->counts.moved_bytes;
        all.n_passed += g->counts.n_passed, all.passed_bytes += g->counts.passed_bytes;
        all.n_streamed += g->counts.n_streamed, all.n_streamed_shared += g->counts.n_streamed_shared;
    }
    return all;
}
