/* All arithmetic on rows and blocks. Knows no model: callers hand in rows,
 * activations and sizes. Every function has one definition in C (the *_ref.c
 * files and vector_tmpl.h), stated in docs/arithmetic.md; the other levels give
 * its bits and are only faster. None allocates, none can fail. */
#ifndef HTH_KERNELS_KERNELS_H
#define HTH_KERNELS_KERNELS_H

#include "base/cpu.h"
#include "file/types.h"
#include "kernels/axpy/axpy.h"
#include "kernels/panel/panel.h"
#include "kernels/act_tiles.h"
#include "kernels/training/training.h"

#include <hearth/hearth.h>
#include <stddef.h>
#include <stdint.h>

/* ---- matrices -------------------------------------------------------------- */

/* Inputs per rounded block of activations (arithmetic.md 2, R1): as many as a block of the
 * weights has (hth_type_act_block). Wide blocks come with sums of parts. */
enum { HTH_ACT_BLOCK = 32, HTH_ACT_BLOCK_256 = 256, HTH_ACT_SUBBLOCK = 16 };

/* The inputs of a matrix product: n_tok vectors of n_col. Float rows read x; rows in
 * blocks of 32 read q, d and sum, made by hth_quant_act_fn; rows in blocks of 256 read q,
 * d and sum_16, made by hth_quant_act_256_fn. Token t starts at x + t * n_col,
 * q + t * n_col, d + t * n_col / block, sum + t * n_col / 32, sum_16 + t * n_col / 16. */
typedef struct hth_act {
    const float *x;
    const int8_t *q;       /* -127..127 */
    const float *d;        /* scale of each block; NaN where the input was not finite */
    const int32_t *sum;    /* sum of q over each block of 32 */
    const int16_t *sum_16; /* sum of q over each 16 */
    hth_tiles tiles;       /* the same for panels (below), of floats or where n_tok is more than 1 */
} hth_act;

/* Rounds x[n_col] (n_col a multiple of 32, or of 256) to 8 bits per block. */
typedef void hth_quant_act_fn(const float *x, size_t n_col, int8_t *q, float *d, int32_t *sum);
typedef void hth_quant_act_256_fn(const float *x, size_t n_col, int8_t *q, float *d, int16_t *sum_16);

/* How panels are asked for ahead of their use (rows_loop.h); no result depends on it. */
typedef enum hth_prefetch_mode {
    HTH_PREFETCH_L2_L1 = 0, /* into the second cache, for one token later into the first */
    HTH_PREFETCH_L1,      /* into the first cache */
    HTH_PREFETCH_SPARSE,    /* only what the CPU would not fetch by itself, in small shares */
} hth_prefetch_mode;

/* Some rows of W times all tokens: y[t * y_stride + i] = row(i) . x_t for i in
 * [first, end), where row(i) is row i of W, or row list[i] when there is a list.
 * Rows lie row_size bytes apart, n_col weights each, at any alignment. No byte of
 * a row outside the range (or the list) is read. y must not overlap the inputs. */
typedef struct hth_rows {
    const uint8_t *w;
    size_t row_size, n_col;
    hth_layout layout;
    hth_prefetch_mode prefetch;
    const int32_t *list; /* NULL: all rows */
    size_t first, end;
    size_t n_prefetch; /* entries of the list behind end, which are only asked for ahead */
    hth_act act;
    size_t n_tok;
    float *y;
    size_t y_stride;
    void *work; /* of several tokens in panels: HTH_PANEL_WORK bytes of this thread's, 64-aligned */
} hth_rows;
typedef void hth_rows_fn(const hth_rows *job);

/* The same for whole panels (panel.h): first and end are multiples of 16. Rows that lie in
 * panels (layout) are taken so for any number of tokens and have no list; rows as in the file
 * from HTH_PANEL_MIN_TOK tokens on, where making panels of them costs less than it saves.
 * Floats are read from act.tiles; quantised inputs of one token as they are, of several either way:
 * both must be there. */
