/* Collects an importance matrix through the probe of products. hearth imatrix calls it. A chunk counts when all of it
 * was evaluated. */
#include "measure/imatrix.h"

#include "engine/engine.h"
#include "measure/chunks.h"

#include <stdlib.h>
#include <string.h>

/* Columns of a unit of work. */
enum { STRIPE = 256 };

/* A matrix of the model, and its entry. Parts of one tensor that have the same input are listed once. */
typedef struct target {
    const hth_matrix *matrix;
    uint32_t i_entry;
    uint32_t n_slice; /* slices of the entry; 1: the matrix' slices, if it has any, are summed up */
    bool by_expert;   /* each slice has a count */
} target;

typedef struct collector {
    const hth_model *model;
    target *targets; /* [n_target] by address of the matrix */
    size_t n_target;
    hth_imatrix *now;  /* sums of the current chunk */
    hth_imatrix *done; /* sums of the chunks before it */
} collector;

/* ---- the probe --------------------------------------------------------------------------------- */

static int by_matrix(const void *a, const void *b)
{
    const target *x = a, *y = b;
    return (x->matrix > y->matrix) - (x->matrix < y->matrix);
}

static const target *find_target(const collector *c, const hth_matrix *matrix)
{
    return bsearch(&(target){.matrix = matrix}, c->targets, c->n_target, sizeof *c->targets, by_matrix);
}

typedef struct sum_job {
    const hth_product_inputs *seen;
    const target *target;
    double *sums; /* [n_slice][n_col] */
} sum_job;

/* Adds the squares of some columns of rows first to first + n. A square of a float is exact in a double. */
static void add_rows(const sum_job *job, size_t first, size_t n, size_t i_slice, size_t first_col, size_t n_col)
{
    size_t width = job->seen->n_col;
    double *sums = job->sums + i_slice % job->target->n_slice * width + first_col;
    const float *x = job->seen->x + first * width + first_col;
    for (size_t t = 0; t < n; t++, x += width)
        for (size_t i = 0; i < n_col; i++) sums[i] += (double)x[i] * (double)x[i];
}

static void add_stripe(void *arg, size_t i_unit, uint32_t i_thread)
{
    const sum_job *job = arg;
    const hth_product_inputs *seen = job->seen;
    size_t first = i_unit * STRIPE, left = seen->n_col - first, n = left < STRIPE ? left : STRIPE;
    (void)i_thread;
    if (!seen->slices) add_rows(job, 0, seen->n_row, 0, first, n);
    for (uint32_t i = 0; seen->slices && i < seen->slices->n_slice; i++) {
        const hth_submatrix *s = &seen->slices->slices[i];
        add_rows(job, seen->slices->shares_x ? 0 : s->first, s->n, s->i_slice, first, n);
    }
}

/* Slices that have sums but no counts of their own see the same tokens: those of the first one are counted. */
static void count_rows(const hth_product_inputs *seen, const target *t, double *counts)
{
    if (!seen->slices) counts[0] += (double)seen->n_row;
    for (uint32_t i = 0; seen->slices && i < seen->slices->n_slice; i++) {
        const hth_submatrix *s = &seen->slices->slices[i];
        if (t->by_expert) counts[s->i_slice] += s->n;
        else if (s->i_slice == 0 || t->n_slice == 1) counts[0] += s->n;
    }
}

static void on_product(void *user, const hth_product_inputs *seen)
{
    const collector *c = user;
    for (size_t i = 0; i < seen->n_output; i++) {
        const target *t = find_target(c, seen->outputs[i].matrix);
        bool again = i > 0 && seen->outputs[i].matrix == seen->outputs[i - 1].matrix; /* gate and up are one matrix */
        if (!t || again) continue;
        hth_imatrix_entry *e = &c->now->entries[t->i_entry];
        sum_job job = {seen, t, e->sums};
        hth_pool_run(seen->pool, add_stripe, &job, (seen->n_col + STRIPE - 1) / STRIPE);
        count_rows(seen, t, e->counts);
    }
    hth_pool_quiesce(seen->pool);
}

