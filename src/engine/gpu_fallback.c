/* Evictions at run time: part of a model if other processes need a device's memory, all that is on a device that is
 * lost or refuses steps repeatedly; what the other devices hold stays there. Each eviction increments the model's
 * placement generation. Batches then switch to the new placement, and evaluate the tokens of their sessions again
 * (session.c). Evicted parts stay allocated until the model is closed, because other threads may still be about to use
 * them. */
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
    hth_log(HEARTH_LOG_WARN, "%s: %s; continuing on the CPU%s%s", hth_gguf_path(m->file), why,
            hth_gpu_is_bit_exact(gpu) ? "" : ", and texts may differ from here on: ", hth_gpu_bit_exact_reason(gpu));
    m->lost = true;
    for (int i = 0; i < HTH_N_KV_TYPE; i++)
        if (m->kv_pools[i]) hth_kv_pool_set_limit(m->kv_pools[i], 0, 0);
    bump_generation(m, why);
}

/* ---- partial eviction --------------------------------------------------------------------------------- */

/* Replaces the parts on devices by a uniform placement within the budgets of those that are not excluded, and
 * loads the rest for the CPU. False: nothing is on a device then, and the CPU has not loaded everything; err holds the
 * reason, if known. */
static bool replan_smaller(hearth_model *m, hearth_error *err)
{
    hth_gpu *before = m->gpu;
    hth_gpu_unload(before);
    hth_engine_unbind_rows(m, before);
    m->evicted[m->n_evicted++] = before, m->gpu = NULL;
    hearth_status st = hth_engine_replan_gpu(m, NULL, err);
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

/* Bytes in use on all devices that have a part. */
static uint64_t used_by(hth_gpu *gpu)
{
    uint64_t used = 0;
    for (; gpu; gpu = hth_gpu_next(gpu)) used += hth_device_state(hth_gpu_get_device(gpu)).used;
    return used;
}

/* After a change of budgets or devices. */
static void shrink(hearth_model *m, const char *why)
{
    hth_gpu *before = m->gpu;
    hearth_error replan_err = {0};
    char note[300];
    if (m->n_evicted == HTH_MAX_EVICT) {
        /* Frees the memory for other processes. Nothing is placed on a device again. */
        hth_gpu_unload(before);
        evict_all(m, before, why);
    } else if (replan_smaller(m, &replan_err)) {
        hth_log(HEARTH_LOG_WARN, "%s: %s; it goes on with less: %u of %u layers on %s, %s%s%s",
                hth_gguf_path(m->file), why, hth_gpu_end_layer(m->gpu), m->model->hparams.n_layer,
                m->gpu_names[m->n_evicted], hth_format_bytes(used_by(m->gpu)).text,
                hth_gpu_is_bit_exact(before) ? "" : ", and texts may differ from here on: ",
                hth_gpu_bit_exact_reason(before));
        bump_generation(m, why);
    } else {
        snprintf(note, sizeof note, "%.299s", replan_err.message[0] ? replan_err.message : why);
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
    char why[300];
    bool again = false;
    pthread_mutex_lock(&m->gpu_lock);
    for (hth_gpu *g = in_use(m); g; g = hth_gpu_next(g)) {
        uint32_t i = hth_engine_device_of(m, g);
        uint64_t budget, used = hth_gpu_usage(g, &budget).used_device;
        bool was_short = m->vram_is_short[i], shrinks = is_short(used, budget) && was_short;
        m->vram_is_short[i] = is_short(used, budget) && !was_short;
        again |= m->vram_is_short[i];
        if (!shrinks) continue;
        snprintf(why, sizeof why, "%.100s leaves %s, and %s are in use", m->devices[i].info->name,
                 hth_format_bytes(budget).text, hth_format_bytes(used).text);
        m->devices[i].budget = budget / 10 * 9;
        shrink(m, why);
        break;
    }
    pthread_mutex_unlock(&m->gpu_lock);
    return again;
}

/* ---- a device that failed ----------------------------------------------------------------------------- */

/* Excludes the devices whose last step failed. Returns whether others are to be used: not if no device is marked,
 * because a step of another session has succeeded there since. */
static bool exclude_failed(hearth_model *m)
{
    bool found = false, stays = false;
    for (const hth_gpu *g = m->gpu; g; g = hth_gpu_next(g))
        if (hth_gpu_has_failed(g)) m->excluded[hth_engine_device_of(m, g)] = found = true;
    for (uint32_t i = 0; i < m->n_device; i++) stays |= !m->excluded[i];
    return found && stays;
}

void hth_engine_gpu_fallback(hearth_model *m, uint32_t generation, const char *why)
{
    pthread_mutex_lock(&m->gpu_lock);
    if (in_use(m) && m->generation == generation) {
        if (exclude_failed(m)) shrink(m, why);
        else {
            hth_gpu_unload(m->gpu); /* frees the memory of a device that only refuses steps */
            evict_all(m, m->gpu, why);
        }
    }
    pthread_mutex_unlock(&m->gpu_lock);
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
        if (st == HEARTH_OK && params)
            hth_kv_pool_set_limit(m->kv_pools[type], params->n_position / HTH_KV_PAGE, hth_gpu_n_state(m->model, params));
    }
    *pool = m->kv_pools[type];
    pthread_mutex_unlock(&m->gpu_lock);
    return st;
}
