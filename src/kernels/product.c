/* Divides matrix products into units of rows for the thread pool. forward/ calls it for every product of a
 * token. The rows of a unit depend on the matrices and on whether there are several tokens, never on threads. */
#include "kernels/product.h"

#include <assert.h>
#include <string.h>

/* Weights of one unit: large enough to amortise claiming it, small enough that a slow thread costs little; a
 * multiple of the panels that are computed together (N_PANEL). The weights of one token are read once, and two threads
 * read longer pieces faster: its units are a 64th of the product, between the two sizes. */
enum { UNIT_SIZE = 64 << 10, MAX_UNIT_SIZE = 256 << 10, N_UNIT = 64, UNIT_ROWS = 3 * HTH_PANEL_ROW };

static size_t rows_of_size(size_t row_size, size_t unit_size)
{
    return (unit_size / row_size / UNIT_ROWS + 1) * UNIT_ROWS;
}

/* Copied into the queue, so it is small. */
typedef struct product_job {
    const hth_kernels *k;
    const hth_act_q8 *quantised;
    const float *x;
    uint64_t number; /* number of the shared input; 0: threads read the inputs directly */
    const hth_submatrices *slices; /* NULL: all rows of x times whole matrices */
    hth_output outputs[HTH_PRODUCT_MAX];
    uint32_t n_tok, n_unit_row[HTH_PRODUCT_MAX], unit_end[HTH_PRODUCT_MAX], n_unit, n_thread;
    bool want_x, want_32, want_256, want_floats, want_tiles;
    hth_prepare_fn *prepare;
    uint64_t prepare_arg[HTH_PREPARE_SIZE / 8];
    hth_activate_fn *activate; /* NULL: separate outputs; else outputs[0].y is hidden */
    float limit;               /* hth_fusion */
} product_job;
_Static_assert(sizeof(product_job) <= HTH_POOL_ARG_SIZE, "a product does not fit into the queue");

static size_t n_row_of(const product_job *job, const hth_output *o)
{
    return job->slices ? job->slices->n_row : o->list ? o->n_list : o->matrix->n_row;
}

/* Values of y, and of what it is added to, between two tokens. */
static size_t n_y_of(const product_job *job, const hth_output *o) { return o->n_y ? o->n_y : n_row_of(job, o); }

/* Row 0 of the matrix that slice i of an output is. */
static size_t first_row_of(const product_job *job, const hth_output *o, size_t i)
{
    return (o->first_slice + i * (o->slice_step ? o->slice_step : 1)) * n_row_of(job, o);
}

static size_t n_slice_of(const product_job *job) { return job->slices ? job->slices->n_slice : 1; }

static hth_submatrix slice_at(const product_job *job, size_t i)
{
    return job->slices ? job->slices->slices[i] : (hth_submatrix){.n = job->n_tok};
}

/* Whether rows are computed as panels: they are stored so, or packing them pays off. */
static bool uses_panels(const hth_kernels *k, const hth_matrix *m, size_t n_tok)
{
    return m->layout == HTH_LAYOUT_PANELS || (k->panels[m->type] && n_tok >= HTH_PANEL_MIN_TOK);
}

/* ---- inputs ------------------------------------------------------------------------------------ */

static size_t n_col_of(const product_job *job) { return job->outputs[0].matrix->n_col; }

/* Computes and quantises one token's inputs and writes them where the kernels read them. */
static void quantize_token(void *arg, size_t t, uint32_t i_thread)
{
    (void)i_thread;
    const product_job *job = arg;
    size_t n_col = n_col_of(job);
    const hth_act_q8 *r = job->quantised;
    const float *x = job->x + t * n_col;
    size_t i_slice = job->slices && !job->slices->shares_x ? job->slices->slice_of[t] : 0;
    if (i_slice == UINT32_MAX) return;
    bool alone = slice_at(job, i_slice).n == 1, want_tiles = job->want_tiles && !alone;
    if (job->prepare) job->prepare(job->prepare_arg, t);
    int8_t *q = r->q + t * n_col, *q_256 = r->q_256 + t * n_col;
    if (job->want_floats && alone) hth_tiles_put_floats(&(hth_tiles){.x = r->tiles.x + t * n_col}, 0, 1, n_col, x);
    if (job->want_floats && !alone) hth_tiles_put_floats(&r->tiles, t, job->n_tok, n_col, x);
    if (job->want_32) {
        float *d = r->d + t * (n_col / HTH_ACT_BLOCK);
        int32_t *sum = r->sum + t * (n_col / HTH_ACT_BLOCK);
        job->k->quant_act(x, n_col, q, d, sum);
        if (want_tiles) hth_tiles_put(&r->tiles, t, n_col, q, d, sum);
    }
    if (job->want_256) {
        float *d = r->d_256 + t * (n_col / HTH_ACT_BLOCK_256);
        int16_t *sum_16 = r->sum_16 + t * (n_col / HTH_ACT_SUBBLOCK);
        job->k->quant_act_256(x, n_col, q_256, d, sum_16);
        if (want_tiles) hth_tiles_put_256(&r->tiles_256, t, n_col, q_256, d, sum_16);
    }
}

