/* The workspace that the files of forward/ share. Their functions queue work on the pool and return: code that
 * reads a value on the caller's thread finishes the queue first, and the step fields that units read do not
 * change until then. Where a value lies follows from its operation alone, so units may look it up. */
#ifndef HTH_FORWARD_FORWARD_INT_H
#define HTH_FORWARD_FORWARD_INT_H

#include "kernels/attn/attn.h"
#include "kernels/sparse_down.h"
#include "forward/forward.h"
#include "model/program.h"

typedef struct hth_bundle_buffers hth_bundle_buffers;

/* Tokens of one sequence at consecutive positions; they read each KV head together. */
typedef struct hth_row_group {
    uint32_t first, n;
} hth_row_group;

/* Workspace of experts.c; NULL: no layer has experts. A row is that of a pair in a wave. */
typedef struct hth_expert_pair {
    uint32_t token; /* UINT32_MAX: the row is padding */
    uint32_t x;     /* row of the inputs */
    float weight;
} hth_expert_pair;
/* The parts of an expert in a store's item, in this order. */
enum { HTH_EXPERT_GATE, HTH_EXPERT_UP, HTH_EXPERT_DOWN, HTH_N_EXPERT_PART };
typedef struct hth_expert_buffers {
    float *scores;                           /* [n_thread][n_expert] */
    uint32_t *first;                         /* [n_expert + 2] */
    hth_expert_pair *pairs;                  /* [n_tok * n_used] by expert */
    hth_expert_pair *rows;                   /* [max_row] */
    uint32_t *slice_of;                      /* [max_row] */
    hth_submatrix *slices;                   /* [max_row] */
    float *x, *hidden, *out;                 /* [max_row][d_model], [max_row][d_ff], [max_row][d_model] */
    uint32_t max_row, n_row, n_slice;        /* n_row, n_slice: rows and slices of the wave */
    int32_t *list;                           /* [max_row][d_ff] the active neurons, and */
    uint32_t *n_list;                        /* [max_row] their numbers; NULL: down is not transposed */
    float *scales;                           /* [max_row][hth_n_cluster(d_ff) + 1] of their clusters */
    const uint8_t **data[HTH_N_EXPERT_PART]; /* [max_row] of each slice, if experts come from a store */
    uint32_t *wanted, *held;                 /* [n_expert] items of the store */
    size_t n_wanted;                         /* asked for, and not taken */
    float *guess_x, *guess_logits, *guess_weights; /* [d_model], [n_expert], [n_used] of the next layer */
    uint32_t *guess;                               /* [n_used] */
} hth_expert_buffers;

/* Workspace of recurrent mixers, and of compressed attention; NULL: no layer has any. */
typedef struct hth_recurrent_buffers {
    hth_row_group *runs; /* [n_run], at most n_tok: the tokens of each sequence */
    uint32_t *run_of;    /* [n_tok] */
    uint32_t n_run;
    float inverse_root; /* 1 / sqrt(d_state) */
    float *scratch;     /* [n_thread][n_scratch] */
    size_t n_scratch;
} hth_recurrent_buffers;

/* Workspace of by_head.c; NULL: no layer has such products. Heads are computed in waves that fit into it. */
typedef struct hth_by_head {
    hth_submatrix *slices; /* [n_head] */
    uint32_t *slice_of;    /* [max_row] */
    uint32_t n_head, max_row;
    uint32_t n_tok, height, n_wave; /* tokens of the step; rows of a head in a wave; heads of a wave */
    struct {
        float *x, *y; /* [max_row][d_in], [max_row][d_out]: of a wave */
        hth_submatrices *waves; /* [n_head] */
        uint32_t d_out;
    } forms[HTH_N_BY_HEAD];
} hth_by_head;

/* Up to HTH_SPLIT_ROWS tokens, long contexts are distributed by split; there is scratch memory for
 * HTH_SPLIT_SCRATCH (token, split) pairs at once. */
enum { HTH_SPLIT_ROWS = 16, HTH_SPLIT_SCRATCH = 64 };
/* Query heads of a unit of attention, for few tokens or of compressed attention. */
enum { HTH_UNIT_HEADS = 8 };

