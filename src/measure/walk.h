/* A pass over a text that looks at some of its tokens, layer by layer: evenly spread, so that no place
 * in a window is preferred. Thresholds, predictors and studies are made of what such a pass keeps. */
#ifndef HTH_MEASURE_WALK_H
#define HTH_MEASURE_WALK_H

#include "measure/windows.h"
#include "run/run.h"

typedef struct hth_walk {
    /* Number i of n_kept tokens is token i * n_tok / n_kept of the text's n_tok. 1 <= n_kept <= n_tok. */
    uint32_t n_kept;
    /* Row t of what is seen is the i-th of them: called once a layer. An error ends the walk with the window. */
    hearth_status (*keep)(void *user, const hth_observation *seen, size_t t, uint32_t i, hearth_error *err);
    /* Before window i, and with i = n_window at the end; another status than HEARTH_OK ends the walk with
     * it. */
    hearth_status (*look)(void *user, size_t i_window, hearth_error *err);
    void *user;
} hth_walk;

/* session: of this model, selector dense; its context holds a window. */
hearth_status hth_walk_text(const hth_walk *walk, const hearth_model *model, hearth_session *session,
                            hth_windows *windows, hearth_error *err);

#endif
