/* What the shaders of a layer compute, and their interface: specialisation constants, push constants, and the step
 * block that all read. The C functions (hth_shader_ref_table) define the results and run on the reference device;
 * device/vulkan/shaders holds the same in GLSL. Quantised shaders are bit-exact to docs/arithmetic.md. */
#ifndef HTH_FORWARD_GPU_SHADER_PARAMS_H
#define HTH_FORWARD_GPU_SHADER_PARAMS_H

#include "device/shaders.h"
#include "kernels/attn/kv_layout.h"

/* ---- the step block: binding 0 of every shader, words -------------------------------------------- */

/* What differs from step to step. Tokens beyond n_tok (or n_want) are not computed and not written: grids are
 * sized for the command list's class. */
enum {
    HTH_STEP_N_TOK = 0,    /* tokens of the step */
    HTH_STEP_N_WANT = 1,   /* those of them whose logits are wanted */
    HTH_STEP_N_RUN = 2,    /* runs of tokens of one sequence, where there are states */
    HTH_STEP_COPY = 4,     /* two words per hth_kv_class, then kind of states: pages to copy from and to, equal: none */
    HTH_STEP_COPY_STATES = 2, /* behind those of keys and values: of each hth_state_kind */
    HTH_STEP_N_COPY = 4,
    HTH_STEP_ROWS = 16,    /* four words per token: */
    HTH_STEP_POSITION = 0, /* of the token in its sequence */
    HTH_STEP_WANT = 1,     /* word i of token i: the index of the i-th token that wants logits */
    HTH_STEP_TABLE = 2,    /* two words, one per hth_kv_class: where the page table of its sequence is */
    HTH_STEP_ROW_WORDS = 4,
};

/* Page tables follow the tokens, one per sequence and class: word table + i (modulo 2^32) of the step block is the page
 * that holds positions [HTH_KV_PAGE i, HTH_KV_PAGE (i + 1)). Pages that no token sees may be absent. */
static inline uint32_t hth_step_page(const uint32_t *step, uint32_t t, uint32_t kv_class, uint32_t position)
{
    const uint32_t *row = step + HTH_STEP_ROWS + (size_t)t * HTH_STEP_ROW_WORDS;
    return step[(uint32_t)(row[HTH_STEP_TABLE + kv_class] + position / HTH_KV_PAGE)];
}

/* Runs follow the tokens, where there are states of sequences on the device: the tokens of a run are adjacent. Pages are
 * copies of states, by number. A step reads those of FROM, and writes those of TO, which may be the same; the tokens of
 * the chunk of the first one are in the page CHUNK_FROM, those of later ones in CHUNK_TO. */
enum {
    HTH_RUN_FIRST,
    HTH_RUN_N_TOK,
    HTH_RUN_POSITION, /* of the first token; 0: there is no state before it */
    HTH_RUN_STEP_FROM,
    HTH_RUN_STEP_TO,
    HTH_RUN_CHUNK_FROM,
    HTH_RUN_CHUNK_TO,
    HTH_RUN_WORDS = 8,
};

/* Slots of experts are behind the page tables, where a layer's experts are divided between devices and host: the slot of
 * expert i is word slots_at + i, or none. There is one expert more than the layer has, which has none. */
#define HTH_STEP_NO_SLOT UINT32_MAX
static inline bool hth_step_has_slot(const uint32_t *step, uint32_t slots_at, uint32_t expert)
{
    return slots_at == 0 || step[slots_at + expert] != HTH_STEP_NO_SLOT;
}

/* ---- shaders: bindings in order, constants by number, push constants as a struct -------------------- */

/* Where an operation reads or writes rows of a value: row t is stride t + at. */
typedef struct hth_rows_at {
    uint32_t stride, at;
} hth_rows_at;

/* Workgroups of the vector shaders (norm_quantize, act_quantize, norm_add, soft_cap) for a row of n elements: each of
 * LOCAL invocations, a multiple of 64 up to HTH_VECTOR_MAX_LOCAL, has four. WIDE: n is a multiple of 4, and they are
 * loaded at once. */
enum { HTH_VECTOR_MAX_LOCAL = 512 };
static inline uint32_t hth_vector_groups(uint32_t n, uint32_t local)
{
    return (uint32_t)(((uint64_t)n + 4 * local - 1) / (4 * local));
}

/* y[t][n] = norm(x[t][n]); q, d, sum: y (or x, without a norm) quantised to 8 bits by rule R1. q: n bytes per
 * token; d: one float per block; sum: one int32 per 32 (blocks of 32) or 16 (blocks of 256). With GATHER row i of
 * x is that of the i-th token that wants logits, for n_want tokens. bias: KIND LAYER and RMS_BIAS. Every workgroup
 * of a row finds its norm, and reads the row once if it has at most CHUNK elements: a multiple of HTH_NORM_LOADS
 * LOCAL, 0 without a norm.
 * Bindings: step, x, weight[n], bias[n], y, q, d, sum. Grid: {hth_vector_groups(n, LOCAL), tokens}. */
enum {
    HTH_NORM_QUANTIZE_KIND = 0,
    HTH_NORM_QUANTIZE_BLOCK,
    HTH_NORM_QUANTIZE_STORE,
    HTH_NORM_QUANTIZE_GATHER,
    HTH_NORM_QUANTIZE_LOCAL,
    HTH_NORM_QUANTIZE_CHUNK,
    HTH_NORM_QUANTIZE_WIDE
};
/* KIND. BLOCK: 0 (not quantised), 32 or 256. STORE: y is written */
enum { HTH_KIND_NONE = 0, HTH_KIND_RMS, HTH_KIND_LAYER, HTH_KIND_RMS_BIAS, HTH_N_KIND };
/* Elements that an invocation loads before it needs the first. CHUNK of rows that do not fit in the shared memory of a
 * workgroup. */
