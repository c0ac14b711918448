/* Records choices of routers. Each thread writes the experts of its own tokens, so that the result depends neither on
 * threads nor on batches. */
#include "measure/expert_trace.h"

#include "base/hash.h"
#include "engine/engine.h"
#include "file/atomic_writer.h"
#include "measure/chunks.h"

#include <assert.h>
#include <stdio.h>

/* A hth_route_fn. Some routers state experts in an order of their own (hth_route). */
static void record(void *user, uint32_t i_layer, uint64_t i_tok, bool is_guess, uint32_t *chosen)
{
    const hth_expert_trace *t = user;
    const hth_expert_trace_layer *l = &t->layers[i_layer];
    if (is_guess) return;
    assert(i_tok < t->n_tok);
    uint16_t *to = l->chosen + (size_t)i_tok * l->n_used;
    for (uint32_t n = 0; n < l->n_used; n++) {
        uint32_t i = n;
        for (; i > 0 && to[i - 1] > chosen[n]; i--) to[i] = to[i - 1];
        to[i] = (uint16_t)chosen[n];
    }
}

/* Sets n_tok to the tokens of the chunks that are complete. */
static hearth_status run_chunks(hth_expert_trace *t, hearth_session *session, hth_chunks *chunks,
                                const hth_expert_trace_options *o, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    uint32_t n_all = t->n_tok, n_done = 0;
    hth_step_set_route(hth_session_step(session), record, t);
    while (n_done < n_all && (!o->progress || o->progress(o->progress_user, n_done, n_all))) {
        st = hearth_session_truncate(session, 0, err);
        if (st == HEARTH_OK)
            st = hearth_session_eval(session, hth_chunks_at(chunks, n_done / t->n_ctx), t->n_ctx, err);
        if (st != HEARTH_OK) break;
        n_done += t->n_ctx;
    }
    if (st == HEARTH_OK && n_done == n_all && o->progress) o->progress(o->progress_user, n_all, n_all);
    hth_step_set_route(hth_session_step(session), NULL, NULL);
    t->n_tok = n_done;
    if (st != HEARTH_OK && st != HEARTH_ERROR_CANCELLED) return st;
    return n_done > 0 ? HEARTH_OK : hth_fail(err, HEARTH_ERROR_CANCELLED, "interrupted; nothing was kept");
}

static hearth_status begin(const hth_model *model, const hth_chunks *chunks, const hth_expert_trace_options *o,
                           hth_expert_trace **out, hearth_error *err)
{
    size_t n_chunk = o->n_tok / chunks->n_ctx;
    if (n_chunk == 0)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%u tokens are fewer than a chunk of %zu", o->n_tok, chunks->n_ctx);
    if (n_chunk > chunks->n_chunk) n_chunk = chunks->n_chunk;
    hearth_status st = hth_expert_trace_new(model, (uint32_t)(n_chunk * chunks->n_ctx), out, err);
    if (st != HEARTH_OK) return st;
    (*out)->n_ctx = (uint32_t)chunks->n_ctx;
    (*out)->text_hash = hth_hash(chunks->ids, chunks->n_id * sizeof *chunks->ids);
    snprintf((*out)->settings, sizeof (*out)->settings, "%s", o->settings ? o->settings : "");
    return hth_model_hash(model->file, &(*out)->model_hash, err);
}

hearth_status hth_measure_expert_trace(const hearth_model *model, hearth_session *session, const char *text, size_t n,
                                       const hth_expert_trace_options *o, hth_expert_trace **out, hearth_error *err)
{
    hth_chunks chunks;
    hth_expert_trace *t = NULL;
    *out = NULL;
    hearth_status st = hth_chunks_open(&chunks, model, text, n, hearth_session_n_ctx(session), err);
    if (st != HEARTH_OK) return st;
    st = begin(model->model, &chunks, o, &t, err);
    if (st == HEARTH_OK) st = hth_atomic_writer_check(o->out, err);
    if (st == HEARTH_OK) st = run_chunks(t, session, &chunks, o, err);
    if (st == HEARTH_OK) st = hth_expert_trace_write(t, o->out, err);
    hth_chunks_close(&chunks);
    if (st == HEARTH_OK) *out = t;
    else hth_expert_trace_close(t);
    return st;
}
