/* Placements by plan, with a disk cache of the last one: a placement that changed with the free memory between
 * runs would have to be measured again, and with float weights would change the generated text. Also the
 * submission limit from the cached calibration, for every kind of placement. */
#include "placement/plan_context.h"

#include "base/alloc.h"
#include "base/format_bytes.h"
#include "base/hash.h"
#include "base/disk_cache.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

/* ---- cached placement ---------------------------------------------------------------------------------- */

enum { VERSION = 7 }; /* incremented when the record changes */

/* The cached record; [n_layer] neuron counts follow. */
typedef struct record {
    double seconds, seconds_empty, seconds_full;
    uint32_t n_layer, head, n_part, host_kv;
    hth_layer_set read_experts;
    struct {
        uint64_t budget; /* bytes, for which it was planned */
        int64_t measured_at; /* of the calibration */
        uint32_t end_layer, submitted;
        hth_placement_stream streams[HTH_PLACEMENT_STREAMS];
    } parts[HEARTH_MAX_GPU];
} record;

static hearth_status key_of(const hth_placement_builder *c, const hth_kernels *kernels, uint32_t n_thread,
                             uint64_t *key, hearth_error *err)
{
    hearth_status st = hth_model_hash(c->model->file, key, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < c->n_part; i++) {
        const hth_offload_params *p = &c->parts[i].params;
        uint64_t numbers[] = {p->n_row, p->n_position, p->n_session, p->kv,
                              p->selector, VERSION, p->host_kv, p->streams_experts,
                              hth_calibration_fingerprint(c->parts[i].info, kernels, n_thread)};
        *key = hth_hash_more(*key, numbers, sizeof numbers);
    }
    return st;
}

static void name_of(uint64_t key, char name[HTH_DISKCACHE_NAME])
{
    snprintf(name, HTH_DISKCACHE_NAME, "placement-%016llx", (unsigned long long)key);
}

static bool is_valid(const hth_placement_builder *c, const record *k)
{
    uint32_t end = 0;
    if (k->n_part != c->n_part || (k->head && k->n_layer < c->model->hparams.n_layer) || !(k->seconds >= 0.0) ||
        !(k->seconds_empty >= 0.0) || !(k->seconds_full >= 0.0))
        return false;
    for (uint32_t i = 0; i < k->n_part; i++) {
        if (k->parts[i].end_layer < end || !hth_placement_streams_valid(k->parts[i].streams)) return false;
        end = k->parts[i].end_layer;
    }
    return end == k->n_layer;
}

static bool parse(hth_placement_builder *c, const uint8_t *bytes, size_t n, record *k)
{
    uint32_t n_layer = c->model->hparams.n_layer;
    if (n < sizeof *k) return false;
    memcpy(k, bytes, sizeof *k);
    if (k->n_layer < 1 || k->n_layer > n_layer || n != sizeof *k + k->n_layer * sizeof *c->n_hot)
        return false;
    if (!is_valid(c, k)) return false;
    memcpy(c->n_hot, bytes + sizeof *k, k->n_layer * sizeof *c->n_hot);
    for (uint32_t i = 0; i < k->n_layer; i++) {
        uint32_t n_unit = hth_layer_n_unit(&c->model->layers[i]), grain = hth_gpu_split_granularity(c->model, i);
        if (c->n_hot[i] != n_unit && (c->n_hot[i] > n_unit || grain == 0 || c->n_hot[i] % grain > 0))
            return false;
    }
    uint32_t ends[HEARTH_MAX_GPU];
    for (uint32_t i = 0; i < c->n_part; i++) {
        hth_offload_params *p = &c->parts[i].params;
        ends[i] = k->parts[i].end_layer;
        p->submit_mode = k->parts[i].submitted ? HTH_SUBMIT_ON_DEMAND : HTH_SUBMIT_UPFRONT;
        memcpy(p->streams, k->parts[i].streams, sizeof p->streams);
        p->read_experts = k->read_experts;
        p->host_kv = k->host_kv != 0;
    }
    hth_placement_builder_set_ends(c, ends, k->head);
    c->unsupported_reason = NULL, c->seconds = k->seconds;
    c->seconds_empty = k->seconds_empty, c->seconds_full = k->seconds_full;
    return true;
}

/* When the cached calibration of device i was made; 0: it is not known; -1: a run doubted it, and no plan is by it. */
static int64_t measured_at(const hth_placement_builder *c, uint32_t i, const hth_kernels *kernels, uint32_t n_thread)
{
    hth_calibration known;
    uint64_t fingerprint = hth_calibration_fingerprint(c->parts[i].info, kernels, n_thread);
    if (!hth_calibration_cache_load(fingerprint, hth_model_row_type(c->model), 0, &known)) return 0;
    return known.is_doubted ? -1 : known.measured_at;
}

