/* The part of a model on a device: consecutive layers with their KV caches, of each layer the first neurons, and
 * optionally the head. Parts on several devices form a chain: the first begins at layer 0, each other one where the
 * part before it ends. The engine opens them with the model; step.c runs them instead of the CPU's layers. The CPU
 * computes a layer's remaining neurons concurrently, and both sums are added once per layer, as integers.
 * Quantised weights give the CPU's bits wherever they are (docs/arithmetic.md); float matrices do not.
 *
 * All memory is allocated at open. Steps of several threads are serialised. */
#ifndef HTH_FORWARD_GPU_GPU_H
#define HTH_FORWARD_GPU_GPU_H

#include "device/device.h"
#include "planner/placement.h"
#include "forward/forward_int.h"

/* How host and device synchronise (reference: Vulkan timeline semaphores): all command lists of a step are
 * submitted at once and wait for the host's signals, or each is submitted when the host is ready. Same results. */
typedef enum hth_submit_mode { HTH_SUBMIT_UPFRONT = 0, HTH_SUBMIT_ON_DEMAND } hth_submit_mode;

typedef struct hth_offload_params {
    uint32_t first_layer, end_layer; /* layers [first_layer, end_layer) are on the device */
    const uint32_t *n_hot; /* [end_layer] units of each on the device (hth_layer_n_unit), the first ones */
    bool head;             /* the head too; only with the last layer */
    uint32_t n_row;        /* maximum tokens of a step; larger batches are split */
    uint32_t n_position;   /* of all sequences together, each by whole pages */
    /* One more than live sequences, for which plans are made, so that one that ended can go on: whose states of recurrent
     * layers it has; 0: as n_position suggests (hth_gpu_n_state), and planned for one. */
    uint32_t n_session;
    hearth_kv_type kv;
    hearth_selector selector;
    hth_submit_mode submit_mode;
    hth_placement_stream streams[HTH_PLACEMENT_STREAMS];
    /* maximum work of one submission, in products of a weight and a byte (submit_budget.c); 0: what a device of
     * its kind should do in HTH_GPU_SUBMIT_MS */
    uint64_t max_work;
    uint32_t n_thread;    /* that load weights and compile; 0: one for each core */
    uint32_t slow_levels; /* hth_gpu_slow_levels: not used, because another way to compute the same is faster */
    uint32_t
        /* maximum number of offloaded layers, the head counted as one; 0: no limit. Applies to later placements
         * that replace this one. */
        max_layer;
    hth_layer_set host_experts; /* layers of which the host computes all experts: of later placements too, as max_layer */
    /* layers of which the device reads missing experts from the host's memory, for steps of one token, if it can; else
     * the host computes them */
    hth_layer_set read_experts;
    bool reads_host; /* the device reads the host's memory where it lies, so that experts need little staging memory */
    bool streams_experts; /* the host may read experts from the file: they come by staging memory, whatever the device reads */
    bool has_given_experts; /* of each token, by hth_step_set_route; without that function the first ones */
    bool bit_exact; /* fail to open if the results would differ from the CPU's bits */
    /* the host computes operations of these layers that no shader has, with a round trip each; else such layers are not
     * on devices */
    bool crosses;
    /* the host has the keys and values: it computes HEADS and ATTEND of these layers, and the device has no KV cache */
    bool host_kv;
    bool has_all_layers; /* of the model, so that layers that share keys and values lie on one device */
} hth_offload_params;
static inline uint32_t hth_offload_n_live(const hth_offload_params *p) { return p->n_session > 1 ? p->n_session - 1 : 1; }
enum { HTH_GPU_SUBMIT_MS = 50, HTH_GPU_MAX_SESSION = 4096 };

/* Positions for a sequence of n_ctx positions: whole pages, clamped to the maximum. */
uint32_t hth_gpu_positions(uint32_t n_ctx);
/* Tokens of a step for a requested n_batch. Drivers that compute on the CPU may silently end loops after 65,535
 * iterations, and batches of several tokens loop over all positions: such drivers read long contexts one token at
 * a time, which loops per split. */
uint32_t hth_gpu_batch_size(const hth_device_info *info, uint32_t n_batch, uint32_t n_ctx);

/* max_work for a device with `rate` products per second. */
uint64_t hth_gpu_max_submit_work(double rate);

/* prompt_rates.c: bytes of weights (in the device's layout) times tokens per second of rows for many tokens, by how
 * they are computed; 0: not measured, because the device cannot. Takes some 0.1 s on a GPU, and up to half of the
 * device's free memory. type: quantised. MEMORY, DEVICE. */
hearth_status hth_gpu_measure_prompts(hth_device *device, hth_type type, double rates[HTH_N_COOPMAT_LEVEL],
                                      hearth_error *err);
/* read_rate.c: bytes per second of rows of the host's memory that the device reads where they lie, and converts; 0: it cannot
 * read that, converts no rows of the type, or has too little memory. Takes a sixteenth of that, at most 64 MiB, and some hundredths of a second on a GPU. MEMORY, DEVICE. */
