/* The pass over a text that thresholds.c, convert/predictors.c and study/ share. */
#include "measure/text_sampler.h"

#include "engine/engine.h"

typedef struct state {
    const hth_text_sampler *sampler;
    uint64_t n_tok, i_tok; /* tokens of the text; tokens of earlier steps */
    uint32_t n_layer;
    uint32_t n_kept;      /* kept in earlier steps */
    hearth_error failure; /* error of keep; a probe cannot end a step */
} state;

static void on_probe(void *user, const hth_ffn_probe *seen)
{
    state *w = user;
    const hth_text_sampler *sampler = w->sampler;
    uint32_t i = w->n_kept;
    for (size_t t = 0; t < seen->n_tok && i < sampler->n_kept; t++)
        if (w->i_tok + t >= i * w->n_tok / sampler->n_kept && w->failure.status == HEARTH_OK)
            sampler->on_token(sampler->user, seen, t, i++, &w->failure);
    if (seen->i_layer + 1 < w->n_layer) return;
    w->n_kept = i;
    w->i_tok += seen->n_tok;
}

hearth_status hth_text_sampler_run(const hth_text_sampler *sampler, const hearth_model *model, hearth_session *session,
                            hth_chunks *chunks, hearth_error *err)
{
    state w = {sampler, (uint64_t)sampler->n_chunk * chunks->n_ctx, 0, model->model->hparams.n_layer, 0, {0}};
    hearth_status st = sampler->progress(sampler->user, 0, err);
    hth_step_set_probe(hth_session_step(session), on_probe, &w);
    for (size_t i = 0; st == HEARTH_OK && i < sampler->n_chunk; i++) {
        st = hearth_session_truncate(session, 0, err);
        if (st == HEARTH_OK)
            st = hearth_session_eval(session, hth_chunks_at(chunks, i * chunks->n_chunk / sampler->n_chunk),
                                     chunks->n_ctx, err);
        if (st == HEARTH_ERROR_CANCELLED) st = hth_fail(err, st, "interrupted; nothing was written");
        if (st == HEARTH_OK && w.failure.status != HEARTH_OK) {
            st = w.failure.status;
            if (err) *err = w.failure;
        }
        if (st == HEARTH_OK) st = sampler->progress(sampler->user, i + 1, err);
    }
    hth_step_set_probe(hth_session_step(session), NULL, NULL);
    return st;
}
