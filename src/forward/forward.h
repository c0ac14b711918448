/* One step (forward pass) through the layers: a batch of tokens of one or several sequences, from token
 * ids to logits. step.c goes through the program of the model (model/program.h); each file computes a kind
 * of operation. Nothing here allocates after hth_step_open. */
#ifndef HTH_FORWARD_FORWARD_H
#define HTH_FORWARD_FORWARD_H

#include "base/pool.h"
#include "forward/sequence.h"
#include "model/model.h"
#include "store/table_rows.h"
#include "store/store.h"

/* ---- FFN probe (ffn.c) ------------------------------------------------------------- */

/* The values of one layer's feed-forward network for n_tok tokens. gate: NULL where the architecture has none.
 * Valid during the call only. */
typedef struct hth_ffn_probe {
    uint32_t i_layer;
    size_t n_tok, d_model, d_ff;
    const float *residual; /* [n_tok][d_model], before the norm */
    const float *input;    /* [n_tok][d_model], after the norm */
    const float *gate;     /* [n_tok][d_ff], before the activation */
    const float *up;       /* [n_tok][d_ff] */
    /* [n_tok][d_ff], the input of down; a neuron that the probe sets to zero counts as left out */
    float *hidden;
    hth_pool *pool; /* idle: the probe may run work on all its threads */
} hth_ffn_probe;
typedef void hth_ffn_probe_fn(void *user, const hth_ffn_probe *seen);

/* ---- selection of active neurons (ffn.c) ----------------------------------------------- */

/* The active neurons for one token of one layer, ascending. list NULL: all, and n is d_ff. Inactive neurons count
 * as zero. */
typedef struct hth_neuron_list {
    const int32_t *list;
    uint32_t n;
} hth_neuron_list;

/* Names the active neurons from the layer and the FFN's input (after the norm). It replaces the step's selector,
 * whose first half and predictor are still computed; the list must stay valid until the next call. Matrices of
 * which the selector reads single rows must be laid out by rows; with dense: gate and up. */
typedef hth_neuron_list hth_selector_fn(void *user, uint32_t i_layer, const float *input);

/* ---- steps (step.c) ------------------------------------------------------------------ */

/* One token of one sequence. Tokens of a sequence are adjacent, and their positions ascend by one. */
typedef struct hth_batch_token {
    hth_sequence *seq; /* prepared for this step */
    int32_t token;     /* below n_vocab */
    uint32_t position; /* the sequence's n_tok for the first token */
    bool want_logits;
    /* Before a token of a draft: where the states after this token go, of all layers (HTH_STATE_STEP, in the order of
     * the sequence's own); NULL: they are not kept. */
    uint8_t *states;
    /* [d_model] of this token, where the model is an MTP block (hth_mtp_input), and `token` the next one;
     * else NULL. */
    const float *hidden;
} hth_batch_token;

typedef struct hth_step hth_step;

/* A workspace for up to n_row tokens at once. kernels and pool must outlive it. selector: from
 * hth_selector_choose. */
hearth_status hth_step_open(const hth_model *model, const hth_kernels *kernels, hth_pool *pool,
                            uint32_t n_row, hearth_selector selector, hth_step **out, hearth_error *err);
void hth_step_close(hth_step *step);
/* From now on gpu computes the first layers, and perhaps the head; it must outlive the step. */
typedef struct hth_gpu hth_gpu;
void hth_step_use_gpu(hth_step *step, hth_gpu *gpu);
/* From now on steps keep the normed outputs of the last layer, of all tokens. Not with a device that computes the
 * head. */
void hth_step_keep_hidden(hth_step *step, bool on);
/* Turns off the fusion of operations, for tests. The bits are the same. */
void hth_step_unfuse(hth_step *step);
/* The kept outputs [n_row][d_model] of the last step, valid until the next one. */
const float *hth_step_hidden(const hth_step *step);
/* Bytes of that workspace. */
bool hth_step_size(const hth_model *model, uint32_t n_row, hearth_selector selector, uint32_t n_thread,
                   size_t *size);
void hth_step_set_probe(hth_step *step, hth_ffn_probe_fn *fn, void *user);
/* fn sees the input of every matrix product of the step: of attention and other mixers, networks, experts, the head.
 * A transposed down is no product. */
void hth_step_set_product_probe(hth_step *step, hth_product_probe_fn *fn, void *user);
void hth_step_select(hth_step *step, hth_selector_fn *fn, void *user); /* NULL: use the step's selector */

/* Sees the experts that the router chose for a token of a layer, and may name others, ascending, instead. The router
 * still computes the weights. i_tok: tokens that the step computed before it since the function was set. is_guess: what
 * is expected before the layer's router has run. Called from several threads. */
typedef void hth_route_fn(void *user, uint32_t i_layer, uint64_t i_tok, bool is_guess, uint32_t *chosen);
void hth_step_set_route(hth_step *step, hth_route_fn *fn, void *user);
/* Copies the probes, the selector function and the route function of another step, which this one replaces. */
void hth_step_copy_probes(hth_step *step, const hth_step *from);

