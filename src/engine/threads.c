/* The number of threads of sessions and batches that are open. Workspaces have parts for each thread: a step of the new
 * number takes the place of the old one, which stays until nothing can fail any more. */
#include "base/fp_state.h"
#include "engine/batch_int.h"

typedef struct change {
    hearth_batch *batch; /* NULL: nothing changes */
    hth_pool *pool;
    hth_step *step;
    uint32_t n_thread;
    uint64_t size; /* counted in the limit of the model, beside that of the old step */
} change;

static uint64_t size_of(const hearth_batch *b, uint32_t n_thread)
{
    return hth_batch_size(b->model, b->n_tok_max, n_thread, b->selector, b->model->streamed.reader != NULL);
}

static hearth_status prepare(change *c, hearth_batch *b, uint32_t n_thread, hearth_error *err)
{
    uint64_t size = size_of(b, n_thread);
    hearth_status st = hth_engine_reserve(hth_engine_mutable(b->model), size, err);
    if (st != HEARTH_OK) return st;
    st = hth_batch_open_step(b, n_thread, &c->pool, &c->step, err);
    if (st == HEARTH_OK) c->batch = b, c->n_thread = n_thread, c->size = size;
    else hth_engine_release(hth_engine_mutable(b->model), size);
    return st;
}

static void drop(const change *c)
{
    if (!c->batch) return;
    hth_step_close(c->step);
    hth_pool_close(c->pool);
    hth_engine_release(hth_engine_mutable(c->batch->model), c->size);
}

/* *counted: where the old size is counted. The old threads give up their cores before the new ones take some. */
static void commit(const change *c, uint64_t *counted)
{
    hearth_batch *b = c->batch;
    if (!b) return;
    const change old = {.batch = b,
                        .pool = b->pool,
                        .step = b->step,
                        .n_thread = b->n_thread,
                        .size = size_of(b, b->n_thread)};
    hth_step_copy_probes(c->step, old.step);
    hth_step_use_gpu(c->step, b->gpu);
    hth_pool_unpin(old.pool);
    if (!b->no_pin) hth_pool_pin(c->pool);
    b->pool = c->pool, b->step = c->step, b->n_thread = c->n_thread;
    *counted = *counted - old.size + c->size;
    drop(&old);
}

hearth_status hth_batch_set_threads(hearth_batch *b, uint64_t *size, hth_drafter *drafter, uint32_t n_thread,
                                    hearth_error *err)
{
    change own = {0}, drafts = {0};
    hearth_status st = hth_engine_check_threads("n_thread", n_thread, err);
    if (st != HEARTH_OK) return st;
    n_thread = hth_pool_default_threads(n_thread);
    st = prepare(&own, b, n_thread, err);
    if (st == HEARTH_OK && drafter && drafter->batch) st = prepare(&drafts, drafter->batch, n_thread, err);
    if (st != HEARTH_OK) {
        drop(&own);
        return st;
    }
    commit(&own, size ? size : &b->size);
    if (drafts.batch) commit(&drafts, &drafts.batch->size);
    return HEARTH_OK;
}

hearth_status hearth_batch_set_threads(hearth_batch *b, uint32_t n_thread, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!b) return hth_fail_null(err, "batch");
    HTH_USE(use, b);
    if (!use) return hth_fail_in_use(err, "batch");
    return hth_batch_set_threads(b, NULL, NULL, n_thread, err);
}

hearth_status hearth_session_set_threads(hearth_session *s, uint32_t n_thread, hearth_error *err)
{
    HTH_FP_SCOPE;
    if (!s) return hth_fail_null(err, "session");
    HTH_USE(use, s);
    if (!use) return hth_fail_in_use(err, "session");
    if (!s->own)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "the session was opened with n_batch HEARTH_BATCH_NONE: its batch has the threads");
    hearth_status st =
        hth_batch_set_threads(s->own, &s->size, s->drafts ? s->drafts->drafter : NULL, n_thread, err);
    if (st == HEARTH_OK) s->options.n_thread = n_thread;
    return st;
}