enum { HTH_PANEL_MIN_TOK = 12, HTH_PANEL_WORK = 240 << 10 };

/* One row of weights to floats and back. Unpacking is exact. Packing is the
 * format's own rounding (as other programs write the type). */
typedef void hth_unpack_fn(const uint8_t *row, size_t n_col, float *x);
typedef void hth_pack_fn(const float *x, size_t n_col, uint8_t *row);

/* ---- vectors --------------------------------------------------------------- */

/* y = x / sqrt(mean(x^2) + eps) * w. inv_n is 1/n rounded. y may be x. */
typedef void hth_rms_norm_fn(const float *x, const float *w, size_t n, float inv_n, float eps, float *y);

/* y = (x - mean) / sqrt(variance + eps) * w + b; b may be NULL. y may be x. */
typedef void hth_layer_norm_fn(const float *x, const float *w, const float *b, size_t n, float inv_n,
                               float eps, float *y);

/* Rotates n_pair pairs of x in place: neighbours (2i, 2i+1), or halves (i, i + n_pair). */
typedef void hth_rope_fn(float *x, const float *cosine, const float *sine, size_t n_pair);

/* x = exp(x - max) / sum over n > 0 values, in place. */
typedef void hth_softmax_fn(float *x, size_t n);

/* Elementwise. y may be an input. */
typedef void hth_add_fn(const float *a, const float *b, size_t n, float *y);
typedef void hth_scale_fn(const float *x, float factor, size_t n, float *y);
/* y = cap tanh(x / cap), with inverse = 1 / cap rounded. */
typedef void hth_soft_cap_fn(const float *x, float cap, float inverse, size_t n, float *y);
typedef void hth_to_f16_fn(const float *x, size_t n, uint16_t *h);

/* What a neuron sends on: f(gate) * up, or f(up) where up stands alone (gate NULL). h may be one of them. */
typedef enum hth_activation {
    HTH_ACTIVATION_SILU = 0, /* SwiGLU */
    HTH_ACTIVATION_GELU,     /* the tanh form; GeGLU */
    HTH_ACTIVATION_RELU,     /* ReGLU */
    HTH_ACTIVATION_RELU2,
    HTH_ACTIVATION_DRELU, /* max(0, gate) * max(0, up); needs a gate */
    HTH_N_ACTIVATION,
} hth_activation;
typedef void hth_activate_fn(const float *gate, const float *up, size_t n, float *h);

/* ---- who fires ----------------------------------------------------------------------------------- */

/* Values of which some are kept: x[i] belongs to number list[i]. */
typedef struct hth_compact {
    const float *x;
    const int32_t *list; /* NULL: 0 to n - 1 */
    size_t n;
    const float *thresholds; /* [..] by number, or NULL: floor for all */
    float threshold;
    int32_t *out_idx; /* may be list */
    float *out_x;      /* may be x; NULL: not wanted */
} hth_compact;

/* Keeps what is not below its floor (NaN is kept), in order, or, for magnitudes, what is not in size.
 * Returns how many; [n] of out_idx and out_x may be written. */
typedef size_t hth_compact_fn(const hth_compact *job);

/* ---- attention (cache.h: how a cache lies; attn.h: how the pieces are put together) -------- */

/* Positions that one split of an attention holds: softmax and sum of each are
 * taken alone, then merged ascending (arithmetic.md 5). */
enum { HTH_ATTN_SPLIT = 256 };

/* Types of cache, numbered as hearth_kv_type. */
enum { HTH_N_KV_TYPE = HEARTH_KV_Q8_0 + 1 };

/* What one split says to one query: the largest score it sees and the sum of its
 * weights. A sum of 0: the query sees no position of the split. */
typedef struct hth_attn_partial {
    float max, sum;
} hth_attn_partial;

