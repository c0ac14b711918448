/* Cuts matrix products into units of rows for the pool. Called by run/ for every
 * product of a token; a unit's rows depend on the matrix alone. */
#include "kernels/product.h"

#include <assert.h>

/* Weights of one unit: large enough to amortise claiming it, small enough that
 * a slow thread costs little; in whole pairs of panels (panel_loop_avx512.h). */
enum { UNIT_SIZE = 64 << 10, UNIT_ROWS = 2 * HTH_PANEL_ROW };

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
    bool want_32, want_256, want_floats, want_tiles;
    const hth_rounding *rounding;
} product_job;

static size_t n_row_of(const hth_output *o) { return o->list ? o->n_list : o->matrix->n_row; }

/* Whether whole panels are computed as such: where they lie so or are worth making. */
static bool uses_panels(const product_job *job, const hth_matrix *m)
{
    return m->layout == HTH_LAYOUT_PANELS || (job->k->panels[m->type] && job->n_tok >= HTH_PANEL_LEAST_TOK);
}

/* Rounds one token's inputs and puts them where the kernels want them. */
static void round_token(void *arg, size_t t, uint32_t i_thread)
{
    (void)i_thread;
    const product_job *job = arg;
    size_t n_col = job->outputs[0].matrix->n_col;
    const hth_rounding *r = job->rounding;
    const float *x = job->act.x + t * n_col;
    int8_t *q = r->q + t * n_col, *q_256 = r->q_256 + t * n_col;
    if (job->want_floats) hth_tiles_put_floats(&r->tiles, t, job->n_tok, n_col, x);
    if (job->want_32) {
        float *d = r->d + t * (n_col / HTH_ACT_BLOCK);
        int32_t *sum = r->sum + t * (n_col / HTH_ACT_BLOCK);
        job->k->quant_act(x, n_col, q, d, sum);
        if (job->want_tiles) hth_tiles_put(&r->tiles, t, n_col, q, d, sum);
    }
    if (job->want_256) {
        float *d = r->d_256 + t * (n_col / HTH_ACT_BLOCK_256);
        int16_t *sum_16 = r->sum_16 + t * (n_col / HTH_ACT_PART);
        job->k->quant_act_256(x, n_col, q_256, d, sum_16);
        if (job->want_tiles) hth_tiles_put_256(&r->tiles_256, t, n_col, q_256, d, sum_16);
    }
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

/* Rows first to end of one output: whole panels, then what is left row by row. */
static void compute_rows(const product_job *job, const hth_output *o, size_t first, size_t end)
{
    const hth_matrix *m = o->matrix;
    hth_rows rows = {.w = m->data,
                     .row_size = m->row_size,
                     .n_col = m->n_col,
                     .layout = m->layout,
                     .list = o->list,
                     .first = first,
                     .end = end,
                     .act = hth_type_act_block(m->type) == HTH_ACT_BLOCK_256 ? job->act_256 : job->act,
                     .n_tok = job->n_tok,
                     .y = o->y,
                     .y_stride = n_row_of(o)};
    if (uses_panels(job, m)) {
        rows.end = end / HTH_PANEL_ROW * HTH_PANEL_ROW;
        job->k->panels[m->type](&rows);
        rows.first = rows.end, rows.end = end, rows.layout = HTH_LAYOUT_ROWS;
    }
    job->k->rows[m->type](&rows);
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
    compute_rows(job, o, first, end);
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
    job.act.tiles = rounding->tiles;
    job.act_256 = (hth_act){
        .q = rounding->q_256, .d = rounding->d_256, .sum_16 = rounding->sum_16, .tiles = rounding->tiles_256};
    size_t n_unit = 0;
    for (size_t i = 0; i < n_output; i++) {
        const hth_matrix *m = outputs[i].matrix;
        job.want_32 |= hth_type_act_block(m->type) == HTH_ACT_BLOCK;
        job.want_256 |= hth_type_act_block(m->type) == HTH_ACT_BLOCK_256;
        job.want_tiles |= n_tok > 1 && k->panels[m->type];
        job.want_floats |= hth_type_act_block(m->type) == 0 && uses_panels(&job, m);
        assert(!outputs[i].list || (n_tok == 1 && m->layout == HTH_LAYOUT_ROWS));
        job.rows_per_unit[i] = rows_per_unit(m);
        n_unit += (n_row_of(&outputs[i]) + job.rows_per_unit[i] - 1) / job.rows_per_unit[i];
        job.unit_end[i] = n_unit;
    }
    if (job.want_32 || job.want_256 || job.want_floats) hth_pool_run(pool, round_token, &job, n_tok);
    hth_pool_run(pool, compute_unit, &job, n_unit);
}

const uint8_t *hth_matrix_row(const hth_matrix *m, size_t i, uint8_t *room)
{
    size_t n_whole = m->n_row / HTH_PANEL_ROW * HTH_PANEL_ROW;
    const uint8_t *row = m->data + i * m->row_size;
    if (m->layout == HTH_LAYOUT_ROWS || i >= n_whole) return row;
    size_t r = i % HTH_PANEL_ROW, n_block = m->n_col / hth_type_find((uint32_t)m->type)->n_weight;
    hth_panel_row(m->type, n_block, row - r * m->row_size, r, room);
    return room;
}
