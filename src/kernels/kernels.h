/* All arithmetic on rows and blocks. It knows no model: callers pass rows, activations and sizes. Every
 * function has one definition in C (the ref.c and *_ref.c files and vector_tmpl.h), specified in
 * docs/arithmetic.md. The other ISA levels produce the same bits and are only faster. No function allocates,
 * and none can fail. */
#ifndef HTH_KERNELS_KERNELS_H
#define HTH_KERNELS_KERNELS_H

#include "base/system/cpu.h"
#include "file/types.h"
#include "kernels/axpy/axpy.h"
#include "kernels/panel/panel.h"
#include "kernels/act_tiles.h"
#include "kernels/training/training.h"

#include <hearth/hearth.h>
#include <stddef.h>
#include <stdint.h>

/* ---- matrices -------------------------------------------------------------- */

/* Inputs per block of quantised activations (arithmetic.md 2, R1): as many as the weights have per block
 * (hth_type_act_block). Blocks of 256 also have sums of sub-blocks. */
enum { HTH_ACT_BLOCK = 32, HTH_ACT_BLOCK_256 = 256, HTH_ACT_SUBBLOCK = 16 };

/* The inputs of a matrix product: n_tok vectors of n_col. Float rows read x. Rows in blocks of 32 read q, d and
 * sum, from hth_quant_act_fn. Rows in blocks of 256 read q, d and sum_16, from hth_quant_act_256_fn. Token t
 * starts at x + t * n_col, q + t * n_col, d + t * n_col / block, sum + t * n_col / 32, sum_16 + t * n_col / 16. */
typedef struct hth_act {
    const float *x;
    const int8_t *q;       /* -127..127 */
    const float *d;        /* scale of each block; NaN if the input was not finite */
    const int32_t *sum;    /* sum of q over each block of 32 */
    const int16_t *sum_16; /* sum of q over each sub-block of 16 */
    hth_tiles tiles;       /* the same for panels (below), for floats or if n_tok > 1 */
} hth_act;

/* Quantises x[n_col] (n_col a multiple of 32, or of 256) to 8 bits per block. */
typedef void hth_quant_act_fn(const float *x, size_t n_col, int8_t *q, float *d, int32_t *sum);
typedef void hth_quant_act_256_fn(const float *x, size_t n_col, int8_t *q, float *d, int16_t *sum_16);

/* How panels are prefetched (rows_loop.h). No result depends on it. */
typedef enum hth_prefetch_mode {
    HTH_PREFETCH_L2_L1 = 0, /* into L2; for one token later into L1 */
    HTH_PREFETCH_L1,      /* into L1 */
    HTH_PREFETCH_SPARSE,    /* only what the CPU would not prefetch by itself, in small shares */
} hth_prefetch_mode;

/* Some rows of W times all tokens: y[t * y_stride + i] = row(i) . x_t for i in [first, end). row(i) is row i of
 * W, or row list[i] if there is a list. Rows are row_size bytes apart, have n_col weights each and any
 * alignment. No byte of a row outside the range (or the list) is read. y must not overlap the inputs. */
typedef struct hth_rows {
    const uint8_t *w;
    size_t row_size, n_col;
    hth_layout layout;
    hth_prefetch_mode prefetch;
    const int32_t *list; /* NULL: all rows */
    hth_row_runs runs;   /* with a list: where rows lie, in place of w */
    size_t first, end;
    size_t n_prefetch; /* entries of the list after `end`, which are only prefetched */
    hth_act act;
    size_t n_tok;
    float *y;
    size_t y_stride;
    void *work; /* workspace for several tokens in panels: HTH_PANEL_WORK bytes per thread, 64-aligned */
} hth_rows;
typedef void hth_rows_fn(const hth_rows *job);

static inline const uint8_t *hth_row_at(const hth_rows *job, size_t i)
{
    return hth_row_address(job->w, job->runs, job->row_size, job->list ? (size_t)job->list[i] : i);
}

