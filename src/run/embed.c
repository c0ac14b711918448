/* From token ids to the residual stream. Called by step.c first. */
#include "run/run_int.h"

void hth_run_embed(hth_step *s)
{
    const hth_matrix *m = &s->model->token_embd;
    for (uint32_t i = 0; i < s->n_row; i++)
        s->k->unpack[m->type](m->data + (size_t)s->rows[i].token * m->row_size, m->n_col,
                              s->x + i * m->n_col);
}
