/* What the programs of a layer compute, and how they are called: constants, push constants, and the step
 * block that all read. The functions of C (hth_shader_ref_table) are their definition, and what the null
 * device runs; the same in GLSL: device/vulkan/shaders. Quantised programs follow docs/arithmetic.md to
 * the bit. */
#ifndef HTH_RUN_GPU_CALLS_H
#define HTH_RUN_GPU_CALLS_H

#include "device/shaders.h"

/* ---- the step block: binding 0 of every program, words ------------------------------------------- */

/* What differs from step to step. Tokens beyond n_tok (or n_want) are not computed, and nothing is written
 * for them: grids are as large as the tape's class wants. */
enum {
    HTH_STEP_N_TOK = 0,    /* rows of the step */
    HTH_STEP_N_WANT = 1,   /* of them, those whose logits are wanted */
    HTH_STEP_ROWS = 16,    /* four words for each of n_max rows: */
    HTH_STEP_POSITION = 0, /* of the token in its sequence */
    HTH_STEP_SLOT = 1,     /* where position 0 of the sequence lies in the caches, a multiple of 16 */
    HTH_STEP_WANT = 2,     /* word i of row i: which row is the i-th that wants logits */
    HTH_STEP_ROW_WORDS = 4,
};

/* ---- programs: bindings in order, constants by number, push constants as a struct ------------------- */

/* y[t][n] = norm(x[t][n]), and q, d, sum: y (or x, without a norm) rounded by rule R1. q: n bytes for a
 * token; d: one float for a block; sum: an int32 for each 32 (blocks of 32) or 16 (of 256). With GATHER
 * row i of x is that of the i-th token that wants logits, and their number counts. bias counts for layer
 * norms alone. LOCAL of this and of the other programs of vectors: 8 or more.
 * Bindings: step, x, weight[n], bias[n], y, q, d, sum. Grid: {1, tokens} with a norm, {ceil(n /
 * HTH_QUANT_WG_ELEMENTS), tokens} without. */
enum {
    HTH_NORM_ROUND_KIND = 0,
    HTH_NORM_ROUND_BLOCK,
    HTH_NORM_ROUND_STORE,
    HTH_NORM_ROUND_GATHER,
    HTH_NORM_ROUND_LOCAL
};
enum { HTH_KIND_NONE = 0, HTH_KIND_RMS, HTH_KIND_LAYER }; /* KIND */
enum { HTH_QUANT_WG_ELEMENTS = 2048 }; /* BLOCK: 0 (no rounding), 32 or 256. STORE: y is written */
typedef struct hth_push_norm_quantize {
    uint32_t n, has_bias; /* a multiple of the block */
    float eps, inv_n;
} hth_push_norm_quantize;

/* Where planes begin (weight_layout.h), in words from the first one's beginning; those that a form has not: 0. */
typedef struct hth_soa_offsets {
    uint32_t high, scale;
    uint32_t sub_scale, sub_min; /* scales, and minima, of sub-blocks */
    uint32_t minimum;     /* m, or dmin */
} hth_soa_offsets;

/* y[t][y_first + i] = row i . x_t (+ bias[i]) for quantised rows in planes (weight_layout.h), rules R2 to R5;
 * _onto: y is added to, y = y + (row i . x_t + bias[i]). q, d and sum as norm_quantize leaves them (sum is
 * read where the form has an offset or minima).
 * Bindings: step, planes, q, d, sum, bias[n_tok], y; planes and q at multiples of 16 bytes. Constants of
 * the form: weight_layout.h. Eight invocations compute ROWS rows for COLS tokens. Grid: {ceil(n_tok / (LOCAL / 8
 * * ROWS)), ceil(tokens / COLS)}. */
