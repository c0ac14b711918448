/* The workspace that the files of run/ share. Their functions queue work on the pool and
 * return: whoever reads a buffer on the caller's thread finishes the queue first, and what
 * units read of the step stays as it is until then. */
#ifndef HTH_RUN_RUN_INT_H
#define HTH_RUN_RUN_INT_H

#include "run/run.h"

/* Buffers hold n_row_max tokens; widths are the largest over the layers. */
struct hth_step {
    const hth_model *model;
    const hth_kernels *k;
    hth_pool *pool;
    uint32_t n_row_max;
    hth_observer_fn *observe;
    void *observe_user;
    hth_selector_fn *select;
    void *select_user;

    const hth_row *rows; /* of the step under way */
    uint32_t n_row;

    float *x;                  /* [n_row][d_model] the residual stream */
    float *normed;             /* [n_row][d_model] */
    float *q;                  /* [n_row][n_head * d_head] */
    float *kv;                 /* [2][n_row][n_head_kv * d_head] new keys, then new values */
    float *heads;              /* [n_row][n_head * d_head] what attention gives */
    float *gate, *up, *hidden; /* [n_row][d_ff] */
    float *out;                /* [n_row][d_model] of a block, before it is added to x */
    float *held;               /* [n_row][d_model] of attention, where the FFN stands beside it */
    uint32_t n_table;          /* rotations: 1, or 2 where layers with a window have their own */
    float *cosine, *sine;      /* [n_table][n_row_max][n_rot / 2] */
    double *frequency;         /* [n_table][2][n_rot / 2] radians per position; the second in long contexts */
    float rope_scale;          /* on cosine and sine */
    float *scratch;            /* [n_thread][d_head] */
    float *logits;             /* [head_rows][n_vocab] */
    uint32_t head_rows;        /* rows that the head computes at once */
    hth_rounding rounding;

    uint8_t *memory;
    size_t size;
};

/* embed.c */
void hth_run_embed(hth_step *s);
/* attention.c: frequencies once, tables for each step, then the block of layer i */
void hth_run_rope_init(hth_step *s);
void hth_run_rope_tables(hth_step *s);
void hth_run_attention(hth_step *s, uint32_t i_layer);
/* ffn.c */
void hth_run_ffn(hth_step *s, uint32_t i_layer);
/* head.c */
hearth_status hth_run_head(hth_step *s, hth_logits_fn *fn, void *user, hearth_error *err);

/* step.c: y = norm(x) for n_row rows of d_model; the model's kind of norm. */
void hth_run_norm(hth_step *s, const hth_norm *norm, const float *x, float *y, uint32_t n_row);

#endif
