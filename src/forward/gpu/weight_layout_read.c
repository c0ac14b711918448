/* Unpacks one block of a matrix from the device layout (weight_layout.h), for the C functions that stand for
 * shaders. */
#include "forward/gpu/weight_layout.h"
#include "forward/gpu/weight_layout_int.h"

#include "base/bits.h"
#include "kernels/quant/blocks.h"

#include <string.h>

enum { GROUP = 8 };

const int8_t hth_soa_values[HTH_SOA_N_TABLE][16] = {
    {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113},
    {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12},
    {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62},
    {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15},
    {8, 25, 43, 0, -8, -25, -43},
    {-7, 1, 9, 0, -9, -1, 7},
};

/* The position of a block. */
typedef struct block_pos {
    const hth_quant_desc *desc;
    size_t n_block, row, b;
} block_pos;

/* raw |= the bits of this array << up. */
static void add_pieces(const block_pos *a, const uint8_t *plane, uint32_t bits, uint32_t up, uint8_t *raw)
{
    const size_t size = (size_t)a->desc->block * bits / 8, first = a->b / GROUP * GROUP;
    const size_t n = a->n_block - first < GROUP ? a->n_block - first : GROUP;
    const uint8_t *p = plane + (a->row * a->n_block + first) * size + 16 * (a->b - first);
    for (size_t i = 0; i < a->desc->block; i += 128 / bits, p += 16 * n)
        for (size_t k = 0; k < 8 / bits; k++)
            add_bits(p, 16, (unsigned)k * bits, (1u << bits) - 1, up, raw + i + 16 * k);
}

/* The fifth bits of a block of 32. */
static void add_word(const uint8_t *p, uint32_t up, uint8_t *raw)
{
    for (size_t k = 0; k < 8; k++)
        for (size_t j = 0; j < 4; j++) raw[4 * k + j] = (uint8_t)(raw[4 * k + j] | (p[j] >> k & 1) << up);
}

static void read_integers(const block_pos *a, const uint8_t *low, const uint8_t *high, int8_t *w)
{
    const hth_quant_desc *f = a->desc;
    uint8_t *raw = (uint8_t *)w;
    memset(raw, 0, f->block);
    if (f->block == 16) add_bits(low + (a->row * a->n_block + a->b) / 2 * 16, 16, 4 * (a->b % 2), 15, 0, raw);
    else add_pieces(a, low, f->low_bits, 0, raw);
    if (f->high_bits && f->block == 32) add_word(high + 4 * (a->row * a->n_block + a->b), f->low_bits, raw);
    else if (f->high_bits) add_pieces(a, high, f->high_bits, f->low_bits, raw);
    for (size_t i = 0; f->table && i < f->block; i++) w[i] = hth_soa_values[f->table - 1][raw[i]];
    for (size_t i = 0; f->offset && i < f->block; i++) w[i] = (int8_t)(raw[i] - f->offset);
}

static float half_of(const uint8_t *plane, const block_pos *a)
{
    return hth_f16_to_f32(hth_load_u16(plane + (a->row * ((a->n_block + 1) / 2) * 2 + a->b) * 2));
}

/* Powers of two are exact. */
static float scale_of(const uint8_t *plane, const block_pos *a)
{
    if (a->desc->scale == HTH_SCALE_E8M0) return hth_mxfp4_scale(plane[a->row * ((a->n_block + 3) / 4) * 4 + a->b]);
    return half_of(plane, a) / (float)(a->desc->scale > 1 ? 1u << a->desc->scale : 1u);
}

void hth_soa_layout_unpack(const hth_quant_desc *desc, const hth_soa_offsets *at, const uint8_t *planes, size_t n_block,
                     size_t row, size_t b, hth_soa_block *out)
{
    const block_pos a = {desc, n_block, row, b};
    const uint8_t *scale = planes + (size_t)at->scale * 4, *part = planes + (size_t)at->sub_scale * 4;
    const uint8_t *sub_min = planes + (size_t)at->sub_min * 4;
    read_integers(&a, planes, planes + (size_t)at->high * 4, out->w);
    out->d = scale_of(scale, &a);
    if (desc->minima) out->m = half_of(planes + (size_t)at->minimum * 4, &a);
    for (size_t i = 0; i < desc->block / 16; i++) {
        out->sub_scale[i] = 1, out->sub_min[i] = 1;
        if (!desc->part) continue;
        size_t i_part = (row * n_block + b) * (desc->block / desc->part) + 16 * i / desc->part;
        out->sub_scale[i] = (int8_t)part[i_part];
        if (desc->minima) out->sub_min[i] = sub_min[i_part];
    }
}