hearth_status hth_gpu_measure_reads(hth_device *device, hth_type type, double *rate, hearth_error *err);
/* The levels (bit i: level i) that are slower than one below them. */
uint32_t hth_gpu_slow_levels(const double rates[HTH_N_COOPMAT_LEVEL]);
/* Products of a weight and a byte per second at such a rate. */
double hth_gpu_products(hth_type type, double rate);

/* Why layer i (or, for i = n_layer, the head) cannot be offloaded; NULL: it can. With params->crosses it can if any of
 * its operations can. */
const char *hth_gpu_unsupported_reason(const hth_model *model, const hth_offload_params *params,
                                       uint32_t i_layer);
/* Converts rows [first, first + n) of a matrix in host memory to the structure-of-arrays layout (weight_layout.h),
 * with all threads. Rows of up to HTH_GPU_MAX_STAGED bytes. */
enum { HTH_GPU_MAX_STAGED = 32 << 10 };
void hth_gpu_stage_rows(hth_pool *pool, const hth_matrix *m, uint32_t first, uint32_t n, uint8_t *to);

/* Copies of the states of recurrent layers, of each kind, that the devices of such parts have; 0: none has any. */
uint32_t hth_gpu_n_state(const hth_model *model, const hth_offload_params *params);

/* Whether operation i of the program is on a device, if its neurons are. */
bool hth_gpu_op_is_on_device(const hth_model *model, const hth_offload_params *params, uint32_t i_op);

/* Dispatches of operation i of the program for one token, if it is on a device. A norm is counted with what reads it. */
uint32_t hth_gpu_op_dispatches(const hth_model *model, const hth_offload_params *params, uint32_t i_op);

/* Units of layer i (hth_layer_n_unit) can be divided in multiples of this: neurons by clusters, experts singly; 0: they
 * cannot. */
uint32_t hth_gpu_split_granularity(const hth_model *model, uint32_t i_layer);

/* Units of a layer that a device with bindings of at most `max` bytes holds at most: all, or as many experts as one binding
 * has. */
uint32_t hth_gpu_max_units(const hth_model *model, uint64_t max, const hth_offload_params *params, uint32_t i_layer);
/* Bytes on a device with bindings of at most `max` bytes. false: something exceeds that. */
bool hth_gpu_workspace_bytes(const hth_model *model, uint64_t max, const hth_offload_params *params,
                             uint64_t *bytes);
bool hth_gpu_layer_bytes(const hth_model *model, uint64_t max, const hth_offload_params *params,
                         uint32_t i_layer, uint32_t n_hot, uint64_t *bytes);
/* Bytes on a device, of a layer that fits there, which a token does not read: experts that are not chosen for it. */
uint64_t hth_gpu_idle_bytes(const hth_model *model, uint64_t max, const hth_offload_params *params, uint32_t i_layer);
bool hth_gpu_cache_bytes(const hth_model *model, uint64_t max, const hth_offload_params *params,
                         uint32_t i_layer, uint64_t *bytes);
/* What crosses for each token in a layer whose keys and values the host has: round trips, and bytes both ways. */
typedef struct hth_gpu_kv_trips {
    uint32_t n;
    uint64_t bytes;
} hth_gpu_kv_trips;
hth_gpu_kv_trips hth_gpu_kv_trips_of(const hth_model *model, const hth_offload_params *params, uint32_t i_layer);
/* Bytes of the states of a layer on a device: those that are part of its cache, copies for all sessions, and those that a
 * step of one token reads and writes. */
typedef struct hth_gpu_state_use {
    uint64_t held, moved;
} hth_gpu_state_use;
hth_gpu_state_use hth_gpu_states_of(const hth_model *model, const hth_offload_params *params, uint32_t i_layer);
bool hth_gpu_head_bytes(const hth_model *model, uint64_t max, const hth_offload_params *params, uint64_t *bytes);

/* Reads rows [first, first + n) of a matrix in file format into `rows`. */
typedef hearth_status hth_gpu_read_fn(void *user, const hth_matrix *matrix, uint64_t first, uint64_t n,
                                      uint8_t *rows, hearth_error *err);

/* model, kernels and device must outlive it; the model's vectors must be loaded; what params points to is copied.
 * Tests the device's shaders here, or, if the host has neurons too, in hth_gpu_bind_cpu_rows, once it is known
 * which are used. UNSUPPORTED: params->bit_exact, and some weights are floats or a shader differs from the CPU. */
hearth_status hth_gpu_open(const hth_model *model, const hth_kernels *kernels, hth_device *device,
                           const hth_offload_params *params, hth_gpu_read_fn *read, void *user, hth_gpu **out,
                           hearth_error *err);
