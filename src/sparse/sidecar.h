/* Files that belong to a model and hold none of its weights: predictors and thresholds (profiles:
 * profile.h). GGUF, with general.architecture "hearth.KIND", the version of this format and the hash
 * of the model; their tensors have the names that they have in a packed file. */
#ifndef HTH_SPARSE_SIDECAR_H
#define HTH_SPARSE_SIDECAR_H

#include "file/gguf_write.h"
#include "model/model.h"

enum { HTH_SIDECAR_VERSION = 1 };

typedef struct hth_sidecar {
    hth_gguf *file;     /* NULL: none */
    float *thresholds;  /* predictors: [n_layer] */
    bool from_residual; /* predictors: what their input is */
} hth_sidecar;

/* Opens a file of that kind ("predictors", "thresholds") and checks all of it against the model:
 * version, hash, names, types, shapes; values of thresholds too. Errors name file and place. */
hearth_status hth_sidecar_open(hth_sidecar *s, const char *path, const char *kind, const hth_model *model,
                               hearth_error *err);
void hth_sidecar_close(hth_sidecar *s);

/* The head of a file of that kind, which belongs to model. IO, MEMORY. */
hearth_status hth_sidecar_write_head(hth_gguf_writer *out, const char *kind, const hth_gguf *model,
                                     hearth_error *err);

/* What every such file begins with: architecture, version and hash of the model. */
hearth_status hth_sidecar_check_head(const hth_gguf *file, const char *kind, const hth_gguf *model,
                                     hearth_error *err);

#endif
