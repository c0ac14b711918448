/* Cuts matrix products into units of rows for the pool. Called by run/ for every
 * product of a token; a unit's rows depend on the matrix alone. */
#include "kernels/product.h"

/* Weights of one unit: large enough to amortise claiming it, small enough that
 * a slow thread costs little; in whole panels of rows (panel_avx512.h). */
enum { UNIT_SIZE = 64 << 10, UNIT_ROWS = 16 };

static size_t rows_per_unit(const hth_matrix *m)
{
    return (UNIT_SIZE / m->row_size / UNIT_ROWS + 1) * UNIT_ROWS;
}

typedef struct product_job {
    const hth_kernels *k;
    const hth_output *outputs;
    size_t n_output, n_tok;
    size_t rows_per_unit[HTH_PRODUCT_MAX], unit_end[HTH_PRODUCT_MAX];
    hth_act act, act_256; /* the same inputs, rounded per 32 and per 256 */
    bool want_32, want_256;
    const hth_rounding *rounding;
} product_job;

static size_t n_row_of(const hth_output *o) { return o->list ? o->n_list : o->matrix->n_row; }

static void round_token(void *arg, size_t t, uint32_t i_thread)
{
    (void)i_thread;
    const product_job *job = arg;
    size_t n_col = job->outputs[0].matrix->n_col, n_block = n_col / HTH_ACT_BLOCK;
    const hth_rounding *r = job->rounding;
    const float *x = job->act.x + t * n_col;
    if (job->want_32) job->k->quant_act(x, n_col, r->q + t * n_col, r->d + t * n_block, r->sum + t * n_block);
    n_block = n_col / HTH_ACT_BLOCK_256;
    if (job->want_256)
        job->k->quant_act_256(x, n_col, r->q_256 + t * n_col, r->d_256 + t * n_block,
                              r->sum_16 + t * (n_col / HTH_ACT_PART));
}

static void add_bias(const product_job *job, const hth_output *o, size_t first, size_t end)
{
    size_t n_row = n_row_of(o);
    for (size_t t = 0; t < job->n_tok; t++) {
        float *y = o->y + t * n_row;
        if (o->list) {
            for (size_t i = first; i < end; i++) y[i] += o->bias[o->list[i]];
        } else {
            job->k->add(y + first, o->bias + first, end - first, y + first);
        }
    }
}

static void compute_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    (void)i_thread;
    const product_job *job = arg;
    size_t i = 0;
    while (i_unit >= job->unit_end[i]) i++;
    const hth_output *o = &job->outputs[i];
    size_t n_row = n_row_of(o), first = (i_unit - (i ? job->unit_end[i - 1] : 0)) * job->rows_per_unit[i];
    size_t end = first + job->rows_per_unit[i] < n_row ? first + job->rows_per_unit[i] : n_row;
    bool wide = hth_type_act_block(o->matrix->type) == HTH_ACT_BLOCK_256;
    hth_rows rows = {.w = o->matrix->data,
                     .row_size = o->matrix->row_size,
                     .n_col = o->matrix->n_col,
                     .list = o->list,
                     .first = first,
                     .end = end,
                     .act = wide ? job->act_256 : job->act,
                     .n_tok = job->n_tok,
                     .y = o->y,
                     .y_stride = n_row};
    job->k->rows[o->matrix->type](&rows);
    if (o->bias) add_bias(job, o, first, end);
}

void hth_product(const hth_kernels *k, hth_pool *pool, const hth_rounding *rounding, const float *x,
                 size_t n_tok, const hth_output *outputs, size_t n_output)
{
    product_job job = {.k = k,
                       .outputs = outputs,
                       .n_output = n_output,
                       .n_tok = n_tok,
                       .rounding = rounding,
                       .act = {.x = x, .q = rounding->q, .d = rounding->d, .sum = rounding->sum}};
    job.act_256 = (hth_act){.q = rounding->q_256, .d = rounding->d_256, .sum_16 = rounding->sum_16};
    size_t n_unit = 0;
    for (size_t i = 0; i < n_output; i++) {
        const hth_matrix *m = outputs[i].matrix;
        job.want_32 |= hth_type_act_block(m->type) == HTH_ACT_BLOCK;
        job.want_256 |= hth_type_act_block(m->type) == HTH_ACT_BLOCK_256;
        job.rows_per_unit[i] = rows_per_unit(m);
        n_unit += (n_row_of(&outputs[i]) + job.rows_per_unit[i] - 1) / job.rows_per_unit[i];
        job.unit_end[i] = n_unit;
    }
    if (job.want_32 || job.want_256) hth_pool_run(pool, round_token, &job, n_tok);
    hth_pool_run(pool, compute_unit, &job, n_unit);
}
