/* The workspace that the files of forward/ share. Their functions queue work on the pool and return: code that
 * reads a buffer on the caller's thread finishes the queue first, and the step fields that units read do not
 * change until then. */
#ifndef HTH_FORWARD_FORWARD_INT_H
#define HTH_FORWARD_FORWARD_INT_H

#include "kernels/attn/attn.h"
#include "kernels/sparse_down.h"
#include "forward/forward.h"

typedef struct hth_bundle_buffers hth_bundle_buffers;

/* Tokens of one sequence at consecutive positions; they read each KV head together. */
typedef struct hth_row_group {
    uint32_t first, n;
} hth_row_group;

/* Workspace of experts.c; NULL: no layer has experts. A row is that of a pair in a wave. */
typedef struct hth_expert_pair {
    uint32_t token; /* UINT32_MAX: the row is padding */
    float weight;
} hth_expert_pair;
/* What a store gives of an expert, in this order. */
enum { HTH_EXPERT_GATE, HTH_EXPERT_UP, HTH_EXPERT_DOWN, HTH_N_EXPERT_PART };
typedef struct hth_expert_buffers {
    float *logits, *scores;                  /* [n_tok][n_expert], [n_thread][n_expert] */
    uint32_t *chosen;                        /* [n_tok][n_used] */
    float *weights;                          /* [n_tok][n_used] */
    uint32_t *first;                         /* [n_expert + 2] */
    hth_expert_pair *pairs;                  /* [n_tok * n_used] by expert */
    hth_expert_pair *rows;                   /* [max_row] */
    uint32_t *slice_of;                      /* [max_row] */
    hth_submatrix *slices;                   /* [max_row] */
    float *x, *hidden, *out;                 /* [max_row][d_model], [max_row][d_ff], [max_row][d_model] */
    int64_t *sums;                           /* [n_tok][d_model] */
    bool *overflow;                          /* [n_tok] */
    uint32_t max_row, n_row, n_slice;        /* n_row, n_slice: of the wave */
    int32_t *list;                           /* [max_row][d_ff] the active neurons, and */
    uint32_t *n_list;                        /* [max_row] their numbers; NULL: down is not transposed */
    float *scales;                           /* [max_row][hth_n_cluster(d_ff) + 1] of their clusters */
    const uint8_t **data[HTH_N_EXPERT_PART]; /* [max_row] of each slice, if experts come from a store */
    uint32_t *wanted, *held;                 /* [n_expert] items of the store */
    size_t n_wanted;                         /* asked for, and not taken */
    float *guess_x, *guess_logits, *guess_weights; /* [d_model], [n_expert], [n_used] of the next layer */
    uint32_t *guess;                               /* [n_used] */
} hth_expert_buffers;

/* Workspace of recurrent mixers; NULL: no layer is recurrent. */
typedef struct hth_recurrent_buffers {
    hth_row_group *runs; /* [n_run], at most n_tok: the tokens of each sequence */
    uint32_t *run_of;    /* [n_tok] */
    uint32_t n_run;
    float *in,
        *conv; /* [n_tok][channels]: inputs and outputs of the convolution; short_conv.c: [n_tok][3 * d_model] */
    float *joined;       /* [n_tok][rows of hth_delta_net.qkv without a gate] */
    float *gate, *out;   /* [n_tok][n_head * d] */
    float *rates;        /* [2 * n_tok * n_head] products of beta and decay; ssm.c: steps, [n_tok][n_head] */
    float *beta, *decay; /* [n_tok][n_head]; kda.c: decay [n_tok][n_head * d] */
    float *low;          /* kda.c: [2][n_tok][d] products of low rank */
    float *dt_low, *b, *c; /* ssm.c: [n_tok][dt_rank], [n_tok][d_state] */
    float inverse_root;    /* 1 / sqrt(d) */
    float *scratch;        /* [n_thread][n_scratch] */
    size_t n_scratch;
} hth_recurrent_buffers;

