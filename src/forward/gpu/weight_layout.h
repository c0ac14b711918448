/* How a matrix lies on a device: the parts of its blocks apart (quants, high bits, scales, scales of
 * sub-blocks), each in words, so that neighbouring invocations read neighbouring 16 bytes. Exact: the
 * weights are the file's, moved.
 *
 * Quants of a row, by groups of eight blocks (fewer at the end): [piece][block of the group][16 bytes]. A
 * piece of b bits holds 128 / b weights: weight 16 i + j of it is the bits from b i on of byte j, so a
 * shift and a mask of whole words give four weights that follow each other, a byte each. High bits lie
 * likewise; those of blocks of 32 are one word for a block, [row][block], and weight 4 i + j is bit i of
 * byte j.
 * Scales, and minima: halves (or bytes, where e8m0), a row from a word on. Of sub-blocks: bytes,
 * [row][block][sub-block].
 *
 * Floats: rows alone, each from a multiple of 16 bytes on. Invocation j of eight has weights 2 j and 2 j + 1
 * of every sixteen (rule R9), so the words of 128 bytes are moved until those of four sixteens of halves, or
 * two of F32, are its 16 bytes. What is left at the end of a row lies as in the file. */
#ifndef HTH_RUN_GPU_PLANES_H
#define HTH_RUN_GPU_PLANES_H

#include "file/types.h"
#include "forward/gpu/shader_params.h"

#include <stdbool.h>

/* The form of a type: constants of mul_mat_vec_q, in this order (HTH_ROWS_FORM). wq of docs/arithmetic.md 2 is
 * raw - offset, or table[raw]; raw = low + (high << low_bits). */
typedef struct hth_quant_desc {
    uint32_t block;    /* 32 or 256 */
    uint32_t low_bits; /* 2, 4 or 8 (then signed) */
    uint32_t high_bits;
    uint32_t offset;
    uint32_t table;  /* 0: none, 1: IQ4_NL and IQ4_XS, 2: MXFP4 */
    uint32_t part;   /* weights that share a scale within a block, a signed byte: 16 or 32; 0: all do */
    uint32_t minima; /* 1: blocks of 32 have m (f16), sub-blocks mn (a byte) beside dmin (f16) */
    uint32_t scale;  /* 0: f16, 1: e8m0 (MXFP4) */
} hth_quant_desc;

/* False: mul_mat_vec_q has no form for it (floats among them). */
bool hth_quant_desc_of(hth_type type, hth_quant_desc *desc);

/* The planes of n_tok rows: the quants first, each at a multiple of 256 bytes. */
typedef struct hth_soa_layout {
    hth_soa_offsets offsets;
    uint64_t size; /* bytes of all, a multiple of 256 */
} hth_soa_layout;

/* Of n_tok rows of n_col (whole blocks), any type that the kernels know. False: too large for 32 bits of
 * words, or no program knows the type. */
bool hth_soa_layout_init(hth_type type, uint64_t n_row, uint64_t n_col, hth_soa_layout *layout);
/* Rows [first, first + n) of n_tok. rows: the first of these n, as in the file, row_size apart. to: all
 * planes; padding keeps what was there. Calls for other rows may run at the same time. */
void hth_soa_layout_pack(hth_type type, uint64_t n_row, uint64_t n_col, const uint8_t *rows, size_t row_size,
                     uint64_t first, uint64_t n, uint8_t *to);

/* The same rows from number n on, a multiple of 64: returns the bytes by which their binding begins later. */
uint64_t hth_soa_layout_offset(hth_type type, uint64_t n_col, uint64_t n, hth_soa_layout *layout);

/* Of floats: words from row to row; where word `word` of n_col weights in the file lies in its row. */
uint32_t hth_soa_row_words(hth_type type, uint64_t n_col);
enum { HTH_SOA_GROUP_WORDS = 32, HTH_SOA_PIECE_WORDS = 4 };
static inline size_t hth_soa_word_offset(hth_type type, size_t n_col, size_t word)
{
    size_t of_pair = type == HTH_TYPE_F32 ? 2 : 1; /* words of weights 2 j and 2 j + 1 */
    size_t in = word % HTH_SOA_GROUP_WORDS, first = word - in, pair = in / of_pair;
    if (first + HTH_SOA_GROUP_WORDS > n_col * of_pair / 2) return word;
    return first + pair % 8 * HTH_SOA_PIECE_WORDS + pair / 8 * of_pair + in % of_pair;
}

/* A block of weights: integers, scales of every 16, and what multiplies both. */
enum { HTH_SOA_MAX_WEIGHTS = 256 };
typedef struct hth_soa_block {
    int8_t w[HTH_SOA_MAX_WEIGHTS];
    int32_t sub_scale[HTH_SOA_MAX_WEIGHTS / 16], sub_min[HTH_SOA_MAX_WEIGHTS / 16];
    float d, m;
} hth_soa_block;
/* Block b of a row, of n_block each. */
void hth_soa_layout_unpack(const hth_quant_desc *desc, const hth_soa_offsets *at, const uint8_t *planes, size_t n_block,
                     size_t row, size_t b, hth_soa_block *out);

#endif