enum {
    HTH_ROWS_LOCAL = 0, /* a multiple of 8, 256 at most */
    HTH_ROWS_COLS,      /* 1 to 8 */
    HTH_ROWS_ROWS,      /* 1 to 4 */
    HTH_ROWS_WANT,      /* 1: as many tokens as want logits (n_want), gathered before as tokens 0, 1, ... */
    HTH_ROWS_FORM,      /* the first of the form's */
    HTH_ROWS_N_CONST = HTH_ROWS_FORM + 8,
};
/* The same by matrix units, for steps of many tokens (tiles.c; mul_mat_q, and mul_mat_q_cm2 with functions of
 * elements): one more constant for each side of the shape. ROWS and COLS may be more; a workgroup's rows and
 * tokens are multiples of M and N. */
enum { HTH_TILE_M = HTH_ROWS_N_CONST, HTH_TILE_N, HTH_TILE_K, HTH_TILE_N_CONST };
typedef struct hth_push_mul_mat_vec_q {
    uint32_t n_row, n_block, y_stride, y_first, has_bias;
    hth_soa_offsets at;
} hth_push_mul_mat_vec_q;

/* The same for rows of floats (weight_layout.h), which begin at a multiple of 16 bytes. Sums as in rule R9 but for
 * fma: product and sum are rounded each.
 * Bindings: step, rows, x, bias[n_tok], y. Grid and the first four constants as above. */
enum {
    HTH_FLOATS_LOCAL = 0,
    HTH_FLOATS_COLS,
    HTH_FLOATS_ROWS,
    HTH_FLOATS_WANT,
    HTH_FLOATS_TYPE
}; /* TYPE: hth_type */
typedef struct hth_push_mul_mat_vec_f {
    uint32_t n_row, n_col, y_stride, y_first, has_bias;
    uint32_t row_words; /* from row to row: hth_soa_row_words */
} hth_push_mul_mat_vec_f;

/* live: bit i % 32 of word i / 32 says whether neuron i of n may fire for any token of the step; bits behind
 * the last are 0. By PREDICTOR it may not where its score is below `least`; with HALF, also where f(gate) (of
 * ungated ones, f(up)) is 0 by rule (activations that give zeros), or by THRESHOLD where its size is below
 * its floor.
 * half[t][stride]: that half. Neurons whose score rules them out may have any.
 * Bindings: step, half, scores[t][score_stride], floors[n], live. Grid: {ceil(n / LOCAL)}. LOCAL is a
 * multiple of 32. */
enum { HTH_MARK_KIND = 0, HTH_MARK_SELECT, HTH_MARK_HALF, HTH_MARK_LOCAL }; /* as act_quantize's */
typedef struct hth_push_active_mask {
    uint32_t n, stride, score_stride;
    float min_score;
} hth_push_active_mask;

/* As mul_mat_vec_q and mul_mat_vec_f, of rows that are live alone: row row_first + i of the planes is number i of n_tok (in
 * y and the grid) and computed if bit live_first + i of live is set. Others are neither read nor written.
 * Bindings: as above, and live. */
typedef struct hth_push_sparse {
    uint32_t row_first, live_first;
} hth_push_sparse;
typedef struct hth_push_mul_mat_vec_q_sparse {
    hth_push_mul_mat_vec_q rows;
    hth_push_sparse live;
} hth_push_mul_mat_vec_q_sparse;
typedef struct hth_push_mul_mat_vec_f_sparse {
    hth_push_mul_mat_vec_f rows;
    hth_push_sparse live;
} hth_push_mul_mat_vec_f_sparse;

/* Norms (where NORMED) and rotates the queries and keys of qkv[t][(n_head + 2 n_head_kv) * D_HEAD] in place;
 * keys and values go into the caches, as KV says and cache.h lays them out; for Q8_0 caches queries are
 * rounded by R1.
 * Bindings: step, qkv, table, norms[2][D_HEAD] (of queries, of keys), keys, values, rounded. table: token
 * t's n_pair cosines begin at table_at + t * n_pair, its sines sine_offset behind them; table_at chooses among
 * tables. rounded: of head h of token t D_HEAD bytes, number t * n_head + h of such; from word d_at on their
 * scales, D_HEAD / 32 for each. Grid: {n_head + 2 n_head_kv, tokens}. Any LOCAL; D_HEAD as cache.h says. */
