/* The workspace that the files of run/ share. Their functions queue work on the pool and
 * return: whoever reads a buffer on the caller's thread finishes the queue first, and what
 * units read of the step stays as it is until then. */
#ifndef HTH_RUN_RUN_INT_H
#define HTH_RUN_RUN_INT_H

#include "kernels/attn/attn.h"
#include "kernels/sparse_down.h"
#include "forward/forward.h"

/* Rows of one sequence at consecutive positions, which read each KV head together. */
typedef struct hth_row_group {
    uint32_t first, n;
} hth_row_group;

/* Up to so many rows, long contexts are shared out split by split, and there is room for
 * so many (row, split) pairs at once. */
enum { HTH_SPLIT_ROWS = 16, HTH_SPLIT_SCRATCH = 64 };

/* Buffers hold n_tok_max tokens; widths are the largest over the layers. */
struct hth_step {
    const hth_model *model;
    const hth_kernels *k;
    hth_pool *pool;
    uint32_t n_tok_max;
    hth_ffn_probe_fn *probe;
    void *probe_user;
    hearth_selector selector;
    hth_selector_fn *select; /* lists from outside, in place of the selector */
    void *select_user;

    hth_gpu *gpu;        /* NULL: all layers are the CPU's */
    bool device_failed;   /* hth_step_device_failed */
    const hth_batch_token *tokens; /* of the step under way */
    uint32_t n_tok;
    hth_row_group *groups; /* [n_group], at most n_tok */
    uint32_t n_group;
    size_t group_rows; /* that a group has at most */

    float *x;                  /* [n_tok][d_model] the residual stream */
    float *x_norm;             /* [n_tok][d_model] */
    float *q;                  /* [n_tok][n_head * d_head] */
    float *kv;                 /* [2][n_tok][n_head_kv * d_head] new keys, then new values */
    float *attn_out;              /* [n_tok][n_head * d_head] what attention gives */
    float *gate, *up, *hidden; /* [n_tok][d_ff] */
    int32_t *list;             /* [d_ff] of the row under way: who may fire */
    float *scores;             /* [n_tok][d_ff] what predictors or thresholds look at */
    float *rank_out;              /* [n_tok][rank] between a predictor's matrices */
    int32_t *active_idx;       /* [n_tok][d_ff] who did fire, where down lies by neurons, */
    float *active_vals;              /* [n_tok][d_ff] what they send on, */
    hth_active_set *active_sets;        /* [n_tok] and both together */
    hth_axpy_scratch axpy_scratch;   /* sums of down */
    float *block_out;                /* [n_tok][d_model] of a block, before it is added to x */
    float *attn_saved;               /* [n_tok][d_model] of attention, where the FFN stands beside it */
    uint32_t n_table;          /* rotations: 1, or 2 where layers with a window have their own */
    float *cosine, *sine;      /* [n_table][n_tok_max][n_rot / 2] */
    double *frequency;         /* [n_table][2][n_rot / 2] radians per position; the second in long contexts */
    float rope_scale;          /* on cosine and sine */
    float *scratch;            /* [n_thread][n_scratch], of attention */
    size_t n_scratch;
    int8_t *q_q8;             /* q rounded to 8 bits, for Q8_0 caches: as q, */
    float *q_d;                    /* and for each 32 of it a scale */
    int32_t *q_sum;                /* and a sum */
    float *split_values;           /* [HTH_SPLIT_SCRATCH][n_head][d_head], of single splits */
    hth_attn_partial *split_partials;  /* [HTH_SPLIT_SCRATCH][n_head] */
    hth_attn_partial *split_totals; /* [HTH_SPLIT_ROWS][n_head] */
    float *logits;                 /* [head_rows][n_vocab] */
    uint32_t head_rows;            /* rows that the head computes at once */
    hth_act_q8 act_q8;
    hth_shared_input input; /* of rounding */

    uint8_t *memory;
    size_t size;
};

/* step.c: the status of a step whose units were skipped (hth_pool_is_cancelled): what it computed means nothing. */
hearth_status hth_fwd_cancelled(hearth_error *err);
/* embed.c */
void hth_fwd_embed(hth_step *s);
/* cache.c: where the keys and values of a KV head begin, and one row's into them: key and
 * value are [n_head_kv][d_head]. */
const uint8_t *hth_kv_keys(const hth_kv *kv, uint32_t i_layer, uint32_t i_head);
const uint8_t *hth_kv_values(const hth_kv *kv, const hth_model *model, uint32_t i_layer, uint32_t i_head);
void hth_kv_store(hth_kv *kv, const hth_model *model, const hth_kernels *k, uint32_t i_layer,
                  uint32_t position, const float *key, const float *value);
/* attention.c: frequencies and sizes once, tables and groups for each step, then the block of
 * layer i. What a block gives is added to onto, or stands in s->out where that is NULL. */
size_t hth_fwd_group_queries(const hth_model *model, size_t *n_row); /* of a group at a KV head, at most */
void hth_fwd_group(hth_step *s);
void hth_fwd_rope_init(hth_step *s);
void hth_fwd_rope_tables(hth_step *s);
void hth_fwd_attention(hth_step *s, uint32_t i_layer, float *add_to);
/* ffn.c */
void hth_fwd_ffn(hth_step *s, uint32_t i_layer, float *add_to);
/* Of n_tok tokens whose normed inputs stand in s->normed, and with a predictor the scores in s->scores, [n_tok][cold->d_ff]:
 * what the neurons of `cold` give to all outputs, as integers, or as parts of floats. The queue is finished. */
typedef struct hth_cold_sums {
    int64_t *sums;    /* [n_tok][d_model] */
    bool more;        /* added to what stands there */
    uint32_t *absmax;   /* [n_tok] bits of the largest |h|, where that is larger than what stands there */
    uint64_t n_active; /* 0: sums were not written */
    bool overflow;        /* they mean nothing */
} hth_cold_sums;
void hth_fwd_ffn_cold(hth_step *s, uint32_t i_layer, const hth_layer *cold, uint32_t n_row,
                      hth_cold_sums *out);
/* head.c */
typedef struct hth_logits_sink {
    hth_logits_fn *fn;
    void *user;
    uint32_t n_given;
} hth_logits_sink;
/* Logits[n][n_vocab] of the next n rows to whom they are for. NUMERIC: one is not finite. */
hearth_status hth_fwd_emit_logits(const hth_step *s, const float *logits, uint32_t n, hth_logits_sink *to,
                           hearth_error *err);
hearth_status hth_fwd_head(hth_step *s, hth_logits_sink *to, hearth_error *err);

/* step.c: y = norm(x) for rows of d_model; the model's kind of norm. As a job, or row by row
 * where the product that reads y prepares its input (hth_fusion). */
typedef struct hth_fwd_norm_rows {
    const hth_step *s;
    const hth_norm *norm;
    const float *x;
    float *y;
} hth_fwd_norm_rows;
_Static_assert(sizeof(hth_fwd_norm_rows) == HTH_PREPARE_SIZE, "a norm is what a product prepares with");
void hth_fwd_norm_row(const void *rows, size_t i);
void hth_fwd_norm(hth_step *s, const hth_norm *norm, const float *x, float *y, uint32_t n_row);

#endif