/* Uses the cached placement if it still fits, all calibrations are those of then, and free memory has not grown by more
 * than an eighth. */
static bool load(hth_placement_builder *c, const hth_kernels *kernels, uint32_t n_thread, uint64_t key)
{
    char name[HTH_DISKCACHE_NAME];
    record k;
    size_t n;
    name_of(key, name);
    uint8_t *bytes = hth_diskcache_get(name, key, &n);
    bool found = bytes && parse(c, bytes, n, &k);
    hth_free(bytes);
    for (uint32_t i = 0; found && i < c->n_part; i++)
        found = k.parts[i].measured_at == measured_at(c, i, kernels, n_thread);
    if (!found) return false;
    const hth_placement_part *full = hth_placement_builder_exceeds(c);
    if (full) {
        hth_log(HEARTH_LOG_WARN, "%s: the last placement takes %s on %s, and %s: planned again",
                hth_gguf_path(c->model->file),
                hth_format_bytes(hth_placement_builder_bytes(c, (uint32_t)(full - c->parts))).text,
                full->info->name, hth_budget_text_of(full).text);
        return false;
    }
    for (uint32_t i = 0; i < c->n_part; i++)
        if (c->parts[i].budget - c->parts[i].budget / 8 > k.parts[i].budget) return false;
    return true;
}

static void store(const hth_placement_builder *c, const hth_kernels *kernels, uint32_t n_thread, uint64_t key)
{
    char name[HTH_DISKCACHE_NAME];
    record k;
    memset(&k, 0, sizeof k); /* padding is written too */
    k.seconds = c->seconds, k.seconds_empty = c->seconds_empty, k.seconds_full = c->seconds_full, k.n_part = c->n_part;
    k.read_experts = c->parts[0].params.read_experts, k.host_kv = c->parts[0].params.host_kv;
    k.n_layer = hth_placement_builder_n_layer(c), k.head = hth_placement_builder_has_head(c);
    for (uint32_t i = 0; i < c->n_part; i++) {
        const hth_offload_params *p = &c->parts[i].params;
        k.parts[i].budget = c->parts[i].budget, k.parts[i].end_layer = p->end_layer;
        k.parts[i].submitted = p->submit_mode == HTH_SUBMIT_ON_DEMAND;
        k.parts[i].measured_at = measured_at(c, i, kernels, n_thread);
        memcpy(k.parts[i].streams, p->streams, sizeof p->streams);
    }
    size_t n_hot = k.n_layer * sizeof *c->n_hot;
    uint8_t *bytes = hth_alloc(1, sizeof k + n_hot);
    if (!bytes) return;
    memcpy(bytes, &k, sizeof k);
    memcpy(bytes + sizeof k, c->n_hot, n_hot);
    name_of(key, name);
    hth_diskcache_put(name, key, bytes, sizeof k + n_hot);
    hth_free(bytes);
}

/* ---- planning ----------------------------------------------------------------------------------------- */

static hearth_status plan(hth_placement_builder *c, const hth_kernels *kernels, uint32_t n_thread,
                          hearth_error *err)
{
    hth_pool *pool;
    hth_plan_context o;
    hearth_status st = hth_pool_open(n_thread, &pool, err);
    if (st != HEARTH_OK) return st;
    st = hth_plan_context_build(&o, c, NULL, kernels, pool, err);
    hth_pool_close(pool);
    if (st != HEARTH_OK) return st;
    hth_plan_context_apply(&o, c);
    hth_plan_context_close(&o);
    return HEARTH_OK;
}

/* Nothing is left to choose: of several devices the plan may prefer another one. */
static bool is_whole_on_only_device(const hth_placement_builder *c)
{
    const hth_offload_params *p = &c->parts[0].params;
    if (c->n_part > 1 || !p->head) return false;
    for (uint32_t i = 0; i < p->end_layer; i++)
        if (c->n_hot[i] < hth_layer_n_unit(&c->model->layers[i])) return false;
    return true;
}

static bool is_simulated(const hth_placement_builder *c)
{
    for (uint32_t i = 0; i < c->n_part; i++)
        if (c->parts[i].info->kind == HTH_DEVICE_SIMULATED) return true;
    return false;
}

