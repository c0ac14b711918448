/* Types that the files of this folder share: the offloaded part of a model, its matrices, buffers and command
 * lists. */
#ifndef HTH_FORWARD_GPU_GPU_INT_H
#define HTH_FORWARD_GPU_GPU_INT_H

#include "forward/gpu/shader_params.h"
#include "forward/gpu/gpu.h"
#include "forward/gpu/weight_layout.h"
#include "forward/gpu/selftest.h"
#include "store/expert_policy.h"

#include <pthread.h>

/* ---- vectors and matrices (weights.c) ------------------------------------------------------------- */

/* A vector of floats in the shared vector buffer: byte offset and length; n 0: absent. */
typedef struct hth_gpu_vector {
    uint64_t offset;
    uint32_t n;
} hth_gpu_vector;

/* Contiguous rows of one type: part of a matrix, or of several matrices with the same input. */
typedef struct hth_gpu_matrix {
    hth_type type;
    uint32_t n_row, first; /* first: index of its first result within the fused matrix */
    hth_soa_layout layout;
    hth_buffer *weights;
    uint64_t offset; /* byte offset of the structure-of-arrays data in weights */
    hth_gpu_vector bias;
} hth_gpu_matrix;
static inline hth_buffer_range hth_gpu_matrix_range(const hth_gpu_matrix *m)
{
    return (hth_buffer_range){m->weights, m->offset, m->layout.size};
}

/* Matrices with the same input and adjacent results: q, k, v; gate, up. */
typedef struct hth_gpu_fused_matrix {
    hth_gpu_matrix *matrices;
    uint32_t n_matrix;
    uint32_t n_row, n_col;               /* results and inputs of a token */
    uint32_t i_out, y_stride, y_first;   /* output of PRODUCT; floats from a token's results to the next one's; first */
    bool wants_32, wants_256, wants_f32; /* required representations of the input */
    hth_gpu_vector bias; /* of slices, all of them: also of those that are not here yet */
} hth_gpu_fused_matrix;

/* The weights of an operation of the program. Fused matrices of PRODUCT: each for some outputs, which lie side by
 * side; of others: by name. */
enum { HTH_GPU_GATE_UP, HTH_GPU_DOWN, HTH_GPU_PREDICT_IN, HTH_GPU_PREDICT_OUT };                 /* of FFN */
enum { HTH_GPU_EXPERT_GATE, HTH_GPU_EXPERT_UP, HTH_GPU_EXPERT_DOWN, HTH_GPU_EXPERT_PARTS }; /* of EXPERTS */
enum { HTH_GPU_OP_FUSED = HTH_PRODUCT_MAX };
/* Vectors of NORM: weight, bias; of CONV: taps, bias; of RATES: a, dt; of SCAN: a, then d; of HEADS: norms of all queries, of
 * all keys, or of a latent vector; of ROUTE: by name. */
enum { HTH_GPU_ROUTER_ROWS, HTH_GPU_ROUTER_BIAS, HTH_GPU_SELECT_BIAS, HTH_GPU_EXPERT_SCALE, HTH_GPU_OP_VECTORS };
typedef struct hth_gpu_op {
    bool is_on_device;
    uint32_t n_fused;
    hth_gpu_fused_matrix fused[HTH_GPU_OP_FUSED];
    hth_gpu_vector vectors[HTH_GPU_OP_VECTORS];
    hth_buffer_range state; /* of recurrences: [hth_gpu_n_state][hth_gpu_state_words] */
} hth_gpu_op;
/* Floats of the rows of a ROUTE. */
uint64_t hth_gpu_router_floats(const hth_model *model, const hth_op *op);
/* Whether a norm is of whole rows, so that what reads it computes it. */
bool hth_gpu_norm_is_whole(const hth_program *p, const hth_op *op);
/* EXPERTS next to a ROUTE with the same input, which ROUTE then quantises for it, too; NULL: there are none. */
const hth_op *hth_gpu_experts_behind(const hth_program *p, const hth_op *route);
/* The weights of the experts of a layer, without the shared one. */
const hth_gpu_op *hth_gpu_experts_of(const hth_gpu *g, uint32_t i_layer);
/* Words of a copy of an operation's state; 0: it has none. */
uint64_t hth_gpu_state_words(const hth_model *model, const hth_op *op);
/* Runs of tokens of one sequence that a step may have, where there are states. */
uint32_t hth_gpu_max_run(const hth_model *model, const hth_offload_params *params);

/* The slots of a layer whose experts are divided between device and host (expert_slots.c), and the experts that are on
 * their way to some of them (expert_moves.c). */
