/* Placement file: where the layers and neurons of a model are, as a GGUF without weights that holds the hash of
 * its model and the names of the devices that it was made for (hearth plan -o; docs/gpu.md). */
#ifndef HTH_PLANNER_PLACEMENT_H
#define HTH_PLANNER_PLACEMENT_H

#include "model/model.h"

/* Batches of n_tok tokens and more stream the weights of the other neurons through the device, except for
 * cpu_share of HTH_PLACEMENT_PARTS, which the host computes concurrently: the last ones of each layer. */
typedef struct hth_placement_stream {
    uint32_t n_tok, cpu_share;
} hth_placement_stream;
enum { HTH_PLACEMENT_STREAMS = 4, HTH_PLACEMENT_PARTS = 64 };
/* n_tok ascends, and is 0 after the last stream. */
bool hth_placement_streams_valid(const hth_placement_stream streams[HTH_PLACEMENT_STREAMS]);

/* The part of one device: the layers from the end of the previous device to end_layer. */
typedef struct hth_placement_device {
    char name[256], driver[256];
    uint32_t end_layer;    /* for a single device n_layer, which is not in the file */
    bool submit_on_demand; /* submits each command list when the host is ready; else all at once */
    hth_placement_stream streams[HTH_PLACEMENT_STREAMS];
} hth_placement_device;

typedef struct hth_placement {
    uint32_t n_layer; /* layers on devices, the first ones */
    uint32_t *n_hot;  /* [n_layer] neurons of each on its device, or experts, the first ones */
    hth_layer_set read_experts; /* layers whose missing experts devices read from the host's memory */
    bool head;        /* on the device of the last layer */
    bool host_kv;     /* the host has the keys and values of these layers */
    hth_placement_device devices[HEARTH_MAX_GPU];
    uint32_t n_device;
    double seconds; /* expected per token by a plan; 0: unknown */
} hth_placement;

/* A key of device i: of all but the first, with its number behind it ("hearth.placement.device.1"). */
typedef struct hth_placement_key {
    char text[64];
} hth_placement_key;
hth_placement_key hth_placement_key_of(const char *key, uint32_t i_device);

hearth_status hth_placement_write(const hth_placement *p, uint64_t model_hash, const char *path,
                                  hearth_error *err);
/* Checks hash, layers and neurons against the model; the caller checks the devices. IO, FORMAT, UNSUPPORTED,
 * ARGUMENT (of another model), MEMORY. */
hearth_status hth_placement_open(hth_placement *p, const char *path, const hth_model *model,
                                 hearth_error *err);
void hth_placement_close(hth_placement *p);

#endif