/* A thread's copy of a shared input: the forms that a job needs, one after another. */
typedef struct input_copy {
    uint64_t *number; /* number of the product that the copy belongs to */
    uint8_t *bytes;
    size_t size;
    float *x, *tile_x, *d, *d_256;
    int8_t *q, *q_256;
    int32_t *sum;
    int16_t *sum_16;
} input_copy;

static void *lay(input_copy *c, size_t n, size_t size)
{
    void *at = c->bytes + c->size;
    c->size += (n * size + 63) & ~(size_t)63;
    return at;
}

static void lay_input(input_copy *c, size_t n_col, const product_job *want)
{
    if (want->want_x) c->x = lay(c, n_col, sizeof *c->x);
    if (want->want_floats) c->tile_x = lay(c, n_col, sizeof *c->tile_x);
    if (want->want_32) {
        c->q = lay(c, n_col, sizeof *c->q);
        c->d = lay(c, n_col / HTH_ACT_BLOCK, sizeof *c->d);
        c->sum = lay(c, n_col / HTH_ACT_BLOCK, sizeof *c->sum);
    }
    if (want->want_256) {
        c->q_256 = lay(c, n_col, sizeof *c->q_256);
        c->d_256 = lay(c, n_col / HTH_ACT_BLOCK_256, sizeof *c->d_256);
        c->sum_16 = lay(c, n_col / HTH_ACT_SUBBLOCK, sizeof *c->sum_16);
    }
}

size_t hth_input_size(size_t n_col)
{
    static uint8_t none;
    static const product_job all = {.want_x = true, .want_floats = true, .want_32 = true, .want_256 = true};
    input_copy c = {.bytes = &none};
    lay_input(&c, n_col, &all);
    return c.size;
}

static input_copy copy_of(const product_job *job, uint32_t i_thread)
{
    const hth_shared_input *in = job->quantised->input;
    uint8_t *at = in->copies + i_thread * (HTH_INPUT_HEAD + in->size);
    input_copy c = {.number = (uint64_t *)(void *)at, .bytes = at + HTH_INPUT_HEAD};
    lay_input(&c, n_col_of(job), job);
    return c;
}

/* As quantize_token, for a shared input. */
static void share_input(void *arg, size_t t, uint32_t i_thread)
{
    const product_job *job = arg;
    size_t n_col = n_col_of(job);
    input_copy c = copy_of(job, i_thread);
    uint64_t *words = job->quantised->input->words, word;
    if (job->prepare) job->prepare(job->prepare_arg, t);
    if (job->want_x) memcpy(c.x, job->x, n_col * sizeof *c.x);
    if (job->want_floats) hth_tiles_put_floats(&(hth_tiles){.x = c.tile_x}, t, 1, n_col, job->x);
    if (job->want_32) job->k->quant_act(job->x, n_col, c.q, c.d, c.sum);
    if (job->want_256) job->k->quant_act_256(job->x, n_col, c.q_256, c.d_256, c.sum_16);
    for (size_t i = 0; i < c.size / sizeof word; i++) {
        memcpy(&word, c.bytes + i * sizeof word, sizeof word);
        __atomic_store_n(&words[i], word, __ATOMIC_RELAXED);
    }
    *c.number = job->number;
}

/* The thread's copy of the job's input. A straggler may copy data of later products; its result is discarded. */
static input_copy take_input(const product_job *job, uint32_t i_thread)
{
    input_copy c = copy_of(job, i_thread);
    const uint64_t *words = job->quantised->input->words;
    if (*c.number == job->number) return c;
    for (size_t i = 0; i < c.size / sizeof *words; i++) {
        uint64_t word = __atomic_load_n(&words[i], __ATOMIC_RELAXED);
        memcpy(c.bytes + i * sizeof word, &word, sizeof word);
    }
    *c.number = job->number;
    return c;
}

