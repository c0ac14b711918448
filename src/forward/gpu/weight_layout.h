/* The layout of a matrix on a device: structure of arrays. The parts of its blocks (quants, high bits, scales,
 * sub-block scales) are separate arrays of words, so that neighbouring invocations read neighbouring 16 bytes.
 * Lossless: the weights are the file's, reordered; entries of a grid (IQ1 to IQ3) are indices of their values, digits
 * of base 3 (TQ1_0) are two bits.
 *
 * Quants of a row, by groups of eight blocks (fewer at the end): [piece][block of the group][16 bytes]. A piece of
 * b bits holds 128 / b weights: weight 16 i + j is the bits from b i on of byte j, so a shift and a mask of whole
 * words give four consecutive weights, one per byte. High bits use the same layout; those of blocks of 32 are one
 * word per block, [row][block], and weight 4 i + j is bit i of byte j.
 * Blocks of 16 (NVFP4) are those of 32 with two scales: block b is bits 4 (b mod 2) and on of piece b / 2.
 * Scales and minima: halves (bytes for e8m0), each row starting at a word. Those of sub-blocks: bytes,
 * [row][block][sub-block].
 *
 * Floats: plain rows, each starting at a multiple of 16 bytes. Invocation j of eight has weights 2 j and 2 j + 1 of
 * every sixteen (rule R9), so the words of each 128 bytes are permuted until those of four sixteens of halves, or
 * two of F32, are its 16 bytes. The remainder at the end of a row is in file order. */
#ifndef HTH_FORWARD_GPU_WEIGHT_LAYOUT_H
#define HTH_FORWARD_GPU_WEIGHT_LAYOUT_H

#include "file/types.h"
#include "forward/gpu/shader_params.h"

#include <stdbool.h>

/* The quantisation descriptor of a type: constants of mul_mat_vec_q, in this order (HTH_ROWS_FORMAT). wq of
 * docs/arithmetic.md 2 is raw - offset, or table[raw]; raw = low + (high << low_bits). */
typedef struct hth_quant_desc {
    uint32_t block;    /* 32 or 256; 16: half of 32 (NVFP4) */
    uint32_t low_bits; /* 2, 4 or 8 (then signed) */
    uint32_t high_bits;
    uint32_t offset;
    uint32_t table;  /* 0: none; else hth_soa_values[table - 1] */
    uint32_t part;   /* weights that share a scale within a block, a signed byte: 16 or 32; 0: the whole block */
    uint32_t minima; /* 1: blocks of 32 have m (f16); sub-blocks have mn (a byte), their block dmin (f16) */
    uint32_t scale;  /* of blocks: hth_scale_form */
} hth_quant_desc;

/* n > 1: f16 times 2^-n. */
typedef enum hth_scale_form { HTH_SCALE_F16 = 0, HTH_SCALE_E8M0 = 1 } hth_scale_form;

/* Values of the tables: IQ4_NL and IQ4_XS; MXFP4 and NVFP4; IQ3_XXS; IQ3_S; IQ2; IQ1. Indices of the last two have
 * three bits. */
enum { HTH_SOA_N_TABLE = 6 };
extern const int8_t hth_soa_values[HTH_SOA_N_TABLE][16];

/* false: the type has no quantisation descriptor (floats, among others). */
bool hth_quant_desc_of(hth_type type, hth_quant_desc *desc);

/* The arrays of n_row rows: the quants first, each array at a multiple of 256 bytes. */
typedef struct hth_soa_layout {
    hth_soa_offsets offsets;
    uint64_t size; /* bytes of all arrays, a multiple of 256 */
} hth_soa_layout;

/* For n_row rows of n_col weights (whole blocks), any type that the kernels support. false: too large for 32-bit
 * word offsets, or no shader supports the type. */
bool hth_soa_layout_init(hth_type type, uint64_t n_row, uint64_t n_col, hth_soa_layout *layout);
/* Packs rows [first, first + n) of n_row. rows: the first of these n, in file format, row_size bytes apart. to:
 * all arrays; padding is not written. Calls for different rows may run concurrently. */
void hth_soa_layout_pack(hth_type type, uint64_t n_row, uint64_t n_col, const uint8_t *rows, size_t row_size,
                     uint64_t first, uint64_t n, uint8_t *to);

/* Adjusts the layout to start at row n, a multiple of 64; returns the byte offset to add to the binding. */
uint64_t hth_soa_layout_offset(hth_type type, uint64_t n_col, uint64_t n, hth_soa_layout *layout);

/* For float rows: words from row to row; position within its row of word `word` of n_col weights in the file. */
uint32_t hth_soa_row_words(hth_type type, uint64_t n_col);
enum { HTH_SOA_GROUP_WORDS = 32, HTH_SOA_PIECE_WORDS = 4 };
static inline size_t hth_soa_word_offset(hth_type type, size_t n_col, size_t word)
{
    size_t of_pair = type == HTH_TYPE_F32 ? 2 : 1; /* words of weights 2 j and 2 j + 1 */
    size_t in = word % HTH_SOA_GROUP_WORDS, first = word - in, pair = in / of_pair;
    if (first + HTH_SOA_GROUP_WORDS > n_col * of_pair / 2) return word;
    return first + pair % 8 * HTH_SOA_PIECE_WORDS + pair / 8 * of_pair + in % of_pair;
}

/* A block of weights: integers, scale of every 16, and the factors of both. */
enum { HTH_SOA_MAX_WEIGHTS = 256 };
typedef struct hth_soa_block {
    int8_t w[HTH_SOA_MAX_WEIGHTS];
    int32_t sub_scale[HTH_SOA_MAX_WEIGHTS / 16], sub_min[HTH_SOA_MAX_WEIGHTS / 16];
    float d, m;
} hth_soa_block;
/* Reads block b of a row, with n_block blocks per row. */
void hth_soa_layout_unpack(const hth_quant_desc *desc, const hth_soa_offsets *at, const uint8_t *planes, size_t n_block,
                     size_t row, size_t b, hth_soa_block *out);

#endif