/* The same for whole panels (panel.h): first and end are multiples of 16. Rows stored in panels (layout) use
 * this path for any number of tokens and have no list. Rows in file order use it from HTH_PANEL_MIN_TOK tokens
 * on, where packing them into panels costs less than it saves. Floats are read from act.tiles. Quantised inputs
 * of one token are read untiled, those of several tokens either way, so both forms must exist. */
enum { HTH_PANEL_MIN_TOK = 12, HTH_PANEL_WORK = 240 << 10 };

/* Converts one row of weights to floats and back. Unpacking is exact. Packing uses the rounding of the format
 * (as other programs write the type). */
typedef void hth_unpack_fn(const uint8_t *row, size_t n_col, float *x);
typedef void hth_pack_fn(const float *x, size_t n_col, uint8_t *row);
/* The same with the importance of each column, above zero: rounds so that the sum of weight times squared error is
 * small. */
typedef void hth_pack_by_fn(const float *x, const float *importance, size_t n_col, uint8_t *row);

/* ---- vectors --------------------------------------------------------------- */

/* y = x / sqrt(mean(x^2) + eps) * w. inv_n is 1/n rounded. y may be x. */
typedef void hth_rms_norm_fn(const float *x, const float *w, size_t n, float inv_n, float eps, float *y);

/* y = (x - mean) / sqrt(variance + eps) * w + b; b may be NULL. y may be x. */
typedef void hth_layer_norm_fn(const float *x, const float *w, const float *b, size_t n, float inv_n,
                               float eps, float *y);

/* Rotates n_pair pairs of x in place: adjacent values (2i, 2i+1), or halves (i, i + n_pair). */
typedef void hth_rope_fn(float *x, const float *cosine, const float *sine, size_t n_pair);

/* x = exp(x - max) / sum over n > 0 values, in place. */
typedef void hth_softmax_fn(float *x, size_t n);

/* Elementwise. y may be an input. */
typedef void hth_add_fn(const float *a, const float *b, size_t n, float *y);
typedef void hth_mul_fn(const float *a, const float *b, size_t n, float *y);
typedef void hth_scale_fn(const float *x, float factor, size_t n, float *y);
/* y[n] = sum over j of taps[j][n] times rows[j][n], each product rounded, j ascending from 0; d_conv > 0. y is none of
 * the rows. */
typedef void hth_conv_fn(const float *const *rows, const float *taps, size_t d_conv, size_t n, float *y);
/* Selective state spaces (Gu and Dao 2023, Mamba; Dao and Gu 2024, Mamba-2) of n_channel channels, over n_tok tokens one
 * after another. A channel has n_state states h_k:
 *     h_k = decay_k h_k + b_k (delta x),    y = sum over k of h_k c_k + d x
 * a NULL: delta, decay and d are one value, for all channels of a head. Else each channel has its delta and d, and
 * decay_k = exp(delta a_k). States lie in tiles of HTH_SSM_TILE channels, [tile][n_state][HTH_SSM_TILE], the last one
 * filled up. y overlaps nothing; next may be now. Exact order: arithmetic.md 5. */
enum { HTH_SSM_TILE = 16 };
typedef struct hth_ssm_scan {
    size_t n_channel, n_state, n_tok;
    const float *now; /* states before the tokens */
    float *next;      /* states after them */
    const float *x;   /* [n_tok][n_channel], rows x_stride apart, as the others by their strides */
    const float *delta, *decay; /* [n_tok][1]; with a: delta [n_tok][n_channel], decay is not read */
    const float *a;             /* [n_state][n_channel] */
    const float *d;             /* [1] or [n_channel] */
    const float *b, *c;         /* [n_tok][n_state] */
    float *y;                   /* [n_tok][n_channel] */
    size_t x_stride, delta_stride, a_stride, bc_stride, y_stride;
} hth_ssm_scan;
typedef void hth_ssm_scan_fn(const hth_ssm_scan *job);
/* Floats of the states of n channels. */
static inline size_t hth_ssm_state_size(size_t n_channel, size_t n_state)
{
    return (n_channel + HTH_SSM_TILE - 1) / HTH_SSM_TILE * HTH_SSM_TILE * n_state;
}
/* y[i] = row i of w[n_row][n_col] . x, as sum8 of rounded products: without fma, so that devices give the same bits
 * (arithmetic.md 2, R10). */