/* The next part belongs to the chain of `last` from now on. */
void hth_gpu_append(hth_gpu *last, hth_gpu *next);
hth_gpu *hth_gpu_next(const hth_gpu *gpu); /* NULL: it is the last */
/* Bytes of this machine's memory that hth_gpu_bind_cpu_rows will take for experts that move. */
uint64_t hth_gpu_moves_to_come(const hth_gpu *gpu);
hth_device *hth_gpu_get_device(const hth_gpu *gpu);
const hth_offload_params *hth_gpu_get_params(const hth_gpu *gpu);
/* Bytes in use on its device, and the budget, between two steps. */
hth_device_usage hth_gpu_usage(hth_gpu *gpu, uint64_t *budget);
/* Whether a status is the device's fault, and the CPU can do without it. */
bool hth_gpu_is_device_failure(hearth_status st);
/* Whether the last step failed on its device so. */
bool hth_gpu_has_failed(const hth_gpu *gpu);

/* The functions below take a part with all that follow it in its chain. */

void hth_gpu_close(hth_gpu *gpu);
/* Frees everything on the devices, once no step runs; later steps fail with DEVICE. The offload parameters stay
 * valid. A device that is lost, or cannot complete what was submitted, keeps its memory until it is closed. */
void hth_gpu_unload(hth_gpu *gpu);
/* The end of the layers on devices; whether the head is on one. */
uint32_t hth_gpu_end_layer(const hth_gpu *gpu);
/* The neurons of layer i that are on a device; i is one of the first hth_gpu_end_layer. */
uint32_t hth_gpu_n_hot(const hth_gpu *gpu, uint32_t i_layer);
/* How many experts of such a layer are on a device; 0: it does not divide them. */
uint32_t hth_gpu_n_expert(const hth_gpu *gpu, uint32_t i_layer);
bool hth_gpu_has_head(const hth_gpu *gpu);
/* Whether neurons of layer i are on a device: of a dense network, which a shader computes. */
bool hth_gpu_has_ffn(const hth_gpu *gpu, uint32_t i_layer);
/* The tokens that a step may have: where the host computes operations but attention in between, all of a step at once. */
uint32_t hth_gpu_max_tokens(const hth_gpu *gpu);
/* Whether a layer is divided between the CPU and a physical GPU (not null, simulated or lavapipe). */
bool hth_gpu_divides_layers(const hth_gpu *gpu);
/* Whether they give the CPU's bits: all weights are quantised, and the shaders passed the self-test. */
bool hth_gpu_is_bit_exact(const hth_gpu *gpu);
/* Why they do not: "mul_mat_vec_q of Q4_0 differs from the CPU"; "": they do. */
const char *hth_gpu_bit_exact_reason(const hth_gpu *gpu);
/* Whether sequences can return to any token of a draft: the states on the devices have what came since, or there are none.
 * States that change with every token do not. */
bool hth_gpu_returns_to_drafts(const hth_gpu *gpu);
/* Call once the host has loaded its own rows: matrices of divided layers then point to the first row that is not
 * on a device, and scale_max is known of all clusters. */
hearth_status hth_gpu_bind_cpu_rows(hth_gpu *gpu, hearth_error *err);

/* Makes all copies of pages that wait in the pool (hth_kv_pool_next_copy); before each step, after its sequences were
 * prepared. What fails waits for the next call. Errors: those of the next one. */
hearth_status hth_gpu_copy_pages(hth_gpu *gpu, hth_kv_pool *pool, hearth_error *err);
/* Runs the current step's tokens through the offloaded layers, from the residual stream of s; result there or, with the head, to the
 * sink. DEVICE: a device was lost. */
hearth_status hth_gpu_run(hth_gpu *gpu, hth_step *s, hth_logits_sink *to, hearth_error *err);

/* sim_host_cost.c: charges a step's remaining layers and head to the clock of the last device, if it is simulated and
 * has a host rate. Then the sum of all clocks in ns, because devices compute in turn; 0: host time is not modelled. */
void hth_gpu_sim_host_cost_rest(hth_gpu *gpu, const hth_step *s, bool logits);
uint64_t hth_gpu_model_time(hth_gpu *gpu);

/* Counters over all steps. */
typedef struct hth_gpu_counts {
    uint64_t n_step;            /* batches run, after splitting into classes */
    uint64_t n_split;           /* layers whose other neurons the CPU computed, over all steps */
    uint64_t n_split_empty;     /* of them those without active CPU neurons */
    uint64_t n_streamed;        /* steps with streamed weights */
    uint64_t n_streamed_shared; /* of them those where the host computed a share */
    /* of layers whose experts are divided: experts that were chosen, for all tokens; those that were in slots */
    uint64_t n_chosen, n_chosen_there;
    uint64_t n_moved, moved_bytes; /* experts that were moved to slots, and their bytes */
    uint64_t n_passed, passed_bytes; /* experts that passed through the device in steps of many tokens, and their bytes */
} hth_gpu_counts;
hth_gpu_counts hth_gpu_count(const hth_gpu *gpu); /* of all parts together */

#endif