/* Number of RoPE tables: layers with a window have one of their own, the second, where they rotate otherwise. */
static inline uint32_t hth_fwd_n_table(const hth_hparams *h)
{
    return h->rope.window_base > 0.0 || h->rope.window_unscaled ? 2 : 1;
}
/* The table of a layer, 0 or 1. */
static inline uint32_t hth_fwd_i_table(const hth_hparams *h, const hth_attention *a)
{
    return a->window > 0 ? hth_fwd_n_table(h) - 1 : 0;
}

/* Pairs that a table rotates; those of a row of the tables. */
static inline uint32_t hth_fwd_n_pair(const hth_hparams *h, uint32_t i_table)
{
    return (i_table > 0 ? h->rope.window_n_rot : h->rope.n_rot) / 2;
}
static inline uint32_t hth_fwd_max_pair(const hth_hparams *h)
{
    uint32_t n = hth_fwd_n_pair(h, 0), of_windows = hth_fwd_n_pair(h, 1);
    return n > of_windows ? n : of_windows;
}

/* Operations that are computed row by row, which wait for what follows them. */
typedef struct hth_fwd_run {
    const hth_step *s;
    const hth_op *first;
    uint64_t n, unused;
} hth_fwd_run;
_Static_assert(sizeof(hth_fwd_run) == HTH_PREPARE_SIZE, "a run is what a product prepares with");

/* Buffers hold n_tok_max tokens; widths are the maximum over the layers. */
struct hth_step {
    const hth_model *model;
    const hth_program *program;
    const hth_kernels *k;
    hth_pool *pool;
    uint32_t n_tok_max;
    bool keeps_hidden; /* hth_step_keep_hidden */
    hth_op keep_norm;  /* the operation that computes the kept outputs */
    bool unfused;      /* hth_step_unfuse */
    hth_ffn_probe_fn *probe;
    void *probe_user;
    hearth_selector selector;
    hth_selector_fn *select; /* the caller's selector, which replaces `selector`; NULL: none */
    void *select_user;
    hth_route_fn *route; /* the caller's choice of experts; NULL: the router's */
    void *route_user;
    uint64_t n_tok_done; /* tokens of all steps before since route was set */

    const hth_streamed *streamed;      /* weights that are not in memory; NULL: all are */
    hth_table_rows *rows[HTH_N_TABLE]; /* rows of the step's tokens from tables that are not in memory */
    uint32_t *pieces;                  /* [HTH_MAX_PIECE] items of the layer that is computed */
    hth_bundle_buffers *bundles;       /* buffers of networks in bundles; NULL: there are none */
    hth_gpu *gpu;                      /* NULL: the CPU computes all layers */
    bool device_failed;                /* hth_step_device_failed */
    const hth_batch_token *tokens;     /* tokens of the current step */
    uint32_t n_tok;
    uint32_t *wanted, n_wanted; /* [head_rows] tokens whose logits are computed, of those that want them */
    uint32_t head_rows;         /* tokens that the head computes at once */
    hth_row_group *groups;      /* [n_group], at most n_tok */
    uint32_t n_group;
    size_t group_rows; /* maximum tokens of a group */
    hth_fwd_run run;   /* operations that wait to be fused; n 0: none */

