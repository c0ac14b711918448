/* What the files of this folder share: a part of a model on a device, its matrices, buffers and tapes. */
#ifndef HTH_RUN_GPU_GPU_INT_H
#define HTH_RUN_GPU_GPU_INT_H

#include "forward/gpu/shader_params.h"
#include "forward/gpu/gpu.h"
#include "forward/gpu/weight_layout.h"
#include "forward/gpu/selftest.h"

#include <pthread.h>

/* ---- vectors and matrices (weights.c) ------------------------------------------------------------- */

/* Floats among those of the model, which lie together: bytes from `at` on; n 0: absent. */
typedef struct hth_gpu_vector {
    uint64_t offset;
    uint32_t n;
} hth_gpu_vector;

/* Rows of one type that lie together: some of a matrix, or of several with the same input. */
typedef struct hth_gpu_matrix {
    hth_type type;
    uint32_t n_row, first; /* first: where its results begin among those of the group */
    hth_soa_layout layout;
    hth_buffer *weights;
    uint64_t offset; /* bytes from there on the planes begin */
    hth_gpu_vector bias;
} hth_gpu_matrix;

/* Matrices with the same input, whose results stand side by side: q, k, v; gate, up. */
typedef struct hth_gpu_fused_matrix {
    hth_gpu_matrix *matrices;
    uint32_t n_matrix;
    uint32_t n_row, n_col;               /* results, inputs of a token */
    bool wants_32, wants_256, wants_f32; /* forms of the input */
} hth_gpu_fused_matrix;

typedef struct hth_gpu_layer {
    hth_gpu_fused_matrix qkv, o, gate_up, down;
    hth_gpu_fused_matrix predict_in, predict_out;
    hth_gpu_vector attn_norm[2], ffn_norm[2], attn_post[2], ffn_post[2]; /* weight, bias */
    hth_gpu_vector head_norms;                                           /* of queries, then of keys */
    hth_gpu_vector thresholds;
    hth_gpu_vector cold_bias[2]; /* of gate and up of the host's neurons, where weights pass through */
    hth_buffer *cache;
    hth_buffer_range keys, values;
    uint32_t head_words;  /* of a cache, from KV head to KV head */
    uint32_t n_hot;       /* neurons whose rows lie here: the first ones */
    bool down_transposed; /* down's rows are neurons; then: */
    hth_gpu_vector down_bias;
    float scale_max; /* the largest of its scales */
    hth_layer cold;  /* the other neurons, as a layer of the CPU's; d_ff 0: there are none */
    hth_layer
        cold_synced; /* the same with the H of a token that is done with care: threads that come late still
                         look at it */
} hth_gpu_layer;

/* ---- the values of a step (workspace.c) -------------------------------------------------------------------- */

/* Rows whose logits are computed at once. */
enum { HTH_GPU_HEAD_ROWS = 16 };

/* The input of a group in its forms. */
typedef struct hth_gpu_input {
    hth_buffer_range x, q, d, sum, q_256, d_256, sum_256;
} hth_gpu_input;

/* For n_tok tokens; widths are the largest over the layers. */
typedef struct hth_gpu_workspace {
    hth_buffer *from_host, *to_host, *memory;
    hth_buffer_range step, embedded, table, grids; /* from_host; grids: three words for each layer, of four */
    hth_buffer_range host_sums,
        host_exponent; /* from_host: HTH_HOST_SUMS words, then [n_tok][d_model] of 64 bits; of a token */
    hth_buffer_range result; /* to_host: [n_tok][d_model], or [HTH_GPU_HEAD_ROWS][n_vocab] */
    hth_buffer_range d2h_ffn_input,
        d2h_scores;              /* to_host: [n_tok][d_model], [n_tok][d_ff] for the layer under way */
    hth_buffer_range d2h_absmax; /* to_host: {2^k, largest |h|} [n_layer][n_tok] */
    hth_buffer_range x, out, attn_saved; /* [n_tok][d_model] */
    hth_buffer_range qkv, attn_out, q_q8;
    hth_buffer_range splits, split_partials; /* of one token */
    hth_buffer_range gate_up, rank_out, scores;
    hth_buffer_range active_mask;       /* a bit for each neuron: whether its rows are wanted */
    hth_buffer_range down_absmax, sums; /* of neuron-major down: of all tokens; of n_stage */
    uint32_t n_stage;
    hth_buffer_range staging[2], slots[2]; /* of weights that pass through: from_host; there */
    hth_buffer_range acc64;                /* HTH_HOST_SUMS words, then [n_tok][d_model] of 64 bits */
    hth_buffer_range logits;
    hth_gpu_input input;
    uint32_t sine_offset, q_q8_d_offset, n_split; /* words; splits of the longest sequence */
} hth_gpu_workspace;

