/* Cuts matrix products into units of rows for the pool. Called by run/ for every
 * product of a token; a unit's rows depend on the matrix alone. */
#include "kernels/product.h"

#include <assert.h>
#include <string.h>

/* Weights of one unit: large enough to amortise claiming it, small enough that
 * a slow thread costs little; in as many panels as are computed together (N_PANEL). */
enum { UNIT_SIZE = 64 << 10, UNIT_ROWS = 3 * HTH_PANEL_ROW };

static size_t rows_of_size(size_t row_size) { return (UNIT_SIZE / row_size / UNIT_ROWS + 1) * UNIT_ROWS; }

/* Copied into the queue, so it holds little. */
typedef struct product_job {
    const hth_kernels *k;
    const hth_rounding *rounding;
    const float *x;
    size_t n_tok;
    hth_output outputs[HTH_PRODUCT_MAX];
    uint32_t unit_end[HTH_PRODUCT_MAX], n_unit, n_thread;
    bool want_32, want_256, want_floats, want_tiles;
    hth_prepare_fn *prepare;
    uint64_t prepare_arg[HTH_PREPARE_SIZE / 8];
    hth_activate_fn *activate; /* NULL: each output for itself */
    float *hidden;
} product_job;
_Static_assert(sizeof(product_job) <= HTH_POOL_ARG_SIZE, "a product does not fit into the queue");

static size_t n_row_of(const hth_output *o) { return o->list ? o->n_list : o->matrix->n_row; }

/* Whether whole panels are computed as such: where they lie so or are worth making. */
static bool uses_panels(const hth_kernels *k, const hth_matrix *m, size_t n_tok)
{
    return m->layout == HTH_LAYOUT_PANELS || (k->panels[m->type] && n_tok >= HTH_PANEL_LEAST_TOK);
}

/* Makes and rounds one token's inputs and puts them where the kernels want them. */
static void round_token(void *arg, size_t t, uint32_t i_thread)
{
    (void)i_thread;
    const product_job *job = arg;
    size_t n_col = job->outputs[0].matrix->n_col;
    const hth_rounding *r = job->rounding;
    const float *x = job->x + t * n_col;
    if (job->prepare) job->prepare(job->prepare_arg, t);
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

/* Adds the bias of rows [first, end) to y, where the first of them stands. */
static void add_bias(const product_job *job, const hth_output *o, size_t first, size_t end, float *y,
                     size_t y_stride)
{
    for (size_t t = 0; t < job->n_tok; t++, y += y_stride) {
        if (o->list) {
            for (size_t i = first; i < end; i++) y[i - first] += o->bias[o->list[i]];
        } else {
            job->k->add(y, o->bias + first, end - first, y);
        }
    }
}

/* The inputs as matrices of this type read them. */
static hth_act act_for(const product_job *job, hth_type type)
{
    const hth_rounding *r = job->rounding;
    if (hth_type_act_block(type) == HTH_ACT_BLOCK_256)
        return (hth_act){.q = r->q_256, .d = r->d_256, .sum_16 = r->sum_16, .tiles = r->tiles_256};
    return (hth_act){.x = job->x, .q = r->q, .d = r->d, .sum = r->sum, .tiles = r->tiles};
}

static size_t unit_claimed(const product_job *job, size_t i)
{
    return hth_pool_in_stretches(i, job->n_unit, job->n_thread);
}

/* Which rows of which output a unit is. */
typedef struct unit_rows {
    const hth_output *o;
    size_t first, end;
} unit_rows;

static unit_rows rows_of_unit(const product_job *job, size_t i_claim)
{
    size_t i = 0, i_unit = unit_claimed(job, i_claim);
    while (i_unit >= job->unit_end[i]) i++;
    const hth_output *o = &job->outputs[i];
    size_t n = rows_of_size(o->matrix->row_size), n_row = n_row_of(o);
    size_t first = (i_unit - (i ? job->unit_end[i - 1] : 0)) * n;
    return (unit_rows){o, first, n_row - first < n ? n_row : first + n};
}

static float *part_of(const product_job *job, uint32_t i_thread)
{
    return job->rounding->part + (size_t)i_thread * HTH_PRODUCT_PART;
}

/* The rows of a unit to y, where the first of them goes: whole panels, then what is left row by
 * row. */
static void compute_rows(const product_job *job, const unit_rows *u, uint32_t i_thread, float *y,
                         size_t y_stride)
{
    const hth_matrix *m = u->o->matrix;
    const int32_t *list = u->o->list;
    size_t n = u->end - u->first;
    hth_rows rows = {.w = list ? m->data : m->data + u->first * m->row_size,
                     .row_size = m->row_size,
                     .n_col = m->n_col,
                     .layout = m->layout,
                     .fetch = job->k->fetch,
                     .list = list ? list + u->first : NULL,
                     .end = n,
                     .n_coming = list ? u->o->n_list - u->end : 0,
                     .act = act_for(job, m->type),
                     .n_tok = job->n_tok,
                     .y = y,
                     .y_stride = y_stride,
                     .work = job->rounding->work + (size_t)i_thread * HTH_PANEL_WORK};
    if (uses_panels(job->k, m, job->n_tok)) {
        rows.end = n / HTH_PANEL_ROW * HTH_PANEL_ROW;
        job->k->panels[m->type](&rows);
        rows.first = rows.end, rows.end = n, rows.layout = HTH_LAYOUT_ROWS;
    }
    job->k->rows[m->type](&rows);
    if (u->o->bias) add_bias(job, u->o, u->first, u->end, y, y_stride);
}

/* ---- each output for itself ------------------------------------------------------------------ */

static void compute_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    const product_job *job = arg;
    unit_rows u = rows_of_unit(job, i_unit);
    size_t n_row = n_row_of(u.o);
    compute_rows(job, &u, i_thread, u.o->y + u.first, n_row);
    if (!u.o->onto) return;
    for (size_t t = 0; t < job->n_tok; t++) {
        size_t at = t * n_row + u.first;
        job->k->add(u.o->onto + at, u.o->y + at, u.end - u.first, u.o->onto + at);
    }
}