enum { HTH_NORM_LOADS = 16, HTH_NORM_SMALL_CHUNK = 2048 };
/* Bytes of shared memory that a norm takes: values of the row, sums, weights and biases, and what norm_quantize has for
 * its blocks. */
static inline uint64_t hth_norm_shared_bytes(uint32_t kind, uint32_t local, uint32_t chunk)
{
    uint64_t n_kept = (uint64_t)local * (kind >= HTH_KIND_LAYER ? 8 : 4) + 4;
    return 4 * (chunk + 8 * 4 + 8 + n_kept + 2 * (uint64_t)local + local / 8);
}
typedef struct hth_push_norm_quantize {
    uint32_t n, has_bias; /* n: a multiple of the block */
    float eps, inv_n;
} hth_push_norm_quantize;

/* Offsets of the arrays of a structure-of-arrays layout (weight_layout.h), in words from the start of the first;
 * 0: absent from the descriptor. */
typedef struct hth_soa_offsets {
    uint32_t high, scale;
    uint32_t sub_scale, sub_min; /* scales and minima of sub-blocks */
    uint32_t minimum;     /* m, or dmin */
} hth_soa_offsets;

/* y[t][y_first + i] = row i . x_t (+ bias[i]) for quantised rows in the structure-of-arrays layout
 * (weight_layout.h), rules R2 to R5; _acc: y = y + (row i . x_t + bias[i]). q, d and sum as norm_quantize writes
 * them (sum is read where the descriptor has an offset or minima).
 * Bindings: step, weights, q, d, sum, bias[n_row], y; weights and q at multiples of 16 bytes. Descriptor
 * constants: weight_layout.h. LANES invocations compute ROWS rows for COLS tokens: 8; for one row of one token also
 * 16 or 32, for pieces of a type's blocks of 256 no more than 8 times as many. Grid: {ceil(tokens / COLS), ceil(n_row /
 * hth_rows_per_workgroup)}: workgroups that follow one another have the same rows. */
enum {
    HTH_ROWS_LOCAL = 0, /* a multiple of LANES, 256 at most */
    HTH_ROWS_COLS,      /* 1 to 8 */
    HTH_ROWS_ROWS,      /* 1 to 4 */
    HTH_ROWS_WANT,      /* 1: n_want tokens, gathered before as tokens 0, 1, ... */
    HTH_ROWS_GROUP = HTH_ROWS_WANT, /* of slices: pairs of a group */
    HTH_ROWS_LANES,
    HTH_ROWS_FORMAT,      /* first constant of the quantisation descriptor */
    HTH_ROWS_N_CONST = HTH_ROWS_FORMAT + 8,
};
static inline uint32_t hth_rows_per_workgroup(const uint32_t *consts)
{
    return consts[HTH_ROWS_LOCAL] / consts[HTH_ROWS_LANES] * consts[HTH_ROWS_ROWS];
}
/* The same with matrix units, for steps of many tokens (coopmat_shapes.c; mul_mat_q, and mul_mat_q_cm2 with
 * per-element operations, and their forms _acc and _sliced): one more constant per side of the shape. ROWS, COLS and LOCAL may be larger; LANES is 8; a
 * workgroup's rows and tokens are multiples of M and N. mul_mat_q_cm2 has one more: SPLIT, its subgroups / 8; the
 * tokens are a multiple of N * SPLIT. */
enum { HTH_TILE_M = HTH_ROWS_N_CONST, HTH_TILE_N, HTH_TILE_K, HTH_TILE_SPLIT, HTH_TILE_N_CONST };
typedef struct hth_push_mul_mat_vec_q {
    uint32_t n_row, n_block, y_stride, y_first, has_bias;
    hth_soa_offsets at;
} hth_push_mul_mat_vec_q;

/* The same for float rows (weight_layout.h), which begin at a multiple of 16 bytes. Sums as in rule R9 but without
 * fma: product and sum are each rounded.
 * Bindings: step, rows, x, bias[n_row], y. Grid and the first five constants as above; LANES is 8. */
enum {
    HTH_FLOATS_LOCAL = 0,
    HTH_FLOATS_COLS,
    HTH_FLOATS_ROWS,
    HTH_FLOATS_WANT,
    HTH_FLOATS_LANES,
    HTH_FLOATS_TYPE
}; /* TYPE: hth_type */
typedef struct hth_push_mul_mat_vec_f {
    uint32_t n_row, n_col, y_stride, y_first, has_bias;
    uint32_t row_words; /* stride of rows, in words: hth_soa_row_words */
} hth_push_mul_mat_vec_f;

/* mask: bit i % 32 of word i / 32 says whether neuron i of n may be active for any token of the step; bits after
 * the last are 0. PREDICTOR rules out scores below min_score; HALF also rules out neurons whose f(gate) (ungated:
 * f(up)) is 0 by definition (activations that give zeros), or with THRESHOLD those whose magnitude is below their
 * threshold.
 * half[t][stride]: that half. Neurons that their score rules out may have any value.
 * Bindings: step, half, scores[t][score_stride], thresholds[n], mask. Grid: {ceil(n / LOCAL)}. LOCAL is a multiple
 * of 32. */
enum { HTH_ACTIVE_MASK_KIND = 0, HTH_ACTIVE_MASK_SELECT, HTH_ACTIVE_MASK_HALF, HTH_ACTIVE_MASK_LOCAL }; /* as in act_quantize */
typedef struct hth_push_active_mask {
    uint32_t n, stride, score_stride;
    float min_score;
} hth_push_active_mask;