hearth_status hth_gpu_workspace_open(hth_gpu *g, hearth_error *err);
void hth_gpu_workspace_close(hth_gpu *g);
hearth_status hth_gpu_caches_open(hth_gpu *g, hearth_error *err);
void hth_gpu_caches_close(hth_gpu *g);

/* ---- tapes (record.c) --------------------------------------------------------------------------------- */

/* Steps of one row, of up to 8, and of up to n_tok have tapes of their own. */
enum { HTH_GPU_ONE, HTH_GPU_FEW, HTH_GPU_MANY, HTH_GPU_N_CLASS, HTH_GPU_FEW_ROWS = 8 };

/* What the host does in the midst of a step, one after another, as soon as so many letters have come. What
 * comes from the device for it (a layer's inputs, or that a staging is free) is a letter. */
enum {
    HTH_HOST_OP_COLD_FFN,
    HTH_HOST_OP_SYNC_EXPONENT,
    HTH_HOST_OP_STAGE_CHUNK,
    HTH_HOST_OP_PARTIAL_FFN,
    HTH_N_HOST_OP
};
typedef struct hth_gpu_host_op {
    uint32_t kind, index; /* a hand: its neurons, or with care; a piece: to be staged, or its share */
    uint32_t n_d2h;
} hth_gpu_host_op;

/* A step's tapes in the order in which they run. Each layer of which the host has a part (a hand) is cut
 * where its letter to the host is complete, and where the host's sums are wanted; besides, tapes are cut
 * where they would be too much work for a submission (work.c). */
typedef struct hth_gpu_segment {
    hth_cmdlist *cmdlist;
    uint32_t n_d2h, n_host_op; /* letters that are written by its end; acts that must be done before it */
    uint64_t work;             /* as hth_offload_params counts it */
} hth_gpu_segment;
typedef struct hth_gpu_segments {
    hth_gpu_segment *segments; /* [n], with room for so many */
    uint32_t n, capacity;
    hth_gpu_host_op *host_ops; /* [n_host_op] */
    uint32_t n_host_op;
} hth_gpu_segments;

/* ---- weights that pass through (weight_stream.c) ------------------------------------------------------------ */

/* Rows of the host's neurons as they pass through: of one matrix, as many as a slot holds. Pieces are used in
 * their order, of each layer gate, up, then down; while one is used, the next is on its way to the other
 * slot. */
typedef struct hth_stream_chunk {
    const hth_matrix *rows; /* the host's */
    uint32_t first, n_row;  /* of them */
    uint32_t neuron;        /* number of the first in its layer */
    hth_soa_layout layout;
    hth_gpu_vector bias;
    uint32_t i_split_layer;
    hth_layer cpu_neurons;     /* neurons of the hand that the host computes meanwhile; d_ff 0: none */
    uint32_t first_cpu_neuron; /* their first one's number among the hand's */
} hth_stream_chunk;

/* Steps of so many tokens (gpu.h), up to n_tok. */
typedef struct hth_weight_stream {
    hth_placement_stream config;
    uint32_t n_row;
    hth_stream_chunk *chunks; /* [n_chunk] */
    uint32_t n_chunk;
    hth_gpu_segments segments;
} hth_weight_stream;