/* The same rows into the thread's own part, [n_tok][rows of the unit]; no lists. */
static void compute_part(void *arg, size_t i_unit, uint32_t i_thread)
{
    const product_job *job = arg;
    unit_rows u = rows_of_unit(job, i_unit);
    compute_rows(job, &u, i_thread, part_of(job, i_thread), u.end - u.first);
}

static void commit_part(void *arg, size_t i_unit, uint32_t i_thread)
{
    const product_job *job = arg;
    unit_rows u = rows_of_unit(job, i_unit);
    const float *part = part_of(job, i_thread);
    size_t n = u.end - u.first, n_row = n_row_of(u.o);
    for (size_t t = 0; t < job->n_tok; t++, part += n) {
        size_t at = t * n_row + u.first;
        if (u.o->onto) job->k->add(u.o->onto + at, part, n, u.o->onto + at);
        else memcpy(u.o->y + at, part, n * sizeof *part);
    }
}

/* ---- gate and up to hidden ---------------------------------------------------------------------- */

static size_t rows_of_all(const hth_output *outputs, size_t n_output)
{
    size_t row_size = 0;
    for (size_t i = 0; i < n_output; i++) row_size += outputs[i].matrix->row_size;
    return rows_of_size(row_size);
}

bool hth_product_has_room(size_t n_tok, const hth_output *outputs, size_t n_output)
{
    return n_output * n_tok * rows_of_all(outputs, n_output) <= HTH_PRODUCT_PART;
}

static size_t n_output_of(const product_job *job) { return job->outputs[1].matrix ? 2 : 1; }

static unit_rows rows_of_hidden(const product_job *job, size_t i_claim)
{
    size_t n = rows_of_all(job->outputs, n_output_of(job)), n_row = job->outputs[0].matrix->n_row;
    size_t first = unit_claimed(job, i_claim) * n;
    return (unit_rows){job->outputs, first, n_row - first < n ? n_row : first + n};
}

/* The neurons of a unit to the thread's part: h takes those of token t at t * stride. */
static void compute_neurons(const product_job *job, unit_rows u, uint32_t i_thread, float *h, size_t stride)
{
    float *part = part_of(job, i_thread);
    size_t n = u.end - u.first, n_output = n_output_of(job);
    for (size_t i = 0; i < n_output; i++) {
        u.o = &job->outputs[i];
        compute_rows(job, &u, i_thread, part + i * job->n_tok * n, n);
    }
    const float *up = part + (n_output - 1) * job->n_tok * n, *gate = n_output == 2 ? part : NULL;
    for (size_t t = 0; t < job->n_tok; t++)
        job->activate(gate ? gate + t * n : NULL, up + t * n, n, h + t * stride);
}