static void set_host_kv(hth_placement_builder *c, bool host_kv)
{
    for (uint32_t i = 0; i < c->n_part; i++) c->parts[i].params.host_kv = host_kv;
}

/* Whether any layer fits, with keys and values where they are asked for, or else with them on the host. The placement is
 * uniform then. *is_whole: nothing is left to choose. */
static bool fits_any(hth_placement_builder *c, bool *is_whole)
{
    bool asked = c->parts[0].params.host_kv;
    hth_placement_uniform(c);
    *is_whole = is_whole_on_only_device(c);
    if (hth_placement_builder_n_layer(c) > 0 || asked) return hth_placement_builder_n_layer(c) > 0;
    set_host_kv(c, true);
    hth_placement_uniform(c);
    bool fits = hth_placement_builder_n_layer(c) > 0;
    set_host_kv(c, false);
    if (!fits) hth_placement_uniform(c);
    return fits;
}

hearth_status hth_placement_builder_plan(hth_placement_builder *c, const hth_kernels *kernels,
                                         uint32_t n_thread, hearth_error *err)
{
    uint64_t key;
    bool is_whole, asked = c->parts[0].params.host_kv;
    if (!fits_any(c, &is_whole) || c->unsupported_reason || is_whole) return HEARTH_OK;
    n_thread = hth_pool_default_threads(n_thread);
    hearth_status st = key_of(c, kernels, n_thread, &key, err);
    if (st != HEARTH_OK) return st;
    if (load(c, kernels, n_thread, key)) return HEARTH_OK;
    set_host_kv(c, asked);
    if ((st = plan(c, kernels, n_thread, err)) != HEARTH_OK) return st;
    if (hth_placement_builder_exceeds(c)) hth_placement_uniform(c);
    hth_placement_builder_keep_sharing(c);
    if (hth_placement_builder_n_layer(c) > 0 && !is_simulated(c)) store(c, kernels, n_thread, key);
    return HEARTH_OK;
}

/* ---- rates of the device ------------------------------------------------------------------------------- */

/* Rows of a quantised type; those of floats are counted in its products (submit_budget.c). */
static hth_type type_of_rates(const hth_placement_builder *c)
{
    hth_type type = hth_model_row_type(c->model);
    return hth_type_act_block(type) > 0 ? type : HTH_TYPE_Q8_0;
}

static bool measure_rates(const hth_placement_part *p, hth_type type, double rates[HTH_N_COOPMAT_LEVEL])
{
    if (!p->device || !hth_device_is_gpu(p->info)) return false;
    if (hth_gpu_measure_prompts(p->device, type, rates, NULL) != HEARTH_OK) return false;
    hth_calibration_cache_store_prompts(p->info, type, rates);
    return true;
}

void hth_placement_set_rates(hth_placement_builder *c, const hth_kernels *kernels, uint32_t n_thread)
{
    for (uint32_t i = 0; i < c->n_part; i++) {
        hth_placement_part *p = &c->parts[i];
        hth_calibration known;
        hth_type type = type_of_rates(c);
        uint64_t key = hth_calibration_fingerprint(p->info, kernels, hth_pool_default_threads(n_thread));
        double rates[HTH_N_COOPMAT_LEVEL] = {0.0};
        if (hth_calibration_cache_load(key, type, 0, &known) && known.device_prompts[0] > 0.0)
            memcpy(rates, known.device_prompts, sizeof rates);
        else if (!hth_calibration_cache_load_prompts(p->info, type, rates) && !measure_rates(p, type, rates))
            memset(rates, 0, sizeof rates);
        p->params.max_work = rates[0] > 0.0 ? hth_gpu_max_submit_work(hth_gpu_products(type, rates[0])) : 0;
        p->params.slow_levels = hth_gpu_slow_levels(rates);
    }
}

size_t hth_placement_find_integrated(const hth_device_info *infos, size_t n, const hth_kernels *kernels,
                                     uint32_t n_thread, hth_type type)
{
    const double gain = 1.2; /* least speed-up that pays for a device's memory, handoffs and submissions */
    n_thread = hth_pool_default_threads(n_thread);
    for (size_t i = 0; i < n; i++) {
        hth_calibration c;
        if (infos[i].kind != HTH_DEVICE_INTEGRATED || infos[i].unsupported_reason[0]) continue;
        uint64_t key = hth_calibration_fingerprint(&infos[i], kernels, n_thread);
        if (hth_calibration_cache_load(key, type, 0, &c) && c.device_rate.median > gain * c.cpu_rate.median &&
            c.device_prompt > gain * c.cpu_prompt)
            return i;
    }
    return n;
}
