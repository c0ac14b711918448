/* Contributions of neurons to the output of a layer's FFN: the contribution of a neuron to a token is |hidden|
 * times the norm of its column of down, which is the norm of the vector that it adds. The error of leaving some
 * out is CETT (Zhang et al. 2024, ReLU^2 Wins, eq. 3): the norm of the sum of their vectors over the norm of
 * the whole output. */
#ifndef HTH_MEASURE_CONTRIBUTION_H
#define HTH_MEASURE_CONTRIBUTION_H

#include <hearth/hearth.h>

#include "forward/forward.h"

/* squares[d_ff]: squared norm of what one unit of each neuron adds to the outputs. MEMORY. */
hearth_status hth_down_row_squares(const hearth_model *model, uint32_t i_layer, double *squares,
                               hearth_error *err);

/* squares[n_tok]: squared norm of down of a layer applied to hidden[n_tok][d_ff], in the workspace of a step
 * that is not running (hth_step_down). */
void hth_output_squares(hth_step *step, uint32_t i_layer, const float *hidden, size_t n_tok, size_t d_model,
                        double *squares);

/* Tokens for which some neurons are left out. The size of a neuron at a token is |score| times its weight. */
enum { HTH_ABLATION_ROWS = 32 };
typedef struct hth_ablation {
    hth_step *step; /* workspace for HTH_ABLATION_ROWS tokens, not running */
    uint32_t i_layer;
    size_t n_tok, d_ff, d_model;
    const float *hidden, *scores; /* [n_tok][d_ff]; may be the same */
    const float *weights;         /* [d_ff] */
    float *scratch;                  /* [HTH_ABLATION_ROWS][d_ff] scratch memory */
} hth_ablation;

/* norms[n_tok]: squared norm of what the outputs lose without the neurons whose size is below the limit:
 * limits[0] for all tokens (n_limit 1), or limits[t] for token t (n_limit n_tok). n_limit 0: without all
 * neurons. */
void hth_ablation_norms(const hth_ablation *lost, const float *limits, size_t n_limit, double *norms);

#endif
