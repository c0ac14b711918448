/* The block of a model's file that predicts a token further, as a model of its own: opened for the first drafts,
 * and closed with the model, or when there turns out to be no room for drafts by it. It shares the file and the
 * matrices of the ends; what it takes is counted in the limit of the model. */
#include "engine/engine.h"

#include "base/alloc.h"
#include "sparse/selector.h"

bool hth_engine_may_have_mtp(const hearth_model *m)
{
    return !m->streamed.reader && !hth_engine_has_gpu(m) && hth_model_has_mtp(m->model);
}

static void close_block(hearth_model *b)
{
    if (!b) return;
    for (int i = 0; i < HTH_N_KV_TYPE; i++) hth_kv_pool_close(b->kv_pools[i]);
    hth_pages_free(b->weights, b->weights_size);
    hth_arena_free(&b->vectors);
    hth_model_close(b->model);
    pthread_mutex_destroy(&b->gpu_lock);
    hth_free(b);
}

/* Bytes that the model's memory limit counts for the block. */
static uint64_t counted_size(const hearth_model *m, const hearth_model *b)
{
    return m->mapped ? 0 : b->model->weight_size;
}

static hearth_status open_block(hearth_model *m, hearth_model **out, hearth_error *err)
{
    const hearth_model_options options = {.n_thread = m->n_thread, .mmap = m->mapped};
    uint64_t size = 0;
    hearth_model *b = hth_alloc(1, sizeof *b);
    if (!b) return hth_fail_memory(err, sizeof *b, "a model");
    *b = (hearth_model){.file = m->file,
                        .part_of = m,
                        .kernels = m->kernels,
                        .n_thread = m->n_thread,
                        .n_batch = m->n_batch,
                        .cancel = m->cancel};
    pthread_mutex_init(&b->gpu_lock, NULL);
    hearth_status st = hth_model_open_mtp(m->model, &b->model, err);
    if (st == HEARTH_OK)
        st = hth_selector_choose(b->model, HEARTH_SELECTOR_DENSE, &b->selector, &b->selector_why, err);
    if (st == HEARTH_OK) size = counted_size(m, b);
    if (st == HEARTH_OK) st = hth_engine_reserve(m, size, err);
    if (st != HEARTH_OK) {
        close_block(b);
        return st;
    }
    st = hth_engine_load_vectors(b, err);
    if (st == HEARTH_OK) st = hth_engine_load(b, &options, err);
    if (st == HEARTH_OK) {
        *out = b;
        return HEARTH_OK;
    }
    hth_engine_release(m, size);
    close_block(b);
    return st;
}

hearth_status hth_engine_open_mtp(hearth_model *m, hearth_model **out, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    pthread_mutex_lock(&m->mtp_lock);
    if (!m->mtp) st = open_block(m, &m->mtp, err);
    if (m->mtp) m->n_mtp_user++;
    *out = m->mtp;
    pthread_mutex_unlock(&m->mtp_lock);
    return st;
}

void hth_engine_leave_mtp(hearth_model *m)
{
    pthread_mutex_lock(&m->mtp_lock);
    m->n_mtp_user--;
    pthread_mutex_unlock(&m->mtp_lock);
}

void hth_engine_drop_mtp(hearth_model *m)
{
    pthread_mutex_lock(&m->mtp_lock);
    if (--m->n_mtp_user == 0) {
        hth_engine_release(m, counted_size(m, m->mtp));
        hth_engine_close_mtp(m);
    }
    pthread_mutex_unlock(&m->mtp_lock);
}

void hth_engine_close_mtp(hearth_model *m)
{
    close_block(m->mtp);
    m->mtp = NULL;
}