/* Tiles have only the arrays of their type; C knows no sum of NULL and a number. */
#define BEHIND(array, n) ((array) ? (array) + (n) : NULL)

/* Tiles from row `first` of x on, the start of one. */
static hth_tiles tiles_from(const hth_tiles *t, size_t first, size_t n_col, size_t n_block)
{
    return (hth_tiles){.q = BEHIND(t->q, first * n_col),
                       .d = BEHIND(t->d, first * n_block),
                       .offset = BEHIND(t->offset, first * n_block),
                       .sum_16 = BEHIND(t->sum_16, first * (n_col / HTH_ACT_SUBBLOCK)),
                       .x = BEHIND(t->x, first * n_col)};
}

/* The inputs from row `first` of x on, in the form that matrices of this type read. */
static hth_act act_for(const product_job *job, hth_type type, size_t first, uint32_t i_thread)
{
    const hth_act_q8 *r = job->quantised;
    bool in_256 = hth_type_act_block(type) == HTH_ACT_BLOCK_256;
    if (job->number) {
        input_copy c = take_input(job, i_thread);
        if (in_256) return (hth_act){.q = c.q_256, .d = c.d_256, .sum_16 = c.sum_16};
        return (hth_act){.x = c.x, .q = c.q, .d = c.d, .sum = c.sum, .tiles.x = c.tile_x};
    }
    size_t n_col = n_col_of(job), n_block = n_col / HTH_ACT_BLOCK, n_wide = n_col / HTH_ACT_BLOCK_256;
    if (in_256)
        return (hth_act){.q = r->q_256 + first * n_col,
                         .d = r->d_256 + first * n_wide,
                         .sum_16 = r->sum_16 + first * (n_col / HTH_ACT_SUBBLOCK),
                         .tiles = tiles_from(&r->tiles_256, first, n_col, n_wide)};
    return (hth_act){.x = job->x + first * n_col,
                     .q = r->q + first * n_col,
                     .d = r->d + first * n_block,
                     .sum = r->sum + first * n_block,
                     .tiles = tiles_from(&r->tiles, first, n_col, n_block)};
}

/* ---- units ------------------------------------------------------------------------------------- */

static size_t unit_claimed(const product_job *job, size_t i)
{
    return hth_pool_block_index(i, job->n_unit, job->n_thread);
}

/* The output, the rows and the slice of a unit. */
typedef struct unit_rows {
    const hth_output *o;
    size_t first, end, i_slice; /* i_slice: in the list of slices */
    hth_submatrix slice;
} unit_rows;

/* Unit i of an output, of n rows each. */
static unit_rows unit_at(const product_job *job, const hth_output *o, size_t i, size_t n)
{
    size_t n_row = n_row_of(job, o), per_slice = (n_row + n - 1) / n, first = i % per_slice * n;
    return (unit_rows){o, first, n_row - first < n ? n_row : first + n, i / per_slice, slice_at(job, i / per_slice)};
}

static unit_rows rows_of_unit(const product_job *job, size_t i_claim)
{
    size_t i = 0, i_unit = unit_claimed(job, i_claim);
    while (i_unit >= job->unit_end[i]) i++;
    const hth_output *o = &job->outputs[i];
    return unit_at(job, o, i_unit - (i ? job->unit_end[i - 1] : 0), job->n_unit_row[i]);
}

/* Adds the bias of a unit's rows to y, which begins at the first of them. */
static void add_bias(const product_job *job, const unit_rows *u, float *y, size_t y_stride)
{
    const hth_output *o = u->o;
    const float *bias = o->bias + first_row_of(job, o, u->slice.i_slice);
    for (size_t t = 0; t < u->slice.n; t++, y += y_stride) {
        if (!o->list) job->k->add(y, bias + u->first, u->end - u->first, y);
        for (size_t i = u->first; o->list && i < u->end; i++) y[i - u->first] += bias[o->list[i]];
    }
}

/* Row 0 of the matrix that the unit's slice is. */
static const uint8_t *slice_data(const product_job *job, const unit_rows *u)
{
    const hth_matrix *m = u->o->matrix;
    if (u->o->slice_data) return u->o->slice_data[u->i_slice];
    if (m->runs.at) return NULL;
    return m->data + first_row_of(job, u->o, u->slice.i_slice) * m->row_size;
}