/* ---- weights from storage (experts.c, ffn_streamed.c, ffn_bundles.c) ----------------------------------- */

/* Pieces of a dense network: rows of gate and up together, then rows of down. Items follow one another, in
 * the order of layers; the last piece of either kind may have fewer rows. */
enum { HTH_DEFAULT_BATCH = 256 };                            /* prompt tokens of a step */
enum { HTH_MAX_PIECE = HTH_MAX_D_FF / HTH_CLUSTER_NEURONS }; /* pieces of a layer */
typedef struct hth_ffn_pieces {
    uint32_t first_item, n_half, n_down; /* n_half 0: the network is in memory, or in bundles */
    uint32_t half_rows, down_rows;
} hth_ffn_pieces;

/* Bundles of a dense network whose down is transposed: n runs of 2^shift neurons, the last one perhaps
 * shorter. Items from first_item on: for each bundle the rows of the half that decides (gate; up where
 * there is no gate), then, if has_second, for each those of up, then for each those of down. Without
 * has_second the first ones have both halves. */
enum { HTH_MIN_BUNDLE = 1 << HTH_MIN_BUNDLE_SHIFT };
typedef struct hth_ffn_bundles {
    uint32_t first_item, n; /* n 0: the network is in memory, or in pieces */
    uint32_t shift;
    bool has_second;
} hth_ffn_bundles;

/* The first item to read ahead where no predictor names bundles. With a gate (has_second) it is one of the
 * next layer, because active neurons decide which other rows of this layer are needed. Runs and plans use
 * it. */
static inline uint32_t hth_bundles_ahead(const hth_ffn_bundles *b)
{
    return b->first_item + (b->has_second ? 3 : 1) * b->n;
}

/* Weights that a store reads when they are needed. An item has those of gate, up and down that an expert,
 * a piece or a bundle has, in this order; a joined gate and up is one extent. */
enum { HTH_TABLE_EMBEDDING, HTH_TABLE_LAYER_EMBEDDING, HTH_N_TABLE }; /* tables of which tokens read single rows */
/* Pieces, and items of bundles, that are computed together; items that are guessed ahead. Plans count with them. */
enum { HTH_MAX_HELD_PIECES = 8, HTH_MAX_HELD_BUNDLES = 256, HTH_MAX_AHEAD = 32 };
typedef struct hth_streamed {
    hth_store *store; /* NULL: only rows of tables are read */
    hth_reader *reader;
    const volatile int *cancel; /* NULL, or a flag that ends waits for rows of tables */
    hth_row_table tables[HTH_N_TABLE];
    /* [n_layer] item of expert 0, which the others follow; UINT32_MAX: in memory. NULL without a store. */
    const uint32_t *first_expert;
    const hth_ffn_pieces *pieces;   /* [n_layer]; NULL: dense networks are in memory, or in bundles */
    const hth_ffn_bundles *bundles; /* [n_layer]; NULL: they are in memory, or in pieces */
    bool in_turn; /* bundles are read, then computed, and none is prefetched: for measurements with one session */
} hth_streamed;
/* From now on these weights come from the store, which must outlive the step. Call it once. MEMORY. */
hearth_status hth_step_use_store(hth_step *step, const hth_streamed *streamed, hearth_error *err);
/* Bytes that it allocates; dense: dense networks come from the store. False: overflow. */
bool hth_step_store_size(const hth_model *model, uint32_t n_row, const hth_row_table tables[HTH_N_TABLE],
                         bool dense, size_t *size);

/* ---- masks of a selector's decisions (ffn.c) ------------------------------------------- */

/* Applies this step's selector to the tokens that the probe of another step of the same model saw:
 * marked[n_tok][d_ff] is 1 where it marks the neuron, else 0. Dense marks all; gate marks neurons that the first half
 * does not rule out; predictor marks its own choice, before the gate decides; threshold marks values at or above the
 * threshold. Uses the workspace of a step that is not running, for at most as many tokens as its capacity. */
void hth_step_selector_mask(hth_step *step, const hth_ffn_probe *seen, uint8_t *marked);

/* [n_tok][d_model]: the down projection of hidden[n_tok][d_ff] in one layer, without bias. Same requirements;
 * valid until the workspace is used again. */
const float *hth_step_down(hth_step *step, uint32_t i_layer, const float *hidden, size_t n_tok);

/* Receives logits[n_vocab] of the i-th token that wants them, in order. A status other than HEARTH_OK ends the
 * step with it. */
typedef hearth_status hth_logits_fn(void *user, uint32_t i_want, const float *logits, hearth_error *err);

/* Computes n_row tokens (1 to the workspace's capacity) and passes the logits of the tokens that want them to fn.
 * NUMERIC: a logit is not finite. */
hearth_status hth_step_run(hth_step *step, const hth_batch_token *tokens, uint32_t n_row, hth_logits_fn *fn,
                           void *user, hearth_error *err);
/* Whether the last step failed because its device reported an error, or fn returned a status of that kind. */
bool hth_step_device_failed(const hth_step *step);

#endif
