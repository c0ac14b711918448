/* Random neuron-major matrices, lists and coefficients. */
#include "support/kernels/axpy_case.h"

#include "base/bits.h"

#include <math.h>

enum { MAX_LIST = 1 << 13 };

void down_case_open(down_case *c, size_t max_weights, size_t max_out)
{
    guard_open(&c->w, max_weights + 64);
    guard_open(&c->list, MAX_LIST * sizeof(int32_t));
    guard_open(&c->h, MAX_LIST * sizeof(float));
    guard_open(&c->sums, max_out * sizeof(int32_t));
    guard_open(&c->offsets, max_out * sizeof(int32_t));
    guard_open(&c->chain, max_out * sizeof(float));
}

void down_case_close(down_case *c)
{
    guard *all[] = {&c->w, &c->list, &c->h, &c->sums, &c->offsets, &c->chain};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) guard_close(all[i]);
}

size_t down_bytes(hth_type type, size_t n_out) { return rows_bytes(type, n_out); }

static bool is_finite(float x) { return (hth_bits_of(x) & 0x7fffffffu) < 0x7f800000u; }

float down_largest_scale(float h_max, float d_max, int max_k)
{
    float product = h_max * d_max;
    for (int k = max_k; k >= -100 && is_finite(product); k--)
        if (ldexp((double)product, k) <= 32766 && ldexp((double)h_max, k) < 0x1p127) return (float)ldexp(1, k);
    return 0;
}

void down_case_scale(down_case *c)
{
    hth_axpy_job *job = &c->job;
    const rows_shape *s = &c->shape.rows;
    float *h = (float *)(void *)c->h.p;
    c->d_max = 0;
    for (size_t i = 0; i < s->n_row; i++) {
        float d = hth_axpy_absmax_scale(s->type, job->w + i * job->row_size, s->n_col);
        if (!(d <= c->d_max)) c->d_max = d;
    }
    while ((job->scale = down_largest_scale(hth_axpy_absmax_h(h, job->n), c->d_max, 100)) == 0.0f)
        for (size_t i = 0; i < job->n; i++) h[i] *= 0x1p-64f;
}

static void shuffle(test_random *r, int32_t *list, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        size_t k = test_random_below(r, (uint32_t)i);
        int32_t row = list[i - 1];
        list[i - 1] = list[k], list[k] = row;
    }
}

static size_t fill_list(test_random *r, const down_shape *s, int32_t *list)
{
    size_t n = 0;
    for (size_t i = 0; i < s->rows.n_row; i++)
        if (s->list == 2 || (s->list > 2 && test_random_below(r, 2))) list[n++] = (int32_t)i;
    if (s->list == 4) shuffle(r, list, n);
    return n;
}

/* Coefficients are finite and at most 2^60, as callers see to. */
static void fill_h(test_random *r, proof_kind kind, float *h, size_t n)
{
    proof_fill_f32(r, kind, h, n);
    for (size_t i = 0; i < n; i++) {
        if (kind == PROOF_LARGEST) h[i] = test_random_below(r, 2) ? 3.0f : -3.0f;
        if (!(h[i] < 0x1p60f && h[i] > -0x1p60f)) h[i] = test_random_float(r);
    }
}

void down_case_make(down_case *c, test_random *r, const down_shape *shape)
{
    const rows_shape *s = &shape->rows;
    size_t bytes = down_bytes(s->type, s->n_col), stride = bytes + s->row_gap;
    size_t w_size = s->n_row ? (s->n_row - 1) * stride + bytes : 0;
    int32_t list[MAX_LIST];
    c->shape = *shape;
    uint8_t *w = guard_place(&c->w, w_size, s->side, s->shift);
    for (size_t i = 0; i < s->n_row; i++) do rows_fill_row(r, s, w + i * stride);
        while (!is_finite(hth_axpy_absmax_scale(s->type, w + i * stride, s->n_col)));
    size_t n = fill_list(r, shape, list), n_part = s->n_col;
    if (rows_quantised(s->type)) n_part = s->n_col / hth_axpy_sub_block(s->type);
    float *h = guard_place(&c->h, n * sizeof *h, s->side, 0);
    fill_h(r, shape->h_kind, h, n);
    c->job = (hth_axpy_job){.w = w, .row_size = stride, .n_out = s->n_col, .h = h, .n = n};
    c->job.list = memcpy(guard_place(&c->list, n * sizeof *list, s->side, 0), list, n * sizeof *list);
    c->job.sums = guard_place(&c->sums, s->n_col * sizeof(int32_t), s->side, 0);
    c->job.offsets = guard_place(&c->offsets, n_part * sizeof(int32_t), s->side, 0);
    c->job.chain = guard_place(&c->chain, s->n_col * sizeof(float), s->side, 0);
    memset(c->job.sums, 0, s->n_col * sizeof(int32_t));
    memset(c->job.offsets, 0, n_part * sizeof(int32_t));
    memset(c->job.chain, 0, s->n_col * sizeof(float));
    down_case_scale(c);
}

bool down_flush(const hth_kernels *k, hth_type type, const hth_axpy_job *job, int64_t *acc64)
{
    if (!rows_quantised(type)) return k->axpy_flush_chain(job->n_out, job->chain, acc64);
    k->axpy_flush(type, job->n_out, 0x1p32f, job->sums, job->offsets, acc64);
    return true;
}