/* Where gate, up or down of experts come from: expert or entry i begins at byte base + i pitch. */
typedef struct hth_gpu_expert_source {
    hth_buffer *buffer;
    uint64_t base, pitch;
    uint32_t form, i_table; /* HTH_PACK_ROWS_*; of hth_gpu_moves.tables */
} hth_gpu_expert_source;
typedef struct hth_gpu_expert_slots {
    hth_expert_policy policy; /* in a step it changes once its choices are no longer needed */
    uint32_t at;              /* word of the step block where the slots begin, with spare ones behind them */
    hth_gpu_expert_source sources[HTH_GPU_EXPERT_PARTS];
    bool is_staged;           /* these are in staging memory, because the device cannot read the host's weights */
    bool is_streamed;         /* a store has the host's, in its memory or in the file */
    uint64_t expert_bytes;    /* of all parts of an expert */
    hth_cmdlist *cmdlist;     /* of moves; NULL: the experts stay where they are */
    uint32_t jobs_at;         /* word of hth_gpu_moves.jobs, or .reads */
    bool reads;               /* steps of one token read missing experts into spare slots (expert_reads.c) */
    uint32_t first_chunk, n_chunk; /* of hth_gpu_passing; 0: they do not pass through */
    hth_fence fence;          /* of the moves that have not ended */
    bool holds_room;          /* they count in hth_gpu_moves.under_way, and have their entries */
    uint32_t n_move, slots[HTH_EXPERT_MAX_MOVES], entries[HTH_EXPERT_MAX_MOVES]; /* entries: of staging memory */
} hth_gpu_expert_slots;

/* Data of a layer that no single operation has. */
typedef struct hth_gpu_layer {
    const hth_gpu_op *ffn;     /* NULL: the device has no dense network of it */
    hth_gpu_vector head_norms; /* of queries, then of keys, as rope_store has them; absent if there are none of heads */
    hth_gpu_vector head_terms; /* [2][n_head]: sinks, then slopes; absent if the heads have neither */
    hth_gpu_vector thresholds;
    hth_gpu_vector cold_bias[2]; /* of gate and up of the host's neurons, for streamed weights */
    hth_buffer_range keys, values; /* its own, or those of the layer whose it reads */
    uint32_t head_words;  /* words of a cache from one KV head to the next */
    uint32_t n_hot;       /* neurons on the device, the first ones */
    hth_gpu_expert_slots *slots; /* NULL: its experts are not divided */
    hth_gpu_vector scale_max; /* of a transposed down (its rows are neurons): D of each cluster; absent for floats */
    bool down_transposed;     /* that of the dense network is; only then the following are set */
    hth_gpu_vector down_bias;
    hth_ffn cold;             /* the other neurons, on the CPU; d_ff 0: none */
} hth_gpu_layer;

/* ---- workspace of a step (workspace.c) --------------------------------------------------------------------- */

/* Tokens whose logits are computed at once. */
enum { HTH_GPU_HEAD_ROWS = 16 };
/* Pairs of an expert for which its rows are read once, in steps of many tokens; with matrix units up to MAX. */
enum { HTH_GPU_EXPERT_PAIRS = 8, HTH_GPU_MAX_EXPERT_PAIRS = 64 };

/* Tokens of a step, the first ones, whose choices are counted of layers whose experts pass through. */
enum { HTH_GPU_SAMPLED_ROWS = 32 };

/* The input of a fused matrix in its representations. */
typedef struct hth_gpu_input {
    hth_buffer_range x; /* where the value has its floats */
    hth_buffer_range q, d, sum, q_256, d_256, sum_256;
} hth_gpu_input;

