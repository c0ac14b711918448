/* Caches for the proof of attention, made of plain rows, and one query head alone. */
#ifndef HEARTH_TESTS_SUPPORT_KERNELS_ATTN_CASE_H
#define HEARTH_TESTS_SUPPORT_KERNELS_ATTN_CASE_H

#include "kernels/attn/attn.h"

/* Bytes of the keys, or the values, of n_pos positions. */
size_t attend_cache_size(hearth_kv_type type, size_t d_head, size_t n_pos);
/* Puts rows[n_pos][d_head] into a head's keys or values. */
void attend_put_keys(const hth_kernels *k, hearth_kv_type type, uint8_t *keys, size_t d_head, size_t n_pos,
                     const float *rows);
void attend_put_values(const hth_kernels *k, hearth_kv_type type, uint8_t *values, size_t d_head,
                       size_t n_pos, const float *rows);
/* A page table over a head's keys, or values, that are contiguous: fills pages[(n_pos + 31) / 32]. */
void attend_page_table(hearth_kv_type type, size_t d_head, size_t n_pos, const uint8_t *memory, const uint8_t **pages);
/* y[d_head] of one query over positions first to n_pos - 1 of caches of plain rows. */
typedef struct attend_alone {
    hearth_kv_type type;
    size_t d_head, first, n_pos;
    const float *q, *keys, *values;
    float scale, cap;
    const float *slope, *sink; /* NULL: none */
} attend_alone;
void attend_one(const hth_kernels *k, const attend_alone *what, float *y);

#endif