enum {
    HTH_ROPE_D_HEAD = 0,
    HTH_ROPE_KIND,
    HTH_ROPE_NORMED,
    HTH_ROPE_KV,
    HTH_ROPE_LOCAL
}; /* KIND: hth_rope_kind; KV: hearth_kv_type */
typedef struct hth_push_rope_store {
    uint32_t n_head, n_head_kv, n_pair, table_at, sine_at, d_at;
    uint32_t head_words; /* of a cache, from KV head to KV head */
    float eps, inv_n;
    uint32_t spare;
} hth_push_rope_store;

/* Attention of docs/arithmetic.md 5. BY_SPLIT 1: a workgroup does one split of one KV head for one token,
 * all its query heads, and leaves values[t][split][n_head][D_HEAD] and parts[t][split][n_head] {max, sum},
 * with room for n_split splits; grid {splits, n_head_kv, tokens}, the split counted from the first that the
 * token sees. BY_SPLIT 0: all splits, merged and divided: values[t][n_head][D_HEAD]; grid {1, n_head_kv,
 * tokens}; parts are not written. Positions beyond 32,768 are for BY_SPLIT 1: drivers that end long loops
 * would end those of a token. Tokens are those from first_tok on.
 * Bindings: step, qkv (queries first; F16 and F32), rounded (Q8_0, as rope_store leaves them), keys, values,
 * out, parts. Any LOCAL; D_HEAD / 2 keeps all busy, for each has two dims of the output, and 64 at least is
 * long enough for such loops. */
enum {
    HTH_ATTN_D_HEAD = 0,
    HTH_ATTN_SHARED,
    HTH_ATTN_KV,
    HTH_ATTN_BY_SPLIT,
    HTH_ATTN_LOCAL
}; /* SHARED: n_head / n_head_kv */
typedef struct hth_push_attn {
    uint32_t n_head, n_head_kv, window, n_split; /* n_split: splits that out has room for */
    uint32_t qkv_stride, d_at, head_words;
    float scale, cap, inverse_cap; /* cap 0: none */
    uint32_t first_tok;
} hth_push_attn;

/* y[t][n_head][D_HEAD] = the splits of attend, merged ascending and divided; window and n_split as there.
 * Bindings: step, values, parts, y. Grid: {n_head, tokens}. Any LOCAL. */
enum { HTH_JOIN_D_HEAD = 0, HTH_JOIN_LOCAL };
typedef struct hth_push_attn_reduce {
    uint32_t n_head, window, n_split, spare;
} hth_push_attn_reduce;

/* h[t][d_ff] = f(gate) up, or f(up); gate_up[t]: gate then up, or up alone. Rounded as by norm_quantize. What
 * the selector leaves out is 0: by PREDICTOR whose score is below `least`, by THRESHOLD whose |f(gate)|
 * (or |f(up)|) is below its floor.
 * Bindings: step, gate_up, scores[t][score_stride], floors[d_ff], h, q, d, sum.
 * Grid: {ceil(d_ff / HTH_QUANT_WG_ELEMENTS), tokens}. */
enum {
    HTH_ACTIVATE_KIND = 0, /* hth_activation */
    HTH_ACTIVATE_GATED,
    HTH_ACTIVATE_BLOCK,
    HTH_ACTIVATE_STORE,
    HTH_ACTIVATE_LOCAL,
    HTH_ACTIVATE_SELECT,
};
enum { HTH_SELECT_ALL = 0, HTH_SELECT_PREDICTOR, HTH_SELECT_THRESHOLD };
typedef struct hth_push_act_quantize {
    uint32_t d_ff, score_stride;
    float min_score;
} hth_push_act_quantize;

/* x[t] = x[t] + norm(y[t]), or + y[t]. Bindings: step, x, y, weight, bias. Grid: {1, tokens}. */
enum { HTH_NORM_ADD_KIND = 0, HTH_NORM_ADD_LOCAL };

/* x = cap tanh(x / cap) of n values for each token that wants logits. Bindings: step, x. Grid: {ceil(n /
 * 2048), tokens}. */
typedef struct hth_push_soft_cap {
    uint32_t n;
    float cap, inverse;
} hth_push_soft_cap;

