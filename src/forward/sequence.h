/* The state of a sequence between steps: pages of keys and values, and the states of recurrent layers. The engine
 * prepares it before a step, and commits the step's tokens after it; a step that failed leaves it unchanged. Copies
 * share pages; a shared page is copied before it is written. */
#ifndef HTH_FORWARD_SEQUENCE_H
#define HTH_FORWARD_SEQUENCE_H

#include "forward/kv_pool.h"

/* Earlier states that a sequence keeps: the last ones that the engine asked for, and the last ones at every
 * HTH_CHECKPOINT_STEP positions. */
typedef enum hth_checkpoint_kind {
    HTH_CHECKPOINT_EXPLICIT,
    HTH_CHECKPOINT_REGULAR,
    HTH_N_CHECKPOINT_KIND
} hth_checkpoint_kind;
/* Fewer are kept where a device has the states: its memory is scarce. */
enum {
    HTH_KEPT = 4,
    HTH_KEPT_ON_DEVICE = 2, /* the beginning and the end of a text */
    HTH_N_CHECKPOINT = HTH_N_CHECKPOINT_KIND * HTH_KEPT,
    HTH_CHECKPOINT_STEP = 256
};

typedef struct hth_sequence_options {
    uint32_t n_ctx;
    /* Frees pages of layers with a window once no later token sees them. Such a sequence cannot return to positions
     * before them, except to 0. */
    bool release_window;
    uint32_t n_step; /* tokens of a step at most, which bounds the pages held then; 0: n_ctx */
    hth_kv_budget *budget; /* budget that gives pages when a step needs them; NULL: the sequence reserves all */
} hth_sequence_options;

/* Pages of a class: page i holds entries [HTH_KV_PAGE * i, HTH_KV_PAGE * (i + 1)). The sequence holds n_held pages
 * from `first` on; released ones are reused for later positions, or dropped if there is a budget. */
typedef struct hth_page_table {
    hth_kv_page **pages;  /* [n_page] of the sequence; NULL: not held */
    const uint8_t **data; /* [n_page] their memory, for kernels */
    uint32_t first, n_held;
} hth_page_table;

/* It shares pages with the states that it keeps. */
typedef struct hth_checkpoint {
    uint32_t n_tok;
    bool valid;
    hth_kv_page *pages[HTH_N_STATE]; /* while it is valid; NULL: no layer has such a state */
} hth_checkpoint;

typedef struct hth_sequence {
    hth_kv_pool *pool;
    hth_sequence_options options;
    uint32_t n_page;                     /* length of the tables */
    uint32_t n_tok;                      /* committed tokens: positions [0, n_tok) */
    hth_page_table tables[HTH_N_KV_CLASS];
    /* States of recurrent layers; size 0: none, and no pages. Without tokens `now` is zero. */
    struct {
        hth_kv_page *now, *next;
        size_t size;
    } states[HTH_N_STATE];
    size_t state_size; /* sum of the sizes */
    /* The last n tokens are a draft. states[n][size of HTH_STATE_STEP]: before each of them; hth_sequence_set_ahead. */
    struct {
        uint32_t n;
        const uint8_t *states;
    } ahead;
    hth_checkpoint checkpoints[HTH_N_CHECKPOINT];
    uint32_t n_kept; /* checkpoints of a kind */
    uint32_t first_window; /* pages of layers with a window hold keys and values from this one on */
} hth_sequence;

/* An empty sequence. MEMORY. The pool must outlive it. */
hearth_status hth_sequence_open(hth_sequence *s, hth_kv_pool *pool, const hth_sequence_options *options,
                                hearth_error *err);
/* Bytes of the states of one token count, of which a sequence has up to HTH_N_STATE_COPY: before and after a step, and
 * checkpoints. */
enum { HTH_N_STATE_COPY = 2 + HTH_N_CHECKPOINT, HTH_N_STATE_COPY_ON_DEVICE = 2 + HTH_N_CHECKPOINT_KIND * HTH_KEPT_ON_DEVICE };
size_t hth_sequence_state_size(const hth_model *model);
/* Bytes that such a sequence holds; false: overflow, or the model's head size does not suit the type. */
bool hth_sequence_size(const hth_model *model, hearth_kv_type type, const hth_sequence_options *options, size_t *size);
/* A copy of `from`, which is not in a step: shares its pages and the states before the tokens of a draft, but reserves as
 * many pages as another one would, unless they have a budget. MEMORY. */