/* For n_tok tokens; widths are the maximum over the layers. */
typedef struct hth_gpu_workspace {
    hth_buffer *from_host, *to_host, *memory;
    /* The step block, the grids of attention ([n_layer] three words each, padded to four), and the rotations of all
     * tokens, side by side: in from_host, where the host writes them, and in memory, where shaders read them. Command
     * lists of layers copy them first, those of the head copy the step block. */
    hth_buffer_range step_from_host, grids_from_host, table_from_host;
    hth_buffer_range step, grids, table;
    hth_buffer_range values_from_host, values_to_host, values; /* hth_gpu_value_range */
    hth_buffer_range host_sums; /* in from_host: HTH_HOST_SUMS words, then int64 [n_tok][d_model] */
    hth_buffer_range result; /* in to_host: [HTH_GPU_HEAD_ROWS][n_vocab] */
    hth_buffer_range d2h_ffn_input, d2h_scores; /* in to_host: [n_tok][d_model], [n_tok][d_ff] of the current layer */
    hth_buffer_range d2h_pairs;                 /* [n_tok][2 n_used]; then d2h_ffn_input has the rows of experts */
    hth_buffer_range q_q8;
    hth_buffer_range splits, split_partials; /* for one token */
    hth_buffer_range rank_out, rank_hidden, scores;
    hth_buffer_range active_mask;       /* one bit per neuron: whether its rows are computed */
    hth_buffer_range down_scales, sums; /* of the transposed down: for all tokens; for n_stage tokens */
    uint32_t n_stage;
    hth_buffer_range staging[2], slots[2]; /* for streamed weights: in from_host; in device memory */
    hth_buffer_range passing[2];           /* for experts that pass through */
    hth_buffer_range sampled_pairs; /* in to_host: of each layer sample_words words, [HTH_GPU_SAMPLED_ROWS][2 n_used] */
    uint32_t sample_words;
    hth_buffer_range acc64;                /* HTH_HOST_SUMS words, then int64 [n_tok][d_model] */
    hth_buffer_range expert_halves, expert_hidden; /* [n_tok][gate, up][n_used][d_ff], [n_tok][n_used][d_ff] */
    hth_buffer_range expert_parts; /* [n_tok][n_used, and the shared one][d_model]; with a transposed down unused */
    hth_buffer_range expert_groups; /* pairs of many tokens, by expert (group_pairs) */
    hth_buffer_range head_inputs; /* [n_tok][hth_gpu_heads_at_once][inputs of BY_HEAD] */
    hth_buffer_range wanted, logits; /* [HTH_GPU_HEAD_ROWS][d_model], [n_vocab] */
    hth_gpu_input input;
    uint32_t q_q8_d_offset, n_split; /* in words; splits of the longest sequence */
    uint32_t runs_at;  /* word of the step block where the runs begin, if there are states */
    uint32_t table_at; /* word of the step block where the page tables begin: n_position / HTH_KV_PAGE words per class,
                        * which all sequences together reserve at most */
    uint32_t slots_at, slot_words; /* word where the slots of experts begin; words of a layer */
    uint32_t given_at, given_words; /* of given experts: [n_row][n_used] of a layer */
} hth_gpu_workspace;

hearth_status hth_gpu_workspace_open(hth_gpu *g, hearth_error *err);
void hth_gpu_workspace_close(hth_gpu *g);
hearth_status hth_gpu_caches_open(hth_gpu *g, hearth_error *err);
void hth_gpu_caches_close(hth_gpu *g);

/* ---- experts that are divided (expert_slots.c, expert_moves.c) ----------------------------------------- */

/* Word of the step block where the spare slots of a layer are. */
static inline uint32_t hth_gpu_spares_at(const hth_gpu_expert_slots *s) { return s->at + s->policy.n_expert + 1; }
/* Whether the host computes experts of a layer. */
bool hth_gpu_divides_experts(const hth_gpu *g, uint32_t i_layer);
/* Behind hth_gpu_workspace_open. */
hearth_status hth_gpu_expert_slots_open(hth_gpu *g, hearth_error *err);
void hth_gpu_expert_slots_close(hth_gpu *g);
/* Whether all choices ids[n][stride], the first n_used of each, are experts: a device that fails may write anything. */
bool hth_gpu_are_experts(const hth_expert_policy *p, const uint32_t *ids, uint32_t stride, uint32_t n);
/* DEVICE: they are not. */
hearth_status hth_gpu_fail_experts(const hth_gpu *g, hearth_error *err);
/* A step has used the experts of a layer for n tokens: ids[n][stride], the first n_used of each. */
void hth_gpu_count_experts(hth_gpu *g, hth_expert_policy *p, const uint32_t *ids, uint32_t stride, uint32_t n);