/* As mul_mat_vec_q and mul_mat_vec_f, for active rows only: row row_first + i of the weights is number i of n_row
 * (in y and the grid) and is computed if bit mask_first + i of mask is set. Others are neither read nor written.
 * Bindings: as above, then mask. */
typedef struct hth_push_sparse {
    uint32_t row_first, mask_first;
} hth_push_sparse;
typedef struct hth_push_mul_mat_vec_q_sparse {
    hth_push_mul_mat_vec_q rows;
    hth_push_sparse sparse;
} hth_push_mul_mat_vec_q_sparse;
typedef struct hth_push_mul_mat_vec_f_sparse {
    hth_push_mul_mat_vec_f rows;
    hth_push_sparse sparse;
} hth_push_mul_mat_vec_f_sparse;

/* These multiply as mul_mat_vec_q and mul_mat_vec_f do, by slices of slice_rows rows of the weights, of which n_used were
 * chosen for each token: row i of a pair is row row_first + i of slice (slot - slot_first) * slice_step + slice_first. The
 * slot of an expert is its number, or slots_at > 0: in the step block. Without a slot y is 0. If its slot is not of the
 * n_slot from slot_first on, y is not written.
 * pairs[t][2][n_used]: experts, then weights (floats). x: [t], x_by_pair: [t][n_used] rows. y[t][y_first + y_pair * number
 * of the pair + i] = that row . x (+ bias[expert * slice_rows + row_first + i]), weighs: times the weight.
 * Bindings: as above, then pairs where GROUP is 1 (and COLS and ROWS), else groups of GROUP of them (group_pairs), a
 * multiple of COLS. Grid: {tokens * n_used, or groups at most times GROUP / COLS, ceil(n_row / hth_rows_per_workgroup)}. */
typedef struct hth_push_sliced {
    uint32_t row_first, slice_rows, slice_step, slice_first, n_used, x_by_pair, y_pair, weighs, n_slot, slot_first, slots_at;
} hth_push_sliced;
typedef struct hth_push_mul_mat_vec_q_sliced {
    hth_push_mul_mat_vec_q rows;
    hth_push_sliced sliced;
} hth_push_mul_mat_vec_q_sliced;
typedef struct hth_push_mul_mat_vec_f_sliced {
    hth_push_mul_mat_vec_f rows;
    hth_push_sliced sliced;
} hth_push_mul_mat_vec_f_sliced;

/* y[t][i] = row i . x_t (+ bias[i]) by rule R10, of floats weight[n_row][n_col], which begin at a multiple of 16 bytes.
 * WIDE: n_col is a multiple of 4. LOCAL is 64 TOKENS, of which there may be 1, 2, 4 or 8. Bindings: step, weight, x, bias, y.
 * Grid: {ceil(n_row / HTH_ROUTER_ROWS), ceil(tokens / TOKENS)}. */
enum { HTH_ROUTER_ROWS_TOKENS = 0, HTH_ROUTER_ROWS_WIDE, HTH_ROUTER_ROWS_LOCAL };
enum { HTH_ROUTER_ROWS = 8 };
typedef struct hth_push_router_rows {
    uint32_t n_row, n_col, has_bias;
    hth_rows_at x, y;
} hth_push_router_rows;

/* The n_used experts of a token and their weights, pairs[t][2][n_used], from the logits of N experts (forward/router.h),
 * times expert_scale[expert]. SCORE: hth_router_score, or HTH_ROUTE_CONSTANT: the first experts with the weight `scale`,
 * and no logits. given_at > 0: the experts are words given_at + t n_used and on of the step block instead, with the weights
 * of those that would have been chosen. PLACES, for one token: the k-th chosen expert without a slot gets the spare slot
 * of word spares_at + k, in the step block too, and is to be read (HTH_READS_*). LOCAL is a power of two. Bindings: step,
 * logits, select_bias[N], expert_scale[N], pairs, reads. Grid: {tokens}. */
enum { HTH_ROUTE_SCORE = 0, HTH_ROUTE_N, HTH_ROUTE_LOCAL, HTH_ROUTE_PLACES };
enum { HTH_ROUTE_CONSTANT = 0, HTH_ROUTE_MAX = 1024, HTH_ROUTE_MAX_USED = 256, HTH_ROUTE_MAX_GROUP = 64 };
typedef struct hth_push_route {
    uint32_t n_used, n_group, n_group_used, has_select_bias, has_expert_scale, normalises;
    float scale;
    hth_rows_at x, y; /* logits, pairs */
    uint32_t given_at, slots_at, spares_at, reads_at;
} hth_push_route;

/* Experts that come from the host, of one layer, from word reads_at on: grids of pack_rows for gate, up and down, whose third
 * word is the number of reads; that number; of each read the slot and the expert. After `route` with PLACES the n_used
 * experts of the token follow. */
enum { HTH_READS_GRID_WORDS = 4, HTH_READS_JOBS = 12, HTH_READS_HEAD = 16 };
static inline uint32_t hth_reads_words(uint32_t n_used) { return HTH_READS_HEAD + 3 * n_used; }

/* The pairs of all tokens by expert, in groups of PAIRS at most, so that rows of an expert are read once for so many.
 * Experts without a slot are one, of number N - 1.
 * Word 0: groups; from word HTH_GROUPS_HEAD on of each group: its expert, the number of its pairs, their indices t n_used +
 * number in ascending order, and their weights. Of a group that is not full the others are not written. Bindings: step,
 * pairs, groups. Grid: {ceil(N / LOCAL)}. */
