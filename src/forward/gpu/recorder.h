/* The recorder of a step's command lists: segments and barriers; shader dispatches, matrix products, and values in
 * the representations that operations need. record.c goes through the program with it. The first error stays in the
 * recorder, and nothing is recorded after it. */
#ifndef HTH_FORWARD_GPU_RECORDER_H
#define HTH_FORWARD_GPU_RECORDER_H

#include "forward/gpu/gpu_int.h"

enum { HTH_REC_LOCAL = 64, HTH_REC_MAX_DIRTY = 16 };

/* A value while command lists are recorded. A norm, and the attention of one token, are computed by what reads the
 * value, in the representations that it needs; until then the value is pending. */
typedef struct hth_rec_value {
    hth_buffer_range at;   /* its floats */
    const hth_op *pending; /* NORM, ATTEND or GATHER, or NULL */
    hth_buffer_range from; /* what a pending norm or GATHER reads */
    bool is_stored;        /* its floats are there all the same */
} hth_rec_value;

typedef struct hth_recorder {
    hth_gpu *g;
    hth_rec_value *values; /* [n_value] */
    uint32_t in_forms;     /* the value whose forms are in workspace.input, or HTH_NO_VALUE; and which of them: */
    bool has_32, has_256;
    hth_gpu_segments *segments; /* the last one is being recorded */
    hth_cmdlist *cmdlist;
    uint32_t n_d2h, n_split_layer;      /* so far */
    uint32_t passed[2]; /* messages with whose arrival each of the buffers for experts that pass through is free */
    uint32_t n_row;                 /* tokens of the class */
    uint32_t n_position;            /* maximum of a sequence, for the work of attention */
    uint32_t only_wanted;               /* 1: only the tokens that want logits */
    bool has_active_mask;                    /* the active mask of the current layer is computed */
    const hth_weight_stream *stream; /* streamed weights; NULL: none. For a stream, so far: */
    uint32_t n_chunk, n_shared;      /* chunks used; chunks whose CPU share was requested */
    uint32_t layer_d2h;          /* messages after which the host has the layer's inputs */
    uint32_t copied[2];             /* messages after which a staging buffer is free */
    hth_buffer_range dirty[HTH_REC_MAX_DIRTY]; /* written since the last barrier */
    size_t n_dirty;
    hearth_status st;
    hearth_error *err;
} hth_recorder;

static inline uint32_t hth_div_ceil(uint64_t n, uint64_t by) { return (uint32_t)((n + by - 1) / by); }

/* The first n_row rows, `width` floats each. */
static inline hth_buffer_range hth_rec_first_rows(hth_buffer_range s, uint64_t n_row, uint64_t width)
{
    return (hth_buffer_range){s.buffer, s.offset, n_row * width * sizeof(float)};
}

/* The weights of an operation of the program. */
static inline const hth_gpu_op *hth_rec_weights(const hth_recorder *r, const hth_op *op)
{
    return &r->g->ops[op - r->g->model->program->ops];
}

/* ---- segments ---------------------------------------------------------------------------------------- */

void hth_rec_begin(hth_recorder *r);
void hth_rec_end(hth_recorder *r);
void hth_rec_split(hth_recorder *r);
/* The next host operation, run once n_d2h messages have arrived. It precedes everything after the next split. */
void hth_rec_host_op(hth_recorder *r, uint32_t what, uint32_t of, uint32_t n_d2h);

/* ---- work (submit_budget.c) ---------------------------------------------------------------------------- */

/* How products are computed: four bytes in one instruction, or one by one. */
typedef enum hth_dot_mode { HTH_DOT_INT8X4 = 1, HTH_DOT_SCALAR = 4 } hth_dot_mode;

/* Work of a row of n_col weights for n_tok tokens. */
uint64_t hth_rec_row_work(uint64_t n_col, uint32_t n_tok, hth_dot_mode how);
/* Splits n rows, neurons or tokens of the given work each: number per dispatch, a multiple of grain. */
uint32_t hth_rec_rows_per_dispatch(const hth_recorder *r, uint32_t n, uint64_t work, uint32_t grain);
/* The same of attention, `grain` tokens a workgroup in each of n_head KV heads: more work than a submission should
 * have, up to four times, where there would be so few workgroups that a large GPU idles. */