static float *part_of(const product_job *job, uint32_t i_thread)
{
    return job->quantised->part + (size_t)i_thread * HTH_PRODUCT_SCRATCH;
}

/* Computes the rows of a unit and writes them from y on: whole panels, then the remaining rows one by one. */
static void compute_rows(const product_job *job, const unit_rows *u, uint32_t i_thread, float *y,
                         size_t y_stride)
{
    const hth_matrix *m = u->o->matrix;
    const int32_t *list = u->o->list;
    size_t n = u->end - u->first;
    hth_rows rows = {.w = list ? slice_data(job, u) : slice_data(job, u) + u->first * m->row_size,
                     .runs = m->runs,
                     .row_size = m->row_size,
                     .n_col = m->n_col,
                     .layout = m->layout,
                     .prefetch = job->k->prefetch,
                     .list = list ? list + u->first : NULL,
                     .end = n,
                     .n_prefetch = list ? u->o->n_list - u->end : 0,
                     .act = act_for(job, m->type, job->slices && job->slices->shares_x ? 0 : u->slice.first, i_thread),
                     .n_tok = u->slice.n,
                     .y = y,
                     .y_stride = y_stride,
                     .work = job->quantised->work + (size_t)i_thread * HTH_PANEL_WORK};
    if (uses_panels(job->k, m, u->slice.n)) {
        rows.end = n / HTH_PANEL_ROW * HTH_PANEL_ROW;
        job->k->panels[m->type](&rows);
        rows.first = rows.end, rows.end = n, rows.layout = HTH_LAYOUT_ROWS;
    }
    job->k->rows[m->type](&rows);
    if (u->o->bias) add_bias(job, u, y, y_stride);
}

/* ---- separate outputs ------------------------------------------------------------------------ */

static void compute_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    const product_job *job = arg;
    unit_rows u = rows_of_unit(job, i_unit);
    size_t n_y = n_y_of(job, u.o), first = u.slice.first * n_y + u.first;
    compute_rows(job, &u, i_thread, u.o->y + first, n_y);
    if (!u.o->add_to) return;
    for (size_t t = 0; t < u.slice.n; t++) {
        size_t at = t * n_y + first;
        job->k->add(u.o->add_to + at, u.o->y + at, u.end - u.first, u.o->add_to + at);
    }
}

/* The same rows into the thread's own scratch memory, [n_tok][rows of the unit]; no lists. */
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
    size_t n = u.end - u.first, n_y = n_y_of(job, u.o);
    for (size_t t = 0; t < job->n_tok; t++, part += n) {
        size_t at = t * n_y + u.first;
        if (u.o->add_to) job->k->add(u.o->add_to + at, part, n, u.o->add_to + at);
        else memcpy(u.o->y + at, part, n * sizeof *part);
    }
}

/* ---- gate and up to hidden ---------------------------------------------------------------------- */

static size_t rows_of_all(const hth_output *outputs, size_t n_output, size_t unit_size)
{
    size_t row_size = 0;
    for (size_t i = 0; i < n_output; i++) row_size += outputs[i].matrix->row_size;
    size_t n = rows_of_size(row_size, unit_size), max = HTH_PRODUCT_SCRATCH / n_output / UNIT_ROWS * UNIT_ROWS;
    return n < max ? n : max;
}

bool hth_product_fits_scratch(size_t n_tok, const hth_output *outputs, size_t n_output)
{
    return n_output * n_tok * rows_of_all(outputs, n_output, UNIT_SIZE) <= HTH_PRODUCT_SCRATCH;
}

static size_t n_output_of(const product_job *job) { return job->outputs[1].matrix ? 2 : 1; }

size_t hth_product_max_fused(const hth_output *outputs, size_t n_output)
{
    size_t n = HTH_PRODUCT_SCRATCH / (n_output * rows_of_all(outputs, n_output, UNIT_SIZE));
    return n < HTH_TILE_FLOAT_TOK ? 1 : n / HTH_TILE_FLOAT_TOK * HTH_TILE_FLOAT_TOK;
}

static unit_rows rows_of_hidden(const product_job *job, size_t i_claim)
{
    return unit_at(job, job->outputs, unit_claimed(job, i_claim), job->n_unit_row[0]);
}

static void limit_neurons(float *gate, float *up, size_t n, float limit)
{
    for (size_t i = 0; gate && i < n; i++) gate[i] = gate[i] > limit ? limit : gate[i];
    for (size_t i = 0; i < n; i++) up[i] = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
}

