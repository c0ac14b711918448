/* The part of a model that lies on a device: its first layers, their caches, perhaps the head. Opened by the engine
 * with the model, run by step.c in place of those layers. Quantised weights give the bits of the CPU
 * (docs/arithmetic.md); rows of floats do not.
 *
 * Everything is allocated when it is opened. Steps of several threads take turns. */
#ifndef HTH_RUN_GPU_GPU_H
#define HTH_RUN_GPU_GPU_H

#include "device/device.h"
#include "run/run_int.h"

typedef struct hth_gpu_place {
    uint32_t n_layer;    /* the first so many layers lie there, */
    bool head;           /* and the head; only with all layers */
    uint32_t n_row;      /* tokens of a step, at most; more are done in pieces */
    uint32_t n_position; /* of all sequences together, a multiple of HTH_GPU_SLOT for each */
    hearth_kv_type kv;
} hth_gpu_place;
enum { HTH_GPU_SLOT = 16 };

/* Bytes on a device: what they are for, and what a place takes in all. */
typedef struct hth_gpu_bytes {
    uint64_t room;          /* for the values of a step */
    uint64_t head;          /* its matrix */
    const uint64_t *layers; /* [n_layer] their weights, */
    const uint64_t *cache;  /* [n_layer] and keys and values; freed with hth_free */
} hth_gpu_bytes;

/* Why layer i (or, for i = n_layer, the head) cannot lie on a device; NULL: it can. */
const char *hth_gpu_problem(const hth_model *model, hearth_kv_type kv, uint32_t i_layer);

/* Of a place that has all layers and the head; those with a problem count nothing. MEMORY, and ARGUMENT for what
 * overflows. */
hearth_status hth_gpu_count(const hth_model *model, const hth_device_info *info, const hth_gpu_place *place,
                            hth_gpu_bytes *out, hearth_error *err);
void hth_gpu_count_free(hth_gpu_bytes *bytes);

/* Rows [first, first + n) of a matrix as the file has them, to `rows`. */
typedef hearth_status hth_gpu_read_fn(void *user, const hth_matrix *matrix, uint64_t first, uint64_t n,
                                      uint8_t *rows, hearth_error *err);

/* model, kernels and device must outlive it; the model's vectors must be read. */
hearth_status hth_gpu_open(const hth_model *model, const hth_kernels *kernels, hth_device *device,
                           const hth_gpu_place *place, hth_gpu_read_fn *read, void *user, hth_gpu **out,
                           hearth_error *err);
void hth_gpu_close(hth_gpu *gpu);
const hth_gpu_place *hth_gpu_where(const hth_gpu *gpu);
/* Whether all its weights are quantised: then it owes the bits of the CPU. */
bool hth_gpu_is_strict(const hth_gpu *gpu);

/* The largest scale of a layer's neurons there, which bounds their integers. */
float hth_gpu_scale_top(const hth_gpu *gpu, uint32_t i_layer);

/* The rows of the step under way through the layers that lie there, from s->x; to s->x or, with the head, to the sink.
 * DEVICE: it was lost. */
hearth_status hth_gpu_run(hth_gpu *gpu, hth_step *s, hth_logits_sink *to, hearth_error *err);

/* Positions of a sequence of n_ctx. MEMORY: there is no room for so many. */
hearth_status hth_gpu_reserve(hth_gpu *gpu, uint32_t n_ctx, uint32_t *slot, hearth_error *err);
void hth_gpu_release(hth_gpu *gpu, uint32_t slot);

#endif
