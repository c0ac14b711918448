/* Which selector a model runs with: what the caller wishes, what the file was made for, what its
 * activation allows. How a selector works is in forward/ffn.c. */
#ifndef HTH_SPARSE_SELECTOR_H
#define HTH_SPARSE_SELECTOR_H

#include "sparse/sidecar.h"

/* What is wished for where files lie beside the model (without a file: none does). AUTO becomes the selector
 * that they were made for, predictors before thresholds, whatever the model's own file says; but not with
 * another activation, for which they were not made. */
hearth_selector hth_selector_default(const hth_model *model, hearth_selector requested, const hth_sidecar *predictors,
                                  const hth_sidecar *thresholds);

/* The selector that `wish` comes to, never AUTO, and in a phrase what decided it. ARGUMENT where the
 * model cannot run with it; the message says what would be needed. */
hearth_status hth_selector_choose(const hth_model *model, hearth_selector requested, hearth_selector *selector,
                                  const char **why, hearth_error *err);

/* Which of a layer's matrices are read by single rows: they must not lie in panels. */
bool hth_selector_needs_row_major_first(hearth_selector selector);  /* of the half that is computed first */
bool hth_selector_needs_row_major_second(hearth_selector selector); /* of the other half */

#endif
