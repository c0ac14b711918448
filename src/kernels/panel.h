/* Panels: sixteen rows laid out side by side, so that a lane of a register is a row and no
 * sum crosses lanes. A panel takes the bytes of its sixteen rows and only puts them in another
 * order. Its blocks stand in the order of the partial sums of rules R4 and R5 (docs/arithmetic.md
 * 2): first blocks 0, 8, 16, ..., then 1, 9, 17, ...; a block of a panel holds, for each field
 * of the type's block (scale, minimum, quants ...), the first unit of all sixteen rows, then
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

/* Whether rows of this type can lie in panels: those of quantised types. */
bool hth_panel_fits(hth_type type);

/* Sixteen rows of n_block blocks, row_size bytes apart, to the panel they make. No overlap. */
void hth_panel_make(hth_type type, size_t n_block, const uint8_t *rows, size_t row_size, uint8_t *panel);

/* Blocks first, first + 8, ... (n of them) of sixteen rows, as they would stand in a panel. */
void hth_panel_make_blocks(hth_type type, const uint8_t *const row[HTH_PANEL_ROW], size_t first, size_t n,
                           uint8_t *blocks);

/* Row r (below 16) of a panel, as in the file. */
void hth_panel_row(hth_type type, size_t n_block, const uint8_t *panel, size_t r, uint8_t *row);

#endif
