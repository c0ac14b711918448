/* Matrix products on a thread pool: several matrices with one input at a time (q, k and v; gate and up), and
 * the fused operations before and after them: norm, activation, residual. The input is quantised once. Rows are
 * divided into units by their bytes, never by the number of threads. */
#ifndef HTH_KERNELS_PRODUCT_H
#define HTH_KERNELS_PRODUCT_H

#include "base/pool.h"
#include "kernels/kernels.h"

/* A matrix as the kernels see it. n_row == 0: absent. */
typedef struct hth_matrix {
    hth_type type;
    size_t n_row, n_col, row_size;
    const uint8_t *data;
    hth_row_runs runs; /* addresses of the rows, instead of data; then products take lists of them */
    hth_layout layout; /* layout of the rows in data */
    size_t n_slice;    /* number of experts, each of n_row / n_slice rows; 0: the rows are one matrix */
} hth_matrix;

/* Row i as in the file, for tables that are read by row. Rows stored in panels are unpacked to scratch, of
 * row_size bytes. */
const uint8_t *hth_matrix_row(const hth_matrix *m, size_t i, uint8_t *scratch);

/* The input of a product of one token on several threads. It is written once, and each thread copies it before
 * reading. A straggler (base/pool.h) thus reads data of later products only through atomic loads. */
typedef struct hth_shared_input {
    uint64_t *words; /* [size / 8]: read and written by atomic operations only */
    uint8_t
        *copies; /* [n_thread][HTH_INPUT_HEAD + size], 64-aligned: the number of a product, and its input */
    size_t size; /* hth_input_size of the widest input */
    uint64_t n_product;
} hth_shared_input;
enum { HTH_INPUT_HEAD = 64 };

/* Bytes of an input of n_col values in all forms that types need. */
size_t hth_input_size(size_t n_col);

/* Sees the input of a product: after it is computed, before it is multiplied. */
typedef struct hth_product_inputs hth_product_inputs;
typedef void hth_product_probe_fn(void *user, const hth_product_inputs *seen);

/* Scratch memory for the quantised forms of n_tok inputs of up to n_col values: in blocks of 32, and in blocks
 * of 256 for the types that need those. The tiles hold whole tiles of tokens. */
typedef struct hth_act_q8 {
    int8_t *q;                  /* [n_tok * n_col] */
    float *d;                   /* [n_tok * n_col / 32] */
    int32_t *sum;               /* [n_tok * n_col / 32] */
    int8_t *q_256;              /* [n_tok * n_col] */
    float *d_256;               /* [n_tok * n_col / 256] */
    int16_t *sum_16;            /* [n_tok * n_col / 16] */
    hth_tiles tiles, tiles_256; /* tiles.x: the inputs unquantised */
    hth_shared_input *input;    /* NULL: units are never retried */
    float *part;                /* [n_thread][HTH_PRODUCT_SCRATCH] results of a unit that are not committed yet */
    uint8_t *work;              /* [n_thread][HTH_PANEL_WORK], 64-aligned: too large for a stack */
    hth_product_probe_fn *probe; /* called for each product; NULL: none */
    void *probe_user;
} hth_act_q8;

/* Results of a unit that fit into the scratch memory of a thread. A unit with more is never retried. */
enum { HTH_PRODUCT_SCRATCH = 32768 };

/* One output of a product: y[t * n_y + i] = matrix row i . x_t (+ bias[i]), where n_y is n_row unless it is given. With
 * a list (the matrix in layout ROWS) y[t * n_y + i] belongs to row list[i], i below n_list. */
typedef struct hth_output {
    const hth_matrix *matrix;
    const float *bias; /* [n_row] or NULL */
    const int32_t *list;
    size_t n_list;
    float *y;
    float *add_to; /* shape of y; NULL: none; the results are added to it, and y is scratch memory */
    size_t n_y;    /* 0: n_row; else the matrix is some rows of one that has n_y */
    uint32_t slice_step, first_slice; /* slice i of the output is slice first_slice + i max(slice_step, 1) */
    const uint8_t *const *slice_data; /* [hth_submatrices.n_slice] row 0 of each slice, which may lie anywhere, in the
                                         matrix' layout; NULL: in the matrix */
} hth_output;