/* Workspace of by_head.c; NULL: no layer has such products. Heads are computed in waves that fit into it. */
typedef struct hth_by_head {
    hth_submatrix *slices; /* [n_head] */
    uint32_t *slice_of;    /* [max_row] */
    uint32_t n_head, max_row;
    uint32_t n_tok, height, n_wave; /* of the step: rows of a head in a wave, heads of a wave */
} hth_by_head;
typedef struct hth_head_rows { /* vectors of heads before and after the product */
    const float *from;         /* [n_tok][n_head][from_head], of which d_in are read */
    float *to;                 /* [n_tok][n_head][to_head], of which d_out are written */
    float *x, *y;              /* [max_row][d_in], [max_row][d_out]: of a wave */
    uint32_t from_head, to_head, d_in, d_out;
    hth_submatrices *waves; /* [n_head] */
} hth_head_rows;

/* Workspace of latent.c; NULL: no layer has latent attention. */
typedef struct hth_latent_buffers {
    float *q_a, *q, *out; /* [n_tok][q_rank], [n_tok][n_head][d_nope + d_rope], [n_tok][n_head][d_value] */
    hth_head_rows queries, values;
} hth_latent_buffers;

/* Workspace of compressed.c; NULL: no layer has compressed attention. */
typedef struct hth_compressed_buffers {
    float *q_a;             /* [n_tok][q_rank] */
    float *values, *scores; /* [n_tok][2 * d_head] */
    float *low;             /* [n_tok][n_group * out_rank] */
    hth_head_rows groups;   /* from s->attn_out to low */
    float *scratch;         /* [n_thread][n_scratch] */
    size_t n_scratch;
} hth_compressed_buffers;

/* Workspace of streams.c; NULL: the residual stream is one. */
typedef struct hth_stream_buffers {
    float *x;       /* [n_tok][n_stream][d_model] */
    float *weights; /* [n_tok][(2 + n_stream) * n_stream] */
    float *normed;  /* [n_thread][n_stream * d_model] */
} hth_stream_buffers;

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

/* Pairs of a row of the tables. */
static inline uint32_t hth_fwd_max_pair(const hth_hparams *h)
{
    return (h->rope.n_rot > h->rope.window_n_rot ? h->rope.n_rot : h->rope.window_n_rot) / 2;
}

/* Buffers hold n_tok_max tokens; widths are the maximum over the layers. */
struct hth_step {
    const hth_model *model;
    const hth_kernels *k;
    hth_pool *pool;
    uint32_t n_tok_max;
    bool keeps_hidden; /* the normed residual stream of all tokens stays in x_norm */
    hth_ffn_probe_fn *probe;
    void *probe_user;
    hearth_selector selector;
    hth_selector_fn *select; /* the caller's selector, which replaces `selector`; NULL: none */
    void *select_user;
    hth_route_fn *route; /* the caller's choice of experts; NULL: the router's */
    void *route_user;
    uint64_t n_tok_done; /* tokens of all steps before */

    const hth_streamed *streamed;      /* weights that are not in memory; NULL: all are */
    hth_table_rows *rows[HTH_N_TABLE]; /* of the step's tokens, from tables that are not in memory */
    uint32_t *pieces;                  /* [HTH_MAX_PIECE] items of the layer that is computed */
    hth_bundle_buffers *bundles;       /* of networks that come in bundles; NULL: none does */
    hth_gpu *gpu;                      /* NULL: the CPU computes all layers */
    bool device_failed;                /* hth_step_device_failed */
    const hth_batch_token *tokens;     /* of the current step */
    uint32_t n_tok;
    hth_row_group *groups; /* [n_group], at most n_tok */
    uint32_t n_group;
    size_t group_rows; /* maximum tokens of a group */