uint32_t hth_rec_tokens_per_dispatch(const hth_recorder *r, uint32_t n, uint64_t work, uint32_t grain, uint32_t n_head);
/* Reserves work for the next dispatch: begins a new segment where the current one would exceed its limit. */
void hth_rec_reserve_work(hth_recorder *r, uint64_t work);

/* ---- dispatches --------------------------------------------------------------------------------------- */

/* Marks a range as written: commands after the next barrier may read it. */
void hth_rec_mark_dirty(hth_recorder *r, hth_buffer_range s);
void hth_rec_barrier(hth_recorder *r);
void hth_rec_dispatch(hth_recorder *r, hth_shader_id id, const uint32_t *consts, const hth_buffer_range *bind,
                 const void *push, uint32_t gx, uint32_t gy);
void hth_rec_dispatch_3d(hth_recorder *r, hth_shader_id id, const uint32_t *consts, const hth_buffer_range *bind,
                   const void *push, uint32_t gx, uint32_t gy, uint32_t gz);
const hth_pipeline *hth_rec_pipeline(hth_recorder *r, hth_shader_id id, const uint32_t *consts);
hth_buffer_range hth_rec_vector(const hth_recorder *r, hth_gpu_vector v);

/* How a vector shader divides rows: its constants LOCAL, CHUNK and WIDE, and workgroups of a row. */
typedef struct hth_vector_split {
    uint32_t local, chunk, wide, n_group;
} hth_vector_split;
/* Returns it for rows of n elements, with a norm or without (HTH_KIND_*), as the device allows. */
hth_vector_split hth_rec_vector_split(const hth_device_info *info, uint32_t n, uint32_t kind);

/* ---- rows --------------------------------------------------------------------------------------------- */

/* Rows [first, first + n) of a matrix. sparse: only those of active neurons, and `neuron` is the neuron of the first
 * row. */
typedef struct hth_row_range {
    uint32_t first, n, neuron;
    bool sparse;
    const struct hth_rec_slices *slices; /* NULL: of the matrix; else of the slices that were chosen for each token */
} hth_row_range;
typedef struct hth_rec_slices {
    hth_buffer_range pairs; /* or groups of them */
    uint32_t n_group, of;   /* groups of `of` pairs, at most; of 1: pairs */
    hth_push_sliced sliced; /* without row_first */
} hth_rec_slices;

/* MAX_ROWS: of one dispatch. Where there are many rows a workgroup has eight at least, and Vulkan promises 65,535
 * workgroups in y. */
enum { HTH_REC_ROW_ALIGNMENT = 64, HTH_REC_MAX_ROWS = 8 * 65535 / HTH_REC_ROW_ALIGNMENT * HTH_REC_ROW_ALIGNMENT };
/* Rows [first, first + n) as a matrix of their own; first: a multiple of HTH_REC_ROW_ALIGNMENT. */
hth_gpu_matrix hth_rec_rows_of(const hth_gpu_matrix *p, uint64_t n_col, uint32_t first, uint32_t n);
/* y = (accumulate: y +=) some rows of a matrix times the input; group: its strides of results and inputs. Only
 * sparse rows may begin at any row. */
void hth_rec_part(hth_recorder *r, const hth_gpu_fused_matrix *group, const hth_gpu_matrix *p,
                  const hth_row_range *s, const hth_gpu_input *in, hth_buffer_range y, bool accumulate);
/* Rows that an invocation computes for eight tokens: as many as its registers hold (docs/gpu.md: Compiled for
 * Radeons). is_256: of types with blocks of 256. */
uint32_t hth_rec_rows_of_many(const hth_device_info *info, bool is_256);
/* Records the bytes that a dispatch over some rows of a matrix reads (hth_cmdlist_hint_bytes). */
void hth_rec_hint_bytes(hth_recorder *r, const hth_gpu_matrix *p, const hth_row_range *s);
/* y = (accumulate: y +=) rows [from, end) of the group times the input, at the group's place in y; sparse: only the
 * active ones; row `from` is neuron 0. */