enum { HTH_GROUP_PAIRS_N = 0, HTH_GROUP_PAIRS_PAIRS, HTH_GROUP_PAIRS_LOCAL };
enum { HTH_GROUPS_HEAD = 4 };
static inline uint32_t hth_group_words(uint32_t n_pair) { return 2 + 2 * n_pair; }
/* Groups of n_pair pairs of n_expert experts, at most. */
static inline uint32_t hth_max_groups(uint32_t n_expert, uint32_t n_pair, uint32_t of)
{
    uint32_t n = n_expert + n_pair / of;
    return n < n_pair ? n : n_pair;
}
typedef struct hth_push_group_pairs {
    uint32_t n_used, slots_at;
} hth_push_group_pairs;

/* Slices of a matrix from the host's bytes to the device's layout (weight_layout.h). Job z writes the slice `slot` of
 * slice_rows rows. No two jobs write the same one, and all other slices stay. Halves and bytes that fill up the last word
 * of a row become 0. The job's source is slice `index`, which begins at byte base + index * pitch (any byte below 2^32).
 *   FORM    how its rows lie there. FILE: one after another. PANELS: slice_rows is a multiple of 16. PLANES: as
 *           hth_soa_layout_pack writes slice_rows rows alone, for types without a table (pack_table.h)
 *   SIZE    bytes of a block of the type
 *   BLOCKS  of a tile: hth_pack_rows_blocks(SIZE), or fewer; 4, or a multiple of 8
 * PLANES of floats have a descriptor of zeros, and n_block is the number of a row's words.
 * Jobs, from word jobs_at on: their number, three words, then slot and index of each. at: offsets of the matrix of all slots.
 * Bindings: jobs, source, table (PLANES: not read), that matrix. The source begins at a multiple of 16 bytes and has whole
 * ones. Grid: {hth_pack_rows_grid, any}: workgroups behind the last job do nothing. */
enum {
    HTH_PACK_ROWS_LOCAL = 0,
    HTH_PACK_ROWS_FORM,
    HTH_PACK_ROWS_SIZE,
    HTH_PACK_ROWS_BLOCKS,
    HTH_PACK_ROWS_FORMAT, /* first constant of the quantisation descriptor */
    HTH_PACK_ROWS_N_CONST = HTH_PACK_ROWS_FORMAT + 8,
};
enum { HTH_PACK_ROWS_FILE = 0, HTH_PACK_ROWS_PANELS, HTH_PACK_ROWS_PLANES }; /* the first two: hth_layout */
enum { HTH_PACK_ROWS_HEAD = 4, HTH_PACK_ROWS_TILE = 16, HTH_PACK_ARRAYS = 6 };
typedef struct hth_push_pack_rows {
    uint32_t jobs_at, base, pitch, slice_rows, n_block;
    hth_soa_offsets at;
} hth_push_pack_rows;

/* Blocks of a tile of 16 rows, which fits into 16 KiB. */
static inline uint32_t hth_pack_rows_blocks(uint32_t size)
{
    uint32_t n = size > 30 ? 960 / size : 32;
    return n < 8 ? 4 : n / 8 * 8;
}
/* Words of a row in each array of the layout, in their order. Members of the descriptor: hth_quant_desc. */
static inline void hth_pack_rows_words(const uint32_t *consts, uint32_t n_block, uint32_t words[HTH_PACK_ARRAYS])
{
    const uint32_t *desc = consts + HTH_PACK_ROWS_FORMAT, block = desc[0], part = desc[5], n_half = (n_block + 1) / 2;
    words[0] = block > 0 ? n_block * (block * desc[1] / 32) : n_block;
    words[1] = n_block * (block * desc[2] / 32);
    words[2] = block == 0 ? 0 : desc[7] == 1 ? (n_block + 3) / 4 : n_half;
    words[3] = part > 0 ? n_block * (block / part / 4) : 0;
    words[4] = desc[6] ? words[3] : 0;
    words[5] = desc[6] ? n_half : 0;
}
/* Bytes of a slice that are read. */
static inline uint64_t hth_pack_rows_bytes(const uint32_t *consts, uint32_t slice_rows, uint32_t n_block)
{
    uint32_t words[HTH_PACK_ARRAYS];
    uint64_t n = 0;
    if (consts[HTH_PACK_ROWS_FORM] != HTH_PACK_ROWS_PLANES)
        return (uint64_t)slice_rows * n_block * consts[HTH_PACK_ROWS_SIZE];
    hth_pack_rows_words(consts, n_block, words);
    for (uint32_t i = 0; i < HTH_PACK_ARRAYS; i++) n += words[i];
    return 4 * (uint64_t)slice_rows * n;
}
/* Workgroups of a job, at most 65,535 in each direction for matrices of less than 2^20 rows. What a workgroup reads, for
 * hth_cmdlist_hint_bytes, is hth_pack_rows_bytes divided by their number. */
static inline void hth_pack_rows_grid(const uint32_t *consts, uint32_t slice_rows, uint32_t n_block, uint32_t grid[2])
{
    const uint32_t local = consts[HTH_PACK_ROWS_LOCAL], blocks = consts[HTH_PACK_ROWS_BLOCKS];
    grid[0] = (n_block + blocks - 1) / blocks;
    grid[1] = (slice_rows + HTH_PACK_ROWS_TILE - 1) / HTH_PACK_ROWS_TILE;
    if (consts[HTH_PACK_ROWS_FORM] != HTH_PACK_ROWS_PLANES) return;
    uint64_t n = hth_pack_rows_bytes(consts, slice_rows, n_block) / (32 * local) + 1; /* 8 words of an invocation */
    grid[0] = n < 65535 ? (uint32_t)n : 65535, grid[1] = 1;
}

