/* One model file from another, with its matrices in other types. */
#ifndef HTH_CONVERT_QUANTIZE_H
#define HTH_CONVERT_QUANTIZE_H

#include "convert/ftype.h"

typedef struct hth_quantize_options {
    const hth_ftype *ftype; /* which matrix gets which type */
    bool pure;          /* all matrices get the type of the mix itself */
    bool keep_output;   /* the head (or the embedding table that serves as one) is of output_type */
    hth_type output_type;
    uint32_t n_thread;            /* 0: one for each core */
    hearth_progress_fn *progress; /* bytes read; may be NULL; false cancels */
    void *progress_user;
} hth_quantize_options;

typedef struct hth_quantize_result {
    uint64_t in_bytes, out_bytes; /* of tensors */
    uint32_t n_tensor, n_changed;
    uint32_t n_fallback; /* matrices whose rows do not fit the blocks of their type: in another one */
} hth_quantize_result;

/* Reads IN (F32, F16 or BF16 weights), writes OUT. Vectors, routers and metadata
 * are kept; general.file_type is set. Memory does not grow with the model. OUT
 * appears only when all is written. */
hearth_status hth_quantize(const char *in_path, const char *out_path, const hth_quantize_options *options,
                           hth_quantize_result *result, hearth_error *err);

#endif
