/* Memory layout of the cache of one KV head: groups of 16 positions, so that a vector lane can be a position.
 * Only kv_layout.c, the attn_* kernels and their tests use it; forward/kv_pool.c allocates whole
 * pages.
 *
 *   keys    F16, F32   [group][d_head][16]
 *           Q8_0       [group] of int8 [d_head / 4][16][4], then bf16 scales [d_head / 32][16]
 *   values  F16, F32   [group][16][d_head]
 *           Q8_0       [group] of int8 [16][d_head], then bf16 scales [16][d_head / 32]
 *
 * A group is always whole, even if the context ends inside it. Data after the last position is undefined. */
#ifndef HTH_KERNELS_ATTN_KV_LAYOUT_H
#define HTH_KERNELS_ATTN_KV_LAYOUT_H

#include "kernels/kernels.h"

enum { HTH_KV_GROUP = 16 };

/* Positions of a page of the cache: whole groups, and splits are whole pages. A head's groups in a page are
 * adjacent; pages may lie anywhere. */
enum { HTH_KV_PAGE = 32 };
_Static_assert(HTH_KV_PAGE % HTH_KV_GROUP == 0 && HTH_ATTN_SPLIT % HTH_KV_PAGE == 0, "pages hold groups, splits pages");

/* Bytes of one group of keys, and of one group of values. d_head must be a multiple of 32 for Q8_0. */
static inline size_t hth_kv_layout_group_size(hearth_kv_type type, size_t d_head)
{
    if (type == HEARTH_KV_Q8_0) return HTH_KV_GROUP * (d_head + d_head / HTH_ACT_BLOCK * sizeof(uint16_t));
    return HTH_KV_GROUP * d_head * (type == HEARTH_KV_F16 ? sizeof(uint16_t) : sizeof(float));
}

/* Groups that hold n_pos positions. */
static inline size_t hth_kv_layout_n_group(size_t n_pos)
{
    return n_pos / HTH_KV_GROUP + (n_pos % HTH_KV_GROUP > 0);
}

/* Writes the key or the value x[d_head] of one position to a head's keys or values. */
void hth_kv_layout_put_key(const hth_kernels *k, hearth_kv_type type, uint8_t *keys, size_t d_head,
                       size_t position, const float *x);
void hth_kv_layout_put_value(const hth_kernels *k, hearth_kv_type type, uint8_t *values, size_t d_head,
                         size_t position, const float *x);

#endif