/* Computes the neurons of a unit in the thread's scratch memory. h takes those of token t at t * stride. */
static void compute_neurons(const product_job *job, unit_rows u, uint32_t i_thread, float *h, size_t stride)
{
    float *part = part_of(job, i_thread);
    size_t n = u.end - u.first, n_output = n_output_of(job), n_tok = u.slice.n;
    for (size_t i = 0; i < n_output; i++) {
        u.o = &job->outputs[i];
        compute_rows(job, &u, i_thread, part + i * n_tok * n, n);
    }
    float *up = part + (n_output - 1) * n_tok * n, *gate = n_output == 2 ? part : NULL;
    if (job->limit > 0.0f) limit_neurons(gate, up, n_tok * n, job->limit);
    for (size_t t = 0; t < n_tok; t++)
        job->activate(gate ? gate + t * n : NULL, up + t * n, n, h + t * stride);
}

static void compute_hidden(void *arg, size_t i_unit, uint32_t i_thread)
{
    const product_job *job = arg;
    unit_rows u = rows_of_hidden(job, i_unit);
    size_t n_row = n_row_of(job, u.o);
    compute_neurons(job, u, i_thread, u.o->y + u.slice.first * n_row + u.first, n_row);
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
        memcpy(u.o->y + t * u.o->matrix->n_row + u.first, part + t * n, n * sizeof *part);
}

/* ---- the queue ---------------------------------------------------------------------------------- */

/* Whether units may be retried (hth_pool_add_retryable). Not with lists, which are addresses that a straggler
 * must not read, nor with inputs of several tokens, which are too large for a copy per thread. */
static bool can_retry(const hth_act_q8 *r, const hth_pool *pool, size_t n_tok, const hth_output *outputs,
                        size_t n_output)
{
    if (!r->input || n_tok > 1 || hth_pool_n_thread(pool) == 1) return false;
    for (size_t i = 0; i < n_output; i++) {
        const hth_output *o = &outputs[i];
        if (o->list || rows_of_size(o->matrix->row_size, MAX_UNIT_SIZE) > HTH_PRODUCT_SCRATCH) return false;
    }
    return true;
}

static size_t unit_size_of(const product_job *job, size_t n_output)
{
    size_t size = 0;
    if (job->n_tok > 1) return UNIT_SIZE;
    for (size_t i = 0; i < n_output; i++)
        size += n_slice_of(job) * n_row_of(job, &job->outputs[i]) * job->outputs[i].matrix->row_size;
    size /= N_UNIT;
    return size < UNIT_SIZE ? UNIT_SIZE : size > MAX_UNIT_SIZE ? MAX_UNIT_SIZE : size;
}

static void add_units(hth_pool *pool, product_job *job, size_t n_output)
{
    uint32_t n_unit = 0;
    size_t unit_size = unit_size_of(job, n_output);
    job->n_thread = hth_pool_n_thread(pool);
    if (job->activate) {
        size_t n = rows_of_all(job->outputs, n_output, unit_size);
        job->n_unit_row[0] = (uint32_t)n;
        job->n_unit = (uint32_t)(n_slice_of(job) * ((n_row_of(job, job->outputs) + n - 1) / n));
        if (job->number)
            hth_pool_add_retryable(pool, compute_hidden_part, commit_hidden, job, sizeof *job, job->n_unit);
        else hth_pool_add(pool, compute_hidden, job, sizeof *job, job->n_unit);
        return;
    }
    for (size_t i = 0; i < n_output; i++) {
        size_t n = rows_of_size(job->outputs[i].matrix->row_size, unit_size);
        job->n_unit_row[i] = (uint32_t)n;
        n_unit += (uint32_t)(n_slice_of(job) * ((n_row_of(job, &job->outputs[i]) + n - 1) / n));
        job->unit_end[i] = n_unit;
    }
    job->n_unit = n_unit;
    if (job->number) hth_pool_add_retryable(pool, compute_part, commit_part, job, sizeof *job, n_unit);
    else hth_pool_add(pool, compute_unit, job, sizeof *job, n_unit);
}

/* Calls the probe when the job's input is computed. Skipped units would have left it undefined. */
static void call_probe(const product_job *job, hth_pool *pool, const hth_output *outputs, size_t n_output)
{
    const hth_submatrices *slices = job->slices;
    hth_product_inputs seen = {.x = job->x,
                               .n_row = !slices ? job->n_tok : slices->shares_x ? 1 : slices->n_x,
                               .n_col = n_col_of(job),
                               .slices = slices,
                               .outputs = outputs,
                               .n_output = n_output,
                               .pool = pool};
    hth_pool_finish(pool);
    if (!hth_pool_is_cancelled(pool)) job->quantised->probe(job->quantised->probe_user, &seen);
}

