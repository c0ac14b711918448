/* Contributions of neurons. Called by thresholds.c and study/. */
#include "measure/contribution.h"

#include "engine/engine.h"
#include "kernels/math.h"

#include <string.h>

hearth_status hth_down_squares(const hearth_model *model, uint32_t i_layer, double *squares,
                               hearth_error *err)
{
    const hth_layer *l = &model->model->layers[i_layer];
    bool by_neurons = l->neurons.rows.n_row > 0;
    const hth_matrix *w = by_neurons ? &l->neurons.rows : &l->down;
    float *row = hth_alloc(w->n_col, sizeof *row);
    uint8_t *room = hth_alloc(1, w->row_size);
    hearth_status st =
        row && room ? HEARTH_OK : hth_fail_memory(err, w->n_col * sizeof *row, "a row of weights");
    memset(squares, 0, l->d_ff * sizeof *squares);
    for (size_t i = 0; st == HEARTH_OK && i < w->n_row; i++) {
        model->kernels.unpack[w->type](hth_matrix_row(w, i, room), w->n_col, row);
        for (size_t c = 0; c < w->n_col; c++) squares[by_neurons ? i : c] += (double)row[c] * (double)row[c];
    }
    hth_free(row);
    hth_free(room);
    return st;
}

void hth_down_norms(hth_step *step, uint32_t i_layer, const float *hidden, size_t n_tok, size_t d_model,
                    double *norms)
{
    const float *out = hth_step_down(step, i_layer, hidden, n_tok);
    for (size_t t = 0; t < n_tok; t++) {
        double sum = 0.0;
        for (size_t o = 0; o < d_model; o++)
            sum += (double)out[t * d_model + o] * (double)out[t * d_model + o];
        norms[t] = hth_sqrt_d(sum);
    }
}
