/* What neurons give to the output of a layer's feed-forward network: a neuron's contribution to a token
 * is |hidden| times the norm of its column of down, the norm of the vector that it adds. What leaving
 * some out costs is CETT (Zhang et al. 2024, ReLU^2 Wins, eq. 3): the norm of what they would have added
 * together over that of the whole. */
#ifndef HTH_MEASURE_CONTRIBUTION_H
#define HTH_MEASURE_CONTRIBUTION_H

#include <hearth/hearth.h>

#include "run/run.h"

/* squares[d_ff] of the norms of what one unit of each neuron adds to the outputs. MEMORY. */
hearth_status hth_down_squares(const hearth_model *model, uint32_t i_layer, double *squares,
                               hearth_error *err);

/* norms[n_tok] of what down of a layer makes of hidden[n_tok][d_ff], in the workspace of a step that is not
 * under way (hth_step_down). */
void hth_down_norms(hth_step *step, uint32_t i_layer, const float *hidden, size_t n_tok, size_t d_model,
                    double *norms);

#endif
