/* A pass over a text that looks at some of its tokens, layer by layer: evenly spread, so that no place
 * in a window is preferred. Thresholds, predictors and studies are made of what such a pass keeps. */
#ifndef HTH_MEASURE_WALK_H
#define HTH_MEASURE_WALK_H

#include "measure/chunks.h"
#include "forward/forward.h"

typedef struct hth_text_sampler {
    /* Number i of n_kept tokens is token i * n_tok / n_kept of the n_tok that are walked over: of all windows, or
     * of n_window of them, evenly spread (hth_text_sampler_windows). 1 <= n_kept <= n_tok. */
    uint32_t n_kept;
    size_t n_window;
    /* Row t of what is seen is the i-th of them: called once a layer. An error ends the walk with the window. */
    hearth_status (*keep)(void *user, const hth_ffn_probe *seen, size_t t, uint32_t i, hearth_error *err);
    /* Before the i-th window, and with i = n_window at the end; another status than HEARTH_OK ends the walk with
     * it. */
    hearth_status (*look)(void *user, size_t i_window, hearth_error *err);
    void *user;
} hth_text_sampler;

/* So many windows that a fraction of their tokens is kept, as neighbours say much the same, but no longer text
 * than that is evaluated: twice as many tokens as are kept, and 32 windows, where there are so many. */
static inline size_t hth_text_sampler_windows(const hth_chunks *w, uint32_t n_kept)
{
    size_t n = 2 * ((n_kept + w->n_ctx - 1) / w->n_ctx);
    n = n < 32 ? 32 : n;
    return n < w->n_window ? n : w->n_window;
}

/* session: of this model, selector dense; its context holds a window. */
hearth_status hth_text_sampler_run(const hth_text_sampler *walk, const hearth_model *model, hearth_session *session,
                            hth_chunks *windows, hearth_error *err);

#endif