enum { HTH_GPU_MAX_STAGED_EXPERT = 16 };
/* Experts on their way from the host to slots of the device, by its second queue. */
typedef struct hth_gpu_moves {
    hth_buffer *jobs;    /* of each layer what pack_rows reads (HTH_READS_*); NULL: no experts move */
    hth_buffer *tables;  /* of pack_rows, HTH_PACK_TABLE_WORDS each, of all types and forms that occur */
    hth_buffer *staging; /* [n_entry][entry_bytes] experts */
    uint64_t entry_bytes;
    uint32_t n_entry;
    bool is_entry_used[HTH_GPU_MAX_STAGED_EXPERT];
    hth_buffer *reads, *reads_to_host; /* of each layer what a step of one token read (HTH_READS_*); NULL: no layer reads */
    hth_buffer **imports; /* [n_import] weights of the host that the device reads where they lie */
    uint32_t n_import;
    uint64_t under_way; /* bytes that are on the way */
    float least_gain;   /* of a swap (expert_policy.h) */
    bool was_full;      /* an expert had to stay in this step */
    float lone_gain;    /* least gain of a swap while nothing is on the way: what such moves have cost */
    hth_fence lone;     /* of the last such move, if the host has computed no experts since; 0: none */
    hth_fence done;            /* moves up to this one are complete */
} hth_gpu_moves;
/* expert_sources.c: bytes that experts need on their way, at most. */
uint64_t hth_gpu_move_bytes(const hth_model *model, const hth_offload_params *params);
/* Once the host has loaded its experts. MEMORY, DEVICE. Where the device cannot have them, they stay where they are. */
hearth_status hth_gpu_moves_open(hth_gpu *g, hearth_error *err);
void hth_gpu_moves_close(hth_gpu *g);
hearth_status hth_gpu_record_moves(hth_gpu *g, hearth_error *err);
void hth_gpu_free_move_lists(hth_gpu *g);
/* expert_sources.c: the constants of pack_rows for rows of a type in a form (HTH_PACK_ROWS_*). */
void hth_gpu_pack_constants(const hth_device_info *info, hth_type type, uint32_t form,
                            uint32_t consts[HTH_PACK_ROWS_N_CONST]);
/* expert_reads.c: behind hth_gpu_moves_open, prepares the layers that read missing experts. */
hearth_status hth_gpu_reads_open(hth_gpu *g, hearth_error *err);
/* Writes the spare slots of a layer where `route` expects them. */
void hth_gpu_fill_spares(const hth_gpu_expert_slots *s, uint32_t *spares);
/* Behind a step of one token: what was read is in its slots from now on. DEVICE: the device says what cannot be. */
hearth_status hth_gpu_end_reads(hth_gpu *g, hearth_error *err);
/* Experts without a slot that pass through the device in steps of many tokens (expert_stream.c). Chunks are used in order,
 * per layer gate and up, then down; chunk i is in buffer i % 2 of the workspace. */
typedef struct hth_expert_chunk {
    uint32_t layer, first, n; /* experts number [first, first + n) of those without a slot, at most */
    bool is_down;             /* down alone; else the other parts */
    hth_gpu_fused_matrix fused[HTH_GPU_EXPERT_PARTS]; /* n_matrix 0: is not in it */
    hth_gpu_matrix matrices[HTH_GPU_EXPERT_PARTS];    /* of these, one each */
    uint64_t bytes;
    hth_cmdlist *cmdlist;     /* brings them */
    uint32_t jobs_at;         /* word of hth_gpu_passing.jobs */
} hth_expert_chunk;
typedef struct hth_gpu_passing {
    hth_expert_chunk *chunks; /* [n_chunk] */
    uint32_t n_chunk;
    hth_buffer *jobs; /* of each chunk what pack_rows reads (HTH_READS_*) */
    hth_fence last;   /* of the chunk that was submitted last; 0: none since the last step began */
} hth_gpu_passing;
/* Bytes of a buffer for this model; 0: it has no experts that can be divided. */
uint64_t hth_gpu_passing_bytes(const hth_model *model);
/* Bytes of hth_gpu_passing.jobs, at most. */
uint64_t hth_gpu_passing_job_bytes(const hth_model *model);
/* Behind hth_gpu_moves_open. MEMORY, DEVICE. */
hearth_status hth_gpu_passing_open(hth_gpu *g, hearth_error *err);
void hth_gpu_passing_close(hth_gpu *g);
hearth_status hth_gpu_record_passing(hth_gpu *g, hearth_error *err);
void hth_gpu_free_passing_lists(hth_gpu *g);
/* Gives each expert without a slot one behind the layer's own, in this order. */
void hth_gpu_number_missing(const hth_gpu_expert_slots *s, uint32_t *slots);
/* Lets the second queue bring a chunk. fence: of that queue; 0: no expert is in it. */
hearth_status hth_gpu_pass_chunk(hth_gpu *g, uint32_t i_chunk, hth_fence *fence, hearth_error *err);
/* Behind a step of n_tok tokens: counts a sample of its choices. DEVICE: the device says what cannot be. */
hearth_status hth_gpu_count_passing(hth_gpu *g, uint32_t n_tok, hearth_error *err);
/* Before a step: waits for chunks of one that failed. */
hearth_status hth_gpu_end_passing(hth_gpu *g, hearth_error *err);
/* expert_moves.c */
/* Before a step: experts that have arrived are in their slots from now on. */
void hth_gpu_end_moves(hth_gpu *g, const hth_step *s);
/* Before the host computes its experts of a layer. */
void hth_gpu_see_lone_move(hth_gpu *g);
/* Once the host has computed its experts of a layer in a step: experts that are worth it leave for the slots of others. */
hearth_status hth_gpu_move_experts(hth_gpu *g, const hth_step *s, uint32_t i_layer, hearth_error *err);

