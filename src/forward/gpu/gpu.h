/* The part of a model that lies on a device: its first layers and their caches, of each the first of its
 * neurons, perhaps the head. Opened by the engine with the model, run by step.c in place of those layers.
 * What a layer's other neurons give is computed by the CPU at the same time, and both meet once in a
 * layer, as integers. Quantised weights give the bits of the CPU wherever they lie (docs/arithmetic.md);
 * rows of floats do not.
 *
 * Everything is allocated when it is opened. Steps of several threads take turns. */
#ifndef HTH_RUN_GPU_GPU_H
#define HTH_RUN_GPU_GPU_H

#include "device/device.h"
#include "planner/placement.h"
#include "forward/forward_int.h"

/* How host and device hand over to each other (reference: Vulkan timeline semaphores): all tapes of a step
 * are submitted at once and wait for the host's signals, or each when the host is ready. Same results. */
typedef enum hth_submit_mode { HTH_SUBMIT_UPFRONT = 0, HTH_SUBMIT_ON_DEMAND } hth_submit_mode;

typedef struct hth_offload_params {
    uint32_t n_layer;      /* the first so many layers lie there, */
    const uint32_t *n_hot; /* [n_layer] of each so many neurons, the first ones; d_ff: all of them */
    bool head;             /* and the head; only with all layers */
    uint32_t n_row;        /* tokens of a step, at most; more are done in pieces */
    uint32_t n_position;   /* of all sequences together, a multiple of HTH_GPU_SLOT for each */
    hearth_kv_type kv;
    hearth_selector selector;
    hth_submit_mode submit_mode;
    hth_placement_stream streams[HTH_PLACEMENT_STREAMS];
    uint64_t max_work; /* of a submission, at most: products of a weight and a byte (work.c); 0: as many as a
                        device of its kind should do in HTH_GPU_SUBMIT_MS */
    uint32_t
        max_layer;  /* that may lie there, the head counted as one; 0: all. For what replaces this place. */
    bool bit_exact; /* to be refused where it would not give the CPU's bits */
} hth_offload_params;
enum { HTH_GPU_SLOT = 16, HTH_GPU_SUBMIT_MS = 50 };

/* For sequences of n_ctx positions: whole slots, as many as there can be. */
uint32_t hth_gpu_positions(uint32_t n_ctx);
/* Tokens of a step where n_batch are wanted. Drivers that compute on the CPU may end loops silently after
 * 65,535 iterations, and steps of several tokens go over all positions in one: there long contexts are read
 * token by token, which goes split by split. */
uint32_t hth_gpu_batch_size(const hth_device_info *info, uint32_t n_batch, uint32_t n_ctx);

/* max_work of a device that makes so many products a second. */
uint64_t hth_gpu_max_submit_work(double rate);

/* Why layer i (or, for i = n_layer, the head) cannot lie on a device; NULL: it can. */
const char *hth_gpu_unsupported_reason(const hth_model *model, const hth_offload_params *params,
                                       uint32_t i_layer);
/* Rows [first, first + n) of a matrix, as they lie in the host's memory, to planes (weight_layout.h), by all
 * threads. Rows of up to HTH_GPU_MAX_STAGED bytes. */
enum { HTH_GPU_MAX_STAGED = 32 << 10 };
void hth_gpu_stage_rows(hth_pool *pool, const hth_matrix *m, uint32_t first, uint32_t n, uint8_t *to);

/* Neurons of layer i are divided in multiples of so many; 0: they cannot be, as down does not lie neuron
 * by neuron. */
uint32_t hth_gpu_split_granularity(const hth_model *model, uint32_t i_layer);

/* Bytes on a device whose bindings may have `most`. False: something is too large for them. */
bool hth_gpu_workspace_bytes(const hth_model *model, uint64_t max, const hth_offload_params *params,
                             uint64_t *bytes);
bool hth_gpu_layer_bytes(const hth_model *model, uint64_t max, const hth_offload_params *params,
                         uint32_t i_layer, uint32_t n_hot, uint64_t *bytes);