/* ---- entries ------------------------------------------------------------------------------------- */

static bool is_of_experts(const hth_model *m, const hth_matrix *matrix)
{
    for (uint32_t i = 0; i < m->hparams.n_layer; i++) {
        if (hth_experts_have(&m->layers[i].experts, matrix)) return true;
    }
    return false;
}

/* Whether a binding has an entry: matrices of layers and, if asked for, that of the logits, under its name in the
 * file. Of parts of a tensor the first. */
static bool is_collected(const hth_model *m, const hth_binding *b, bool with_output)
{
    if (!b->matrix || b->offset > 0) return false;
    if (b->matrix == (m->tied ? &m->token_embd : &m->output)) return with_output;
    return hth_str_begins(b->tensor->name, "blk.");
}

static hearth_status add_targets(collector *c, bool with_output, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    for (size_t i = 0; st == HEARTH_OK && i < c->model->n_binding; i++) {
        const hth_binding *b = &c->model->bindings[i];
        if (!is_collected(c->model, b, with_output)) continue;
        target t = {b->matrix, (uint32_t)c->now->n_entry, (uint32_t)b->tensor->dim[2],
                    is_of_experts(c->model, b->matrix)};
        hth_imatrix_entry *e;
        st = hth_imatrix_add(c->now, b->tensor->name, t.n_slice * b->matrix->n_col, t.by_expert ? t.n_slice : 1, &e, err);
        c->targets[c->n_target++] = t;
    }
    qsort(c->targets, c->n_target, sizeof *c->targets, by_matrix);
    return st;
}

/* ---- chunks -------------------------------------------------------------------------------------- */

/* Each input reaches some sum, and NaN and infinity stay there. */
static hearth_status check_finite(const collector *c, hearth_error *err)
{
    for (size_t i = 0; i < c->now->n_entry; i++) {
        const hth_imatrix_entry *e = &c->now->entries[i];
        char name[80];
        for (size_t k = 0; k < e->n_value; k++)
            if (!(e->sums[k] <= 1e300))
                return hth_fail(err, HEARTH_ERROR_NUMERIC,
                                "%s: tensor '%s': its input is not finite: the weights hold NaN or infinity, or a sum "
                                "overflowed",
                                hth_gguf_path(c->model->file), hth_escape(name, sizeof name, e->name.bytes, e->name.n));
    }
    return HEARTH_OK;
}

static void clear(hth_imatrix *m)
{
    for (size_t i = 0; i < m->n_entry; i++) {
        memset(m->entries[i].sums, 0, m->entries[i].n_value * sizeof(double));
        memset(m->entries[i].counts, 0, m->entries[i].n_count * sizeof(double));
    }
}

static hearth_status ignore_logits(void *user, size_t i, const float *logits, hearth_error *err)
{
    (void)user, (void)i, (void)logits, (void)err;
    return HEARTH_OK;
}

static hearth_status add_chunk(collector *c, hearth_session *session, const int32_t *ids, size_t n, bool with_output,
                               hearth_error *err)
{
    hearth_status st = hearth_session_truncate(session, 0, err);
    if (st != HEARTH_OK) return st;
    st = with_output ? hearth_session_eval_each(session, ids, n, ignore_logits, NULL, err)
                     : hearth_session_eval(session, ids, n, err);
    bool is_computed = st == HEARTH_OK || st == HEARTH_ERROR_NUMERIC;
    if (is_computed && check_finite(c, err) != HEARTH_OK) return HEARTH_ERROR_NUMERIC; /* names the first tensor */
    if (st != HEARTH_OK) return st;
    /* Both have the same entries in the same order. */
    for (size_t i = 0; i < c->now->n_entry; i++) {
        const hth_imatrix_entry *from = &c->now->entries[i], *to = &c->done->entries[i];
        for (size_t k = 0; k < from->n_value; k++) to->sums[k] += from->sums[k];
        for (uint32_t k = 0; k < from->n_count; k++) to->counts[k] += from->counts[k];
    }
    clear(c->now);
    return HEARTH_OK;
}

