/* The merging of splits, ascending, and all splits of a job one after the other.
 * Called by run/attention.c; small beside the kernels, so one text in C serves all
 * levels. */
#include "kernels/attend.h"

#include "kernels/vector_math.h"

enum { ALIGN = 16 }; /* floats of a line of the cache */

static size_t whole_lines(size_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

/* The kernels use the first part: scores of a split, and one group as floats. */
static size_t kernel_scratch(size_t d_head, size_t n_query)
{
    return n_query * HTH_ATTEND_SPLIT + HTH_CACHE_GROUP * d_head;
}

size_t hth_attend_scratch(size_t d_head, size_t n_query)
{
    size_t n_part = sizeof(hth_attend_part) / sizeof(float);
    return kernel_scratch(d_head, n_query) + whole_lines(n_query * d_head) +
           whole_lines(2 * n_query * n_part);
}

void hth_attend_merge(hth_attend_part *total, float *y, const hth_attend_part *part, const float *values,
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

void hth_attend_end(const hth_attend_part *total, float *y, size_t d_head)
{
    float r = one_rcp(total->sum);
    for (size_t i = 0; i < d_head; i++) y[i] *= r;
}

void hth_attend_whole(const hth_kernels *k, hearth_kv_type type, const hth_attend *job, float *y)
{
    hth_attend split = *job;
    size_t d = job->d_head, n_query = job->n_row * job->n_head;
    split.values = job->scratch + kernel_scratch(d, n_query);
    split.parts = (hth_attend_part *)(void *)(split.values + whole_lines(n_query * d));
    split.out_stride = job->n_head;
    hth_attend_part *totals = split.parts + n_query;
    memset(totals, 0, n_query * sizeof *totals);
    size_t last = hth_attend_last_split(job);
    for (size_t i = hth_attend_first_split(job); i <= last; i++) {
        k->attend[type](&split, i);
        for (size_t q = 0; q < n_query; q++) {
            float *to = y + (q / job->n_head * job->out_stride + q % job->n_head) * d;
            hth_attend_merge(&totals[q], to, &split.parts[q], split.values + q * d, d);
        }
    }
    for (size_t q = 0; q < n_query; q++)
        hth_attend_end(&totals[q], y + (q / job->n_head * job->out_stride + q % job->n_head) * d, d);
}