/* Prepares the heads of a token, in the order of forward/attention.c. Queries of qkv[t][qkv_stride], n_head D_HEAD of
 * them first, in place; keys, which follow them, on their way into the cache; values, n_head_kv d_value of them from
 * word value_from of values_in[t][value_stride] on, which may be qkv. Either may have no heads. Queries and keys are
 * limited, normalised (NORM), and rotated, with NORMS_AFTER the other way round; BY_POSITION then multiplies queries by
 * table[factor_at + t]. Values are multiplied by value_scale, limited, with NORMS_VALUES normalised without weights, and
 * followed by zeros up to D_HEAD.
 * Keys and values are stored in the caches, in the type KV and the layout of cache.h; for Q8_0 caches queries are
 * quantised by R1.
 * Bindings: step, qkv, table, norms, keys, values, rounded, values_in. norms: [2][D_HEAD] (of queries, of keys), or
 * where heads have their OWN [n_head + n_head_kv][D_HEAD]; OWN_LAYER: those of a layer norm. table: token t's n_pair
 * cosines begin at table_at + t * n_pair, its sines sine_at after them; table_at selects a table. rounded: D_HEAD bytes
 * for head h of token t at index t * n_head + h; their scales from word d_at on, D_HEAD / 32 for each. Grid:
 * {n_head + 2 n_head_kv, tokens}. Any LOCAL; D_HEAD as in cache.h. */
enum {
    HTH_ROPE_D_HEAD = 0,
    HTH_ROPE_KIND,
    HTH_ROPE_NORM,
    HTH_ROPE_KV,
    HTH_ROPE_LOCAL,
    HTH_ROPE_NORMS_AFTER,
    HTH_ROPE_NORMS_VALUES,
    HTH_ROPE_BY_POSITION
}; /* KIND: hth_rope_kind; KV: hearth_kv_type */
enum { HTH_ROPE_NORM_NONE = 0, HTH_ROPE_NORM_SHARED, HTH_ROPE_NORM_OWN, HTH_ROPE_NORM_OWN_LAYER };
typedef struct hth_push_rope_store {
    uint32_t n_head, n_head_kv, n_pair, table_at, sine_at, factor_at, d_at;
    uint32_t head_words; /* words of a cache from one KV head to the next */
    float eps, inv_n;
    float limit, value_scale; /* limit 0: none */
    uint32_t kv_class;        /* hth_kv_class of the layer */
    uint32_t qkv_stride, value_stride, value_from, d_value;
    uint32_t rotated_from; /* first value of a head that is rotated */
} hth_push_rope_store;

/* Attention of docs/arithmetic.md 5. BY_SPLIT 1: a workgroup computes one split of one KV head for one token, with
 * all its query heads, and writes values[t][split][n_head][D_HEAD] and parts[t][split][n_head] {max, sum}, with
 * capacity for n_split splits; grid {splits, n_head_kv, tokens}, splits counted from the first that the token
 * sees; TOKENS is 1. BY_SPLIT 0: all splits of TOKENS neighbouring tokens, merged and divided:
 * values[t][n_head][D_HEAD]; grid {1, n_head_kv, ceil(tokens / TOKENS)}; parts are not written. Positions beyond
 * 32,768 require BY_SPLIT 1: drivers that end long loops would end those of a token. Tokens are those from first_tok
 * on.
 * SINKS 1, without BY_SPLIT: a head's sink is a score without values behind all splits. SLOPES 1: its slope times the
 * distance of a key lowers a score, before the cap. chunk > 0: a token sees the positions of its chunk, whose size is a
 * multiple of HTH_ATTN_SPLIT, and there is no window.
 * Bindings: step, qkv (queries first; F16 and F32), rounded (Q8_0, as rope_store writes it), keys, values, out,
 * parts, terms[2][n_head] (sinks, then slopes). LOCAL: 4 hth_attn_groups or more; D_HEAD / 2 * hth_attn_groups keep all
 * invocations busy, because each has two dims of the output for a group of heads. */
enum {
    HTH_ATTN_D_HEAD = 0,
    HTH_ATTN_SHARED,
    HTH_ATTN_KV,
    HTH_ATTN_BY_SPLIT,
    HTH_ATTN_LOCAL,
    HTH_ATTN_TOKENS,
    HTH_ATTN_SINKS,
    HTH_ATTN_SLOPES,
    HTH_ATTN_N_CONST
}; /* SHARED: n_head / n_head_kv */
enum { HTH_ATTN_GROUP_HEADS = 4, HTH_ATTN_MAX_GROUPS = 2 }; /* heads of a group; groups of a token at a time */
/* Groups of heads that a workgroup computes at a time, as shaders/values/attn.comp divides them. */
static inline uint32_t hth_attn_groups(uint32_t shared, uint32_t n_tok)
{
    uint32_t all = (shared + HTH_ATTN_GROUP_HEADS - 1) / HTH_ATTN_GROUP_HEADS;
    uint32_t n_chunk = (all + HTH_ATTN_MAX_GROUPS - 1) / HTH_ATTN_MAX_GROUPS;
    return (all + n_chunk - 1) / n_chunk * n_tok;
}
typedef struct hth_push_attn {
    uint32_t n_head, n_head_kv, window, n_split; /* n_split: capacity of out in splits */
    uint32_t qkv_stride, d_at, head_words;
    float scale, cap, inverse_cap; /* cap 0: none */
    uint32_t first_tok, kv_class, chunk;
} hth_push_attn;
/* The window of a token, from which the first position that it sees follows (kernels/attn/attn.h). */
static inline uint32_t hth_attn_window(uint32_t position, uint32_t window, uint32_t chunk)
{
    return chunk > 0 ? position % chunk + 1 : window;
}

