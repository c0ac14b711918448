/* One step through the layers: rows of tokens, of one or several sequences, from
 * ids to logits. The order of the files is that of a token: step.c, embed.c,
 * attention.c, ffn.c, head.c. Nothing here allocates after hth_step_open. */
#ifndef HTH_RUN_RUN_H
#define HTH_RUN_RUN_H

#include "base/pool.h"
#include "model/model.h"

/* ---- the cache of one sequence (cache.c) ------------------------------------------ */

/* Keys and values of all layers: layer, then keys and values, then KV head, so that one
 * head's positions are one stream, which kernels/attn/kv_layout.h describes. */
typedef struct hth_kv {
    hearth_kv_type type;
    uint32_t n_ctx;
    size_t head_size; /* bytes of a KV head's keys, or values, in one layer */
    uint8_t *memory;
    size_t size;
    size_t *layer_offset; /* [n_layer] byte offset of a layer's keys; its values follow */
    uint32_t slot;    /* where the sequence begins in the caches of a device (gpu/gpu.h) */
} hth_kv;

/* Bytes that a cache of n_ctx positions takes; false when that overflows, or the model's
 * heads do not fit the type. */
bool hth_kv_size(const hth_model *model, hearth_kv_type type, uint32_t n_ctx, size_t *size);
hearth_status hth_kv_open(hth_kv *kv, const hth_model *model, hearth_kv_type type, uint32_t n_ctx,
                          hearth_error *err);
void hth_kv_close(hth_kv *kv);

/* ---- the observation point (ffn.c) ------------------------------------------------- */

/* What can be seen of one layer's feed-forward network, for n_tok tokens. gate is
 * NULL where the family has none. Valid during the call only. */
typedef struct hth_ffn_probe {
    uint32_t i_layer;
    size_t n_tok, d_model, d_ff;
    const float *residual; /* [n_tok][d_model], before the norm */
    const float *input;    /* [n_tok][d_model], after the norm */
    const float *gate;     /* [n_tok][d_ff], before the activation */
    const float *up;       /* [n_tok][d_ff] */
    float *hidden;         /* [n_tok][d_ff], what goes into down; where an observer puts a zero, that neuron
                              counts as left out */
    hth_pool *pool;        /* idle: work that the observer gives it is done by all threads */
} hth_ffn_probe;
typedef void hth_ffn_probe_fn(void *user, const hth_ffn_probe *seen);

/* ---- who fires (ffn.c) ----------------------------------------------------------------- */

/* The neurons that compute for one token of one layer, ascending. list NULL: all of them, n is d_ff then.
 * A neuron left out counts as zero. */
typedef struct hth_neuron_list {
    const int32_t *list;
    uint32_t n;
} hth_neuron_list;

/* Names the active neurons by the layer and the FFN's input (after the norm), in place of the step's
 * selector, of which the first half and the predictor are computed nevertheless; the list must stay until the next call.
 * Matrices of which the selector reads single rows must lie so; with dense, gate and up. */
typedef hth_neuron_list hth_selector_fn(void *user, uint32_t i_layer, const float *input);

/* ---- steps (step.c) ------------------------------------------------------------------ */

/* One token of one sequence. Rows of a sequence stand in ascending positions. */
typedef struct hth_batch_token {
    hth_kv *kv;
    int32_t token;     /* below n_vocab */
    uint32_t position; /* below kv->n_ctx; all before it are in the cache or in earlier rows */
    bool want_logits;
} hth_batch_token;

typedef struct hth_step hth_step;

/* A workspace for up to n_tok rows at once. kernels and pool must outlive it. selector: one that
 * hth_selector_choose gave. */
hearth_status hth_step_open(const hth_model *model, const hth_kernels *kernels, hth_pool *pool,
                            uint32_t n_row, hearth_selector selector, hth_step **out, hearth_error *err);
void hth_step_close(hth_step *step);
/* From now on the first layers, and perhaps the head, are computed there; gpu must outlive the step. */
typedef struct hth_gpu hth_gpu;
void hth_step_use_gpu(hth_step *step, hth_gpu *gpu);
/* Bytes of that workspace. */
bool hth_step_size(const hth_model *model, uint32_t n_row, hearth_selector selector, uint32_t n_thread,
                   size_t *size);
void hth_step_set_probe(hth_step *step, hth_ffn_probe_fn *fn, void *user);
void hth_step_select(hth_step *step, hth_selector_fn *fn, void *user); /* NULL: the selector */

/* ---- what a selector would have done (ffn.c) ------------------------------------------- */

/* Of the tokens that another step of the same model has seen, which neurons this step's selector
 * marks: marked[n_tok][d_ff] is 1 or 0. Dense: all; gate: where the first half says that they may
 * fire; predictor: what it marks, before the gate decides; threshold: what reaches it. Works in the
 * workspace of a step that is not under way, and for as many tokens as that has rows. */
void hth_step_selector_mask(hth_step *step, const hth_ffn_probe *seen, uint8_t *marked);

/* [n_tok][d_model]: what down of a layer makes of hidden[n_tok][d_ff], without bias. Likewise; valid
 * until the workspace is used again. */
const float *hth_step_down(hth_step *step, uint32_t i_layer, const float *hidden, size_t n_tok);

/* Takes the logits[n_vocab] of the i-th row that wanted them, in order. A status
 * other than HEARTH_OK ends the step with it. */
typedef hearth_status hth_logits_fn(void *user, uint32_t i_want, const float *logits, hearth_error *err);

/* Computes n_tok rows (1 to the workspace's) and hands the logits of the rows that
 * want them to fn. NUMERIC when a logit is not finite. */
hearth_status hth_step_run(hth_step *step, const hth_batch_token *tokens, uint32_t n_row, hth_logits_fn *fn, void *user,
                           hearth_error *err);
/* Whether the last step ended because its device refused or failed, or fn with the status of one that did. */
bool hth_step_device_failed(const hth_step *step);

#endif
