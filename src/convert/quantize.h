/* Converts a model file to one with its matrices in other types. hearth quantize and tests call it. */
#ifndef HTH_CONVERT_QUANTIZE_H
#define HTH_CONVERT_QUANTIZE_H

#include "convert/ftype.h"

/* Matrices whose names contain the POSIX extended regular expression get this type, if their rows fit its blocks. */
typedef struct hth_quantize_rule {
    const char *pattern;
    hth_type type;
} hth_quantize_rule;

typedef struct hth_quantize_options {
    const hth_ftype *ftype; /* which matrix gets which type */
    bool pure;          /* all matrices get ftype->type */
    bool keep_output;   /* the head (or the embedding table used as the head) has output_type */
    hth_type output_type;
    const hth_quantize_rule *rules; /* [n_rule] above all else; the first that fits counts */
    size_t n_rule;
    const char *imatrix; /* path of an importance matrix; NULL: none */
    uint32_t n_thread;            /* 0: one per core */
    hearth_progress_fn *progress; /* bytes read; may be NULL; false cancels */
    void *progress_user;
} hth_quantize_options;

typedef struct hth_quantize_result {
    uint64_t in_bytes, out_bytes; /* bytes of tensors */
    uint32_t n_tensor, n_changed;
    uint32_t n_requantised; /* matrices that went from one quantised type to another */
    uint32_t n_weighted;    /* tensors that were rounded by importance */
} hth_quantize_result;

/* Reads IN (weights of any supported type) and writes OUT. Keeps vectors, routers and metadata; sets
 * general.file_type. Memory does not grow with the model, but for the importance matrix. OUT appears only when it is complete. ARGUMENT: the importance
 * matrix is of another model, a type needs one, or a pattern is none. */
hearth_status hth_quantize(const char *in_path, const char *out_path, const hth_quantize_options *options,
                           hth_quantize_result *result, hearth_error *err);

#endif