/* y[t][n_head][D_HEAD] = the splits of attn, merged ascending, with sinks, and divided; window, chunk and n_split as
 * there. q, d, sum: y quantised, as norm_quantize does. D_HEAD is a multiple of 4. Bindings: step, values, parts, y, q,
 * d, sum, terms as above. Grid:
 * {hth_vector_groups(n_head D_HEAD, LOCAL), tokens}. */
enum {
    HTH_ATTN_REDUCE_D_HEAD = 0,
    HTH_ATTN_REDUCE_BLOCK, /* 0: not quantised */
    HTH_ATTN_REDUCE_STORE,
    HTH_ATTN_REDUCE_LOCAL,
    HTH_ATTN_REDUCE_SINKS,
};
typedef struct hth_push_attn_reduce {
    uint32_t n_head, window, n_split, chunk;
} hth_push_attn_reduce;

/* float_rules: part of no step, but of the self-test. Of each of n pairs a[], b[] the words y[3 i]: a b, a + b, and
 * 1 (a < b) + 2 (a is zero). Pairs are subnormal, or their results are, or ties. */
typedef struct hth_push_float_rules {
    uint32_t n;
} hth_push_float_rules;

/* Copies a page of a layer's keys and values: n_word words of the keys of each KV head, from n_word times the number of
 * the page on, and n_value_word of its values; or a page of one array, and no values. Word copy_at of the step block is the page to copy from, the next one that to copy to. Bindings: step, keys,
 * values. Grid: {any, n_head_kv}. */
typedef struct hth_push_copy_page {
    uint32_t copy_at, head_words, n_word, n_value_word;
} hth_push_copy_page;

/* h[t][d_ff] = f(gate) up, or f(up); gate_up[t]: gate then up, or up alone. Quantised as by norm_quantize. What
 * the selector leaves out is 0: PREDICTOR: scores below min_score; THRESHOLD: |f(gate)| (or |f(up)|) below its
 * threshold.
 * Bindings: step, gate_up, scores[t][score_stride], thresholds[d_ff], h, q, d, sum. Grid: {hth_vector_groups(d_ff,
 * LOCAL), tokens}. */
enum {
    HTH_ACT_QUANTIZE_KIND = 0, /* hth_activation */
    HTH_ACT_QUANTIZE_GATED,
    HTH_ACT_QUANTIZE_BLOCK,
    HTH_ACT_QUANTIZE_STORE,
    HTH_ACT_QUANTIZE_LOCAL,
    HTH_ACT_QUANTIZE_SELECT,
    HTH_ACT_QUANTIZE_WIDE,
};
enum { HTH_SELECT_ALL = 0, HTH_SELECT_PREDICTOR, HTH_SELECT_THRESHOLD };
typedef struct hth_push_act_quantize {
    uint32_t d_ff, score_stride;
    float min_score;
    float limit; /* of gate, and of up on both sides, before f; 0: none, as it is where a selector leaves out neurons */
} hth_push_act_quantize;

/* x[t] = x[t] + norm(y[t]), or + y[t]. Bindings: step, x, y, weight, bias. Grid and CHUNK as for norm_quantize. */
enum { HTH_NORM_ADD_KIND = 0, HTH_NORM_ADD_LOCAL, HTH_NORM_ADD_CHUNK, HTH_NORM_ADD_WIDE };

/* x = cap tanh(x / cap) of n values for each token that wants logits. Bindings: step, x. Grid: {hth_vector_groups(n,
 * LOCAL), tokens}. */
enum { HTH_SOFT_CAP_LOCAL = 0 };
typedef struct hth_push_soft_cap {
    uint32_t n;
    float cap, inverse;
} hth_push_soft_cap;

/* ---- values of operations ----------------------------------------------------------------------------- */

/* y = the norm of each of n_group groups of `width` values of a row, with weights for all groups or, OWN, for each.
 * Bindings: step, x, weight, bias, y, which may be x. Grid: {n_group, tokens}. LOCAL is 8 or more. */
enum { HTH_NORM_GROUPS_KIND = 0, HTH_NORM_GROUPS_LOCAL };
typedef struct hth_push_norm_groups {
    uint32_t width, own, has_bias;
    float eps, inv_n;
    hth_rows_at x, y;
} hth_push_norm_groups;

/* y = f(a) b of n values; by_head: a has one value for each so many values of b. Bindings: step, a, b, y, which may be
 * any of them. Grid: {hth_vector_groups(n, LOCAL), tokens}. FORM: hth_mul_form. */
enum { HTH_MUL_VALUES_FORM = 0, HTH_MUL_VALUES_LOCAL };
typedef struct hth_push_mul_values {
    uint32_t n, by_head;
    hth_rows_at a, b, y;
} hth_push_mul_values;

/* y[i y_step + k] = x[i x_step + k] times factor, and times by[0], if has_by, of `count` stretches of n values. Bindings:
 * step, x, by, y, which may be x. Grid: {hth_vector_groups(count n, LOCAL), tokens}. */
enum { HTH_COPY_VALUES_LOCAL = 0 };
typedef struct hth_push_copy_values {
    uint32_t count, n, has_by;
    float factor;
    hth_rows_at x, y;
    uint32_t x_step, y_step;
} hth_push_copy_values;

/* ---- recurrent mixers ----------------------------------------------------------------------------------- */