bool hth_gpu_cache_bytes(const hth_model *model, uint64_t max, const hth_offload_params *params,
                         uint32_t i_layer, uint64_t *bytes);
bool hth_gpu_head_bytes(const hth_model *model, uint64_t max, uint64_t *bytes);

/* Rows [first, first + n) of a matrix as the file has them, to `rows`. */
typedef hearth_status hth_gpu_read_fn(void *user, const hth_matrix *matrix, uint64_t first, uint64_t n,
                                      uint8_t *rows, hearth_error *err);

/* model, kernels and device must outlive it; the model's vectors must be read, and what place points to is
 * copied. The device's programs are tested here, or where the host has neurons too by
 * hth_gpu_bind_cpu_rows, as soon as it is known which are used. UNSUPPORTED: place->strict, and some
 * weights are floats, or a program differs from the CPU. */
hearth_status hth_gpu_open(const hth_model *model, const hth_kernels *kernels, hth_device *device,
                           const hth_offload_params *params, hth_gpu_read_fn *read, void *user, hth_gpu **out,
                           hearth_error *err);
void hth_gpu_close(hth_gpu *gpu);
/* Gives back all that it has on the device, once no step runs; steps are refused with DEVICE from then on.
 * What was placed where, and its sequences, it still knows. A device that is lost, or refuses to end what was
 * submitted, keeps its memory until it is closed. */
void hth_gpu_unload(hth_gpu *gpu);
/* Sequences have the positions that they have in another one with as many. Before the first step. */
void hth_gpu_copy_slots(hth_gpu *gpu, hth_gpu *from);
/* Bytes that are in use on its device, and may be now, between two steps. */
uint64_t hth_gpu_usage(hth_gpu *gpu, uint64_t *budget);
const hth_offload_params *hth_gpu_get_params(const hth_gpu *gpu);
/* Whether it gives the bits of the CPU: all its weights are quantised, and the device's programs passed
 * their test. */
bool hth_gpu_is_bit_exact(const hth_gpu *gpu);
/* Why it does not: "mul_mat_vec_q of Q4_0 differs from the CPU"; "". */
const char *hth_gpu_bit_exact_reason(const hth_gpu *gpu);
/* The largest scale of a layer's neurons there, which bounds their integers. */
float hth_gpu_scale_max(const hth_gpu *gpu, uint32_t i_layer);
/* Once the host has read its own rows: matrices of neurons of which some lie there point to the first that
 * do not, and each scale_max is that of the whole layer. */
hearth_status hth_gpu_bind_cpu_rows(hth_gpu *gpu, hearth_error *err);

/* The rows of the step under way through the layers that lie there, from s->x; to s->x or, with the head,
 * to the sink. DEVICE: it was lost. */
hearth_status hth_gpu_run(hth_gpu *gpu, hth_step *s, hth_logits_sink *to, hearth_error *err);

/* sim_host_cost.c: a step's layers and head that do not lie there, on the clock of a simulated card that has a rate
 * for its host. Then its clock in ns; 0: nobody charges it. */
void hth_gpu_sim_host_cost_rest(hth_gpu *gpu, const hth_step *s, bool logits);
uint64_t hth_gpu_model_time(hth_gpu *gpu);

/* What steps did so far. */
typedef struct hth_gpu_counts {
    uint64_t n_step;            /* of a class, in pieces */
    uint64_t n_split;           /* layers of which the CPU computed all other neurons, over all steps */
    uint64_t n_split_empty;     /* of them those where none fired */
    uint64_t n_token_retried;   /* tokens that were done again: a value was beyond its layer's usual ones */
    uint64_t n_streamed;        /* steps whose weights passed through; */
    uint64_t n_streamed_shared; /* of them those where the host computed its share */
} hth_gpu_counts;
hth_gpu_counts hth_gpu_count(const hth_gpu *gpu);

/* Positions of a sequence of n_ctx. MEMORY: there is no room for so many. */
hearth_status hth_gpu_reserve(hth_gpu *gpu, uint32_t n_ctx, uint32_t *slot, hearth_error *err);
void hth_gpu_release(hth_gpu *gpu, uint32_t slot);

#endif