/* ---- command lists (record.c) ------------------------------------------------------------------------- */

/* Separate command lists for steps of one token, of up to 2, 4 and 8, and of up to n_row tokens: rows for fewer tokens
 * than the command list has cost as much as for all. Where n_row is 1024 and more, also of up to 256 tokens: the others
 * have many workgroups without a token. */
enum { HTH_GPU_ONE, HTH_GPU_TWO, HTH_GPU_FOUR, HTH_GPU_FEW, HTH_GPU_SOME, HTH_GPU_MANY, HTH_GPU_N_CLASS };
enum { HTH_GPU_FEW_ROWS = 8, HTH_GPU_SOME_ROWS = 256 };

/* Those of n_row tokens also for sequences of fewer positions than all of the caches have: attention is divided among
 * submissions by its work, which grows with the positions. For up to FIRST positions, four times as many, and so on;
 * recorded where attention over as many as the next ones have would be divided. */
enum { HTH_GPU_N_SHORT = 3, HTH_GPU_SHORT_FIRST = 4096 };

/* Host operations within a step, run in order, each as soon as n_d2h device-to-host messages have arrived. A
 * message is data that the device writes for the host (a layer's inputs), or the notice that a staging buffer is
 * free. */
enum {
    HTH_HOST_OP_RUN,
    HTH_HOST_OP_COLD_FFN,
    HTH_HOST_OP_STAGE_CHUNK,
    HTH_HOST_OP_PARTIAL_FFN,
    HTH_HOST_OP_EXPERTS,
    HTH_HOST_OP_PASS_CHUNK,
    HTH_N_HOST_OP
};
typedef struct hth_gpu_host_op {
    /* index: run of operations; split layer: COLD_FFN; chunk: STAGE_CHUNK, PARTIAL_FFN, PASS_CHUNK; operation: EXPERTS */
    uint32_t kind, index;
    uint32_t n_d2h;
} hth_gpu_host_op;

/* A segment is one command list; a step's segments run in order. Each split layer ends a segment where its message
 * to the host is complete, and where it needs the host's sums; so does each run of the host's operations. Segments also
 * end where their work would exceed a
 * submission (submit_budget.c). */
typedef struct hth_gpu_segment {
    hth_cmdlist *cmdlist;
    uint32_t n_d2h, n_host_op; /* messages written by its end; host operations that must precede it */
    uint64_t work;             /* in the unit of hth_offload_params.max_work */
    uint64_t wait_ns; /* for which the host waited for its end, or that of a step that ends with it, in the last step */
} hth_gpu_segment;
typedef struct hth_gpu_segments {
    hth_gpu_segment *segments; /* [n], with the given capacity */
    uint32_t n, capacity;
    hth_gpu_host_op *host_ops; /* [n_host_op] */
    uint32_t n_host_op;
} hth_gpu_segments;

/* ---- streamed weights (weight_stream.c) --------------------------------------------------------------------- */

/* A chunk: rows of one matrix of the host's neurons, as many as a slot holds. Chunks are used in order, per layer
 * gate, up, then down; while one is used, the next is copied to the other slot. */
typedef struct hth_stream_chunk {
    const hth_matrix *rows; /* in host memory */
    uint32_t first, n_row;  /* rows [first, first + n_row) of it */
    uint32_t neuron;        /* index of the first neuron in its layer */
    hth_soa_layout layout;
    hth_gpu_vector bias;
    uint32_t i_split_layer;
    hth_ffn cpu_neurons;       /* neurons of the split layer that the CPU computes meanwhile; d_ff 0: none */
    uint32_t first_cpu_neuron; /* index of the first of them among the layer's CPU neurons */
} hth_stream_chunk;

