/* Support for the attention kernels: which positions of a split a query sees, the merging of splits
 * (arithmetic.md 5), and a call that runs all splits of a job. */
#ifndef HTH_KERNELS_ATTN_ATTN_H
#define HTH_KERNELS_ATTN_ATTN_H

#include "base/bits.h"
#include "kernels/attn/kv_layout.h"

/* Positions [first, end) of split i_split that token i_row sees. None if first >= end. */
typedef struct hth_attn_range {
    size_t first, end;
} hth_attn_range;

static inline hth_attn_range hth_attn_visible_range(const hth_attn *job, size_t i_split, size_t i_row)
{
    size_t n_pos = job->n_pos + i_row, window = job->window;
    hth_attn_range r = {.first = i_split * HTH_ATTN_SPLIT};
    r.end = r.first + HTH_ATTN_SPLIT;
    if (r.end > n_pos) r.end = n_pos;
    if (window > 0 && n_pos > window && r.first < n_pos - window) r.first = n_pos - window;
    return r;
}

/* The first and the last split that any token of the job sees. */
static inline size_t hth_attn_first_split(const hth_attn *job)
{
    bool hides = job->window > 0 && job->n_pos > job->window;
    return hides ? (job->n_pos - job->window) / HTH_ATTN_SPLIT : 0;
}
static inline size_t hth_attn_last_split(const hth_attn *job)
{
    return (job->n_pos + job->n_row - 2) / HTH_ATTN_SPLIT;
}

/* The group of keys, or of values, that holds a position; size: bytes of a group. */
static inline const uint8_t *hth_attn_key_group(const hth_attn *job, size_t position, size_t size)
{
    return job->k_pages[position / HTH_KV_PAGE] + job->k_offset + position % HTH_KV_PAGE / HTH_KV_GROUP * size;
}
static inline const uint8_t *hth_attn_value_group(const hth_attn *job, size_t position, size_t size)
{
    return job->v_pages[position / HTH_KV_PAGE] + job->v_offset + position % HTH_KV_PAGE / HTH_KV_GROUP * size;
}

/* Lowers scores x[n] of head i_head of token i_row, of which the first is that of position `first`, by their distance
 * times the slope. */
static inline void hth_attn_add_slope(const hth_attn *job, size_t i_head, size_t i_row, size_t first,
                                      float *x, size_t n)
{
    size_t distance = job->n_pos - 1 + i_row - first;
    for (size_t j = 0; j < n; j++) x[j] = x[j] - job->slopes[i_head] * (float)(distance - j);
}

/* Rounds queries for an F16 cache, so that their products with keys are exact, and a sum of them has the same bits
 * with fused operations (arithmetic.md 5). */
static inline void hth_attn_round_queries(float *q, size_t n)
{
    for (size_t i = 0; i < n; i++) q[i] = hth_round_to_13_bits(q[i]);
}

/* Floats of scratch memory for a job of n_query queries, hth_attn_all_splits included. */
size_t hth_attn_scratch(size_t d_head, size_t n_query);

/* Adds one split to the total (initially zero bytes) and to y[d_head]. */
void hth_attn_merge(hth_attn_partial *total, float *y, const hth_attn_partial *part, const float *values,
                      size_t d_head);
/* Ends the merge: a sink, if there is one, is a last split with this score, weight 1 and values 0; then y is divided
 * by the sum of all weights. */
void hth_attn_finalize(hth_attn_partial *total, float *y, size_t d_head, const float *sink);

/* Runs and merges all splits of the job: writes head h of token r to y + (r * out_stride + h) * d_head. Ignores
 * the values and partials of the job; its scratch memory holds the splits. more: the same queries over entries of
 * another cache, whose splits follow; NULL: none. */
void hth_attn_all_splits(const hth_kernels *k, hearth_kv_type type, const hth_attn *job, const hth_attn *more, float *y);

#endif