    float *x;                  /* [n_tok][d_model] the residual stream */
    float *x_norm;             /* [n_tok][d_model] */
    float *q;                  /* [n_tok][n_head * d_head] */
    float *kv;                 /* [2][n_tok][n_head_kv * d_head] new keys, then new values */
    float *attn_out;           /* [n_tok][n_head * d_head] attention output */
    float *attn_gate;          /* the same shape, or [n_tok][n_head]: hth_attention.gate */
    float *q_gate;             /* [n_tok][2 * n_head * d_head] queries and gates: hth_attention.q_has_gate */
    float *gate, *up, *hidden; /* [n_tok][d_ff] */
    int32_t *list;             /* [d_ff] candidates of the current token */
    float *scores;             /* [n_tok][d_ff] predictor or threshold scores */
    float *rank_out;           /* [n_tok][rank] between the predictor's matrices */
    int32_t *active_idx;       /* [n_tok][d_ff] indices of the active neurons, for a transposed down */
    float *active_vals;        /* [n_tok][d_ff] their hidden values */
    hth_active_set *active_sets;   /* [n_tok] both of them */
    bool *overflow;                /* [n_tok] sums of hth_cold_sums that are invalid */
    hth_axpy_scratch axpy_scratch; /* sums of the down projection */
    hth_expert_buffers experts;
    hth_recurrent_buffers recurrent;
    hth_by_head by_head;
    hth_latent_buffers latent;
    hth_compressed_buffers compressed;
    hth_stream_buffers streams;
    struct {                            /* of layer_embedding.c; NULL: there are none */
        float *e;                       /* [n_tok][n_layer][d_layer_embd] */
        float *gate;                    /* [n_tok][d_layer_embd] */
        float *rows;                    /* [n_thread][n_layer * d_layer_embd] */
        uint8_t *bytes;                 /* [n_thread][row_size of the table] */
        float root, inverse_root_model; /* sqrt(d_layer_embd), 1 / sqrt(d_model) */
    } layer_embd;
    float *mtp_input;     /* [n_tok][2 * d_model] the input of hth_mtp_input.proj; or NULL */
    float *block_out;     /* [n_tok][d_model] output of a block, before it is added to x */
    float *mixer_saved;   /* [n_tok][d_model] output of the mixer or of the dense network, beside the next */
    float *kept;          /* [n_tok][d_model] hth_experts.reads_stream_before: their input;
                                        hth_hparams.adds_embedding: the embeddings; or NULL */
    uint32_t n_table;     /* hth_fwd_n_table */
    float *cosine, *sine; /* [n_table][n_tok_max][hth_fwd_max_pair] */
    double
        *frequency; /* [n_table][2][hth_fwd_max_pair] radians per position; second half: for long contexts */
    float rope_scale; /* factor of cosine and sine */
    float *scratch;   /* [n_thread][n_scratch] attention scratch memory */
    size_t n_scratch;
    int8_t *q_q8;                     /* for Q8_0 caches: q quantised to 8 bits, shape of q */
    float *q_d;                       /* one scale per 32 values */
    int32_t *q_sum;                   /* one sum per 32 values */
    float *split_values;              /* [HTH_SPLIT_SCRATCH][n_head][d_head] results of single splits */
    hth_attn_partial *split_partials; /* [HTH_SPLIT_SCRATCH][n_head] */
    hth_attn_partial *split_totals;   /* [HTH_SPLIT_ROWS][n_head] */
    float *logits;                    /* [head_rows][n_vocab] */
    uint32_t head_rows;               /* tokens that the head computes at once */
    hth_act_q8 act_q8;
    hth_shared_input input; /* shared between threads for 8-bit quantisation */

    uint8_t *memory;
    size_t size;
};

/* embed.c: starts to read the rows of tables that are not in memory; waits for them, and embeds */
void hth_fwd_start_rows(hth_step *s);
hearth_status hth_fwd_embed(hth_step *s, hearth_error *err);
/* A mixer or a network of layer i: queues its work. Its output is accumulated onto add_to, or written to s->block_out
 * where add_to is NULL. An error ends the step. */