/* ---- down of neuron-major matrices (docs/arithmetic.md 6) ------------------------------------------- */

/* top[t] = {bits of 2^k, bits of the largest |h|} of n neurons: k of H (`usual`), or of the largest |h|
 * where that is larger (hth_axpy_scale; 0: there is none). Bindings: step, h[t][stride], top. Grid: {1,
 * tokens}. */
enum { HTH_DOWN_TOP_LOCAL = 0 };
typedef struct hth_push_down_absmax {
    uint32_t n, stride;
    float calib_max, scale_max; /* H and D */
} hth_push_down_absmax;

/* sums[t][split][n_out]: the integers of HTH_DOWN_SPLIT neurons each, minima taken off. Neurons whose h is
 * 0 are not read. Tokens are those from first_tok on; sums begin with them.
 * Bindings: step, planes (a row for each neuron, as for mul_mat_vec_q), h[t][stride], top, sums. An invocation
 * does a piece of outputs for COLS tokens. Grid: {ceil(pieces of a row / LOCAL), n_split, ceil(tokens /
 * COLS)}. */
enum { HTH_DOWN_SPLIT = 128 };
enum { HTH_DOWN_LOCAL = 0, HTH_DOWN_COLS, HTH_DOWN_FORM, HTH_DOWN_N_CONST = HTH_DOWN_FORM + 8 };
typedef struct hth_push_down {
    uint32_t n_neuron, n_block, stride, n_split;
    uint32_t first;     /* number of the planes' first neuron, a multiple of a split */
    uint32_t first_tok; /* of the first token */
    hth_soa_offsets at;
} hth_push_down;

/* The same for rows of floats: chains[t][group][n_out] of HTH_DOWN_GROUP neurons each, product and sum
 * rounded each.
 * Bindings: step, rows (weight_layout.h), h[t][stride], chains. Grid: {ceil(words of a row / LOCAL),
 * n_group, tokens}. */
enum { HTH_DOWN_GROUP = 256 };
enum { HTH_DOWN_F_LOCAL = 0, HTH_DOWN_F_TYPE };
typedef struct hth_push_down_f {
    uint32_t n_neuron, n_out, stride, n_group;
    uint32_t first, first_tok;
} hth_push_down_f;

/* y[t][n_out] = the sums of all splits (FLOATS: of all groups, each as Q31.32), and with HOST the host's
 * 64-bit sums [t][n_out] of the same kind (from word HTH_HOST_SUMS on; word 0 says whether there are some,
 * or whether they mean nothing), times 2^-k (or 2^-32), + bias; _onto: y is added to. NaN where there is
 * no 2^k, or a part of floats is out of bounds. Bindings: step, sums, top, host, bias, y. Grid:
 * {ceil(n_out / LOCAL), tokens}. */
enum { HTH_HOST_SUMS = 4, HTH_HOST_SUMS_NONE = 0, HTH_HOST_SUMS_VALID, HTH_HOST_SUMS_OVERFLOW };
enum { HTH_JOIN_SUMS_LOCAL = 0, HTH_JOIN_SUMS_FLOATS, HTH_JOIN_SUMS_HOST };
typedef struct hth_push_down_reduce {
    uint32_t n_out, n_split, has_bias, first_tok;
} hth_push_down_reduce;

/* wide[t][n_out] += the integers of all splits, in 64 bits, where down_reduce reads the host's (wide:
 * HTH_HOST_SUMS words and the sums), and with HOST those of the host too, if there are some; with `start` they
 * take the place of what was there, and word 0 says that there are some, or with HOST that they mean nothing
 * where the host's do. Bindings: step, sums, wide, host. Grid: {ceil(n_out / LOCAL), tokens}. */
enum { HTH_GATHER_LOCAL = 0, HTH_GATHER_HOST };
typedef struct hth_push_down_accumulate {
    uint32_t n_out, n_split, first_tok, start;
} hth_push_down_accumulate;

/* Of every program, by number. */
extern hth_shader_ref_fn *const hth_shader_ref_table[HTH_N_SHADER];

#endif
