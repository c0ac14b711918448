/* One random product of rows and tokens between guard pages: made once, computed by
 * any table. Used by the proof of the row kernels and by the equality of machines. */
#ifndef HEARTH_TESTS_SUPPORT_KERNELS_ROWS_CASE_H
#define HEARTH_TESTS_SUPPORT_KERNELS_ROWS_CASE_H

#include "kernels/kernels.h"
#include "support/guard.h"
#include "support/kernels/proof.h"

/* The supported types, in the order in which proofs take them. The first ones also have panels and neuron-major down.
 */
enum { ROWS_N_TYPE = 26, ROWS_N_FULL = 16 };
extern const hth_type rows_types[ROWS_N_TYPE];
const char *rows_type_name(hth_type type);
size_t rows_bytes(hth_type type, size_t n_col);
bool rows_quantised(hth_type type);
size_t rows_block(hth_type type);     /* weights of a block: 1, 32, 64 or 256 */
size_t rows_act_block(hth_type type); /* inputs rounded together: 1, 32 or 256 */

typedef struct rows_shape {
    hth_type type;
    size_t n_row, n_col, n_tok;
    size_t row_gap, y_gap; /* bytes between rows, floats between tokens of y */
    size_t shift;          /* of the weights from their guard page, 0..63 */
    guard_side side;
    proof_kind kind;
    int list; /* 0 none, 1 empty, 2 all rows, 3 some */
} rows_shape;

typedef struct rows_case {
    rows_shape shape;
    hth_rows job; /* first = 0, end = all rows or the whole list; y is the guarded one */
    guard w, list, q, d, sum, x, y, work;
} rows_case;

/* Room for any shape of up to max_weights bytes of rows and max_inputs floats of activations. */
void rows_case_open(rows_case *c, size_t max_weights, size_t max_inputs);
void rows_case_close(rows_case *c);

/* Fills weights, list and activations for the shape. */
void rows_case_make(rows_case *c, test_random *r, const rows_shape *shape);

/* Fills one row of n_col weights of the shape's type and kind. */
void rows_fill_row(test_random *r, const rows_shape *shape, uint8_t *row);

/* Floats in y, gaps included. */
size_t rows_case_n_y(const rows_case *c);

#endif