static void compute_hidden(void *arg, size_t i_unit, uint32_t i_thread)
{
    const product_job *job = arg;
    unit_rows u = rows_of_hidden(job, i_unit);
    compute_neurons(job, u, i_thread, job->hidden + u.first, u.o->matrix->n_row);
}

static void compute_hidden_part(void *arg, size_t i_unit, uint32_t i_thread)
{
    const product_job *job = arg;
    unit_rows u = rows_of_hidden(job, i_unit);
    compute_neurons(job, u, i_thread, part_of(job, i_thread), u.end - u.first);
}

static void commit_hidden(void *arg, size_t i_unit, uint32_t i_thread)
{
    const product_job *job = arg;
    unit_rows u = rows_of_hidden(job, i_unit);
    const float *part = part_of(job, i_thread);
    size_t n = u.end - u.first;
    for (size_t t = 0; t < job->n_tok; t++)
        memcpy(job->hidden + t * u.o->matrix->n_row + u.first, part + t * n, n * sizeof *part);
}

/* ---- the queue ---------------------------------------------------------------------------------- */

/* Lists are addresses that a late thread must not read; and results need room. */
static bool may_be_late(const product_job *job, size_t n_output)
{
    for (size_t i = 0; i < n_output; i++) {
        const hth_output *o = &job->outputs[i];
        if (o->list || rows_of_size(o->matrix->row_size) * job->n_tok > HTH_PRODUCT_PART) return false;
    }
    return true;
}

static void add_units(hth_pool *pool, product_job *job, size_t n_output)
{
    uint32_t n_unit = 0;
    job->n_thread = hth_pool_n_thread(pool);
    if (job->activate) {
        size_t n = rows_of_all(job->outputs, n_output);
        job->n_unit = (uint32_t)((job->outputs[0].matrix->n_row + n - 1) / n);
        if (job->n_thread > 1)
            hth_pool_add_twice(pool, compute_hidden_part, commit_hidden, job, sizeof *job, job->n_unit);
        else hth_pool_add(pool, compute_hidden, job, sizeof *job, job->n_unit);
        return;
    }
    for (size_t i = 0; i < n_output; i++) {
        size_t n = rows_of_size(job->outputs[i].matrix->row_size);
        n_unit += (uint32_t)((n_row_of(&job->outputs[i]) + n - 1) / n);
        job->unit_end[i] = n_unit;
    }
    job->n_unit = n_unit;
    if (job->n_thread > 1 && may_be_late(job, n_output))
        hth_pool_add_twice(pool, compute_part, commit_part, job, sizeof *job, n_unit);
    else hth_pool_add(pool, compute_unit, job, sizeof *job, n_unit);
}

void hth_product_add(const hth_kernels *k, hth_pool *pool, const hth_rounding *rounding, const float *x,
                     size_t n_tok, const hth_output *outputs, size_t n_output, const hth_fusion *fusion)
{
    product_job job = {.k = k, .rounding = rounding, .x = x, .n_tok = n_tok};
    for (size_t i = 0; i < n_output; i++) {
        const hth_matrix *m = outputs[i].matrix;
        job.outputs[i] = outputs[i];
        job.want_32 |= hth_type_act_block(m->type) == HTH_ACT_BLOCK;
        job.want_256 |= hth_type_act_block(m->type) == HTH_ACT_BLOCK_256;
        job.want_tiles |= n_tok > 1 && k->panels[m->type];
        job.want_floats |= hth_type_act_block(m->type) == 0 && uses_panels(k, m, n_tok);
        assert(!outputs[i].list || (n_tok == 1 && m->layout == HTH_LAYOUT_ROWS));
    }
    if (fusion) {
        job.prepare = fusion->prepare, job.activate = fusion->activate, job.hidden = fusion->hidden;
        if (job.prepare) memcpy(job.prepare_arg, fusion->prepare_arg, HTH_PREPARE_SIZE);
    }
    assert(!job.activate || hth_product_has_room(n_tok, outputs, n_output));
    if (job.want_32 || job.want_256 || job.want_floats || job.prepare)
        hth_pool_add(pool, round_token, &job, sizeof job, n_tok);
    add_units(pool, &job, n_output);
}

void hth_product(const hth_kernels *k, hth_pool *pool, const hth_rounding *rounding, const float *x,
                 size_t n_tok, const hth_output *outputs, size_t n_output)
{
    hth_product_add(k, pool, rounding, x, n_tok, outputs, n_output, NULL);
    hth_pool_finish(pool);
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
