/* Products by head: the vectors of each head times a matrix of its own, for all tokens of a step. */
#include "forward/forward_int.h"
#include "kernels/training/training.h"

#include <string.h>

/* Row i of a wave is token i mod height of head i / height; rows behind the tokens are padding. */
typedef struct wave_arg {
    const hth_step *s;
    const hth_op *op;
    uint32_t first_head;
    uint32_t unused[3];
} wave_arg;
_Static_assert(sizeof(wave_arg) == HTH_PREPARE_SIZE, "what a product prepares with");

static void gather(const void *arg, size_t i)
{
    const wave_arg *w = arg;
    const hth_by_head *b = &w->s->by_head;
    const hth_op_by_head *p = &w->op->by_head;
    size_t t = i % b->height, head = w->first_head + i / b->height;
    float *x = b->forms[p->form].x;
    if (t < b->n_tok)
        memcpy(x + i * p->d_in, hth_fwd_row(w->s, w->op->in[0], t) + head * p->from_head,
               p->d_in * sizeof *x);
}

static void scatter(void *arg, size_t i, uint32_t i_thread)
{
    const wave_arg *w = arg;
    const hth_by_head *b = &w->s->by_head;
    const hth_op_by_head *p = &w->op->by_head;
    size_t t = i % b->height, head = w->first_head + i / b->height;
    const float *y = b->forms[p->form].y;
    (void)i_thread;
    if (t < b->n_tok)
        memcpy(hth_fwd_row(w->s, w->op->out[0], t) + head * p->to_head, y + i * p->d_out,
               p->d_out * sizeof *y);
}

/* ---- sums of rows -------------------------------------------------------------------------------------- */

typedef struct rows_job {
    const hth_step *s;
    const hth_op *op;
} rows_job;

/* y[d_out] of all tokens = the sum over i below d_in of x[i] times row i of the head's slice: chains from +0, i
 * ascending, product and sum rounded apart. Some rows at a time, widened to floats in scratch memory of the thread, stay
 * in its cache for all tokens. */
enum { ROWS_AT_ONCE = 8 };
static void sum_rows(void *arg, size_t head, uint32_t i_thread)
{
    const rows_job *job = arg;
    const hth_step *s = job->s;
    const hth_op_by_head *p = &job->op->by_head;
    const hth_matrix *m = p->matrix;
    size_t width = (p->d_out + 15) / 16 * 16, first_row = m->n_row / m->n_slice * head;
    float *y = s->act_q8.part + (size_t)i_thread * HTH_PRODUCT_SCRATCH, *rows = y + width;
    uint8_t *packed = (uint8_t *)(rows + ROWS_AT_ONCE * width);
    for (size_t t = 0; t < s->n_tok; t++)
        memset(hth_fwd_row(s, job->op->out[0], t) + head * p->to_head, 0, p->d_out * sizeof *y);
    memset(y, 0, width * sizeof *y);
    for (size_t first = 0; first < p->d_in; first += ROWS_AT_ONCE) {
        size_t n = p->d_in - first < ROWS_AT_ONCE ? p->d_in - first : ROWS_AT_ONCE;
        for (size_t i = 0; i < n; i++) {
            float *row = rows + i * width;
            s->k->unpack[m->type](hth_matrix_row(m, first_row + first + i, packed), p->d_out, row);
            memset(row + p->d_out, 0, (width - p->d_out) * sizeof *row);
        }
        for (size_t t = 0; t < s->n_tok; t++) {
            float *to = hth_fwd_row(s, job->op->out[0], t) + head * p->to_head;
            hth_gemm g = {.a = hth_fwd_row(s, job->op->in[0], t) + head * p->from_head + first,
                          .b = rows,
                          .y = y,
                          .a_col = 1,
                          .b_row = width,
                          .n_row = 1,
                          .n_col = width,
                          .n_in = n,
                          .more = true};
            memcpy(y, to, p->d_out * sizeof *y);
            s->k->gemm(&g);
            memcpy(to, y, p->d_out * sizeof *y);
        }
    }
}

/* ---- the operation ------------------------------------------------------------------------------------- */

hearth_status hth_fwd_by_head(hth_step *s, const hth_op *op, hearth_error *err)
{
    const hth_by_head *b = &s->by_head;
    const hth_op_by_head *p = &op->by_head;
    rows_job job = {s, op};
    if (p->form == HTH_BY_HEAD_ROWS) {
        hth_pool_add(s->pool, sum_rows, &job, sizeof job, p->n_head);
        return HEARTH_OK;
    }
    hth_output out = {.matrix = p->matrix, .y = b->forms[p->form].y};
    (void)err;
    for (uint32_t head = 0; head < p->n_head; head += b->n_wave) {
        uint32_t n = p->n_head - head < b->n_wave ? p->n_head - head : b->n_wave;
        wave_arg arg = {.s = s, .op = op, .first_head = head};
        hth_fusion fusion = {.prepare = gather, .prepare_arg = &arg};
        hth_product_slices_add(s->k, s->pool, &s->act_q8, b->forms[p->form].x,
                               &b->forms[p->form].waves[head / b->n_wave], &out, 1, &fusion);
        hth_pool_add(s->pool, scatter, &arg, sizeof arg, n * b->height);
    }
    return HEARTH_OK;
}

/* The waves of a step are the same in all layers. Units read them while later layers are queued. */
static void set_waves(hth_by_head *b, hth_by_head_form form)
{
    for (uint32_t head = 0, i = 0; b->forms[form].waves && head < b->n_head; head += b->n_wave, i++) {
        uint32_t n = b->n_head - head < b->n_wave ? b->n_head - head : b->n_wave;
        b->forms[form].waves[i] =
            (hth_submatrices){b->slices + head, n, b->forms[form].d_out, n * b->height, false, b->slice_of};
    }
}

void hth_fwd_by_head_begin(hth_step *s)
{
    hth_by_head *b = &s->by_head;
    if (!b->slices) return;
    b->n_tok = s->n_tok;
    b->height = s->n_tok > 1 ? (uint32_t)hth_n_tiled(s->n_tok) : 1;
    b->n_wave = b->max_row / b->height;
    for (uint32_t i = 0; i < b->n_head; i++)
        b->slices[i] = (hth_submatrix){i, i % b->n_wave * b->height, s->n_tok};
    for (uint32_t i = 0; i < b->n_wave * b->height; i++)
        b->slice_of[i] = i % b->height < s->n_tok ? i / b->height : UINT32_MAX;
    for (hth_by_head_form f = 0; f < HTH_N_BY_HEAD; f++) set_waves(b, f);
}
