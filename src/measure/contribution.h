/* What neurons give to the output of a layer's feed-forward network: a neuron's contribution to a token
 * is |hidden| times the norm of its column of down, the norm of the vector that it adds. What leaving
 * some out costs is CETT (Zhang et al. 2024, ReLU^2 Wins, eq. 3): the norm of what they would have added
 * together over that of the whole. */
#ifndef HTH_MEASURE_CONTRIBUTION_H
#define HTH_MEASURE_CONTRIBUTION_H

#include <hearth/hearth.h>

#include "forward/forward.h"

/* squares[d_ff] of the norms of what one unit of each neuron adds to the outputs. MEMORY. */
hearth_status hth_axpy_squares(const hearth_model *model, uint32_t i_layer, double *squares,
                               hearth_error *err);

/* squares[n_tok] of the norms of what down of a layer makes of hidden[n_tok][d_ff], in the workspace of a
 * step that is not under way (hth_step_down). */
void hth_output_squares(hth_step *step, uint32_t i_layer, const float *hidden, size_t n_tok, size_t d_model,
                        double *squares);

/* Tokens of which some neurons are left out. A neuron's size at a token is |score| times its weight. */
enum { HTH_ABLATION_ROWS = 32 };
typedef struct hth_ablation {
    hth_step *step; /* of HTH_ABLATION_ROWS rows, not under way */
    uint32_t i_layer;
    size_t n_tok, d_ff, d_model;
    const float *hidden, *scores; /* [n_tok][d_ff]; they may be the same */
    const float *weights;         /* [d_ff] */
    float *room;                  /* [HTH_ABLATION_ROWS][d_ff] */
} hth_ablation;

/* norms[n_tok] of what the outputs lose without the neurons whose size is below the limit: limits[0] for all
 * tokens (n_limit 1), or limits[t] for token t (n_limit n_tok). n_limit 0: without all neurons. */
void hth_ablation_norms(const hth_ablation *lost, const float *limits, size_t n_limit, double *norms);

#endif
