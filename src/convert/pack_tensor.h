/* One tensor of a packed file: rows of another tensor, reordered, transposed or converted to another type. Only
 * pack.c uses it. */
#ifndef HTH_CONVERT_PACK_TENSOR_H
#define HTH_CONVERT_PACK_TENSOR_H

#include "base/pool.h"
#include "file/gguf_write.h"
#include "kernels/kernels.h"

typedef struct hth_pack_tensor {
    char name[64];
    const hth_gguf *file;        /* source file */
    const hth_gguf_tensor *from; /* source tensor; NULL: writes `data` */
    const void *data;            /* n_row values of n_col 4 bytes each, known when the tensors before are written */
    uint64_t first_row, n_row;   /* rows of `from` that are used; for a reordered vector: its values */
    uint64_t n_col;              /* values of a written row */
    uint32_t n_dim;
    uint64_t dim[4]; /* as declared in the file */
    hth_type type;
    bool transposed;      /* from has outputs in rows; neurons become the rows */
    const int32_t *order; /* row r is row order[r] of the source; NULL: unchanged */
    /* unit_row: written rows of a unit, the last one perhaps shorter; 0: no units. checksums: one for each unit, then
     * that of scales, if there are any. scales: the largest scale of each cluster; NULL: none. */
    uint64_t unit_row, *checksums;
    float *scales;
} hth_pack_tensor;

/* Error of requantisation. */
typedef struct hth_pack_loss {
    double error, size; /* sums of squares: error of differences, size of weights */
} hth_pack_loss;

typedef struct hth_packer {
    hth_kernels k;
    hth_pool *pool;
    hth_gguf_writer *out;
    hth_pack_loss loss; /* sum over all transposed tensors */
} hth_packer;

uint64_t hth_pack_tensor_size(const hth_pack_tensor *t);
void hth_pack_declare(hth_packer *p, const hth_pack_tensor *t);
hearth_status hth_pack_write(hth_packer *p, const hth_pack_tensor *t, hearth_error *err);

#endif