/* Bytes of a slot for this model; 0: its weights cannot pass through. */
uint64_t hth_gpu_slot_bytes(const hth_model *model);
/* The pieces of all hands, once the host has read its rows. */
hearth_status hth_weight_streams_open(hth_gpu *g, hearth_error *err);
void hth_weight_streams_close(hth_gpu *g);
/* Neurons of the host's in a layer that pass through, the first ones. */
uint32_t hth_gpu_n_streamed(const hth_gpu_layer *l, const hth_weight_stream *p);
/* Piece i into its staging. */
void hth_gpu_stage(const hth_gpu *g, hth_pool *pool, const hth_weight_stream *p, uint32_t i);

struct hth_gpu {
    const hth_model *model;
    const hth_kernels *kernels;
    hth_device *device;
    hth_offload_params params;
    char bit_exact_reason[HTH_GPU_MESSAGE_MAX]; /* why it does not give the CPU's bits; empty: it does */
    hth_gpu_layer *layers;                      /* [place.n_layer] */
    uint32_t *split_layers;                     /* [n_split_layer] layers of which the host has a part */
    uint32_t n_split_layer;
    hth_gpu_fused_matrix head;
    hth_gpu_vector output_norm[2];
    hth_buffer *vectors;
    float *staging_vectors; /* of the vectors, while they are gathered */
    size_t n_staging_vector, staging_capacity;
    hth_gpu_workspace workspace;
    hth_gpu_segments segments[HTH_GPU_N_CLASS];
    hth_gpu_segments synced_segments; /* of one row */
    hth_weight_stream streams[HTH_PLACEMENT_STREAMS + 1];
    uint32_t n_stream;
    uint32_t
        i_full_stream; /* among them, behind those of the place: nothing is shared, for any number of tokens; 0:
                       there is none, and no other shares */
    hth_gpu_segments head_segments[2]; /* of one row; of HTH_GPU_HEAD_ROWS */
    hth_submit_info *submits;          /* [of the longest tapes, and the head's] of the step under way, */
    hth_fence *fences;
    uint32_t n_submitted, n_done; /* of which so many were submitted, and were seen to be done */
    uint32_t *cold_absmax;        /* [n_split_layer][n_tok] bits of the host's largest |h| */
    int64_t *shared_sums;    /* [n_tok][d_model] of the host's share of a layer, so far; NULL: it has none */
    uint32_t shared_state;   /* what is said of them: HTH_HOST_* */
    uint64_t n_step_retried; /* steps with such a share that were not usual */
    bool host_sums_invalid;  /* sums of the host's in the step under way mean nothing, for whichever row */
    uint64_t host_value;     /* the host's last signal */
    uint64_t timeout_ns;     /* after which the device is lost */
    hth_coopmat_level coopmat; /* of which rows of many tokens make use, where they can */
    hth_gpu_counts counts;
    pthread_mutex_t step_lock;
    bool unloaded;      /* hth_gpu_unload */
    uint8_t *slot_used; /* [n_position / HTH_GPU_SLOT] */
    uint32_t n_slot;
};

/* Of a layer of the CPU's some neurons; first: a multiple of HTH_PANEL_ROW, and n too but for the last. */
hth_layer hth_layer_slice_neurons(const hth_layer *l, uint32_t first, uint32_t n);
/* sim_host_cost.c: the host's neurons of a layer, of which so many fired over all tokens. */
void hth_gpu_sim_host_cost_cold(hth_gpu *g, const hth_step *s, const hth_layer *cold, uint64_t n_fired);
/* The same of a piece of weights that pass through. */
void hth_gpu_sim_host_cost_chunk(hth_gpu *g, const hth_stream_chunk *chunk);
static inline void *hth_gpu_mapped(hth_buffer_range s)
{
    return (uint8_t *)hth_buffer_map(s.buffer) + s.offset;
}

/* ---- a step under way -----------------------------------------------------------------------------------
 */

