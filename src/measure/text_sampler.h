/* A pass over a text that samples some of its tokens, layer by layer. Samples are evenly spread, so that no
 * position in a chunk is preferred. Thresholds, predictors and studies use the tokens that such a pass keeps. */
#ifndef HTH_MEASURE_TEXT_SAMPLER_H
#define HTH_MEASURE_TEXT_SAMPLER_H

#include "measure/chunks.h"
#include "forward/forward.h"

typedef struct hth_text_sampler {
    /* Sample i of n_kept is token i * n_tok / n_kept of the n_tok tokens of the pass: of all chunks, or of
     * n_chunk chunks, evenly spread (hth_text_sampler_n_chunk). 1 <= n_kept <= n_tok. */
    uint32_t n_kept;
    size_t n_chunk;
    /* Token t of `seen` is the i-th sample. Called once per layer. An error ends the pass after the current
     * chunk. */
    hearth_status (*on_token)(void *user, const hth_ffn_probe *seen, size_t t, uint32_t i, hearth_error *err);
    /* Called before the i-th chunk, and at the end with i = n_chunk. A status other than HEARTH_OK ends the
     * pass with it. */
    hearth_status (*progress)(void *user, size_t i_chunk, hearth_error *err);
    void *user;
} hth_text_sampler;

/* Number of chunks: so many that only a fraction of their tokens is kept, because neighbouring tokens are
 * similar, but not more than needed: twice as many tokens as are kept, and at least 32 chunks, if there are as
 * many. */
static inline size_t hth_text_sampler_n_chunk(const hth_chunks *w, uint32_t n_kept)
{
    size_t n = 2 * ((n_kept + w->n_ctx - 1) / w->n_ctx);
    n = n < 32 ? 32 : n;
    return n < w->n_chunk ? n : w->n_chunk;
}

/* session: of this model, selector dense; its context holds a chunk. */
hearth_status hth_text_sampler_run(const hth_text_sampler *sampler, const hearth_model *model, hearth_session *session,
                            hth_chunks *chunks, hearth_error *err);

#endif
