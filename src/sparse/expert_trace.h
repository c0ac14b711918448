/* The experts that the routers of a mixture chose for the tokens of a text, in the order of the text. measure/
 * expert_trace.c records it; measure/route_trace.h lets a model of the same shape use the same experts. The file is a
 * GGUF without weights that stores the hash of its model (docs/profile.md). */
#ifndef HTH_SPARSE_EXPERT_TRACE_H
#define HTH_SPARSE_EXPERT_TRACE_H

#include "model/model.h"
#include "store/expert_replay.h"

enum { HTH_EXPERT_TRACE_MAX_TOK = 65536 };

typedef struct hth_expert_trace_layer {
    uint32_t n_expert, n_used; /* n_used: by a token; 0: the layer has no experts */
    uint16_t *chosen;          /* [n_tok][n_used], ascending for each token; NULL: no experts */
} hth_expert_trace_layer;

typedef struct hth_expert_trace {
    uint64_t model_hash; /* hth_model_hash */
    uint64_t text_hash;  /* hash of the text's token ids */
    uint32_t n_tok;      /* tokens from the beginning of the text on, in whole chunks */
    uint32_t n_ctx;      /* tokens of a chunk */
    char settings[64];   /* other settings that may change a choice: KV cache type, approximations */
    uint32_t n_layer;
    hth_expert_trace_layer *layers;
    hth_arena arena;
} hth_expert_trace;

/* A trace for the layers of a model, whose experts are all 0. The caller sets the other fields. UNSUPPORTED: the model
 * has no experts. ARGUMENT: n_tok is 0 or above the maximum. MEMORY. */
hearth_status hth_expert_trace_new(const hth_model *model, uint32_t n_tok, hth_expert_trace **out, hearth_error *err);
void hth_expert_trace_close(hth_expert_trace *trace);

/* Reads a trace. If model is given, the trace must match it in hash and shapes; otherwise it is checked for consistency
 * only. Every value is checked. IO, FORMAT, UNSUPPORTED, ARGUMENT (of another model), MEMORY. */
hearth_status hth_expert_trace_open(const char *path, const hth_model *model, hth_expert_trace **out,
                                    hearth_error *err);
/* Atomic: the file appears when it is complete and on the disk. */
hearth_status hth_expert_trace_write(const hth_expert_trace *trace, const char *path, hearth_error *err);
/* ARGUMENT: the model has other layers, experts, or experts of a token. */
hearth_status hth_expert_trace_check_shape(const hth_expert_trace *trace, const hth_model *model, hearth_error *err);

/* The experts of token i_tok, modulo n_tok: a hth_route_fn and a hth_expert_replay_fn whose user is a
 * hth_expert_trace. */
void hth_expert_trace_get(void *trace, uint32_t i_layer, uint64_t i_tok, bool is_guess, uint32_t *chosen);

/* ---- statistics ----------------------------------------------------------------------------------- */

/* Tokens that use each expert of a layer: n_use[n_expert]. */
void hth_expert_trace_count(const hth_expert_trace *trace, uint32_t i_layer, uint32_t *n_use);

typedef struct hth_expert_habits {
    double cover_10, cover_20, cover_40; /* share of all choices that the most used 10, 20 and 40 % of the experts have */
    double sticky;         /* share of a token's experts that the next token of its chunk uses too */
    double reuse_distance; /* median number of tokens from a use of an expert to its next one; 0: none was used again */
} hth_expert_habits;

/* Of a layer with experts. MEMORY. */
hearth_status hth_expert_trace_habits(const hth_expert_trace *trace, uint32_t i_layer, hth_expert_habits *out,
                                      hearth_error *err);

/* What the policy of experts' slots (store/expert_policy.h) finds in slots for that share of the experts of each layer,
 * with any number of uploads: counts of all but the first quarter of the tokens. by_layer: [n_layer]; those of layers
 * without experts are 0. MEMORY. */
hearth_status hth_expert_trace_replay(const hth_expert_trace *trace, double share, hth_expert_counts *by_layer,
                                      hth_expert_counts *all, hearth_error *err);

#endif
