/* Contributions of neurons. thresholds.c, compare.c and study/ call it. */
#include "measure/contribution.h"

#include "engine/engine.h"
#include "kernels/vector/math.h"

#include <string.h>

hearth_status hth_down_row_squares(const hearth_model *model, uint32_t i_layer, double *squares,
                               hearth_error *err)
{
    const hth_layer *l = &model->model->layers[i_layer];
    bool down_transposed = l->ffn.down_t.rows.n_row > 0;
    const hth_matrix *w = down_transposed ? &l->ffn.down_t.rows : &l->ffn.down;
    float *row = hth_alloc(w->n_col, sizeof *row);
    uint8_t *scratch = hth_alloc(1, w->row_size);
    hearth_status st =
        row && scratch ? HEARTH_OK : hth_fail_memory(err, w->n_col * sizeof *row, "a row of weights");
    memset(squares, 0, l->ffn.d_ff * sizeof *squares);
    for (size_t i = 0; st == HEARTH_OK && i < w->n_row; i++) {
        model->kernels.unpack[w->type](hth_matrix_row(w, i, scratch), w->n_col, row);
        for (size_t c = 0; c < w->n_col; c++) squares[down_transposed ? i : c] += (double)row[c] * (double)row[c];
    }
    hth_free(row);
    hth_free(scratch);
    return st;
}

void hth_output_squares(hth_step *step, uint32_t i_layer, const float *hidden, size_t n_tok, size_t d_model,
                        double *squares)
{
    const float *out = hth_step_down(step, i_layer, hidden, n_tok);
    for (size_t t = 0; t < n_tok; t++) {
        squares[t] = 0.0;
        for (size_t o = 0; o < d_model; o++)
            squares[t] += (double)out[t * d_model + o] * (double)out[t * d_model + o];
    }
}

/* Copies the hidden values of token t that are below the limit, and sets the others to zero. */
static void keep_small(const hth_ablation *l, size_t t, float limit, float *part)
{
    const float *hidden = l->hidden + t * l->d_ff, *scores = l->scores + t * l->d_ff;
    for (size_t j = 0; j < l->d_ff; j++)
        part[j] = __builtin_fabsf(scores[j]) * l->weights[j] < limit ? hidden[j] : 0.0f;
}

void hth_ablation_norms(const hth_ablation *l, const float *limits, size_t n_limit, double *norms)
{
    for (size_t first = 0; first < l->n_tok; first += HTH_ABLATION_ROWS) {
        size_t left = l->n_tok - first, n = left < HTH_ABLATION_ROWS ? left : HTH_ABLATION_ROWS;
        for (size_t t = 0; n_limit > 0 && t < n; t++)
            keep_small(l, first + t, limits[n_limit > 1 ? first + t : 0], l->scratch + t * l->d_ff);
        const float *part = n_limit > 0 ? l->scratch : l->hidden + first * l->d_ff;
        hth_output_squares(l->step, l->i_layer, part, n, l->d_model, norms + first);
    }
    for (size_t t = 0; t < l->n_tok; t++) norms[t] = hth_sqrt_d(norms[t]);
}
