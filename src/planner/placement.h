/* Where the layers and neurons of a model lie, as a file: a GGUF without weights that carries the hash of
 * its model and the name of the device that it was made for (hearth plan -o; docs/gpu.md). */
#ifndef HTH_PLAN_PLACEMENT_H
#define HTH_PLAN_PLACEMENT_H

#include "model/model.h"

/* Steps of n_tok tokens and more let the weights of the other neurons pass through the device, but for `here`
 * of HTH_PLACEMENT_PARTS, which the host computes at the same time: the last ones of each layer. */
typedef struct hth_placement_stream {
    uint32_t n_tok, cpu_share;
} hth_placement_stream;
enum { HTH_PLACEMENT_STREAMS = 4, HTH_PLACEMENT_PARTS = 64 };
/* n_tok ascends, and is 0 behind the last. */
bool hth_placement_streams_valid(const hth_placement_stream streams[HTH_PLACEMENT_STREAMS]);

typedef struct hth_placement {
    uint32_t n_layer; /* the first so many layers are on the device, */
    uint32_t *n_hot;  /* [n_layer] of each so many neurons, the first ones */
    bool head;        /* and the head */
    bool submit_on_demand;   /* tapes are submitted when the host is ready; else all are queued */
    char device[256], driver[256];
    hth_placement_stream streams[HTH_PLACEMENT_STREAMS];
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