/* For steps of config.n_tok (gpu.h) to n_row tokens. */
typedef struct hth_weight_stream {
    hth_placement_stream config;
    uint32_t n_row;
    hth_stream_chunk *chunks; /* [n_chunk] */
    uint32_t n_chunk;
    bool has_share; /* the CPU computes neurons of some layer: config.cpu_share may be less than half a cluster */
    hth_gpu_segments segments;
} hth_weight_stream;

/* Bytes of a slot for this model; 0: its weights cannot be streamed. */
uint64_t hth_gpu_slot_bytes(const hth_model *model);
/* Builds the chunks of all split layers, once the host has loaded its rows. */
hearth_status hth_weight_streams_open(hth_gpu *g, hearth_error *err);
void hth_weight_streams_close(hth_gpu *g);
/* Allocates g->shared_sums, which hth_weight_streams_close frees. */
hearth_status hth_gpu_open_shared_sums(hth_gpu *g, hearth_error *err);
/* Neurons of a layer's CPU neurons that are streamed, the first ones: whole clusters, at least one. */
uint32_t hth_gpu_n_streamed(const hth_gpu_layer *l, const hth_weight_stream *p);
/* Packs chunk i into its staging buffer. */
void hth_gpu_stage(const hth_gpu *g, hth_pool *pool, const hth_weight_stream *p, uint32_t i);

/* ---- crossings (crossings.c) -------------------------------------------------------------------------- */

/* Zero or more operations [first, end) of the program that the host computes between two of the device. Before them
 * it needs values that the device has written, and after them the device needs others. */
typedef struct hth_gpu_host_run {
    uint32_t first, end;
    uint32_t *to_host, n_to_host, *to_device, n_to_device; /* values */
} hth_gpu_host_run;

/* The runs of the device's part. The first one precedes all of its operations, and has none. The last one ends the part:
 * if it has no operations, the step reads its values (hth_gpu_read_values). */
typedef struct hth_gpu_crossings {
    hth_gpu_host_run *runs;
    uint32_t n_run;
    uint32_t *values; /* in one list */
} hth_gpu_crossings;

/* The end of the operations that the lists of layers have: those before the rows of the head are gathered, if the head
 * is here. */
uint32_t hth_gpu_end_op(const hth_model *model, const hth_offload_params *params);
hearth_status hth_gpu_crossings_open(hth_gpu *g, hearth_error *err);
void hth_gpu_crossings_close(hth_gpu *g);
/* Words of a row of what is copied from the host, or to it, at the places of the values. */
uint32_t hth_gpu_crossing_words(const hth_model *model, const hth_offload_params *params);

/* Rows for which values are laid out, so that each one begins at a multiple of 256 bytes: places of the program are
 * multiples of 64 bytes. */
static inline uint32_t hth_gpu_padded_rows(uint32_t n_row) { return (n_row + 3) / 4 * 4; }
static inline uint64_t hth_gpu_value_row(const hth_value *v)
{
    return (uint64_t)v->width * (v->element == HTH_SUMS ? sizeof(int64_t) : sizeof(float));
}

struct hth_gpu {
    const hth_model *model;
    const hth_kernels *kernels;
    hth_device *device;
    hth_offload_params params;
    char bit_exact_reason
        [HTH_GPU_MESSAGE_MAX]; /* why results differ from the CPU's bits; empty: they do not */
    hth_gpu *next;             /* the part that follows, on another device; NULL: none */
    bool failed;               /* by the device, in the last step; atomic */
    hth_gpu_op *ops;           /* [n_op of the program] */
    hth_gpu_crossings crossings;
    hth_gpu_layer *layers;     /* [params.end_layer], those before first_layer unused */
    uint32_t *split_layers;    /* [n_split_layer] indices of the split layers */
    uint32_t n_split_layer;
    uint32_t n_divided_mixture; /* layers whose experts are divided between device and host */
    hth_reuse reuse;            /* of the experts of all of these */
    uint32_t *chosen;           /* [n_row][n_used] experts of a layer, for its policy */
    hth_gpu_moves moves;
    hth_gpu_passing passing;
    hth_gpu_vector head_numbers; /* of BY_HEAD: for each token the numbers of hth_gpu_heads_at_once slices, then zeros */
    hth_buffer *vectors;
    float *staging_vectors; /* the vectors, while they are collected */
    size_t n_staging_vector, staging_capacity;
    hth_gpu_workspace workspace;
    hth_gpu_segments segments[HTH_GPU_N_CLASS];
    hth_gpu_segments short_segments[HTH_GPU_N_SHORT]; /* n 0: not recorded */
    hth_weight_stream streams[HTH_PLACEMENT_STREAMS];
    uint32_t n_stream;
    hth_gpu_segments head_segments[2]; /* for one token; for HTH_GPU_HEAD_ROWS */
    hth_gpu_segments copy_segment;     /* one: copies a page of each class in all layers */
    hth_submit_info *submits;          /* [segments of the longest step and of the head] of the current step */
    hth_fence *fences;
    uint32_t first_tok; /* the first of the step's tokens that the device has now */
    uint32_t n_submitted, n_done; /* number submitted, and number known to be complete */
    /* [n_tok][d_model] the host's partial sums of a layer so far; NULL: no stream has_share, and the host's rows are in
     * memory */
    int64_t *shared_sums;
    uint32_t shared_state;   /* their state: HTH_HOST_SUMS_* */
    uint64_t host_value;     /* last value signalled by the host */
    uint64_t timeout_ns;     /* after which the device counts as lost */
    hth_coopmat_level coopmat; /* highest level used for rows of many tokens */
    hth_gpu_counts counts;
    pthread_mutex_t step_lock;
    bool unloaded; /* hth_gpu_unload */
};