    uint8_t *values[HTH_N_ROW_DOMAIN]; /* memory of all values */
    int32_t *list;                 /* [d_ff] candidates of the current token */
    float *scores;                 /* [n_tok][d_ff] predictor or threshold scores */
    float *rank_out;               /* [n_tok][rank] between the predictor's matrices */
    int32_t *active_idx;           /* [n_tok][d_ff] indices of the active neurons, for a transposed down */
    float *active_vals;            /* [n_tok][d_ff] their hidden values */
    hth_active_set *active_sets;   /* [n_tok] both of them */
    bool *overflow;                /* [n_tok] sums of hth_cold_sums that are invalid */
    hth_axpy_scratch axpy_scratch; /* sums of the down projection */
    hth_expert_buffers experts;
    hth_recurrent_buffers recurrent;
    hth_by_head by_head;
    float *stream_scratch; /* [n_thread][n_stream * d_model] */
    struct {               /* the layers' embedding table */
        float *rows;       /* [n_thread][n_layer * d_layer_embd] */
        uint8_t *bytes;    /* [n_thread][row_size of the table] */
        float root, inverse_root_model; /* sqrt(d_layer_embd), 1 / sqrt(d_model) */
    } layer_embd;
    uint8_t *table_row;   /* a row of a table, as in the file */
    float *position_row;  /* [d_model] */
    uint32_t n_table;     /* hth_fwd_n_table */
    float *cosine, *sine; /* [n_table][n_tok_max][hth_fwd_max_pair] */
    double *frequency; /* [n_table][2][hth_fwd_max_pair] radians per position; second half: for long contexts */
    float rope_scale;  /* factor of cosine and sine */
    float *scratch;    /* [n_thread][n_scratch] attention scratch memory */
    size_t n_scratch;
    int8_t *q_q8;                     /* queries quantised to 8 bits for Q8_0 caches, rows as wide as their value */
    float *q_d;                       /* one scale per 32 values */
    int32_t *q_sum;                   /* one sum per 32 values */
    float *split_values;              /* [HTH_SPLIT_SCRATCH][n_head][d_head] results of single splits */
    hth_attn_partial *split_partials; /* [HTH_SPLIT_SCRATCH][n_head] */
    hth_attn_partial *split_totals;   /* [HTH_SPLIT_ROWS][n_head] */
    hth_act_q8 act_q8;
    hth_shared_input input; /* shared between threads for 8-bit quantisation */

    uint8_t *memory;
    size_t size;
};

/* ---- values -------------------------------------------------------------------------------------------- */

static inline bool hth_fwd_has(hth_view v) { return v.value != HTH_NO_VALUE; }
static inline uint32_t hth_fwd_width(const hth_step *s, hth_view v) { return s->program->values[v.value].width; }
/* The address of row 0 of a view. */
static inline void *hth_fwd_value(const hth_step *s, hth_view v)
{
    const hth_value *i = &s->program->values[v.value];
    uint32_t n_row = i->domain == HTH_ROWS_TOKENS ? s->n_tok_max : s->head_rows;
    return s->values[i->domain] + 4 * ((size_t)i->at * n_row + v.at);
}
/* Row t of a value of floats. */
static inline float *hth_fwd_row(const hth_step *s, hth_view v, size_t t)
{
    return (float *)hth_fwd_value(s, v) + t * hth_fwd_width(s, v);
}
static inline uint32_t *hth_fwd_ids(const hth_step *s, hth_view v, size_t t)
{
    return (uint32_t *)hth_fwd_value(s, v) + t * hth_fwd_width(s, v);
}
/* The residual stream [n_tok][d_model]. */
static inline float *hth_fwd_x(const hth_step *s) { return hth_fwd_row(s, s->program->x, 0); }

/* ---- operations ---------------------------------------------------------------------------------------- */

/* Computes row t of an operation that is computed row by row. */
typedef void hth_fwd_row_fn(const hth_step *s, const hth_op *op, size_t t);
/* Queues the work of another operation. An error ends the step. */
typedef hearth_status hth_fwd_op_fn(hth_step *s, const hth_op *op, hearth_error *err);
/* rows.c; attention.c, latent.c, compressed.c, conv.c, delta_net.c, kda.c, ssm.c, experts.c, rope.c */
hth_fwd_row_fn hth_fwd_norm_row, hth_fwd_mul_row, hth_fwd_add_row, hth_fwd_scale_row, hth_fwd_cap_row, hth_fwd_copy_row,
    hth_fwd_gather_row, hth_fwd_rope_row, hth_fwd_conv_row, hth_fwd_settle_row;
hth_fwd_op_fn hth_fwd_embed, hth_fwd_by_head, hth_fwd_heads, hth_fwd_attend, hth_fwd_compress, hth_fwd_delta, hth_fwd_kda,
    hth_fwd_scan, hth_fwd_ffn, hth_fwd_route, hth_fwd_experts, hth_fwd_streams;