typedef void hth_dot_rows_fn(const float *w, size_t n_row, size_t n_col, const float *x, float *y);
/* y = cap tanh(x / cap), with inverse = 1 / cap rounded. */
typedef void hth_soft_cap_fn(const float *x, float cap, float inverse, size_t n, float *y);
typedef void hth_to_f16_fn(const float *x, size_t n, uint16_t *h);

/* The output of a neuron: f(gate) * up, or f(up) without a gate (gate NULL). h may be one of them.
 * shaders/select.glsl has the same numbers, model/arch.c the names in this order. */
typedef enum hth_activation {
    HTH_ACTIVATION_SILU = 0, /* SwiGLU */
    HTH_ACTIVATION_GELU,     /* the tanh form; GeGLU */
    HTH_ACTIVATION_RELU,     /* ReGLU */
    HTH_ACTIVATION_RELU2,
    HTH_ACTIVATION_DRELU, /* max(0, gate) * max(0, up); needs a gate */
    HTH_ACTIVATION_SWIGLU_OAI, /* gpt-oss: g sigmoid(1.702 g) (u + 1), g and u limited to 7; needs a gate */
    HTH_N_ACTIVATION,
} hth_activation;
typedef void hth_activate_fn(const float *gate, const float *up, size_t n, float *h);

/* ---- compaction ---------------------------------------------------------------------------------- */

/* Input of a compaction: x[i] belongs to index list[i]. */
typedef struct hth_compact {
    const float *x;
    const int32_t *list; /* NULL: 0 to n - 1 */
    size_t n;
    const float *thresholds; /* by index; NULL: `threshold` for all */
    float threshold;
    int32_t *out_idx; /* may be list */
    float *out_x;      /* may be x; NULL: no output of values */
} hth_compact;

/* Keeps values that are not below their threshold (NaN is kept), in order; compact_abs compares magnitudes.
 * Returns the number kept. May write [n] of out_idx and out_x. */
typedef size_t hth_compact_fn(const hth_compact *job);

/* ---- attention (kv_layout.h: cache layout; attn.h: how the splits are merged) -------------- */

/* Positions of one split. The softmax and sum of each split are computed separately, then merged in ascending
 * order (arithmetic.md 5). */
enum { HTH_ATTN_SPLIT = 256 };

/* The version of docs/arithmetic.md: of the order of all sums. Bits of different versions differ. */
enum { HTH_ARITHMETIC_VERSION = 3 };

/* Number of cache types, numbered as hearth_kv_type. */
enum { HTH_N_KV_TYPE = HEARTH_KV_Q8_0 + 1 };

/* The result of one split for one query: its largest score and the sum of its weights. Sum 0: the query sees no
 * position of the split. */
typedef struct hth_attn_partial {
    float max, sum;
} hth_attn_partial;

/* n_row * n_head query heads that share a KV head: n_head of each of n_row tokens at consecutive positions.
 * Token r sees positions below n_pos + r; if window is not 0, only the last `window` of them. Head h of token r
 * has its query at q + r * q_stride + h * d_head and its results at index r * out_stride + h. */
typedef struct hth_attn {
    /* The head's keys and values: position p is in page p / HTH_KV_PAGE, whose groups begin at the offset (bytes).
     * Pages of which no token sees a position may be NULL. */
    const uint8_t *const *k_pages, *const *v_pages;
    size_t k_offset, v_offset;
    size_t d_head, n_row, n_head, n_pos, window;
    const float *q;         /* read for F16 caches, rounded by hth_attn_round_queries, and F32 caches */
    hth_act q_q8;        /* read for Q8_0 caches (q, d and sum): all tokens of q, quantised by quant_act */
    size_t q_stride;        /* floats from token to token; a multiple of 32 with Q8_0 */
    float scale;            /* factor of the scores */
    float cap, inverse_cap; /* soft cap of the scaled scores; 0: none */
    const float *slopes;    /* [n_head] or NULL: scores fall by this times the distance of positions */
    const float *sinks;     /* [n_head] or NULL; hth_attn_finalize */
    float *scratch;         /* hth_attn_scratch floats */
    float *values;          /* [..][d_head] weighted sums of the split, one per query */
    hth_attn_partial *partials;
    size_t out_stride;
} hth_attn;

