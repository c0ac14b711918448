/* Reads every weight of a file and looks whether it is a number. Called by the verb
 * inspect; a run itself looks at logits only. */
#ifndef HTH_MEASURE_CHECK_H
#define HTH_MEASURE_CHECK_H

#include "file/gguf.h"

#include <hearth/hearth.h>

typedef struct hth_check_result {
    uint64_t n_tensor, n_weight; /* that were read */
    uint64_t n_skipped;          /* tensors of types that this version cannot unpack */
} hth_check_result;

/* NUMERIC with the file, the tensor, its offset and the first weight that is NaN or
 * infinite; of several the first in the file. progress (may be NULL) counts bytes. */
hearth_status hth_check_weights(const hth_gguf *file, uint32_t n_thread, hearth_progress_fn *progress,
                                void *progress_user, hth_check_result *result, hearth_error *err);

#endif
