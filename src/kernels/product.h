/* Matrix products on a pool: several matrices with one input at a time (q, k and
 * v; gate and up), and what stands right before and behind them: the norm, the activation, the
 * residual. The input is rounded once, the rows are cut into units by their bytes, never by
 * the number of threads. */
#ifndef HTH_KERNELS_PRODUCT_H
#define HTH_KERNELS_PRODUCT_H

#include "base/pool.h"
#include "kernels/kernels.h"

/* A matrix as the kernels see it; n_tok == 0: absent. */
typedef struct hth_matrix {
    hth_type type;
    size_t n_row, n_col, row_size;
    const uint8_t *data;
    hth_layout layout; /* how the rows lie there */
} hth_matrix;

/* Row i as in the file, for tables of which single rows are wanted. Rows that lie in panels are
 * put together in room, of row_size bytes. */
const uint8_t *hth_matrix_row(const hth_matrix *m, size_t i, uint8_t *scratch);

/* The input of a product of one token on several threads: written once, and copied by each thread before it reads
 * it. A thread that is late (base/pool.h) thus reads nothing that later products write but by atomic loads. */
typedef struct hth_shared_input {
    uint64_t *words; /* [size / 8]: read and written by atomic operations alone */
    uint8_t
        *copies; /* [n_thread][HTH_INPUT_HEAD + size], 64-aligned: the number of a product, and its input */
    size_t size; /* hth_input_size of the widest input */
    uint64_t n_product;
} hth_shared_input;
enum { HTH_INPUT_HEAD = 64 };

/* Bytes of an input of n_col values in all forms that types want. */
size_t hth_input_size(size_t n_col);

/* Room for the rounded forms of n_tok inputs of up to n_col values: in blocks of 32, and
 * in blocks of 256 for the types that want those. The tiles hold whole tiles of tokens. */
typedef struct hth_act_q8 {
    int8_t *q;                  /* [n_tok * n_col] */
    float *d;                   /* [n_tok * n_col / 32] */
    int32_t *sum;               /* [n_tok * n_col / 32] */
    int8_t *q_256;              /* [n_tok * n_col] */
    float *d_256;               /* [n_tok * n_col / 256] */
    int16_t *sum_16;            /* [n_tok * n_col / 16] */
    hth_tiles tiles, tiles_256; /* tiles.x: the inputs as they are */
    hth_shared_input *input;    /* NULL: units are never computed twice */
    float *part;                /* [n_thread][HTH_PRODUCT_SCRATCH] results of a unit that have not arrived */
    uint8_t *work;              /* [n_thread][HTH_PANEL_WORK], 64-aligned: too large for a stack */
} hth_act_q8;

/* Results that a unit may keep to itself. One with more is never computed twice. */
enum { HTH_PRODUCT_SCRATCH = 32768 };

/* One output of a product: y[t * n_tok + i] = matrix row i . x_t (+ bias[i]). With
 * a list (n_tok must be 1, the matrix lie in rows) y[i] belongs to row list[i], i below n_list. */
typedef struct hth_output {
    const hth_matrix *matrix;
    const float *bias; /* [n_tok] or NULL */
    const int32_t *list;
    size_t n_list;
    float *y;
    float *add_to; /* as y, or NULL: what the results are added to; y then is room */
} hth_output;

/* Makes row t of a product's input, in the unit that rounds it. */
typedef void hth_prepare_fn(const void *arg, size_t t);
enum { HTH_PREPARE_SIZE = 32 };

/* What stands before and behind a product; zeros: nothing. */
typedef struct hth_fusion {
    hth_prepare_fn *prepare;
    const void *prepare_arg; /* HTH_PREPARE_SIZE bytes, copied */
    /* The outputs are gate and up, or up alone: only hidden[n_tok][n_tok] = activate(gate, up)
     * is kept, if hth_product_fits_scratch. */
    hth_activate_fn *activate;
    float *hidden;
} hth_fusion;

enum { HTH_PRODUCT_MAX = 3 };

/* x[n_tok][n_col] times up to HTH_PRODUCT_MAX matrices of the same n_col, of any types:
 * x is rounded once for each block that they want. Allocates nothing. */
void hth_product(const hth_kernels *k, hth_pool *pool, const hth_act_q8 *act_q8, const float *x, size_t n_tok,
                 const hth_output *outputs, size_t n_output);

/* The same, queued: done by hth_pool_finish. All but the outputs' array and the fusion (NULL:
 * none) themselves must stay until then; x, the matrices, rounding and what it points to until
 * hth_pool_quiesce. */
void hth_product_add(const hth_kernels *k, hth_pool *pool, const hth_act_q8 *act_q8, const float *x,
                     size_t n_tok, const hth_output *outputs, size_t n_output, const hth_fusion *fusion);

/* Whether a unit of gate and up together has room in its part. */
bool hth_product_fits_scratch(size_t n_tok, const hth_output *outputs, size_t n_output);

#endif
