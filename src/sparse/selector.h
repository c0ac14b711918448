/* Which selector a model uses: from the caller's request, the file's metadata and the activation. forward/ffn.c
 * implements the selectors. */
#ifndef HTH_SPARSE_SELECTOR_H
#define HTH_SPARSE_SELECTOR_H

#include "sparse/sidecar.h"

/* The selector to request if there are sidecars (file NULL: none). AUTO becomes the selector that they were made
 * for, predictors before thresholds, whatever the model's own file says. If the activation is overridden, AUTO
 * stays, because they were made for another one. */
hearth_selector hth_selector_default(const hth_model *model, hearth_selector requested, const hth_sidecar *predictors,
                                  const hth_sidecar *thresholds);

/* Resolves `requested` to a selector, never AUTO. *why: the reason, as a phrase. ARGUMENT if the model cannot run
 * with it; the message says what is missing. */
hearth_status hth_selector_choose(const hth_model *model, hearth_selector requested, hearth_selector *selector,
                                  const char **why, hearth_error *err);

/* Which of a layer's matrices are read row by row: these must not be packed in panels. */
bool hth_selector_needs_row_major_first(hearth_selector selector);  /* the half that is computed first */
bool hth_selector_needs_row_major_second(hearth_selector selector); /* the other half */

#endif
