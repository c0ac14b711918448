/* Writes keys and values in the layout of kv_layout.h. forward/sequence.c calls it for each new token and KV
 * head. A key is quantised as one row; its values are then stored 16 positions apart. */
#include "kernels/attn/kv_layout.h"

#include "base/bits.h"

#include <string.h>

/* Values quantised at a time, on the stack; a multiple of HTH_ACT_BLOCK. */
enum { CHUNK = 256 };

static size_t chunk_of(size_t left) { return left < CHUNK ? left : CHUNK; }

/* ---- keys ------------------------------------------------------------------------------ */

static void put_key_f16(const hth_kernels *k, uint8_t *to, size_t d_head, const float *x)
{
    uint16_t halves[CHUNK];
    for (size_t first = 0, n; first < d_head; first += n) {
        n = chunk_of(d_head - first);
        k->to_f16(x + first, n, halves);
        for (size_t i = 0; i < n; i++) hth_store_u16(to + (first + i) * HTH_KV_GROUP * 2, halves[i]);
    }
}

static void put_key_f32(uint8_t *to, size_t d_head, const float *x)
{
    for (size_t i = 0; i < d_head; i++) hth_store_f32(to + i * HTH_KV_GROUP * 4, x[i]);
}

/* Four values of a position are adjacent. `to` points at the first four. */
static void put_key_q8_0(const hth_kernels *k, uint8_t *to, uint8_t *scales, size_t d_head, const float *x)
{
    int8_t q[CHUNK];
    uint16_t d[CHUNK / HTH_ACT_BLOCK];
    for (size_t first = 0, n; first < d_head; first += n) {
        n = chunk_of(d_head - first);
        k->quant_cache(x + first, n, q, d);
        for (size_t i = 0; i < n; i += 4) memcpy(to + (first + i) * HTH_KV_GROUP, q + i, 4);
        for (size_t b = 0; b < n / HTH_ACT_BLOCK; b++)
            hth_store_u16(scales + (first / HTH_ACT_BLOCK + b) * HTH_KV_GROUP * 2, d[b]);
    }
}

void hth_kv_layout_put_key(const hth_kernels *k, hearth_kv_type type, uint8_t *keys, size_t d_head,
                       size_t position, const float *x)
{
    uint8_t *group = keys + position / HTH_KV_GROUP * hth_kv_layout_group_size(type, d_head);
    size_t lane = position % HTH_KV_GROUP;
    if (type == HEARTH_KV_F16) {
        put_key_f16(k, group + lane * 2, d_head, x);
    } else if (type == HEARTH_KV_F32) {
        put_key_f32(group + lane * 4, d_head, x);
    } else {
        put_key_q8_0(k, group + lane * 4, group + HTH_KV_GROUP * d_head + lane * 2, d_head, x);
    }
}

/* ---- values ---------------------------------------------------------------------------- */

static void put_value_q8_0(const hth_kernels *k, uint8_t *to, uint8_t *scales, size_t d_head, const float *x)
{
    uint16_t d[CHUNK / HTH_ACT_BLOCK];
    for (size_t first = 0, n; first < d_head; first += n) {
        n = chunk_of(d_head - first);
        k->quant_cache(x + first, n, (int8_t *)to + first, d);
        memcpy(scales + first / HTH_ACT_BLOCK * 2, d, n / HTH_ACT_BLOCK * 2);
    }
}

void hth_kv_layout_put_value(const hth_kernels *k, hearth_kv_type type, uint8_t *values, size_t d_head,
                         size_t position, const float *x)
{
    uint8_t *group = values + position / HTH_KV_GROUP * hth_kv_layout_group_size(type, d_head);
    size_t lane = position % HTH_KV_GROUP;
    if (type == HEARTH_KV_F16) {
        k->to_f16(x, d_head, (uint16_t *)(void *)group + lane * d_head);
    } else if (type == HEARTH_KV_F32) {
        memcpy(group + lane * d_head * 4, x, d_head * 4);
    } else {
        uint8_t *scales = group + HTH_KV_GROUP * d_head + lane * (d_head / HTH_ACT_BLOCK) * 2;
        put_value_q8_0(k, group + lane * d_head, scales, d_head, x);
    }
}
