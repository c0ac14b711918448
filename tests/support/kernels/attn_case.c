/* Caches for the proof of attention. */
#include "support/kernels/attn_case.h"

#include "support/test.h"

size_t attend_cache_size(hearth_kv_type type, size_t d_head, size_t n_pos)
{
    return hth_kv_layout_n_group(n_pos) * hth_kv_layout_group_size(type, d_head);
}

void attend_put_keys(const hth_kernels *k, hearth_kv_type type, uint8_t *keys, size_t d_head, size_t n_pos,
                     const float *rows)
{
    for (size_t i = 0; i < n_pos; i++) hth_kv_layout_put_key(k, type, keys, d_head, i, rows + i * d_head);
}

void attend_put_values(const hth_kernels *k, hearth_kv_type type, uint8_t *values, size_t d_head,
                       size_t n_pos, const float *rows)
{
    for (size_t i = 0; i < n_pos; i++) hth_kv_layout_put_value(k, type, values, d_head, i, rows + i * d_head);
}

void attend_page_table(hearth_kv_type type, size_t d_head, size_t n_pos, const uint8_t *memory, const uint8_t **pages)
{
    for (size_t i = 0; i * HTH_KV_PAGE < n_pos; i++) pages[i] = memory + attend_cache_size(type, d_head, i * HTH_KV_PAGE);
}

void attend_one(const hth_kernels *k, const attend_alone *what, float *y)
{
    size_t size = attend_cache_size(what->type, what->d_head, what->n_pos), n_block = what->d_head / 32;
    uint8_t *keys = calloc(1, size), *values = calloc(1, size);
    float *scratch = malloc(hth_attn_scratch(what->d_head, 1) * sizeof *scratch),
          *query = malloc(what->d_head * sizeof *query);
    int8_t *q = malloc(what->d_head);
    float *d = malloc((n_block + 1) * sizeof *d);
    int32_t *sum = malloc((n_block + 1) * sizeof *sum);
    attend_put_keys(k, what->type, keys, what->d_head, what->n_pos, what->keys);
    attend_put_values(k, what->type, values, what->d_head, what->n_pos, what->values);
    memcpy(query, what->q, what->d_head * sizeof *query);
    if (what->type == HEARTH_KV_F16) hth_attn_round_queries(query, what->d_head);
    if (what->type == HEARTH_KV_Q8_0) k->quant_act(what->q, what->d_head, q, d, sum);
    size_t n_page = what->n_pos / HTH_KV_PAGE + 1;
    const uint8_t **pages = calloc(2 * n_page, sizeof *pages);
    attend_page_table(what->type, what->d_head, what->n_pos, keys, pages);
    attend_page_table(what->type, what->d_head, what->n_pos, values, pages + n_page);
    hth_attn job = {.k_pages = pages, .v_pages = pages + n_page, .d_head = what->d_head, .n_row = 1, .n_head = 1, .n_pos = what->n_pos,
                    .window = what->n_pos - what->first, .q = query, .q_q8 = {.q = q, .d = d, .sum = sum},
                    .q_stride = what->d_head, .scale = what->scale, .cap = what->cap,
                    .inverse_cap = what->cap != 0.0f ? 1.0f / what->cap : 0.0f, .slopes = what->slope, .sinks = what->sink,
                    .scratch = scratch, .out_stride = 1};
    hth_attn_all_splits(k, what->type, &job, NULL, y);
    free(pages), free(sum), free(d), free(q), free(query), free(scratch), free(values), free(keys);
}