static hearth_status run(collector *c, hearth_session *session, hth_chunks *chunks, const hth_imatrix_options *o,
                         uint64_t *n_done, hearth_error *err)
{
    uint64_t n_left = chunks->n_chunk - o->first_chunk, n = o->n_chunk && o->n_chunk < n_left ? o->n_chunk : n_left;
    hearth_status st = HEARTH_OK;
    hth_step_set_product_probe(hth_session_step(session), on_product, c);
    for (uint64_t i = 0; st == HEARTH_OK && i < n; i++) {
        if (o->progress && !o->progress(o->progress_user, i, n)) break;
        st = add_chunk(c, session, hth_chunks_at(chunks, o->first_chunk + i), chunks->n_ctx, o->with_output, err);
        if (st == HEARTH_OK) *n_done = i + 1;
    }
    if (st == HEARTH_OK && o->progress) o->progress(o->progress_user, *n_done, n);
    hth_step_set_product_probe(hth_session_step(session), NULL, NULL);
    return st == HEARTH_ERROR_CANCELLED ? HEARTH_OK : st;
}

/* ---- the measurement ------------------------------------------------------------------------------ */

static hearth_status check_model(const hth_model *m, hearth_error *err)
{
    if (!m->down_transposed && !m->expert_down_transposed) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                    "%s: its down matrices are stored by neuron: take the file that it was packed from",
                    hth_gguf_path(m->file));
}

static hearth_status check_chunks(const hth_chunks *chunks, uint64_t first, hearth_error *err)
{
    if (first < chunks->n_chunk) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_ARGUMENT, "the text has %zu chunks of %zu tokens; the first %llu are left out",
                    chunks->n_chunk, chunks->n_ctx, (unsigned long long)first);
}

/* Two copies of the entries. m must fit to them: an error now is cheaper than one behind the last chunk. */
static hearth_status open_collector(collector *c, const hth_imatrix_options *o, hth_imatrix *m, hearth_error *err)
{
    const char *path = hth_gguf_path(c->model->file);
    c->targets = hth_alloc(c->model->n_binding, sizeof *c->targets);
    if (!c->targets) return hth_fail_memory(err, c->model->n_binding * sizeof *c->targets, "an importance matrix");
    hearth_status st = hth_imatrix_new(m->chunk_size, &c->now, err);
    if (st == HEARTH_OK) st = hth_imatrix_new(m->chunk_size, &c->done, err);
    if (st != HEARTH_OK) return st;
    st = add_targets(c, o->with_output, err);
    for (size_t i = 0; st == HEARTH_OK && i < c->now->n_entry; i++) {
        const hth_imatrix_entry *e = &c->now->entries[i];
        hth_imatrix_entry *copy;
        st = hth_imatrix_add(c->done, e->name, e->n_value, e->n_count, &copy, err);
    }
    return st == HEARTH_OK ? hth_imatrix_merge(m, c->done, path, err) : st;
}

static void close_collector(collector *c)
{
    hth_free(c->targets);
    hth_imatrix_close(c->now);
    hth_imatrix_close(c->done);
}

hearth_status hth_measure_imatrix(const hearth_model *model, hearth_session *session, const char *text, size_t n,
                                  const hth_imatrix_options *o, hth_imatrix *m, uint64_t *n_done, hearth_error *err)
{
    hth_chunks chunks;
    collector c = {.model = model->model};
    *n_done = 0;
    hearth_status st = check_model(c.model, err);
    if (st == HEARTH_OK) st = hth_chunks_open(&chunks, model, text, n, hearth_session_n_ctx(session), err);
    if (st != HEARTH_OK) return st;
    st = check_chunks(&chunks, o->first_chunk, err);
    if (st == HEARTH_OK) st = open_collector(&c, o, m, err);
    if (st == HEARTH_OK) st = run(&c, session, &chunks, o, n_done, err);
    if (st == HEARTH_OK) st = hth_imatrix_merge(m, c.done, hth_gguf_path(c.model->file), err);
    close_collector(&c);
    hth_chunks_close(&chunks);
    return st;
}