/* sim_host_cost.c: charges the host's neurons of a layer for n_tok tokens, n_fired of them active over all tokens. */
void hth_gpu_sim_host_cost_cold(hth_gpu *g, const hth_step *s, const hth_ffn *cold, uint32_t n_tok, uint64_t n_fired);
/* Adds the cost of the experts of an operation without a slot that were chosen for any of n tokens, n_read of which the
 * step's store read. */
void hth_gpu_sim_host_cost_experts(hth_gpu *g, const hth_step *s, const hth_op *op, uint32_t n_tok, uint64_t n_read);
/* Adds the cost of a chunk of streamed weights. */
void hth_gpu_sim_host_cost_chunk(hth_gpu *g, const hth_stream_chunk *chunk);
/* Sets g->failed. */
void hth_gpu_note_status(hth_gpu *g, hearth_status st);
static inline void *hth_gpu_mapped(hth_buffer_range s)
{
    return (uint8_t *)hth_buffer_map(s.buffer) + s.offset;
}
/* in: workspace.values, or a copy. */
static inline hth_buffer_range hth_gpu_value_range(const hth_gpu *g, hth_buffer_range in, uint32_t value)
{
    const hth_value *v = &g->model->program->values[value];
    uint64_t at = (uint64_t)v->at * sizeof(float) * hth_gpu_padded_rows(g->params.n_row);
    return (hth_buffer_range){in.buffer, in.offset + at, hth_gpu_value_row(v) * g->params.n_row};
}
/* crossings.c: copies values of n tokens, the first being number `first` of the step, between the step and mapped
 * memory. */
void hth_gpu_read_values(const hth_gpu *g, hth_step *s, const hth_gpu_host_run *run, uint32_t first, uint32_t n);
void hth_gpu_write_values(const hth_gpu *g, const hth_step *s, const hth_gpu_host_run *run, uint32_t first, uint32_t n);

/* ---- the current step -------------------------------------------------------------- */

/* host_ops.c: runs one host operation for n tokens; p: the weight stream, or NULL. IO, CANCELLED: weights that are read
 * when they are needed did not come; the device may go on without the host's sums. */
hearth_status hth_gpu_run_host_op(hth_gpu *g, hth_step *s, const hth_weight_stream *p, const hth_gpu_host_op *op,
                         uint32_t n, hearth_error *err);

/* submit.c: the segments of a step. */
typedef struct hth_gpu_step_exec {
    const hth_gpu_segments *segments;
    const hth_weight_stream *stream; /* the weight stream they belong to, or NULL */
    uint32_t n_row;
    hth_submit_mode submit_mode;
    const hth_gpu_segments *next; /* further segments, or NULL */
} hth_gpu_step_exec;
hearth_status hth_gpu_submit_step(hth_gpu *g, hth_step *s, const hth_gpu_step_exec *p, hearth_error *err);
/* Submits g->copy_segment and waits for it. */
hearth_status hth_gpu_submit_copy(hth_gpu *g, hearth_error *err);
/* Waits for a step whose completion was not observed: it may still read the step inputs, and wait for signals. */
hearth_status hth_gpu_wait_idle(hth_gpu *g, hearth_error *err);

/* Maximum tokens of each class; as many as the one before: it has no command lists. */
uint32_t hth_gpu_bucket_size(const hth_gpu *g, int class);
/* Where rotations are in workspace.table for command lists of n_row tokens, which copy no more than those: cosines of
 * each table from word i * of_table on, the sines of table 0 from word `sines` on; then a factor of the queries of each
 * token, if the model has those; n_word in all. */
