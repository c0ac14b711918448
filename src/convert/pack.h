/* hearth pack: writes a file whose neurons can be read one by one. down is transposed, neurons are ordered so
 * that hot ones are first and neurons that are active together are adjacent, and the data that selectors need
 * is inside. The weights of the output differ from the source in their bits; all selectors give the same
 * results on it. */
#ifndef HTH_CONVERT_PACK_H
#define HTH_CONVERT_PACK_H

#include "convert/ftype.h"

#include <hearth/hearth.h>

typedef struct hth_pack_options {
    const hth_ftype *ftype; /* types of matrices; NULL: unchanged */
    bool pure;
    bool allow_unused; /* copies tensors of IN that no part of the network reads */
    bool for_storage;  /* bundles of neurons, or experts, lie in whole pages and have checksums; mixtures too */
    uint32_t n_bundle_neuron; /* neurons of a bundle; 0: by size (hth_bundle_shift) */
    const char *profile, *predictors, *thresholds; /* files that belong to IN, or NULL */
    uint32_t n_thread;                             /* 0: one per core */
    hearth_progress_fn *progress;                  /* bytes written; may be NULL; false cancels */
    void *progress_user;
    const volatile int *cancel; /* nonzero: packing stops; NULL: none */
} hth_pack_options;

typedef struct hth_pack_result {
    uint64_t in_bytes, out_bytes; /* bytes of tensors */
    uint32_t n_layer;
    const char *selector;         /* set in the file; NULL: none, of mixtures */
    bool requantised;             /* quantised matrices changed their type or axis */
    bool retyped;                 /* quantised matrices, beside a down that changed its axis, changed their type */
    double down_rms_error;             /* rms change of down by packing, over the rms of its weights */
    uint32_t n_swapped;           /* layers whose gate and up were swapped, because up is sparser */
    double mean_run_before, mean_run_after; /* mean runs of neurons that are active together; 0: no profile */
} hth_pack_result;

/* OUT appears only when it is complete. Holds one matrix of a layer in memory, twice. */
hearth_status hth_pack(const char *in_path, const char *out_path, const hth_pack_options *options,
                       hth_pack_result *result, hearth_error *err);

#endif
