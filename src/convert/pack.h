/* hearth pack: a file in which neurons can be read one by one: down transposed, neurons in an order
 * that puts hot ones first and those that fire together side by side, with what selectors need inside.
 * Another file, so other bits than its source's; every selector on it agrees. */
#ifndef HTH_CONVERT_PACK_H
#define HTH_CONVERT_PACK_H

#include "convert/ftype.h"

#include <hearth/hearth.h>

typedef struct hth_pack_options {
    const hth_ftype *ftype; /* types of matrices; NULL: as they are */
    bool pure;
    bool allow_unused; /* tensors of IN that no part of the network reads are copied */
    const char *profile, *predictors, *thresholds; /* files that belong to IN, or NULL */
    uint32_t n_thread;                             /* 0: one for each core */
    hearth_progress_fn *progress;                  /* bytes written; may be NULL; false cancels */
    void *progress_user;
    const volatile int *cancel; /* while it is not 0, packing ends; NULL: none */
} hth_pack_options;

typedef struct hth_pack_result {
    uint64_t in_bytes, out_bytes; /* of tensors */
    uint32_t n_layer;
    const char *selector;         /* that the file asks for */
    bool requantised;             /* matrices changed their type, or axis, from quantised ones */
    double down_rms_error;             /* rms of what packing changed in down, over the rms of its weights */
    uint32_t n_swapped;           /* layers whose gate and up changed places: up is the sparser one */
    double mean_run_before, mean_run_after; /* mean runs of neurons that fire together; 0: no profile */
} hth_pack_result;

/* OUT appears only when all is written. Holds one matrix of a layer in memory, twice. */
hearth_status hth_pack(const char *in_path, const char *out_path, const hth_pack_options *options,
                       hth_pack_result *result, hearth_error *err);

#endif
