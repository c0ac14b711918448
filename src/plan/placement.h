/* Where the layers and neurons of a model lie, as a file: a GGUF without weights that carries the hash of
 * its model and the name of the device that it was made for (hearth plan -o; docs/gpu.md). */
#ifndef HTH_PLAN_PLACEMENT_H
#define HTH_PLAN_PLACEMENT_H

#include "model/model.h"

typedef struct hth_placement {
    uint32_t n_layer; /* the first so many layers are on the device, */
    uint32_t *n_hot;  /* [n_layer] of each so many neurons, the first ones */
    bool head;        /* and the head */
    bool submitted;   /* tapes are submitted when the host is ready; else all are queued */
    char device[256], driver[256];
    uint32_t
        n_stream; /* steps of so many tokens let the weights of all other neurons pass through it; 0: none */
    double seconds; /* that a plan expects of a token; 0: not known */
} hth_placement;

hearth_status hth_placement_write(const hth_placement *p, uint64_t model_hash, const char *path,
                                  hearth_error *err);
/* Held against the model: its hash, layers and neurons; whether the device is the same, the caller must
 * see. IO, FORMAT, UNSUPPORTED, ARGUMENT (of another model), MEMORY. */
hearth_status hth_placement_open(hth_placement *p, const char *path, const hth_model *model,
                                 hearth_error *err);
void hth_placement_close(hth_placement *p);

#endif