/* step.c: such a row. */
hth_fwd_row_fn hth_fwd_compute_row;
/* step.c: queues the run that waits. */
void hth_fwd_flush(hth_step *s);
/* step.c: the run that waits becomes what the next product prepares its rows with. run: stays until the product is
 * queued. */
void hth_fwd_take_run(hth_step *s, hth_fwd_run *run, hth_fusion *fusion);
/* step.c: operations [first, end) of the program. Runs may wait afterwards. */
hearth_status hth_fwd_ops(hth_step *s, uint32_t first, uint32_t end, hearth_error *err);
/* The input that an operation of a later layer would have for the first token, if no layer before it added
 * anything to the residual stream: [d_model], scratch or the stream itself. */
const float *hth_fwd_guess_input(const hth_step *s, const hth_op *op, float *scratch);

/* embed.c: starts to read the rows of tables that are not in memory, for which EMBED waits */
void hth_fwd_start_rows(hth_step *s);
/* attention.c: maximum queries of a group at one KV head; groups per step. */
size_t hth_fwd_group_queries(const hth_model *model, size_t *n_row);
void hth_fwd_group(hth_step *s);
/* rope.c: frequencies once; the row of the tables that layers with or without a window rotate by. */
void hth_fwd_rope_init(hth_step *s);
typedef struct hth_rope_row {
    const float *cosine, *sine;
    uint32_t n_pair;
} hth_rope_row;
hth_rope_row hth_fwd_rope_row_of(const hth_step *s, uint32_t i_table, size_t t);
/* conv.c: finds the runs of tokens of the step. */
void hth_fwd_find_runs(hth_step *s);
/* The destination of a layer's state after row i: `next` after the last row of a run, a copy before a draft token.
 * NULL: the state is not stored. */
void *hth_fwd_state_after(const hth_step *s, uint32_t i_layer, size_t i_row);
size_t hth_fwd_delta_net_scratch(const hth_delta_net *net); /* floats per thread */
/* After a step that failed: clears its tokens in the states of chunks. */
void hth_fwd_delta_net_undo(hth_step *s);
size_t hth_fwd_compressed_scratch(const hth_hparams *h);
/* HEADS, ATTEND and RATES of other mixers. */
hth_fwd_op_fn hth_fwd_heads_latent, hth_fwd_heads_compressed, hth_fwd_attend_compressed;
hth_fwd_row_fn hth_fwd_rates_delta, hth_fwd_rates_kda, hth_fwd_rates_ssm;
/* attention.c, also for devices: factor of the queries of a position (hth_temperature). For latent.c and compressed.c:
 * that of a token in a layer; the rounding of queries for F16 caches, in place, or their quantised form for Q8_0
 * caches. */
float hth_fwd_position_factor(const hth_hparams *h, uint32_t position);
float hth_fwd_temperature(const hth_step *s, const hth_attention *a, size_t i_row);
void hth_fwd_round_queries(const hth_step *s, hth_view q, size_t n_q, size_t i_row);
/* Heads, or groups of heads, that by_head.c multiplies; 0: none. */
static inline uint32_t hth_fwd_n_by_head(const hth_hparams *h)
{
    return h->latent.rank > 0 ? h->n_head : h->compressed.n_group;
}
/* by_head.c: once per step. */
void hth_fwd_by_head_begin(hth_step *s);

/* experts.c: drops what was asked for and not taken. */
void hth_fwd_drop_wanted(hth_step *s);
/* experts.c: EXPERTS with those of the chosen ones that have no slot on a device, after ROUTE of all tokens of the step.
 * slot_of: [n_expert], UINT32_MAX: none. Nothing is guessed of the next layer. */
hearth_status hth_fwd_experts_without(hth_step *s, const hth_op *op, const uint32_t *slot_of, hearth_error *err);
/* Reads the experts that hth_fwd_experts_without would compute, for a device that computes nothing. */
hearth_status hth_fwd_read_experts_without(hth_step *s, const hth_op *op, const uint32_t *slot_of, hearth_error *err);
/* experts_down.c: queues the transposed down of the rows of a wave, and their sums [n_tok][d_model + 1].
 * data [slices of the wave]: its rows; NULL: they are those of down. */
