/* How a matrix lies on a device: the parts of its blocks apart (quants, high bits, scales, scales of sub-blocks), each in
 * words, so that neighbouring invocations read neighbouring 16 bytes. Exact: the weights are the file's, moved.
 *
 * Quants of a row, by groups of eight blocks (fewer at the end): [piece][block of the group][16 bytes], a block of
 * 32 weights of b bits having b / 4 pieces, one of 256 8 times as many. */
#ifndef HTH_RUN_GPU_PLANES_H
#define HTH_RUN_GPU_PLANES_H

#include "file/types.h"
#include "run/gpu/calls.h"

#include <stdbool.h>

/* The form of a type: constants of rows_q, in this order (HTH_ROWS_FORM). wq of docs/arithmetic.md 2 is
 * raw - offset, or table[raw]; raw = low + (high << low_bits). */
typedef struct hth_form {
    uint32_t block;    /* 32 or 256 */
    uint32_t low_bits; /* 2, 4 or 8 (then signed) */
    uint32_t high_bits;
    uint32_t offset;
    uint32_t table; /* 0: none, 1: IQ4_NL and IQ4_XS, 2: MXFP4 */
    uint32_t
        part; /* weights of a sub-block that has a scale of its own, a signed byte: 16 or 32; 0: none has */
    uint32_t minima; /* 1: blocks of 32 have m (f16), sub-blocks mn (a byte) beside dmin (f16) */
    uint32_t scale;  /* 0: f16, 1: e8m0 (MXFP4) */
} hth_form;

/* False: rows_q has no form for it (floats among them). */
bool hth_form_of(hth_type type, hth_form *form);

/* Where the planes of n_row rows lie, in words; the quants at 0. */
typedef struct hth_planes {
    uint32_t at_high, at_scale, at_part, at_least, at_minimum;
    uint64_t size; /* bytes of all, a multiple of 256 */
} hth_planes;

/* Of n_row rows of n_col (whole blocks), any type that the kernels know; floats: rows alone, each from a word on. False: too
 * large for 32 bits of words, or no program knows the type. */
bool hth_planes_place(hth_type type, uint64_t n_row, uint64_t n_col, hth_planes *planes);
/* Rows [first, first + n) of them, from rows as in the file, row_size apart. to: all planes, zeros before the first call. */
void hth_planes_fill(hth_type type, uint64_t n_row, uint64_t n_col, const uint8_t *rows, size_t row_size,
                     uint64_t first, uint64_t n, uint8_t *to);

#endif
