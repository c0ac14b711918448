/* Importance matrices: for each column of a model's matrices, the sum of the squares of its inputs over a text. hearth
 * imatrix makes them, hearth quantize weighs rounding errors with them. Files are those of llama.cpp: GGUF with
 * general.type "imatrix", tensors NAME.in_sum2 and NAME.counts; or the older .dat format, which is only read. */
#ifndef HTH_FILE_IMATRIX_H
#define HTH_FILE_IMATRIX_H

#include "base/alloc.h"
#include "file/gguf.h"

#define HTH_IMATRIX_TYPE "imatrix" /* general.type, and hearth.made_by of files of Hearth */
enum { HTH_IMATRIX_CHUNK = 512 };  /* tokens of a chunk where a file does not say it */

/* One tensor: a matrix, or several of the same width, one after another. */
typedef struct hth_imatrix_entry {
    hth_str name;
    size_t n_value;   /* columns of all its matrices */
    uint32_t n_count; /* one for each matrix (experts), or 1 for all together */
    double *sums;     /* [n_value] of squares */
    double *counts;   /* [n_count] of inputs that were added up */
} hth_imatrix_entry;

typedef struct hth_imatrix {
    hth_imatrix_entry *entries; /* [n_entry] */
    size_t n_entry, capacity;
    hth_str *datasets; /* [n_dataset] names of the texts */
    size_t n_dataset;
    uint64_t n_chunk; /* chunks of the texts */
    uint32_t chunk_size; /* tokens of a chunk; 0: unknown, and counts are chunks (.dat) */
    hth_arena arena;
} hth_imatrix;

/* An empty one. MEMORY. */
hearth_status hth_imatrix_new(uint32_t chunk_size, hth_imatrix **out, hearth_error *err);
/* Reads a file of either format, and checks all of it: every sum and count is finite and not negative, and every tensor
 * has both. Entries are sorted by name. IO, FORMAT, UNSUPPORTED, MEMORY. */
hearth_status hth_imatrix_open(const char *path, hth_imatrix **out, hearth_error *err);
/* The same over bytes in memory. name is used in messages. */
hearth_status hth_imatrix_open_memory(const void *data, size_t size, const char *name, hth_imatrix **out,
                                      hearth_error *err);
void hth_imatrix_close(hth_imatrix *m);

/* Adds an entry of zeros. Sort before the next search. MEMORY. */
hearth_status hth_imatrix_add(hth_imatrix *m, hth_str name, size_t n_value, uint32_t n_count, hth_imatrix_entry **out,
                              hearth_error *err);
void hth_imatrix_sort(hth_imatrix *m);
hearth_status hth_imatrix_add_dataset(hth_imatrix *m, hth_str name, hearth_error *err);
/* NULL: there is none. */
const hth_imatrix_entry *hth_imatrix_find(const hth_imatrix *m, hth_str name);

/* Adds sums, counts and datasets of `more` to m, as if the texts were one. from: names `more` in messages. m has a
 * chunk_size. ARGUMENT: a tensor has another size in both. MEMORY. */
hearth_status hth_imatrix_merge(hth_imatrix *m, const hth_imatrix *more, const char *from, hearth_error *err);

/* Checks that the tensors of m are those of a model's file, with as many columns and matrices. path: of m, for messages.
 * ARGUMENT. */
hearth_status hth_imatrix_check_model(const hth_imatrix *m, const char *path, const hth_gguf *model, hearth_error *err);

/* w[n_col]: the importance of the columns of matrix i of the n of an entry, with a mean of 1 and none of them 0. All are
 * 1 if nothing is known: no input was counted, or all were 0. n divides n_value. */
void hth_imatrix_weights(const hth_imatrix_entry *e, size_t i, size_t n, float *w);

/* Writes a GGUF file, with entries sorted by name, without those of count 0. NUMERIC: a sum is too large for F32. */
hearth_status hth_imatrix_write(const hth_imatrix *m, const char *path, hearth_error *err);

#endif