typedef struct hth_gpu_rotations {
    uint32_t of_table, sines, factors, n_word;
} hth_gpu_rotations;
static inline hth_gpu_rotations hth_gpu_rotations_of(const hth_hparams *h, uint32_t n_row)
{
    uint32_t of_table = n_row * hth_fwd_max_pair(h), sines = (uint32_t)hth_fwd_n_table(h) * of_table;
    return (hth_gpu_rotations){of_table, sines, 2 * sines, 2 * sines + (h->temperature_scale != 0.0f ? n_row : 0)};
}
/* The command lists for tokens [first, first + n) of a step without streamed weights. */
const hth_gpu_segments *hth_gpu_segments_for(const hth_gpu *g, const hth_step *s, uint32_t first, uint32_t n);
/* Positions for which short_segments[i] are. */
static inline uint32_t hth_gpu_short_positions(int i) { return (uint32_t)HTH_GPU_SHORT_FIRST << 2 * i; }
/* Records all command lists, and allocates the submissions of a step. */
hearth_status hth_gpu_record(hth_gpu *g, hearth_error *err);
void hth_gpu_segments_free(hth_gpu *g);
/* submit_budget.c: the default for max_work 0. */
uint64_t hth_gpu_default_submit_work(const hth_device_info *info);

/* ---- matrix units (coopmat_shapes.c) ----------------------------------------------------------------- */

/* Writes LOCAL, COLS, ROWS and the matrix shape for a quantisation descriptor and steps of n_tok tokens, or groups of
 * n_tok pairs, into the constants of mul_mat_q_cm2, else mul_mat_q, not above level `most`. Returns the level chosen.
 * NONE: the device has no usable shape, or too little shared memory. */
hth_coopmat_level hth_gpu_choose_tile(const hth_device_info *info, const hth_quant_desc *desc,
                                      hth_coopmat_level most, uint32_t n_tok,
                                      uint32_t consts[HTH_TILE_N_CONST]);

/* ---- sources of weights (weights.c) ------------------------------------------------------------------- */

/* Matrices with the same input, in order: the first n_row of each; absent ones have 0. */
enum { HTH_GPU_MAX_MATRICES = HTH_PRODUCT_MAX };
typedef struct hth_gpu_fused_src {
    const hth_matrix *matrix[HTH_GPU_MAX_MATRICES];
    const float *bias[HTH_GPU_MAX_MATRICES];
    uint64_t n_row[HTH_GPU_MAX_MATRICES];
    uint32_t n;
    bool is_sliced; /* one matrix, which is not divided */
} hth_gpu_fused_src;

/* The fused matrices of an operation (hth_gpu_op), of a network with n_hot of its layer's units. Returns their number. */
uint32_t hth_gpu_op_srcs(const hth_model *model, const hth_op *op, uint32_t n_hot, hearth_selector selector,
                         hth_gpu_fused_src out[HTH_GPU_OP_FUSED]);
/* op_support.c: why no device computes it; NULL: devices can. */
const char *hth_gpu_op_lacks(const hth_model *model, const hth_offload_params *params, const hth_op *op);
/* Heads that BY_HEAD multiplies in one dispatch, with a workgroup each for all tokens; 0: there is no such operation. */
uint32_t hth_gpu_heads_at_once(const hth_model *model, const hth_offload_params *params);
/* Whether an operation of softmax attention is the host's, which has the keys and values. */
bool hth_gpu_host_attends(const hth_model *model, const hth_offload_params *params, const hth_op *op);
/* Whether devices have the attention of a layer, with its cache. */
bool hth_gpu_attends(const hth_model *model, const hth_offload_params *params, uint32_t i_layer);
/* Bytes of a fused matrix with bindings of at most `max` bytes. false: no shader supports a type, or it overflows. */
bool hth_gpu_fused_matrix_bytes(const hth_gpu_fused_src *source, uint64_t max, uint64_t *bytes);
/* The first float matrix among the offloaded ones; NULL: all are quantised. */
const hth_matrix *hth_gpu_first_floats(const hth_model *model, const hth_offload_params *params);
/* Loads all offloaded weights and vectors. */
hearth_status hth_gpu_weights_open(hth_gpu *g, hth_gpu_read_fn *read, void *user, hearth_error *err);
void hth_gpu_weights_close(hth_gpu *g);
/* Uploads D of all clusters, once all rows are loaded. */
hearth_status hth_gpu_upload_scale_max(hth_gpu *g, hearth_error *err);

#endif