/* host_ops.c: what the host has to do for n rows; p: of a passage, or NULL. */
void hth_gpu_run_host_op(hth_gpu *g, hth_step *s, const hth_weight_stream *p, const hth_gpu_host_op *op,
                         uint32_t n);
/* Whether all divided layers say what their usual values are. */
bool hth_gpu_has_calib_range(const hth_gpu *g);
/* Of n rows that were done so many, the first ones, whose sums fit together. */
uint32_t hth_gpu_n_in_range(const hth_gpu *g, const hth_weight_stream *p, uint32_t n);

/* submit.c: a step's tapes. */
typedef struct hth_gpu_step_exec {
    const hth_gpu_segments *segments;
    const hth_weight_stream *stream; /* that they are of, or NULL */
    uint32_t n_row;
    hth_submit_mode submit_mode;
    const hth_gpu_segments *next; /* more, or NULL */
} hth_gpu_step_exec;
hearth_status hth_gpu_submit_step(hth_gpu *g, hth_step *s, const hth_gpu_step_exec *p, hearth_error *err);
/* Waits for a step whose end was not seen: it may still read what the next one is told, and wait for signals.
 */
hearth_status hth_gpu_wait_idle(hth_gpu *g, hearth_error *err);

/* The classes' numbers of rows. */
uint32_t hth_gpu_bucket_size(const hth_gpu *g, int class);
/* All tapes, and room for a step of them. */
hearth_status hth_gpu_record(hth_gpu *g, hearth_error *err);
void hth_gpu_segments_free(hth_gpu *g);
/* work.c: what stands for an max_work of 0. */
uint64_t hth_gpu_default_submit_work(const hth_device_info *info);

/* ---- matrix units (tiles.c) -------------------------------------------------------------------------- */

/* LOCAL, COLS, ROWS and the shape for matrices of a form and steps of n_tok tokens, among the constants of
 * mul_mat_q_cm2, of mul_mat_q, or of neither, in this order and not above `most`: which of them is returned.
 * NONE: the device has no shape that fits, or too little that a workgroup shares. */
hth_coopmat_level hth_gpu_choose_tile(const hth_device_info *info, const hth_quant_desc *desc,
                                      hth_coopmat_level most, uint32_t n_tok,
                                      uint32_t consts[HTH_TILE_N_CONST]);

/* ---- sources of weights (weights.c) ------------------------------------------------------------------- */

/* Matrices with the same input, in order: the first n_tok of each; absent ones have none. */
enum { HTH_GPU_MAX_MATRICES = 3 };
typedef struct hth_gpu_fused_src {
    const hth_matrix *matrix[HTH_GPU_MAX_MATRICES];
    const float *bias[HTH_GPU_MAX_MATRICES];
    uint64_t n_row[HTH_GPU_MAX_MATRICES];
    uint32_t n;
} hth_gpu_fused_src;

/* The groups of a layer with n_hot of its neurons: q k v, o, gate and up, down, the predictor's two. */
enum { HTH_GPU_N_FUSED = 6 };
void hth_gpu_fused_srcs(const hth_model *model, uint32_t i_layer, uint32_t n_hot, hearth_selector selector,
                        hth_gpu_fused_src out[HTH_GPU_N_FUSED]);
hth_gpu_fused_src hth_gpu_head_src(const hth_model *model);
/* Bytes of a group whose bindings may have `most`. False: no program knows a type, or it overflows. */
bool hth_gpu_fused_matrix_bytes(const hth_gpu_fused_src *source, uint64_t max, uint64_t *bytes);
/* The first matrix of floats among those of the place; NULL: all are quantised. */
const hth_matrix *hth_gpu_first_floats(const hth_model *model, const hth_offload_params *params);
/* All weights and vectors of the place. */
hearth_status hth_gpu_weights_open(hth_gpu *g, hth_gpu_read_fn *read, void *user, hearth_error *err);
void hth_gpu_weights_close(hth_gpu *g);

#endif