void hth_fwd_experts_down(hth_step *s, const hth_transposed_down *down, const uint8_t *const *data, uint32_t d_ff,
                          int64_t *sums);
/* ffn.c; from a store in pieces or in bundles: ffn_streamed.c, ffn_bundles.c */
hth_fwd_op_fn hth_fwd_ffn_streamed, hth_fwd_ffn_bundles;
/* Values of a network: its input before and after the norm, what it computes, and its output. */
typedef struct hth_ffn_values {
    const float *residual, *input; /* [n_tok][d_model] */
    float *gate, *up, *hidden;     /* [n_tok][d_ff] */
    float *out, *add_to;           /* [n_tok][d_model]; add_to: NULL, or out is scratch memory */
} hth_ffn_values;
hth_ffn_values hth_fwd_ffn_values(const hth_step *s, const hth_op *op);
const hth_op *hth_fwd_ffn_op(const hth_step *s, uint32_t i_layer);
/* ffn_bundles.c: allocates its buffers; bytes of them, false: overflow. */
hearth_status hth_fwd_open_bundles(hth_step *s, hearth_error *err);
bool hth_fwd_bundles_size(const hth_model *model, uint32_t n_row, size_t *size);
/* ffn.c: the neurons that the caller's selector names for a token. Finishes the queue. */
hth_neuron_list hth_fwd_call_selector(hth_step *s, const hth_op *op, size_t i_row);
/* Whether the selector decides from the half that is computed first. */
bool hth_fwd_selects_by_half(const hth_step *s);
/* n neurons from `first` on, whole clusters; their rows follow n_skip rows of the matrices. The outputs, and what
 * concerns them all, are unchanged. */
hth_ffn hth_ffn_slice(const hth_ffn *f, uint32_t first, uint32_t n, uint32_t n_skip);
/* Hidden values of all tokens from gate and up; what the selector leaves out is zero. */
void hth_fwd_finish_hidden(hth_step *s, const hth_op *op);
/* scores[n_tok][d_ff] of the predictor; residual and input are the FFN's, before and after the norm. */
void hth_fwd_predict(hth_step *s, const hth_ffn *f, const float *residual, const float *input, size_t n_tok,
                     float *scores);
/* The contribution of the neurons of `cold` to all outputs of n_row tokens, as integers or as fixed-point parts of
 * floats. The normed inputs are in the network's value and, with a predictor, scores are in s->scores,
 * [n_row][cold->d_ff]. The queue is finished on return. */
typedef struct hth_cold_sums {
    int64_t *sums;     /* [n_tok][d_model] */
    bool more;         /* accumulate onto sums */
    uint64_t n_active; /* 0: sums was not written */
    bool overflow;     /* set to true if sums is invalid for any token: s->overflow says for which */
} hth_cold_sums;
/* Whether sums of any token are invalid. */
bool hth_fwd_has_overflow(const hth_step *s);
void hth_fwd_ffn_cold(hth_step *s, uint32_t i_layer, const hth_ffn *cold, uint32_t n_row, hth_cold_sums *out);
/* ffn_bundles.c: the same for the neurons of a layer from `first` on, whole clusters, whose rows the
 * step's store has in bundles (hth_streamed.bundles). scores: [n_row][d_ff - first], with a predictor. An
 * error ends the step: sums are undefined, and nothing is asked for any more. */
hearth_status hth_fwd_cold_bundles(hth_step *s, uint32_t i_layer, uint32_t first, uint32_t n_row,
                                   const float *scores, hth_cold_sums *out, hearth_error *err);
/* head.c */
typedef struct hth_logits_sink {
    hth_logits_fn *fn;
    void *user;
    uint32_t n_given;
} hth_logits_sink;
/* Passes logits[n][n_vocab] of the next n tokens to the sink. NUMERIC: one is not finite. */
hearth_status hth_fwd_emit_logits(const hth_step *s, const float *logits, uint32_t n, hth_logits_sink *to,
                                  hearth_error *err);
hearth_status hth_fwd_head(hth_step *s, hth_logits_sink *to, hearth_error *err);

#endif