void hth_rec_row_range(hth_recorder *r, const hth_gpu_fused_matrix *group, uint32_t from, uint32_t end, bool sparse,
                       const hth_gpu_input *in, hth_buffer_range y, bool accumulate);
/* The same for all rows, followed by a barrier. */
void hth_rec_rows(hth_recorder *r, const hth_gpu_fused_matrix *group, const hth_gpu_input *in, hth_buffer_range y,
                  bool accumulate);

/* ---- inputs ------------------------------------------------------------------------------------------ */

/* The forms of a group's input, each made by a dispatch of its own: quantised in blocks of `block` (0: not), and as
 * floats. NULL: floats alone. Returns their number; those of `store` is the first. */
typedef struct hth_input_form {
    uint32_t block;
    bool store;
    hth_buffer_range q, d, sum;
} hth_input_form;
uint32_t hth_rec_input_forms(const hth_recorder *r, const hth_gpu_fused_matrix *group, bool store,
                             hth_input_form out[2]);
/* Marks what a dispatch wrote. stored: where floats are, if the form has them. */
void hth_rec_mark_form(hth_recorder *r, const hth_input_form *form, hth_buffer_range stored);
/* A value in the representations that a group needs, and as floats, if the group needs those. store: also as floats.
 * Followed by a barrier. */
hth_gpu_input hth_rec_input(hth_recorder *r, uint32_t value, const hth_gpu_fused_matrix *group, bool store);
/* n floats of each row in the quantised forms that a group needs, which are of no value. Followed by a barrier. */
void hth_rec_quantize(hth_recorder *r, hth_buffer_range x, uint32_t n, const hth_gpu_fused_matrix *group);
/* A value as floats. */
hth_buffer_range hth_rec_floats(hth_recorder *r, uint32_t value);
/* x = x + block, a value of its own, after a norm that is pending for it. No barrier follows. */
void hth_rec_add(hth_recorder *r, uint32_t x, uint32_t block);

/* Where a view of a value has its rows. */
hth_rows_at hth_rec_rows_at(const hth_recorder *r, hth_view v);
/* Runs of tokens of one sequence, at most. */
static inline uint32_t hth_rec_n_run(const hth_recorder *r)
{
    uint32_t n = hth_gpu_max_run(r->g->model, &r->g->params);
    return n < r->n_row ? n : r->n_row;
}

/* ---- kinds of operations -------------------------------------------------------------------------------- */

typedef void hth_rec_op_fn(hth_recorder *r, const hth_op *op);
/* record_values.c */
hth_rec_op_fn hth_rec_norm, hth_rec_mul, hth_rec_copy, hth_rec_scale;
/* One part of a copy. No barrier follows. */
void hth_rec_copy_part(hth_recorder *r, const hth_copy_part *p, hth_view from, hth_view to);
/* record_recurrent.c */
hth_rec_op_fn hth_rec_conv, hth_rec_rates, hth_rec_delta, hth_rec_kda, hth_rec_scan;
/* record_attention.c */
hth_rec_op_fn hth_rec_heads, hth_rec_attend;
/* record_latent.c. Of latent attention: HEADS, and the rotation and rounding of queries before ATTEND. */
hth_rec_op_fn hth_rec_by_head, hth_rec_heads_latent, hth_rec_queries_latent;
/* rope_store with these constants, for a layer's caches, followed by a barrier. */
void hth_rec_rope_store(hth_recorder *r, uint32_t i_layer, const uint32_t *consts, const hth_push_rope_store *push,
                        hth_buffer_range qkv, hth_buffer_range values);
/* RMS norm of `width` values of each row, in place. No barrier follows. */
void hth_rec_norm_in_place(hth_recorder *r, hth_buffer_range x, hth_rows_at rows, uint32_t width,
                           hth_gpu_vector weight);
