/* Converts the bytes of rows to panels and back, with one table for all types. Called when weights are loaded
 * (engine/load.c), by products of rows in file order for many tokens, and for single rows of tables stored in
 * panels (forward/embed.c). */
#include "kernels/panel/panel.h"

#include "base/bits.h"

#include <string.h>

/* A run of units inside a block. */
typedef struct field {
    uint8_t n_unit, unit;
} field;

/* In the order of the format's blocks; {0} ends a list. */
static const field *fields_of(hth_type type)
{
    static const field scale_16[] = {{1, 2}, {4, 4}, {0}}, scale_20[] = {{2, 2}, {4, 4}, {0}},
                       scale_22[] = {{1, 2}, {1, 4}, {4, 4}, {0}}, scale_24[] = {{2, 2}, {5, 4}, {0}},
                       scale_34[] = {{1, 2}, {8, 4}, {0}}, exponent[] = {{1, 1}, {4, 4}, {0}},
                       q2_k[] = {{20, 4}, {2, 2}, {0}}, q3_k[] = {{27, 4}, {1, 2}, {0}},
                       q4_k[] = {{2, 2}, {35, 4}, {0}}, q5_k[] = {{2, 2}, {43, 4}, {0}},
                       q6_k[] = {{52, 4}, {1, 2}, {0}}, iq4_xs[] = {{2, 2}, {33, 4}, {0}},
                       float_32[] = {{1, 4}, {0}}, float_16[] = {{1, 2}, {0}};
    switch (type) {
    case HTH_TYPE_Q4_0:
    case HTH_TYPE_IQ4_NL: return scale_16;
    case HTH_TYPE_Q4_1: return scale_20;
    case HTH_TYPE_Q5_0: return scale_22;
    case HTH_TYPE_Q5_1: return scale_24;
    case HTH_TYPE_Q8_0: return scale_34;
    case HTH_TYPE_MXFP4: return exponent;
    case HTH_TYPE_Q2_K: return q2_k;
    case HTH_TYPE_Q3_K: return q3_k;
    case HTH_TYPE_Q4_K: return q4_k;
    case HTH_TYPE_Q5_K: return q5_k;
    case HTH_TYPE_Q6_K: return q6_k;
    case HTH_TYPE_IQ4_XS: return iq4_xs;
    case HTH_TYPE_F32: return float_32;
    case HTH_TYPE_F16:
    case HTH_TYPE_BF16: return float_16;
    default: return NULL;
    }
}

bool hth_panel_supported(hth_type type) { return fields_of(type) != NULL; }

/* Iterates over every block of a panel in its order:
 *   for (block_iter w = iter_begin(type, n_block); iter_valid(&w); ...) */
typedef struct block_iter {
    bool quantised;
    size_t size, n_pass, n_block;
    size_t j, b;
} block_iter;

static block_iter iter_begin(hth_type type, size_t n_block)
{
    const hth_type_info *info = hth_type_find((uint32_t)type);
    return (block_iter){info->quantised, info->size, hth_panel_n_sum(info->quantised), n_block, 0, 0};
}

/* Moves to the next partial sum if one has ended. Returns whether b is a block of the panel. */
static bool iter_valid(block_iter *w)
{
    while (w->b >= w->n_block && ++w->j < w->n_pass) w->b = hth_panel_sum_order(w->quantised, w->j);
    return w->j < w->n_pass;
}

/* Copies the units of the rows from byte `at` of their blocks on to the panel's block: unit u goes to
 * u * 16 * size. */
static inline void interleave_units(const uint8_t *const row[HTH_PANEL_ROW], size_t at, size_t n_unit,
                                    size_t size, uint8_t *to)
{
    for (size_t r = 0; r < HTH_PANEL_ROW; r++)
        for (size_t u = 0; u < n_unit; u++)
            memcpy(to + (HTH_PANEL_ROW * u + r) * size, row[r] + at + u * size, size);
}

/* Copies one block of sixteen rows, at byte `at` of each, to the panel's block. Returns the end of it. */
static uint8_t *interleave(const field *f, const uint8_t *const row[HTH_PANEL_ROW], size_t at, uint8_t *to)
{
    for (; f->n_unit > 0; f++) {
        size_t size = (size_t)f->n_unit * f->unit;
        switch (f->unit) { /* constant sizes for the compiler */
        case 4: interleave_units(row, at, f->n_unit, 4, to); break;
        case 2: interleave_units(row, at, f->n_unit, 2, to); break;
        default: interleave_units(row, at, f->n_unit, 1, to);
        }
        at += size, to += HTH_PANEL_ROW * size;
    }
    return to;
}

void hth_panel_pack_blocks(hth_type type, const uint8_t *const row[HTH_PANEL_ROW], size_t first, size_t n,
                           uint8_t *blocks)
{
    const field *fields = fields_of(type);
    block_iter w = iter_begin(type, SIZE_MAX);
    for (size_t i = 0; i < n; i++) blocks = interleave(fields, row, (first + i * w.n_pass) * w.size, blocks);
}

void hth_panel_pack(hth_type type, size_t n_block, const uint8_t *rows, size_t row_size, uint8_t *panel)
{
    const field *fields = fields_of(type);
    const uint8_t *row[HTH_PANEL_ROW];
    for (size_t r = 0; r < HTH_PANEL_ROW; r++) row[r] = rows + r * row_size;
    for (block_iter w = iter_begin(type, n_block); iter_valid(&w); w.b += w.n_pass)
        panel = interleave(fields, row, w.b * w.size, panel);
}

/* Row r of one block of a panel. */
static void extract(const field *f, const uint8_t *block, size_t r, uint8_t *to)
{
    for (; f->n_unit > 0; f++)
        for (int u = 0; u < f->n_unit; u++, to += f->unit, block += (size_t)HTH_PANEL_ROW * f->unit)
            memcpy(to, block + r * f->unit, f->unit);
}

void hth_panel_row(hth_type type, size_t n_block, const uint8_t *panel, size_t r, uint8_t *row)
{
    const field *fields = fields_of(type);
    for (block_iter w = iter_begin(type, n_block); iter_valid(&w);
         w.b += w.n_pass, panel += HTH_PANEL_ROW * w.size)
        extract(fields, panel, r, row + w.b * w.size);
}
