/* Panels: sixteen rows laid out side by side, so that a lane of a register is a row and no
 * sum crosses lanes. A panel takes the bytes of its sixteen rows and only puts them in another
 * order. Its blocks (of rows of floats: single weights) stand in the order in which their sums
 * are made: all that belong to the first partial sum (docs/arithmetic.md 2: R4, R5, R9), then
 * to the second, and so on (hth_panel_sum_order). A block of a panel holds, for each field of the
 * type's block (scale, minimum, quants ...), the first unit of all sixteen rows, then
 * the second: units of four bytes, or of the field's size where it is smaller. So what lies at
 * byte `at` of a row's block begins at byte 16 * at of the panel's. */
#ifndef HTH_KERNELS_PANEL_H
#define HTH_KERNELS_PANEL_H

#include "file/types.h"

enum { HTH_PANEL_ROW = 16 };

/* How the rows of a matrix lie in memory. */
typedef enum hth_layout {
    HTH_LAYOUT_ROWS = 0, /* as in the file */
    HTH_LAYOUT_PANELS,   /* whole panels; the rows left over behind them as in the file */
} hth_layout;

/* Whether rows of this type can lie in panels. */
bool hth_panel_supported(hth_type type);

/* Partial sums of a row: 8, or 16 of floats. */
static inline size_t hth_panel_n_sum(bool quantised) { return quantised ? 8 : 16; }

/* The partial sum that stands j-th in a panel; its blocks are those with this number modulo the
 * number of sums. Neighbours meet first in the tree of quantised rows, halves in that of floats,
 * so with this order every tree joins what stands side by side. */
static inline size_t hth_panel_sum_order(bool quantised, size_t j)
{
    return quantised ? j : (j & 1) << 3 | (j & 2) << 1 | (j & 4) >> 1 | j >> 3;
}

/* Sixteen rows of n_block blocks, row_size bytes apart, to the panel they make. No overlap. */
void hth_panel_pack(hth_type type, size_t n_block, const uint8_t *rows, size_t row_size, uint8_t *panel);

/* n blocks of one partial sum of sixteen rows, from block `first` on, as they stand in a panel. */
void hth_panel_pack_blocks(hth_type type, const uint8_t *const row[HTH_PANEL_ROW], size_t first, size_t n,
                           uint8_t *blocks);

/* Where n panels begin that are computed together, from row i on: below `end` a panel more each,
 * beyond it the last one again. */
static inline void hth_panels_at(size_t i, size_t end, size_t n, size_t *row)
{
    for (size_t r = 0; r < n; r++, i += i + HTH_PANEL_ROW < end ? HTH_PANEL_ROW : 0) row[r] = i;
}

/* Row r (below 16) of a panel, as in the file. */
void hth_panel_row(hth_type type, size_t n_block, const uint8_t *panel, size_t r, uint8_t *row);

#endif