/* The splits of one token, in the representations that a group (NULL: none) needs. store: also as floats. */
void hth_rec_reduce(hth_recorder *r, const hth_op *attend, const hth_gpu_fused_matrix *group, bool store,
                    hth_buffer_range stored);
/* Whether n_row tokens of so long a sequence are too much for a submission, in any layer. */
bool hth_rec_divides_attention(const hth_gpu *g, uint32_t n_position);
/* f of values, gated or not, in the representations that a group (NULL: none) needs; store: also as floats. */
typedef struct hth_rec_activation {
    hth_activation kind;
    bool gated, store;
    uint32_t n, select, score_stride;
    hth_buffer_range from, to; /* to: floats */
    hth_gpu_vector thresholds;
    float min_score, limit;
} hth_rec_activation;
void hth_rec_activate(hth_recorder *r, const hth_rec_activation *a, const hth_gpu_fused_matrix *group);
/* record_down.c: the hidden values of a transposed down, n of each token; or of experts, n for each of the n_used that
 * were chosen for a token. */
typedef struct hth_rec_neurons {
    hth_buffer_range at;         /* floats */
    uint32_t n, first;           /* first: the number of the neuron of the matrix's row 0 */
    uint32_t n_cluster, n_split; /* of a token; n_split: of its sums, or of its chains of floats */
    uint32_t n_used;             /* 0: of no experts */
    hth_buffer_range pairs;      /* as in hth_rec_slices */
} hth_rec_neurons;
/* Describes the n neurons of a dense network; the caller sets n_split. */
hth_rec_neurons hth_rec_neurons_of(hth_buffer_range hidden, uint32_t n);
/* The scales of their clusters, followed by a barrier. */
void hth_rec_down_scales(hth_recorder *r, uint32_t i_layer, const hth_rec_neurons *from);
/* Tokens whose sums are computed at once: as many as there is room for and, of experts, as a submission may have work
 * for. */
uint32_t hth_rec_down_stage(const hth_recorder *r, const hth_rec_neurons *from);
/* The sums of a matrix's rows for tokens [first_tok, first_tok + n), in workspace.sums from its start on. */
void hth_rec_down(hth_recorder *r, const hth_rec_neurons *from, const hth_gpu_matrix *p, uint32_t first_tok, uint32_t n);
/* The inputs of a network's output: n_part sums of each token, of n_cluster clusters or of floats, and 64-bit sums, if
 * any. */
typedef struct hth_rec_sums {
    hth_buffer_range parts;
    uint32_t n_part, n_cluster;
    bool floats, has_acc64;
    hth_buffer_range acc64;
    hth_gpu_vector bias;
} hth_rec_sums;
/* Reduces the sums of tokens [first_tok, first_tok + n) to y. */
void hth_rec_reduce_sums(hth_recorder *r, const hth_rec_sums *p, uint32_t first_tok, uint32_t n, hth_buffer_range y,
                         bool accumulate);
/* record_route.c */
hth_rec_op_fn hth_rec_route;
/* expert_reads.c: whether a step reads missing experts of a layer into spare slots; the conversions, of which the products
 * with them wait. */
bool hth_rec_reads_experts(const hth_recorder *r, uint32_t i_layer);
void hth_rec_read_experts(hth_recorder *r, uint32_t i_layer);
/* What a step has read, to the host. */
void hth_rec_copy_reads(hth_recorder *r);
/* record_experts.c */
hth_rec_op_fn hth_rec_experts, hth_rec_settle;
/* What gate and up of EXPERTS read, as a group without matrices. */
hth_gpu_fused_matrix hth_rec_expert_inputs(const hth_recorder *r, const hth_op *op);
/* record_ffn.c: y = (accumulate: y +=) a network of a layer's neurons on the device, and the host's. */
typedef struct hth_rec_ffn_target {
    hth_buffer_range y;
    bool accumulate;
    uint32_t add; /* added to the residual stream once the network has read its inputs; HTH_NO_VALUE: nothing */
} hth_rec_ffn_target;
void hth_rec_ffn(hth_recorder *r, const hth_op *op, const hth_rec_ffn_target *to);

#endif
