/* Merges splits in ascending order, and runs all splits of a job one after another. forward/attention.c calls
 * it. Its cost is small compared with the kernels, so one C source serves all ISA levels. */
#include "kernels/attn/attn.h"

#include "kernels/vector/vector_math.h"

enum { ALIGN = 16 }; /* floats per cache line */

static size_t whole_lines(size_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

/* The kernels use the first part: the scores of a split, and one group as floats. */
static size_t kernel_scratch(size_t d_head, size_t n_query)
{
    return n_query * HTH_ATTN_SPLIT + HTH_KV_GROUP * d_head;
}

size_t hth_attn_scratch(size_t d_head, size_t n_query)
{
    size_t n_part = sizeof(hth_attn_partial) / sizeof(float);
    return kernel_scratch(d_head, n_query) + whole_lines(n_query * d_head) +
           whole_lines(2 * n_query * n_part);
}

void hth_attn_merge(hth_attn_partial *total, float *y, const hth_attn_partial *part, const float *values,
                      size_t d_head)
{
    if (part->sum == 0.0f) return;
    if (total->sum == 0.0f) {
        *total = *part;
        memcpy(y, values, d_head * sizeof *y);
        return;
    }
    float top = part->max > total->max ? part->max : total->max;
    float a = one_exp(total->max - top), b = one_exp(part->max - top);
    total->max = top;
    total->sum = total->sum * a + part->sum * b;
    for (size_t i = 0; i < d_head; i++) y[i] = y[i] * a + values[i] * b;
}

void hth_attn_finalize(hth_attn_partial *total, float *y, size_t d_head, const float *sink)
{
    if (sink) {
        float top = *sink > total->max ? *sink : total->max, a = one_exp(total->max - top);
        total->sum = total->sum * a + one_exp(*sink - top);
        for (size_t i = 0; i < d_head; i++) y[i] *= a;
    }
    float r = one_rcp(total->sum);
    for (size_t i = 0; i < d_head; i++) y[i] *= r;
}

/* Runs the splits of a job, and merges them into totals[n_query] and y. */
static void merge_splits(const hth_kernels *k, hearth_kv_type type, const hth_attn *job, hth_attn_partial *totals,
                         float *y)
{
    hth_attn split = *job;
    size_t d = job->d_head, n_query = job->n_row * job->n_head, last = hth_attn_last_split(job);
    split.values = job->scratch + kernel_scratch(d, n_query);
    split.partials = (hth_attn_partial *)(void *)(split.values + whole_lines(n_query * d));
    split.out_stride = job->n_head;
    for (size_t i = hth_attn_first_split(job); i <= last; i++) {
        k->attn[type](&split, i);
        for (size_t q = 0; q < n_query; q++) {
            float *to = y + (q / job->n_head * job->out_stride + q % job->n_head) * d;
            hth_attn_merge(&totals[q], to, &split.partials[q], split.values + q * d, d);
        }
    }
}

void hth_attn_all_splits(const hth_kernels *k, hearth_kv_type type, const hth_attn *job, const hth_attn *more, float *y)
{
    size_t d = job->d_head, n_query = job->n_row * job->n_head;
    float *values = job->scratch + kernel_scratch(d, n_query);
    hth_attn_partial *totals = (hth_attn_partial *)(void *)(values + whole_lines(n_query * d)) + n_query;
    memset(totals, 0, n_query * sizeof *totals);
    merge_splits(k, type, job, totals, y);
    if (more) merge_splits(k, type, more, totals, y);
    for (size_t q = 0; q < n_query; q++) {
        const float *sink = job->sinks ? job->sinks + q % job->n_head : NULL;
        hth_attn_finalize(&totals[q], y + (q / job->n_head * job->out_stride + q % job->n_head) * d, d, sink);
    }
}