/* Computes split i_split (positions from 256 i_split on) for all queries of the job. Reads whole groups of
 * positions (kv_layout.h) and uses those that a query sees. */
typedef void hth_attn_fn(const hth_attn *job, size_t i_split);

/* Quantises x[n] (n a multiple of 32) to 8 bits for a cache, with one bf16 scale per 32 (arithmetic.md 7). */
typedef void hth_quant_cache_fn(const float *x, size_t n, int8_t *q, uint16_t *d);

/* Elementwise functions. y may be x. */
typedef void hth_map_fn(const float *x, size_t n, float *y);

/* ---- kernel table ---------------------------------------------------------- */

typedef struct hth_kernels {
    hth_cpu level;
    hth_rows_fn *rows[HTH_TYPE_LIMIT];   /* products in the layout ROWS; NULL: type not supported */
    hth_rows_fn *panels[HTH_TYPE_LIMIT]; /* NULL: the ISA level has none, and no matrix is stored in panels */
    hth_layout layout[HTH_TYPE_LIMIT];   /* layout in which the product of one token is fastest */
    hth_prefetch_mode prefetch;                     /* best mode for this CPU */
    hth_axpy_fn *axpy[HTH_TYPE_LIMIT];   /* products of neuron-major matrices (axpy.h) */
    hth_axpy_flush_fn *axpy_flush;
    hth_axpy_flush_chain_fn *axpy_flush_chain;
    hth_quant_act_fn *quant_act;
    hth_quant_act_256_fn *quant_act_256;
    hth_unpack_fn *unpack[HTH_TYPE_LIMIT];
    hth_pack_fn *pack[HTH_TYPE_LIMIT]; /* NULL: the type cannot be written, or only by importance */
    hth_pack_by_fn *pack_by[HTH_TYPE_LIMIT]; /* NULL: importance makes no difference */
    hth_rms_norm_fn *rms_norm;
    hth_layer_norm_fn *layer_norm;
    hth_rope_fn *rope_interleaved, *rope_neox;
    hth_softmax_fn *softmax;
    hth_add_fn *add;
    hth_mul_fn *mul;
    hth_conv_fn *conv;
    hth_scale_fn *scale;
    hth_soft_cap_fn *soft_cap;
    hth_to_f16_fn *to_f16;
    hth_activate_fn *activate[HTH_N_ACTIVATION];
    hth_compact_fn *compact, *compact_abs;
    hth_attn_fn *attn[HTH_N_KV_TYPE]; /* by hearth_kv_type */
    hth_quant_cache_fn *quant_cache;
    hth_dot_rows_fn *dot_rows;
    hth_map_fn *sigmoid, *softplus;
    hth_ssm_scan_fn *ssm_scan;
    hth_activate_fn *gate_sigmoid; /* sigmoid(gate) * up */
    hth_map_fn *exp, *tanh, *rcp, *rsqrt;
    hth_gemm_fn *gemm;
    hth_adam_fn *adam;
    hth_logistic_fn *logistic;
} hth_kernels;

/* Fills the table from the C reference up to `level`, which the machine must support (hth_cpu_choose). */
void hth_kernels_init(hth_kernels *k, hth_cpu level);

/* Switches prompt products of BF16 matrices to the CPU's bf16 dot products. Approximate: inputs are rounded to
 * bf16. False: the machine or the ISA level has none, and the table is unchanged. */
bool hth_kernels_use_bf16_dot(hth_kernels *k);

#endif
