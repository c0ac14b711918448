/* Sidecars: files that belong to a model and contain none of its weights: predictors, thresholds, profiles and traces.
 * Of the last two only the header is handled here (the rest: profile_file.c, expert_trace_file.c). They are GGUF, with
 * general.architecture "hearth.KIND", the version of this format and the hash of the model. Tensors of predictors and
 * thresholds have the same names as in a packed file. */
#ifndef HTH_SPARSE_SIDECAR_H
#define HTH_SPARSE_SIDECAR_H

#include "file/gguf_write.h"
#include "model/model.h"

enum { HTH_SIDECAR_VERSION = 1 };

typedef struct hth_sidecar {
    hth_gguf *file;     /* NULL: none */
    float *thresholds;  /* thresholds of predictors: [n_layer] */
    bool from_residual; /* predictors: the input is the residual */
} hth_sidecar;

/* Opens a file of that kind ("predictors", "thresholds") and checks all of it against the model: header, names,
 * types, shapes, and that every value is finite. Errors name file and offset. IO, FORMAT, UNSUPPORTED, ARGUMENT
 * (of another model), MEMORY. */
hearth_status hth_sidecar_open(hth_sidecar *s, const char *path, const char *kind, const hth_model *model,
                               hearth_error *err);
void hth_sidecar_close(hth_sidecar *s);

/* The same for thresholds, as far as they can be checked without their model: its hash and the number of neurons
 * of a layer are unknown. IO, FORMAT, UNSUPPORTED, MEMORY. */
hearth_status hth_sidecar_check_thresholds(const hth_gguf *file, hearth_error *err);

/* Writes the header of a file of that kind ("profile" and "trace" too), for the model with that hash (hth_model_hash). */
void hth_sidecar_write_head(hth_gguf_writer *out, const char *kind, uint64_t model_hash);

/* Checks the header. *model_hash is the hash in the file. It must be that of model, unless model is NULL.
 * UNSUPPORTED (another kind or version), FORMAT, ARGUMENT (of another model), IO, MEMORY. */
hearth_status hth_sidecar_check_head(const hth_gguf *file, const char *kind, const hth_gguf *model,
                                     uint64_t *model_hash, hearth_error *err);

/* Keys that every file of the kind has. FORMAT: one is missing, has another type or number of elements (0: any), or is
 * out of range. */
hearth_status hth_sidecar_need_uint(const hth_gguf *file, const char *kind, const char *key, uint64_t min, uint64_t max,
                                    uint64_t *value, hearth_error *err);
hearth_status hth_sidecar_need_array(const hth_gguf *file, const char *kind, const char *key, hth_gguf_type type,
                                     uint64_t n, const hth_gguf_value **array, hearth_error *err);
/* A text of less than size bytes, none of them 0; a 0 follows. */
hearth_status hth_sidecar_need_text(const hth_gguf *file, const char *kind, const char *key, char *text, size_t size,
                                    hearth_error *err);

#endif
