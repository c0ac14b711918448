/* STREAMS: hyper-connections (Zhu et al. 2024; Xie et al. 2025, mHC): the residual stream is several. A
 * block reads a weighted sum of them, and each new stream is a mixture of the old ones and of the block's
 * output; the weights depend on the token (docs/arithmetic.md 12). */
#include "forward/forward_int.h"

#include <string.h>

enum { MAX_STREAM = HTH_MAX_STREAM, PART = 256 };

typedef struct stream_job {
    const hth_step *s;
    const hth_op *op;
} stream_job;

/* ---- weights ------------------------------------------------------------------------------------------- */

/* Divides each row of m [n][n] by its sum plus eps (next = 1), or each column (next = n), by reciprocals. */
static void divide_by_sums(const hth_kernels *k, float *m, size_t n, size_t next, float eps)
{
    size_t step = next == 1 ? n : 1;
    float by[MAX_STREAM] = {0};
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) by[i] += m[i * step + j * next];
        by[i] += eps;
    }
    k->rcp(by, n, by);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) m[i * step + j * next] *= by[i];
}

/* A matrix whose rows and columns have sums near 1 (Sinkhorn and Knopp 1967): m[from][to]. */
static void make_mixture(const hth_kernels *k, const hth_hparams *h, float *m)
{
    size_t n = h->n_stream;
    for (size_t i = 0; i < n; i++) {
        k->softmax(m + i * n, n);
        for (size_t j = 0; j < n; j++) m[i * n + j] += h->stream_eps;
    }
    divide_by_sums(k, m, n, n, h->stream_eps);
    for (uint32_t i = 1; i < h->n_sinkhorn; i++) {
        divide_by_sums(k, m, n, 1, h->stream_eps);
        divide_by_sums(k, m, n, n, h->stream_eps);
    }
}

/* Computes the weights w: of the inputs [n], of the block's output [n], and of old streams in new streams [n][n]; at
 * the head, of the inputs alone. */
static void make_weights(const stream_job *job, const float *x, float *normed, float *w)
{
    const hth_step *s = job->s;
    const hth_hyper_connection *c = job->op->streams.connection;
    const hth_hparams *h = &s->model->hparams;
    size_t n = h->n_stream, n_x = n * h->d_model, n_w = c->is_head ? n : (2 + n) * n;
    s->k->rms_norm(x, s->model->ones, n_x, 1.0f / (float)n_x, h->norm_eps, normed);
    s->k->dot_rows(c->weight, n_w, n_x, normed, w);
    for (size_t i = 0; i < n_w; i++) w[i] = w[i] * c->scale[i < n ? 0 : i < 2 * n ? 1 : 2] + c->base[i];
    s->k->sigmoid(w, c->is_head ? n : 2 * n, w);
    for (size_t i = 0; i < n; i++) w[i] += h->stream_eps;
    if (c->is_head) return;
    for (size_t i = n; i < 2 * n; i++) w[i] *= 2.0f;
    make_mixture(s->k, h, w + 2 * n);
}

/* ---- streams of a token -------------------------------------------------------------------------------- */

static void begin_row(void *arg, size_t t, uint32_t i_thread)
{
    const stream_job *job = arg;
    const hth_step *s = job->s;
    size_t n = s->model->hparams.n_stream, d = s->model->hparams.d_model;
    const float *x = hth_fwd_row(s, job->op->in[0], t);
    float *all = hth_fwd_row(s, job->op->out[0], t);
    (void)i_thread;
    for (size_t i = 0; i < n; i++) memcpy(all + i * d, x, d * sizeof *x);
}

static void read_row(void *arg, size_t t, uint32_t i_thread)
{
    const stream_job *job = arg;
    const hth_step *s = job->s;
    size_t n = s->model->hparams.n_stream, d = s->model->hparams.d_model;
    const float *from = hth_fwd_row(s, job->op->in[0], t);
    float *w = hth_fwd_row(s, job->op->out[1], t), *x = hth_fwd_row(s, job->op->out[0], t);
    make_weights(job, from, s->stream_scratch + i_thread * n * d, w);
    for (size_t j = 0; j < d; j++) x[j] = w[0] * from[j];
    for (size_t i = 1; i < n; i++)
        for (size_t j = 0; j < d; j++) x[j] += w[i] * from[i * d + j];
}

static void write_row(void *arg, size_t t, uint32_t i_thread)
{
    const stream_job *job = arg;
    const hth_step *s = job->s;
    size_t n = s->model->hparams.n_stream, d = s->model->hparams.d_model;
    const float *w = hth_fwd_row(s, job->op->in[1], t), *block = hth_fwd_row(s, job->op->in[0], t);
    float *x = hth_fwd_row(s, job->op->out[0], t), made[MAX_STREAM][PART];
    (void)i_thread;
    for (size_t first = 0; first < d; first += PART) {
        size_t n_part = d - first < PART ? d - first : PART;
        for (size_t to = 0; to < n; to++) {
            for (size_t j = 0; j < n_part; j++) made[to][j] = w[n + to] * block[first + j];
            for (size_t from = 0; from < n; from++)
                for (size_t j = 0; j < n_part; j++)
                    made[to][j] += w[2 * n + from * n + to] * x[from * d + first + j];
        }
        for (size_t to = 0; to < n; to++) memcpy(x + to * d + first, made[to], n_part * sizeof *x);
    }
}

hearth_status hth_fwd_streams(hth_step *s, const hth_op *op, hearth_error *err)
{
    static hth_work_fn *const units[] = {
        [HTH_STREAMS_BEGIN] = begin_row, [HTH_STREAMS_READ] = read_row, [HTH_STREAMS_WRITE] = write_row};
    stream_job job = {s, op};
    (void)err;
    hth_pool_add(s->pool, units[op->streams.form], &job, sizeof job, s->n_tok);
    return HEARTH_OK;
}
