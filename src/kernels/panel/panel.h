/* Panels: sixteen rows interleaved, so that a lane of a register is a row and no sum crosses lanes. A panel
 * holds exactly the bytes of its sixteen rows in another order. Its blocks (for rows of floats: single weights)
 * are stored in the order in which they are summed: all blocks of the first partial sum (docs/arithmetic.md 2:
 * R4, R5, R9), then those of the second, and so on (hth_panel_sum_order). A block of a panel holds, for each
 * field of the type's block (scale, minimum, quants ...), the first unit of all sixteen rows, then the second.
 * A unit is four bytes, or the field's size if that is smaller. So the data at byte `at` of a row's block
 * begins at byte 16 * at of the panel's. */
#ifndef HTH_KERNELS_PANEL_PANEL_H
#define HTH_KERNELS_PANEL_PANEL_H

#include "file/types.h"

enum { HTH_PANEL_ROW = 16 };

/* Memory layout of the rows of a matrix. */
typedef enum hth_layout {
    HTH_LAYOUT_ROWS = 0, /* as in the file */
    HTH_LAYOUT_PANELS,   /* whole panels; the remaining rows follow as in the file */
} hth_layout;

/* Whether rows of this type can be stored in panels. */
bool hth_panel_supported(hth_type type);

/* Partial sums of a row: 8, or 16 of floats. */
static inline size_t hth_panel_n_sum(bool quantised) { return quantised ? 8 : 16; }

/* The partial sum that is stored j-th in a panel; its blocks are those with this number modulo the number of
 * sums. The reduction of quantised rows adds neighbours first, that of floats adds halves first. With this
 * order both reductions add adjacent sums. */
static inline size_t hth_panel_sum_order(bool quantised, size_t j)
{
    return quantised ? j : (j & 1) << 3 | (j & 2) << 1 | (j & 4) >> 1 | j >> 3;
}

/* Packs sixteen rows of n_block blocks, row_size bytes apart, into a panel. No overlap. */
void hth_panel_pack(hth_type type, size_t n_block, const uint8_t *rows, size_t row_size, uint8_t *panel);

/* Packs n blocks of one partial sum of sixteen rows, from block `first` on, in panel order. */
void hth_panel_pack_blocks(hth_type type, const uint8_t *const row[HTH_PANEL_ROW], size_t first, size_t n,
                           uint8_t *blocks);

/* First rows of n panels that are computed together, from row i on. Past `end`, the last panel is repeated. */
static inline void hth_panels_at(size_t i, size_t end, size_t n, size_t *row)
{
    for (size_t r = 0; r < n; r++, i += i + HTH_PANEL_ROW < end ? HTH_PANEL_ROW : 0) row[r] = i;
}

/* Row r (below 16) of a panel, as in the file. */
void hth_panel_row(hth_type type, size_t n_block, const uint8_t *panel, size_t r, uint8_t *row);

#endif