/* y[channel] = the sum over j of taps[j][channel] times the input of d_conv - 1 - j tokens before (+ bias), and its SiLU.
 * ring[page][position % HTH_CONV_RING][n_channel]: inputs of a sequence, of which those before the run and of the run
 * are written to the page STEP_TO; so those before each of the last HTH_CONV_RING - d_conv + 1 tokens are there.
 * Bindings: step, x, taps, bias, ring, y. Grid: {ceil(n_channel / LOCAL), runs}. */
enum { HTH_CONV_RING = 32, HTH_CONV_MAX_TAP = 16 };
enum { HTH_CONV_LOCAL = 0 };
typedef struct hth_push_conv {
    uint32_t n_channel, d_conv, has_bias, silu, runs_at;
    hth_rows_at x, y;
} hth_push_conv;

/* RATES of gated DeltaNet: rates[head] = sigmoid(beta), decay[head] = a softplus(decay + dt). joined: beta holds, for each
 * n_shared heads, their betas, then their decays. Bindings: step, beta, decay, a, dt, the two results. Grid:
 * {ceil(n_head / LOCAL), tokens}. */
enum { HTH_DELTA_RATES_LOCAL = 0 };
typedef struct hth_push_delta_rates {
    uint32_t n_head, n_shared, joined;
    hth_rows_at beta, decay, to_beta, to_decay;
} hth_push_delta_rates;

/* Tokens [first, first + n) of the step: those of a dispatch, whose states later ones need. */
typedef struct hth_token_range {
    uint32_t first, n;
} hth_token_range;

/* Gated DeltaNet in chunks of HTH_CHUNK positions (forward/delta_net.c), whose states have the same layout. x: queries and
 * keys of n_head_key heads, then values of n_head_key n_shared heads. Bindings: step, x, beta, decay, states, y. Grid:
 * {n_head_key, runs}. */
enum { HTH_DELTA_NET_D = 0, HTH_DELTA_NET_LOCAL };
enum { HTH_DELTA_NET_MAX_D = 256 };
typedef struct hth_push_delta_net {
    uint32_t n_head_key, n_shared, interleaved, runs_at;
    hth_token_range tokens;
    float inverse_root;
    hth_rows_at x, beta, decay, y;
} hth_push_delta_net;

/* RATES of Kimi Delta Attention, in place: beta[head] = sigmoid(beta), decay[head][d] = exp(a[head] softplus(decay + dt)).
 * Bindings: step, a, dt, beta, decay. Grid: {ceil(n_head d / LOCAL), tokens}. */
enum { HTH_KDA_RATES_LOCAL = 0 };
typedef struct hth_push_kda_rates {
    uint32_t n_head, d;
    hth_rows_at beta, decay;
} hth_push_kda_rates;

/* Kimi Delta Attention (forward/kda.c). states[page][n_head][D][D]: those of STEP_FROM before the run, unless it begins at
 * position 0, and those of STEP_TO after it. A workgroup has LOCAL columns of a head, whose state is in its shared memory
 * (hth_kda_shared_bytes). D and LOCAL are multiples of 4. Bindings: step, queries, keys, values, beta, decay, states, y.
 * Grid: {n_head ceil(D / LOCAL), runs}. */
enum { HTH_KDA_D = 0, HTH_KDA_LOCAL };
enum { HTH_KDA_MAX_D = 256, HTH_KDA_MAX_LOCAL = 32 };
typedef struct hth_push_kda {
    uint32_t n_head, runs_at;
    hth_token_range tokens;
    float inverse_root;
    hth_rows_at query, key, value, beta, decay, y;
} hth_push_kda;
static inline uint64_t hth_kda_shared_bytes(uint32_t d, uint32_t local)
{
    return sizeof(float) * ((uint64_t)d * local + 3 * (uint64_t)d);
}

/* RATES of selective state spaces, in place: delta = softplus(delta) of n values. ssm_scan finds decays of heads itself.
 * Bindings: step, delta. Grid: {ceil(n / LOCAL), tokens}. */
enum { HTH_SSM_RATES_LOCAL = 0 };
typedef struct hth_push_ssm_rates {
    uint32_t n;
    hth_rows_at delta;
} hth_push_ssm_rates;

/* Selective state spaces (hth_ssm_scan_fn) of n_part parts of `size` channels: heads, or all channels, BY_CHANNEL. Rates:
 * of heads a[n_part], or a[n_state][size]; from word d_at on d[n_part], or d[size]. n_shared parts have the same b and c, of
 * n_state values. states[page][n_part][n_state][size, rounded up to quads]: pages as those of kda. Bindings: step, x,
 * delta, rates, b, c, states, y. Grid: {ceil(n_part hth_ssm_quads(size) / LOCAL), runs}. */
enum { HTH_SSM_SCAN_BY_CHANNEL = 0, HTH_SSM_SCAN_LOCAL };
typedef struct hth_push_ssm_scan {
    uint32_t n_part, size, n_state, n_shared, d_at, runs_at;
    hth_token_range tokens;
    hth_rows_at x, delta, b, c, y;
} hth_push_ssm_scan;
static inline uint32_t hth_ssm_quads(uint32_t n_channel) { return (n_channel + 3) / 4; }

/* ---- transposed down (docs/arithmetic.md 6) --------------------------------------------------------- */

/* scales[t][cluster] = 2^k of the cluster's hidden values (hth_axpy_scale; 0: none). Bindings: step, h[t][stride],
 * D[cluster], scales. Grid: {clusters, tokens}. */
enum { HTH_DOWN_SCALE_LOCAL = 0 };
typedef struct hth_push_down_scale {
    uint32_t n, stride; /* neurons */
    int32_t safe_exponent;
} hth_push_down_scale;