typedef hearth_status hth_fwd_block_fn(hth_step *s, uint32_t i_layer, float *add_to, hearth_error *err);
/* attention.c: frequencies and sizes once; tables and groups per step. */
/* Maximum queries of a group at one KV head. */
size_t hth_fwd_group_queries(const hth_model *model, size_t *n_row);
void hth_fwd_group(hth_step *s);
void hth_fwd_rope_init(hth_step *s);
void hth_fwd_rope_tables(hth_step *s);
hth_fwd_block_fn hth_fwd_attention;
/* conv.c: finds the runs of the step; row i of y[n_tok][n_channel] from x[n_tok][stride] and the state of layer i_layer,
 * which the last row of a run replaces. */
typedef struct hth_conv_rows {
    hth_step *s;
    const hth_conv *conv;
    uint32_t i_layer;
    const float *x;
    size_t stride;
    float *y;
    size_t state_at; /* floats before its own in the state */
} hth_conv_rows;
void hth_fwd_find_runs(hth_step *s);
void hth_fwd_conv_row(const hth_conv_rows *job, size_t i_row);
/* Where the state of a layer after row i goes: `next` after the last row of a run, a copy before a token of a draft;
 * NULL: nowhere. */
void *hth_fwd_state_after(const hth_step *s, uint32_t i_layer, size_t i_row);
/* short_conv.c, delta_net.c, kda.c, ssm.c, latent.c, compressed.c */
hth_fwd_block_fn hth_fwd_short_conv, hth_fwd_delta_net, hth_fwd_kda, hth_fwd_ssm, hth_fwd_latent,
    hth_fwd_compressed;
size_t hth_fwd_delta_net_scratch(const hth_delta_net *net); /* floats per thread */
/* After a step that failed: clears its tokens in the states of chunks. */
void hth_fwd_delta_net_undo(hth_step *s);
size_t hth_fwd_compressed_scratch(const hth_hparams *h);
/* Heads, or groups of heads, that by_head.c multiplies; 0: none. */
static inline uint32_t hth_fwd_n_by_head(const hth_hparams *h)
{
    return h->latent.rank > 0 ? h->n_head : h->compressed.n_group;
}
/* attention.c, for latent.c and compressed.c: factor of a token's queries (hth_temperature); their quantised form, for
 * Q8_0 caches; s->attn_out of all queries, after keys and values were stored. */
float hth_fwd_temperature(const hth_step *s, const hth_attention *a, size_t i_row);
void hth_fwd_quantize_queries(hth_step *s, const hth_attention *a, size_t i_row);
void hth_fwd_attend(hth_step *s, const hth_attention *a, uint32_t i_layer);
/* layer_embedding.c: of the step's tokens, from s->x; what layer i adds, to s->block_out */
void hth_fwd_embed_layers(hth_step *s);
void hth_fwd_add_layer_embedding(hth_step *s, uint32_t i_layer);
/* by_head.c: once per step; vectors of each head times its slice of m. */
void hth_fwd_by_head_begin(hth_step *s);
void hth_fwd_multiply_heads(hth_step *s, const hth_head_rows *rows, const hth_matrix *m);
/* streams.c: all streams from s->x; s->x from the streams; the streams from s->block_out and what was read last. */
void hth_fwd_begin_streams(hth_step *s);
void hth_fwd_read_streams(hth_step *s, const hth_connection *c);
void hth_fwd_write_streams(hth_step *s);
/* What a product prepares rows of a layer with. */
typedef struct hth_fwd_layer_arg {
    const hth_step *s;
    const hth_layer *layer;
    uint64_t unused[2];
} hth_fwd_layer_arg;
_Static_assert(sizeof(hth_fwd_layer_arg) == HTH_PREPARE_SIZE, "what a product prepares with");

/* experts.c */
hth_fwd_block_fn hth_fwd_experts;
/* Chooses the experts of a layer before its mixer, from s->x; asks for streamed ones. What was asked for is taken by
 * hth_fwd_experts, or dropped. */
hearth_status hth_fwd_route_early(hth_step *s, uint32_t i_layer, hearth_error *err);
void hth_fwd_drop_wanted(hth_step *s);
/* experts_down.c: queues the transposed down of the rows of a wave, and their sums. data [slices of the wave]: its
 * rows; NULL: they are those of down. */
