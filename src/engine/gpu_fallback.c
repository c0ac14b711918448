/* Evictions at run time: part of a model if other processes need the device's memory, all of it if the device is
 * lost or refuses steps repeatedly. Each eviction increments the model's placement generation. Batches then switch
 * to the new placement, and evaluate the tokens of their sessions again (session.c). Evicted parts stay allocated
 * until the model is closed, because other threads may still be about to use them. */
#include "base/format_bytes.h"
#include "base/log.h"
#include "engine/engine.h"

#include <stdio.h>

/* Called with the lock held. */
static hth_gpu *in_use(const hearth_model *m) { return m->lost ? NULL : m->gpu; }

bool hth_engine_has_gpu(const hearth_model *m)
{
    hearth_model *mutable_model = (hearth_model *)(uintptr_t)m; /* removes const, for the lock */
    pthread_mutex_lock(&mutable_model->gpu_lock);
    bool has = in_use(m) != NULL;
    pthread_mutex_unlock(&mutable_model->gpu_lock);
    return has;
}

uint32_t hth_engine_generation(const hearth_model *m) { return __atomic_load_n(&m->generation, __ATOMIC_ACQUIRE); }

static void bump_generation(hearth_model *m, const char *why)
{
    hth_engine_set_gpu_status(m, "%s", why);
    __atomic_store_n(&m->generation, m->generation + 1, __ATOMIC_RELEASE);
}

/* ---- complete eviction -------------------------------------------------------------------------------- */

/* gpu: whose bit exactness is logged. */
static void evict_all(hearth_model *m, const hth_gpu *gpu, const char *why)
{
    hth_log(HEARTH_LOG_WARN, "%s: %s; it goes on on the CPU%s%s", hth_gguf_path(m->file), why,
            hth_gpu_is_bit_exact(gpu) ? "" : ", and texts may differ from here on: ", hth_gpu_bit_exact_reason(gpu));
    m->lost = true;
    for (int i = 0; i < HTH_N_KV_TYPE; i++)
        if (m->kv_pools[i]) hth_kv_pool_set_limit(m->kv_pools[i], 0);
    bump_generation(m, why);
}

void hth_engine_gpu_fallback(hearth_model *m, uint32_t generation, const char *why)
{
    pthread_mutex_lock(&m->gpu_lock);
    if (in_use(m) && m->generation == generation) {
        hth_gpu_unload(m->gpu); /* frees the memory of a device that only refuses steps */
        evict_all(m, m->gpu, why);
    }
    pthread_mutex_unlock(&m->gpu_lock);
}

/* ---- partial eviction --------------------------------------------------------------------------------- */

/* Replaces the device part by a uniform placement within the budget, and loads the rest for the CPU. False:
 * nothing is on the device then, and the CPU has not loaded everything; err holds the reason, if known. */
static bool replan_smaller(hearth_model *m, uint64_t budget, hearth_error *err)
{
    hth_gpu *before = m->gpu;
    hth_gpu_unload(before);
    hth_engine_unbind_rows(m, before);
    m->evicted[m->n_evicted++] = before, m->gpu = NULL;
    hearth_status st = hth_engine_replan_gpu(m, hth_gpu_get_params(before), budget, NULL, err);
    if (st != HEARTH_OK || !m->gpu) return false;
    st = hth_engine_follow_placement(m, err);
    if (st == HEARTH_OK) st = hth_engine_reload_cpu_rows(m, err);
    if (st == HEARTH_OK) st = hth_gpu_bind_cpu_rows(m->gpu, err);
    if (st == HEARTH_OK) return true;
    hth_engine_unbind_rows(m, m->gpu);
    hth_gpu_close(m->gpu);
    m->gpu = NULL;
    return false;
}

static void evict_part(hearth_model *m, uint64_t used, uint64_t budget)
{
    hth_gpu *before = m->gpu;
    hearth_error why = {0};
    char note[300];
    snprintf(note, sizeof note, "%.100s leaves %s, and %s are in use", hth_device_get_info(m->device)->name,
             hth_format_bytes(budget).text, hth_format_bytes(used).text);
    if (m->n_evicted == HTH_MAX_EVICT) {
        /* Frees the memory for other processes. Nothing is placed on the device again. */
        hth_gpu_unload(before);
        evict_all(m, before, note);
    } else if (replan_smaller(m, budget / 10 * 9, &why)) {
        const hth_offload_params *params = hth_gpu_get_params(m->gpu);
        hth_log(HEARTH_LOG_WARN, "%s: %s; it goes on with less there: %u of %u layers, %s%s%s",
                hth_gguf_path(m->file), note, params->n_layer, m->model->hparams.n_layer,
                hth_format_bytes(hth_device_state(m->device).used).text,
                hth_gpu_is_bit_exact(before) ? "" : ", and texts may differ from here on: ",
                hth_gpu_bit_exact_reason(before));
        bump_generation(m, note);
    } else {
        if (why.message[0]) snprintf(note, sizeof note, "%.299s", why.message);
        evict_all(m, before, note);
    }
}

/* Whether the device's memory is short: its own alone, not the host's that it reads, and by more than a screen and its
 * windows take and give back within seconds. */
static bool is_short(uint64_t used, uint64_t budget)
{
    enum { PART = 32 };
    return used > budget && used - budget > budget / PART;
}

bool hth_engine_enforce_vram_budget(hearth_model *m)
{
    bool was_short, again = false;
    pthread_mutex_lock(&m->gpu_lock);
    was_short = m->vram_is_short, m->vram_is_short = false;
    if (in_use(m)) {
        uint64_t budget, used = hth_gpu_usage(m->gpu, &budget).used_device;
        m->vram_is_short = again = is_short(used, budget) && !was_short;
        if (is_short(used, budget) && was_short) evict_part(m, used, budget);
    }
    pthread_mutex_unlock(&m->gpu_lock);
    return again;
}

/* ---- use of the device -------------------------------------------------------------------------------- */

hearth_status hth_engine_use_gpu(hearth_model *m, hth_gpu **gpu, uint32_t *generation, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    pthread_mutex_lock(&m->gpu_lock);
    if (m->lost && !m->reload_done) {
        if (m->gpu) hth_engine_unbind_rows(m, m->gpu);
        st = hth_engine_follow_placement(m, err);
        if (st == HEARTH_OK) st = hth_engine_reload_cpu_rows(m, err);
        m->reload_done = st == HEARTH_OK;
    }
    if (st == HEARTH_OK) *gpu = in_use(m), *generation = m->generation;
    pthread_mutex_unlock(&m->gpu_lock);
    return st;
}

hearth_status hth_engine_kv_pool(hearth_model *m, hearth_kv_type type, hth_kv_pool **pool, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    if ((uint32_t)type >= HTH_N_KV_TYPE) return hth_kv_pool_open(m->model, type, pool, err); /* which fails */
    pthread_mutex_lock(&m->gpu_lock);
    const hth_offload_params *params = in_use(m) ? hth_gpu_get_params(m->gpu) : NULL;
    if (params && params->kv != type)
        st = hth_fail(err, HEARTH_ERROR_ARGUMENT,
                      "a KV cache of type %d: the model was opened with type %d on its device", (int)type,
                      (int)params->kv);
    else if (!m->kv_pools[type]) {
        st = hth_kv_pool_open(m->model, type, &m->kv_pools[type], err);
        if (st == HEARTH_OK && params) hth_kv_pool_set_limit(m->kv_pools[type], params->n_position / HTH_KV_PAGE);
    }
    *pool = m->kv_pools[type];
    pthread_mutex_unlock(&m->gpu_lock);
    return st;
}