/* n_tok * n_head query heads that share a KV head: n_head of each of n_tok rows, which
 * stand at consecutive positions. Row r sees positions below n_pos + r, the last
 * `window` of them where that is not 0. Head h of row r has its query at
 * q + r * q_stride + h * d_head, and its results are number r * out_stride + h. */
typedef struct hth_attn {
    const uint8_t *k, *v; /* the KV head's keys and values from position 0 */
    size_t d_head, n_row, n_head, n_pos, window;
    const float *q;         /* F16 and F32 caches read these, */
    hth_act q_q8;        /* Q8_0 caches q, d and sum: all rows of q, rounded by quant_act */
    size_t q_stride;        /* floats from row to row; a multiple of 32 with Q8_0 */
    float scale;            /* of the scores */
    float cap, inverse_cap; /* soft cap of the scaled scores; 0: none */
    float *scratch;         /* hth_attn_scratch floats */
    float *values;          /* [..][d_head] weighted sums of the split, one for each query */
    hth_attn_partial *partials;
    size_t out_stride;
} hth_attn;

/* Split i_split (positions from 256 i_split on) for all queries of the job. Reads whole
 * groups of positions (cache.h), uses those that a query sees. */
typedef void hth_attn_fn(const hth_attn *job, size_t i_split);

/* Rounds x[n] (n a multiple of 32) to 8 bits for a cache, one scale per 32, as bf16
 * (arithmetic.md 7). */
typedef void hth_quant_cache_fn(const float *x, size_t n, int8_t *q, uint16_t *d);

/* Elementwise functions, for the proof of their accuracy. */
typedef void hth_map_fn(const float *x, size_t n, float *y);

/* ---- the table ------------------------------------------------------------- */

typedef struct hth_kernels {
    hth_cpu level;
    hth_rows_fn *rows[HTH_TYPE_LIMIT];   /* of the layout ROWS; NULL for types that are not supported */
    hth_rows_fn *panels[HTH_TYPE_LIMIT]; /* NULL where the level has none: then no matrix lies in panels */
    hth_layout layout[HTH_TYPE_LIMIT];   /* in which one token's product is fastest */
    hth_prefetch_mode prefetch;                     /* what this CPU does best */
    hth_axpy_fn *axpy[HTH_TYPE_LIMIT];   /* of neuron-major matrices (axpy.h) */
    hth_axpy_flush_chain_fn *axpy_flush_chain;
    hth_quant_act_fn *quant_act;
    hth_quant_act_256_fn *quant_act_256;
    hth_unpack_fn *unpack[HTH_TYPE_LIMIT];
    hth_pack_fn *pack[HTH_TYPE_LIMIT]; /* NULL for types that cannot be written yet */
    hth_rms_norm_fn *rms_norm;
    hth_layer_norm_fn *layer_norm;
    hth_rope_fn *rope_interleaved, *rope_neox;
    hth_softmax_fn *softmax;
    hth_add_fn *add;
    hth_scale_fn *scale;
    hth_soft_cap_fn *soft_cap;
    hth_to_f16_fn *to_f16;
    hth_activate_fn *activate[HTH_N_ACTIVATION];
    hth_compact_fn *compact, *compact_abs;
    hth_attn_fn *attn[HTH_N_KV_TYPE]; /* by hearth_kv_type */
    hth_quant_cache_fn *quant_cache;
    hth_map_fn *exp, *tanh, *rcp, *rsqrt;
    hth_gemm_fn *gemm;
    hth_adam_fn *adam;
    hth_logistic_fn *logistic;
} hth_kernels;

/* Fills the table from the C reference upward to level, which the machine must
 * have (hth_cpu_choose). */
void hth_kernels_init(hth_kernels *k, hth_cpu level);

/* Prompts of BF16 matrices by the CPU's products of bf16: approximate, inputs are rounded to
 * bf16. False, and nothing happens: the machine, or the level, has none. */
bool hth_kernels_use_bf16_dot(hth_kernels *k);

#endif
