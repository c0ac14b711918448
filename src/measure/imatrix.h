/* Computes an importance matrix (file/imatrix.h) over a text, as llama-imatrix does: for every matrix of the layers the
 * squares of its inputs, for each expert those of its own tokens. */
#ifndef HTH_MEASURE_IMATRIX_H
#define HTH_MEASURE_IMATRIX_H

#include "file/imatrix.h"

typedef struct hth_imatrix_options {
    uint64_t first_chunk; /* chunks of the text before it are left out */
    uint64_t n_chunk;     /* at most; 0: all */
    bool with_output;     /* also the matrix of the logits */
    hearth_progress_fn *progress; /* counts chunks; may be NULL; false: stop */
    void *progress_user;
} hth_imatrix_options;

/* Runs over text[n] in chunks of the session's context, and adds sums and counts to m, whose chunk_size is set. The
 * session must have its own batch, the selector dense and no device. *n_done: chunks that were added: fewer than asked
 * for if progress returned false or the evaluation was cancelled. Sums are in double precision, in the order of the
 * text: they depend neither on threads nor on batches. ARGUMENT: the text is too short, or m is of another model.
 * UNSUPPORTED: a packed model. NUMERIC: an input is not finite. */
hearth_status hth_measure_imatrix(const hearth_model *model, hearth_session *session, const char *text, size_t n,
                                  const hth_imatrix_options *o, hth_imatrix *m, uint64_t *n_done, hearth_error *err);

#endif