/* sums[t][split][n_out]: the integers of HTH_DOWN_SPLIT neurons each, minima subtracted, times the scale of their
 * cluster. Neurons whose h is 0 are not read. Tokens are those from first_tok on; sums begin with them.
 * Bindings: step, weights (a row per neuron, as for mul_mat_vec_q), h[t][stride], scales[t][n_cluster], sums. An
 * invocation computes 16 bytes' worth of a row's outputs for COLS tokens. GROUPS divides LOCAL: so many invocations
 * have the same outputs and divide the neurons of a split. Grid: {ceil(pieces of a row / (LOCAL / GROUPS)),
 * ceil(n_neuron / HTH_DOWN_SPLIT), ceil(tokens / COLS)}. */
enum { HTH_DOWN_SPLIT = 128 };
enum { HTH_DOWN_LOCAL = 0, HTH_DOWN_COLS, HTH_DOWN_GROUPS, HTH_DOWN_FORMAT, HTH_DOWN_N_CONST = HTH_DOWN_FORMAT + 8 };
typedef struct hth_push_down {
    uint32_t n_neuron, n_block, stride, n_split, n_cluster;
    uint32_t first;       /* number of the first neuron of the weights, a multiple of a split */
    uint32_t first_split; /* index of its sums */
    uint32_t first_tok;   /* index of the first token */
    hth_soa_offsets at;
} hth_push_down;

/* The same for float rows: chains[t][cluster][n_out], product and sum each rounded.
 * Bindings: step, rows (weight_layout.h), h[t][stride], chains. Grid: {ceil(words of a row / LOCAL), clusters,
 * tokens}. */
enum { HTH_DOWN_F_LOCAL = 0, HTH_DOWN_F_TYPE };
typedef struct hth_push_down_f {
    uint32_t n_neuron, n_out, stride, n_group;
    uint32_t first, first_tok;
} hth_push_down_f;

/* These compute as down_scale, down_q and down_f do, by slices of n_neuron rows of the weights, of which n_used were
 * chosen for each token (pairs: mul_mat_vec_q_sliced). h[t][stride]: the hidden values of each pair, one pair after
 * another; times the pair's weight, rounded, they are those that the neurons have above. Clusters and splits are those of
 * the rows of all slices, so that a slice may begin within one: a pair has hth_down_clusters, with two splits each. Of
 * these the last may have no neuron of the slice: then its sums are 0, and its scale is valid. D is that of the clusters
 * of the weights; n_cluster, n_split and n_group are those of all pairs of a token. first and first_split are 0, COLS is
 * 1. Bindings: as above, then pairs. Grids: as above, with the clusters or splits of all pairs. */
static inline uint32_t hth_down_clusters(uint32_t n_neuron)
{
    return n_neuron / HTH_CLUSTER_NEURONS + (n_neuron % HTH_CLUSTER_NEURONS > 0 ? 2 : 0);
}
typedef struct hth_push_down_scale_sliced {
    hth_push_down_scale neurons;
    uint32_t n_used;
} hth_push_down_scale_sliced;
typedef struct hth_push_down_sliced {
    hth_push_down neurons;
    uint32_t n_used;
} hth_push_down_sliced;
typedef struct hth_push_down_f_sliced {
    hth_push_down_f neurons;
    uint32_t n_used;
} hth_push_down_f_sliced;

/* y[t][n_out] = the sums of all splits as Q31.32 (FLOATS: of all chains), and with HOST 64-bit sums [t][n_out] of the
 * host (from word HTH_HOST_SUMS on; word 0: HTH_HOST_SUMS_NONE, _VALID or _OVERFLOW), times 2^-32, + bias; _acc: added
 * to y. NaN where one of the token's n_cluster scales is 0, a chain is out of bounds, or the host's sums are.
 * GROUPS divides LOCAL: so many invocations divide the splits of an output. Bindings: step, sums,
 * scales[t][n_cluster], host, bias, y. Grid: {ceil(n_out / (LOCAL / GROUPS)), tokens}. */
enum { HTH_HOST_SUMS = 4, HTH_HOST_SUMS_NONE = 0, HTH_HOST_SUMS_VALID, HTH_HOST_SUMS_OVERFLOW };
enum { HTH_DOWN_REDUCE_LOCAL = 0, HTH_DOWN_REDUCE_FLOATS, HTH_DOWN_REDUCE_HOST, HTH_DOWN_REDUCE_GROUPS };
typedef struct hth_push_down_reduce {
    uint32_t n_out, n_split, has_bias, first_tok;
    uint32_t n_cluster; /* 0 for FLOATS */
} hth_push_down_reduce;

/* acc64[t][n_out] += the sums of all splits, the first of which is that of neuron `first`, as Q31.32, in the buffer
 * format in which down_reduce reads the host's (HTH_HOST_SUMS words, then the sums), and with HOST also the host's
 * sums, if valid. With `start` they replace the old contents, and word 0 becomes _VALID; with HOST word 0 becomes
 * _OVERFLOW where the host's is. Bindings: step, sums, acc64, host, scales[t][n_cluster]. Grid: {ceil(n_out / LOCAL),
 * tokens}. */
enum { HTH_DOWN_ACCUMULATE_LOCAL = 0, HTH_DOWN_ACCUMULATE_HOST };
typedef struct hth_push_down_accumulate {
    uint32_t n_out, n_split, first_tok, start, first, n_cluster;
} hth_push_down_accumulate;

/* The C functions of all shaders, by number. */
extern hth_shader_ref_fn *const hth_shader_ref_table[HTH_N_SHADER];

#endif