/* Rows of x times one slice of the matrices. A matrix of slices holds matrices of n_row rows one after another. */
typedef struct hth_submatrix {
    uint32_t i_slice;
    uint32_t first, n; /* rows of x and of y; n > 1: from a multiple of HTH_TILE_FLOAT_TOK on, and no other slice has
                          rows up to the next multiple */
} hth_submatrix;

typedef struct hth_submatrices {
    const hth_submatrix *slices; /* [n_slice] */
    uint32_t n_slice;
    uint32_t n_row, n_x;      /* rows of each slice, of x */
    bool shares_x;            /* x is one row, which all slices read; then each has one row of y */
    const uint32_t *slice_of; /* [n_x] the slice of a row of x; UINT32_MAX: none */
} hth_submatrices;

/* Valid during the call only. */
struct hth_product_inputs {
    const float *x; /* [n_row][n_col]; with slices, the rows that they name */
    size_t n_row, n_col;
    const hth_submatrices *slices; /* NULL: all rows are multiplied by whole matrices */
    const hth_output *outputs;
    size_t n_output;
    hth_pool *pool; /* idle: the probe may run work on all its threads */
};

/* Computes token t of a product's input, in the unit that quantises it. */
typedef void hth_prepare_fn(const void *arg, size_t t);
enum { HTH_PREPARE_SIZE = 32 };

/* Operations before and after a product; zeros: none. */
typedef struct hth_fusion {
    hth_prepare_fn *prepare;
    const void *prepare_arg; /* HTH_PREPARE_SIZE bytes, copied */
    /* The outputs are gate and up, or up alone. Only hidden[n_tok][n_row] = activate(gate, up) is kept, if
     * hth_product_fits_scratch. */
    hth_activate_fn *activate;
    float limit; /* upper limit of gate, and limit of |up|, before the activation; 0: none */
    float *hidden;
    bool reuses_input; /* the product before has quantised x, for matrices of the same types */
} hth_fusion;

enum { HTH_PRODUCT_MAX = 4 };

/* Multiplies x[n_tok][n_col] by up to HTH_PRODUCT_MAX matrices of the same n_col, of any types. x is quantised
 * once per block size. Allocates nothing. */
void hth_product(const hth_kernels *k, hth_pool *pool, const hth_act_q8 *act_q8, const float *x, size_t n_tok,
                 const hth_output *outputs, size_t n_output);

/* The same, queued: hth_pool_finish completes it. The outputs array and the fusion (NULL: none) may be freed at
 * once; what they point to must stay until then. x, the matrices, act_q8 and what it points to must stay until
 * hth_pool_quiesce. */
void hth_product_add(const hth_kernels *k, hth_pool *pool, const hth_act_q8 *act_q8, const float *x,
                     size_t n_tok, const hth_output *outputs, size_t n_output, const hth_fusion *fusion);

/* The same with matrices of slices: y[(first + t) * n_row + i] = row i of the slice times x's row first + t, and the
 * bias is that of the slice, [slices of the matrix][n_row]. What slices points to must stay until hth_pool_finish. No
 * lists. Matrices in panels have slices of whole panels. */
void hth_product_slices_add(const hth_kernels *k, hth_pool *pool, const hth_act_q8 *act_q8, const float *x,
                            const hth_submatrices *slices, const hth_output *outputs, size_t n_output,
                            const hth_fusion *fusion);

/* The largest number of rows of a slice with which gate and up fit into a thread's scratch memory
 * (hth_fusion.activate): 1, or a multiple of HTH_TILE_FLOAT_TOK. */
size_t hth_product_max_fused(const hth_output *outputs, size_t n_output);

/* Whether gate and up of a unit together fit into a thread's scratch memory. */
bool hth_product_fits_scratch(size_t n_tok, const hth_output *outputs, size_t n_output);

#endif