hearth_status hth_sequence_fork(const hth_sequence *from, hth_sequence *s, hearth_error *err);
void hth_sequence_close(hth_sequence *s);

/* Tokens of a step at most: n_step if pages are released, else n_ctx. */
uint32_t hth_sequence_max_step(const hth_sequence *s);
/* Adds the pages that hth_sequence_prepare takes of the budget, at most. */
void hth_sequence_count_missing(const hth_sequence *s, uint32_t n_new, uint32_t n_page[HTH_N_KV_CLASS]);
/* Before a step with n_new tokens (at most hth_sequence_max_step) from position n_tok on: replaces shared pages that
 * it writes, by a copy where tokens before n_tok are in it. Cannot fail if a budget has what is missing; allocates
 * nothing. n_tok + n_new is at most n_ctx. */
void hth_sequence_prepare(hth_sequence *s, uint32_t n_new);
/* After that step succeeded. Keeps a checkpoint if the tokens reach the next multiple of HTH_CHECKPOINT_STEP. */
void hth_sequence_commit(hth_sequence *s, uint32_t n_new);
/* After that: the last n tokens of the step, which had less than HTH_CHUNK, are a draft, and hth_batch_token.states of
 * the token before it was `states`, each next one's the next states. They stay there until it returns to a token of the
 * draft, or this is called with n 0. */
void hth_sequence_set_ahead(hth_sequence *s, uint32_t n, const uint8_t *states);
/* Keeps a checkpoint at n_tok. With n_kept of its kind it replaces that of the fewest tokens. */
void hth_sequence_checkpoint(hth_sequence *s, hth_checkpoint_kind kind);

/* The largest position up to n (at most n_tok) that hth_sequence_truncate can reach: n itself, unless pages were
 * released or layers have state; then that of a token of the draft or of a checkpoint, or 0. */
uint32_t hth_sequence_reachable(const hth_sequence *s, uint32_t n);
/* Drops all tokens from position n on, which must be reachable, and with a budget the pages of these. */
void hth_sequence_truncate(hth_sequence *s, uint32_t n);

/* ---- saving and restoring ---------------------------------------------------------------------------------- */

/* Copies page i; entries of positions from n_tok on become zero[d_head], zeros. */
void hth_sequence_copy_page(const hth_sequence *s, const hth_kernels *k, hth_kv_class class, uint32_t i,
                            const float *zero, uint8_t *to);
/* The first page with a position that a token at n_tok sees in layers with a window. */
uint32_t hth_sequence_first_visible(const hth_sequence *s, uint32_t n_tok);
/* Replaces all tokens by n_tok others, whose pages and state the caller writes. Pages of layers with a window follow
 * from first_window on, which is at most hth_sequence_first_visible; those that the sequence holds are written. A budget
 * must have those of n_tok tokens of an empty sequence. */
void hth_sequence_overwrite(hth_sequence *s, uint32_t n_tok, uint32_t first_window);

/* ---- used by the files of forward/ ------------------------------------------------------------------------- */

/* Stores key and value [n_head_kv][d_head] of a position that was prepared, or, with n_layer + i as i_layer, of a
 * block of layer i. */
void hth_sequence_store(hth_sequence *s, const hth_kernels *k, uint32_t i_layer, uint32_t position, const float *key,
                        const float *value);
/* A layer's copies of a state: the one before the step, and the one that the step may write (hth_state_kind). Both
 * are aligned as by malloc; a new sequence's are zero. */
typedef struct hth_state {
    void *now, *next;
} hth_state;
hth_state hth_sequence_state(const hth_sequence *s, uint32_t i_layer, hth_state_kind kind);
/* delta_net.c: takes n_tok tokens from position `first` on, all of one chunk, out of the states of chunks. */
void hth_sequence_clear_chunk(hth_sequence *s, uint32_t first, uint32_t n_tok);
/* Pages and offset of a KV head's keys; its values are values_offset bytes behind. */
typedef struct hth_kv_head {
    const uint8_t *const *pages;
    size_t offset, values_offset;
} hth_kv_head;
hth_kv_head hth_sequence_head(const hth_sequence *s, uint32_t i_layer, uint32_t i_head);

#endif