static void add_product(const hth_kernels *k, hth_pool *pool, const hth_act_q8 *act_q8, const float *x,
                        size_t n_tok, const hth_submatrices *slices, const hth_output *outputs,
                        size_t n_output, const hth_fusion *fusion)
{
    product_job job = {.k = k, .quantised = act_q8, .x = x, .n_tok = (uint32_t)n_tok, .slices = slices};
    for (size_t i = 0; i < n_output; i++) {
        const hth_matrix *m = outputs[i].matrix;
        job.outputs[i] = outputs[i];
        job.want_32 |= hth_type_act_block(m->type) == HTH_ACT_BLOCK;
        job.want_256 |= hth_type_act_block(m->type) == HTH_ACT_BLOCK_256;
        job.want_tiles |= n_tok > 1 && k->panels[m->type];
        job.want_x |= hth_type_act_block(m->type) == 0;
        job.want_floats |= hth_type_act_block(m->type) == 0 && uses_panels(k, m, n_tok);
        assert(!outputs[i].list || m->layout == HTH_LAYOUT_ROWS);
        assert(!m->runs.at || outputs[i].list);
    }
    if (fusion) {
        job.prepare = fusion->prepare, job.activate = fusion->activate, job.limit = fusion->limit;
        if (job.activate) job.outputs[0].y = fusion->hidden;
        if (job.prepare) memcpy(job.prepare_arg, fusion->prepare_arg, HTH_PREPARE_SIZE);
    }
    assert(!job.activate || slices || hth_product_fits_scratch(n_tok, outputs, n_output));
    if (!slices && can_retry(act_q8, pool, n_tok, outputs, n_output)) job.number = ++act_q8->input->n_product;
    bool reuses = fusion && fusion->reuses_input,
         quantises = !reuses && (job.want_32 || job.want_256 || job.want_floats || job.prepare);
    if (job.number) hth_pool_add(pool, share_input, &job, sizeof job, 1);
    else if (quantises)
        hth_pool_add(pool, quantize_token, &job, sizeof job, !slices ? n_tok : slices->shares_x ? 1 : slices->n_x);
    if (act_q8->probe) call_probe(&job, pool, outputs, n_output);
    add_units(pool, &job, n_output);
}

void hth_product_add(const hth_kernels *k, hth_pool *pool, const hth_act_q8 *act_q8, const float *x, size_t n_tok,
                     const hth_output *outputs, size_t n_output, const hth_fusion *fusion)
{
    add_product(k, pool, act_q8, x, n_tok, NULL, outputs, n_output, fusion);
}

void hth_product_slices_add(const hth_kernels *k, hth_pool *pool, const hth_act_q8 *act_q8, const float *x,
                            const hth_submatrices *slices, const hth_output *outputs, size_t n_output,
                            const hth_fusion *fusion)
{
    size_t n_tok = 0; /* tokens of the largest slice, which choose the forms of the inputs */
    for (uint32_t i = 0; i < slices->n_slice; i++)
        n_tok = slices->slices[i].n > n_tok ? slices->slices[i].n : n_tok;
    add_product(k, pool, act_q8, x, n_tok, slices, outputs, n_output, fusion);
}

void hth_product(const hth_kernels *k, hth_pool *pool, const hth_act_q8 *act_q8, const float *x, size_t n_tok,
                 const hth_output *outputs, size_t n_output)
{
    hth_product_add(k, pool, act_q8, x, n_tok, outputs, n_output, NULL);
    hth_pool_finish(pool);
}

const uint8_t *hth_matrix_row(const hth_matrix *m, size_t i, uint8_t *scratch)
{
    size_t n_whole = m->n_row / HTH_PANEL_ROW * HTH_PANEL_ROW;
    const uint8_t *row = m->data + i * m->row_size;
    if (m->layout == HTH_LAYOUT_ROWS || i >= n_whole) return row;
    size_t r = i % HTH_PANEL_ROW, n_block = m->n_col / hth_type_find((uint32_t)m->type)->n_weight;
    hth_panel_row(m->type, n_block, row - r * m->row_size, r, scratch);
    return scratch;
}
