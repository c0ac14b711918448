/* What leaves its device in mid-run: part of a model where others want the device's memory, all of it where
 * the device is lost, or refuses again and again. Each time the model's age grows by one; batches take over what
 * is in use then, and evaluate again what their sessions had there (session.c). What had been left stays known
 * until the model is closed, because other threads may be about to step through it. */
#include "base/bytes.h"
#include "base/log.h"
#include "engine/engine.h"

#include <stdio.h>

/* With the lock. */
static hth_gpu *in_use(const hearth_model *m) { return m->lost ? NULL : m->gpu; }

bool hth_engine_has_gpu(const hearth_model *m)
{
    hearth_model *own = (hearth_model *)(uintptr_t)m; /* the lock */
    pthread_mutex_lock(&own->loss);
    bool has = in_use(m) != NULL;
    pthread_mutex_unlock(&own->loss);
    return has;
}

uint32_t hth_engine_age(const hearth_model *m) { return __atomic_load_n(&m->age, __ATOMIC_ACQUIRE); }

static void grow_older(hearth_model *m, const char *why)
{
    hth_engine_note(m, "%s", why);
    __atomic_store_n(&m->age, m->age + 1, __ATOMIC_RELEASE);
}

/* ---- all of it ---------------------------------------------------------------------------------------- */

/* gpu: where its bits are known. */
static void lose(hearth_model *m, const hth_gpu *gpu, const char *why)
{
    hth_log(HEARTH_LOG_WARN, "%s: %s; it goes on on the CPU%s%s", hth_gguf_path(m->file), why,
            hth_gpu_is_strict(gpu) ? "" : ", and texts may differ from here on: ", hth_gpu_strict_note(gpu));
    m->lost = true;
    grow_older(m, why);
}

void hth_engine_lose_gpu(hearth_model *m, uint32_t age, const char *why)
{
    pthread_mutex_lock(&m->loss);
    if (in_use(m) && m->age == age) {
        hth_gpu_leave(m->gpu); /* one that only refuses has its memory for others */
        lose(m, m->gpu, why);
    }
    pthread_mutex_unlock(&m->loss);
}

/* ---- part of it --------------------------------------------------------------------------------------- */

/* Evenly as much as fits into the budget, in place of what lies there, and the rest in the host's memory. False:
 * nothing lies there then, nor all of it here; err says why, where it is known. */
static bool place_less(hearth_model *m, uint64_t budget, hearth_error *err)
{
    hth_gpu *before = m->gpu;
    hth_gpu_leave(before);
    hth_engine_forget(m, before);
    m->left[m->n_left++] = before, m->gpu = NULL;
    hearth_status st = hth_engine_place_again(m, hth_gpu_where(before), budget, NULL, err);
    if (st != HEARTH_OK || !m->gpu) return false;
    hth_gpu_inherit(m->gpu, before);
    st = hth_engine_read_rest(m, err);
    if (st == HEARTH_OK) st = hth_gpu_take_host_rows(m->gpu, err);
    if (st == HEARTH_OK) return true;
    hth_engine_forget(m, m->gpu);
    hth_gpu_close(m->gpu);
    m->gpu = NULL;
    return false;
}

static void leave_part(hearth_model *m, uint64_t used, uint64_t budget)
{
    hth_gpu *before = m->gpu;
    hearth_error why = {0};
    char note[300];
    snprintf(note, sizeof note, "%.100s leaves %s, and %s are in use", hth_device_get_info(m->device)->name,
             hth_bytes_shown(budget).text, hth_bytes_shown(used).text);
    if (m->n_left == HTH_MOST_LEFT) {
        /* Memory that others want is given back, but nothing is placed there again. */
        hth_gpu_leave(before);
        lose(m, before, note);
    } else if (place_less(m, budget / 10 * 9, &why)) {
        const hth_gpu_place *place = hth_gpu_where(m->gpu);
        hth_log(HEARTH_LOG_WARN, "%s: %s; it goes on with less there: %u of %u layers, %s%s%s",
                hth_gguf_path(m->file), note, place->n_layer, m->model->hparams.n_layer,
                hth_bytes_shown(hth_device_state(m->device).used).text,
                hth_gpu_is_strict(before) ? "" : ", and texts may differ from here on: ",
                hth_gpu_strict_note(before));
        grow_older(m, note);
    } else {
        if (why.message[0]) snprintf(note, sizeof note, "%.299s", why.message);
        lose(m, before, note);
    }
}

void hth_engine_keep_budget(hearth_model *m)
{
    uint64_t budget, used;
    pthread_mutex_lock(&m->loss);
    if (in_use(m)) {
        used = hth_gpu_usage(m->gpu, &budget);
        if (used > budget) leave_part(m, used, budget);
    }
    pthread_mutex_unlock(&m->loss);
}

/* ---- who steps there ---------------------------------------------------------------------------------- */

hearth_status hth_engine_use_gpu(hearth_model *m, hth_gpu **gpu, uint32_t *age, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    pthread_mutex_lock(&m->loss);
    if (m->lost && !m->fetched) {
        if (m->gpu) hth_engine_forget(m, m->gpu);
        st = hth_engine_read_rest(m, err);
        m->fetched = st == HEARTH_OK;
    }
    if (st == HEARTH_OK) *gpu = in_use(m), *age = m->age;
    pthread_mutex_unlock(&m->loss);
    return st;
}

hearth_status hth_engine_reserve(hearth_model *m, hearth_kv_type kv, uint32_t n_ctx, uint32_t *slot,
                                 bool *there, uint32_t *age, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    pthread_mutex_lock(&m->loss);
    hth_gpu *gpu = in_use(m);
    *age = m->age;
    if (gpu && hth_gpu_where(gpu)->kv != kv)
        st = hth_fail(err, HEARTH_ERROR_ARGUMENT,
                      "a KV cache of type %d: the model was opened with type %d on its device", (int)kv,
                      (int)hth_gpu_where(gpu)->kv);
    else if (gpu) st = hth_gpu_reserve(gpu, n_ctx, slot, err);
    *there = gpu && st == HEARTH_OK;
    pthread_mutex_unlock(&m->loss);
    return st;
}

void hth_engine_release(hearth_model *m, uint32_t slot)
{
    pthread_mutex_lock(&m->loss);
    if (in_use(m)) hth_gpu_release(m->gpu, slot);
    pthread_mutex_unlock(&m->loss);
}
