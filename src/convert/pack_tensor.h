/* One tensor of a packed file: rows of another one, in another order, transposed, in another type.
 * Used by pack.c alone. */
#ifndef HTH_CONVERT_PACK_TENSOR_H
#define HTH_CONVERT_PACK_TENSOR_H

#include "base/pool.h"
#include "file/gguf_write.h"
#include "kernels/kernels.h"

typedef struct hth_pack_tensor {
    char name[64];
    const hth_gguf *file;        /* where it comes from */
    const hth_gguf_tensor *from; /* NULL: the order itself, as I32 */
    uint64_t first_row, n_row;   /* of from that are meant; of a vector in another order: its values */
    uint64_t n_col;              /* of the rows that are written */
    uint32_t n_dim;
    uint64_t dim[4]; /* as declared */
    hth_type type;
    bool transposed;      /* from has outputs in rows: neurons become the rows */
    const int32_t *order; /* row r is number order[r] of the source; NULL: as they are */
} hth_pack_tensor;

/* What re-quantising did to the weights. */
typedef struct hth_pack_loss {
    double error, size; /* sums of squares: of differences, of weights */
} hth_pack_loss;

typedef struct hth_packer {
    hth_kernels k;
    hth_pool *pool;
    hth_gguf_writer *out;
    hth_pack_loss loss; /* of transposed tensors, all together */
} hth_packer;

uint64_t hth_pack_tensor_size(const hth_pack_tensor *t);
void hth_pack_declare(hth_packer *p, const hth_pack_tensor *t);
hearth_status hth_pack_write(hth_packer *p, const hth_pack_tensor *t, hearth_error *err);

#endif