void hth_fwd_experts_down(hth_step *s, const hth_transposed_down *down, const uint8_t *const *data,
                          uint32_t d_ff);
/* ffn.c; from a store in pieces or in bundles: ffn_streamed.c, ffn_bundles.c */
hth_fwd_block_fn hth_fwd_ffn, hth_fwd_ffn_streamed, hth_fwd_ffn_bundles;
/* ffn_bundles.c: allocates its buffers; bytes of them, false: overflow. */
hearth_status hth_fwd_open_bundles(hth_step *s, hearth_error *err);
bool hth_fwd_bundles_size(const hth_model *model, uint32_t n_row, size_t *size);
/* ffn.c: the neurons that the caller's selector names for a token. Finishes the queue. */
hth_neuron_list hth_fwd_call_selector(hth_step *s, uint32_t i_layer, size_t i_row);
/* Whether the selector decides from the half that is computed first. */
bool hth_fwd_selects_by_half(const hth_step *s);
/* n neurons from `first` on, whole clusters; their rows follow n_skip rows of the matrices. The outputs, and what
 * concerns them all, are unchanged. */
hth_ffn hth_ffn_slice(const hth_ffn *f, uint32_t first, uint32_t n, uint32_t n_skip);
/* s->hidden of all tokens from s->gate and s->up; what the selector leaves out is zero. */
void hth_fwd_finish_hidden(hth_step *s, const hth_ffn *f);
/* scores[n_tok][d_ff] of the predictor; residual and input are the FFN's, before and after the norm. */
void hth_fwd_predict(hth_step *s, const hth_ffn *f, const float *residual, const float *input, size_t n_tok,
                     float *scores);
/* For n_row tokens with normed inputs in s->x_norm and, with a predictor, scores in s->scores,
 * [n_row][cold->d_ff]: the contribution of the neurons of `cold` to all outputs, as integers or as fixed-point
 * parts of floats. The queue is finished on return. */
typedef struct hth_cold_sums {
    int64_t *sums;     /* [n_tok][d_model] */
    bool more;         /* accumulate onto sums */
    uint64_t n_active; /* 0: sums was not written */
    bool overflow;     /* set to true if sums is invalid for any token: s->overflow says for which */
} hth_cold_sums;
/* Whether sums of any token are invalid. */
bool hth_fwd_has_overflow(const hth_step *s);
void hth_fwd_ffn_cold(hth_step *s, uint32_t i_layer, const hth_ffn *cold, uint32_t n_row, hth_cold_sums *out);
/* ffn_bundles.c: the same for the neurons of a layer from `first` on, whole clusters, whose rows the step's store has
 * in bundles (hth_streamed.bundles). scores: [n_row][d_ff - first], with a predictor. An error ends the step: sums are
 * undefined, and nothing is asked for any more. */
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

/* step.c: y = norm(x) for rows of d_model, with the model's norm. As a queued job, or token by token where the
 * product that reads y prepares its input (hth_fusion). */
typedef struct hth_fwd_norm_rows {
    const hth_step *s;
    const hth_norm *norm;
    const float *x;
    float *y;
} hth_fwd_norm_rows;
_Static_assert(sizeof(hth_fwd_norm_rows) == HTH_PREPARE_SIZE, "a norm is what a product prepares with");
void hth_fwd_norm_row(const void *rows, size_t i);
void hth_fwd_norm(hth_step *s, const hth_norm *norm, const float *x, float *y, uint32_t n_row);
/* The same in place, always RMS, for rows of other widths. */
typedef struct hth_fwd_low_norm {
    const hth_step *s;
    const float *weight;
    float *x;
    size_t n;
} hth_fwd_low_norm;
_Static_assert(sizeof(hth_fwd_low_norm) == HTH_PREPARE_SIZE, "a norm is what a product prepares with");
void hth_fwd_low_norm_row(const void *norm, size_t i);

#endif
