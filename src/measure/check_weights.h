/* Reads every weight of a file and checks that it is finite. hearth inspect --check calls it; a run itself
 * checks logits only. */
#ifndef HTH_MEASURE_CHECK_WEIGHTS_H
#define HTH_MEASURE_CHECK_WEIGHTS_H

#include "file/gguf.h"

#include <hearth/hearth.h>

typedef struct hth_check_result {
    uint64_t n_tensor, n_weight; /* number read */
    uint64_t n_skipped;          /* tensors of types that this version cannot unpack */
} hth_check_result;

/* NUMERIC, with the file, the tensor, its offset and the weight: the first weight of the file that is NaN or
 * infinite. progress (may be NULL) counts bytes. */
hearth_status hth_check_weights(const hth_gguf *file, uint32_t n_thread, hearth_progress_fn *progress,
                                void *progress_user, hth_check_result *result, hearth_error *err);

#endif
