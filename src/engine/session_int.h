/* The session, for the files that implement it: session.c, session_file.c. */
#ifndef HTH_ENGINE_SESSION_INT_H
#define HTH_ENGINE_SESSION_INT_H

#include "base/in_use.h"
#include "engine/engine.h"
#include "engine/speculation.h"

/* Gets the normed outputs of the last layer, rows[n][d_model], for the tokens of a session from position `at` on,
 * after the step that evaluated them, which this can fail. */
typedef hearth_status hth_hidden_fn(void *user, uint32_t at, uint32_t n, const float *rows,
                                    hearth_error *err);

enum { HTH_N_LOGITS = 2 };

struct hearth_session {
    const hearth_model *model;
    hth_in_use in_use;
    hearth_session_options options; /* as opened, with n_ctx as computed */
    hth_sequence seq;
    /* Tokens evaluated; seq.n_tok is less only while its cache waits to be rebuilt, and more by n_draft_pending. */
    uint32_t position;
    hearth_batch *pending_in; /* a batch that was not run yet; NULL: none */
    bool has_logits;
    uint64_t size;       /* counted in the limit of the model */
    uint64_t model_hash; /* hth_model_hash; valid if has_model_hash (hth_engine_prepare_save) */
    bool has_model_hash;
    uint32_t generation; /* generation of the placement with which its tokens were evaluated */
    int32_t *tokens;     /* [n_ctx] evaluated so far */
    float *logits; /* [HTH_N_LOGITS][n_vocab]: after the last token, and those of a step that may yet fail */
    uint32_t i_logits; /* which of both are after the last token */
    hearth_batch *own;
    hth_speculation *drafts;  /* NULL: none are made */
    uint32_t n_draft_pending;         /* tokens of a draft behind `position`, which were evaluated */
    const float *ahead;       /* [n_draft_pending][n_vocab] the logits after each of them */
    hth_hidden_fn *hidden_fn; /* NULL: no one gets rows */
    void *hidden_user;
};

/* session.c: UNSUPPORTED: the model gives no outputs of its last layer; NUMERIC: one of n rows is not finite. */
hearth_status hth_engine_need_hidden(const hearth_model *m, hearth_error *err);
hearth_status hth_engine_check_hidden(const hearth_model *m, const float *rows, uint32_t n, hearth_error *err);

/* session_size.c: copies options, which may be NULL. ARGUMENT names the field that no session can have. */
hearth_status hth_session_read_options(const hearth_session_options *options, hearth_session_options *o,
                                       hearth_error *err);
/* session_size.c: bytes of a batch; 0: they do not fit into an integer. */
size_t hth_batch_size(const hearth_model *model, uint32_t n_tok, uint32_t n_thread, hearth_selector selector,
                      bool streams);
/* Positions of a session with these options, and the capacity of its own batch; 0: it has none. */
uint32_t hth_session_context(const hearth_model *model, const hearth_session_options *o);
uint32_t hth_session_batch(const hearth_model *model, const hearth_session_options *o);
/* n_ctx, n_tok: those two. */
hth_sequence_options hth_session_sequence_options(const hearth_session_options *o, hth_kv_budget *budget,
                                                  uint32_t n_ctx, uint32_t n_tok);
/* Bytes of the session; pages of a budget are not counted. */
uint64_t hth_session_size(const hearth_model *model, const hearth_session_options *options,
                          hth_kv_budget *budget, bool streams);

/* As hearth_session_open, with pages of a budget, which is of the model's pool for the type of the cache. All sessions of
 * a batch have the same budget, or none. A step for which it has too few pages fails with MEMORY. */
hearth_status hth_session_open_in(const hearth_model *model, const hearth_session_options *options,
                                  hth_kv_budget *budget, hearth_session **out, hearth_error *err);
/* Adds the pages of each class that n tokens more take of the budget, at most. */
void hth_session_count_missing(const hearth_session *s, uint32_t n, uint32_t n_page[HTH_N_KV_CLASS]);
/* MEMORY: the budget, if there is one, has too few pages for n tokens more. */
hearth_status hth_session_check_pages(const hearth_session *s, uint32_t n, hearth_error *err);
/* hearth_batch_add; wants: the logits of the last token. */
hearth_status hth_batch_add(hearth_batch *b, hearth_session *s, const int32_t *tokens, size_t n, bool wants,
                            hearth_error *err);
/* threads.c: n_thread threads, 0: one per physical core, for the batch of a session (size: what counts it) or of others
 * (size NULL), and for that of its drafts; NULL: there are none. MEMORY: both are as before. */
hearth_status hth_batch_set_threads(hearth_batch *b, uint64_t *size, hth_drafter *drafter, uint32_t n_thread,
                                    hearth_error *err);
/* hearth_batch_run, within a use of its sessions. */
hearth_status hth_batch_run(hearth_batch *b, hearth_error *err);
/* Behind it: n tokens of a draft that follow, at most HTH_DRAFT_MAX. Rows [i_row, i_row + n) of the drafter get the
 * logits after them, and the states before them; with states, one token is before the draft. */
void hth_batch_add_draft(hearth_batch *b, const int32_t *draft, uint32_t n, const hth_drafter *d,
                         uint32_t i_row);
/* hth_batch_token.hidden of n tokens of the last session that was added, from its first-th on; rows[n][d_model] stay
 * until the batch is run. */
void hth_batch_set_hidden(hearth_batch *b, uint32_t first, uint32_t n, const float *rows);
/* hearth_session_enable_sparsity_stats and hearth_session_sparsity_stats, for the tokens of a batch. */
void hth_batch_count_active(hearth_batch *b, bool on);
uint64_t hth_batch_active_shares(const hearth_batch *b, double *share);
/* How many tokens a session has of those at the beginning of a text. */
uint32_t hth_session_count_same(const hearth_session *s, const int32_t *tokens, size_t n);
/* hearth_session_eval and hearth_session_truncate, within a use of the session. */
hearth_status hth_session_eval(hearth_session *s, const int32_t *tokens, size_t n, hearth_error *err);
hearth_status hth_session_truncate(hearth_session *s, uint32_t position, hearth_error *err);
/* Takes a token that was evaluated as a draft, with its logits. False: it was not; what is ahead is dropped. */
bool hth_session_advance(hearth_session *s, int32_t token);
/* Drops what is ahead. */
void hth_session_discard_draft(hearth_session *s);
/* Frees the logits of a session that is only copied from now on. */
void hth_session_free_logits(hearth_session *s);
/* A destination of the bytes of a saved session. */
typedef struct hth_session_sink {
    hearth_status (*begin)(void *user, uint64_t size, hearth_error *err); /* before all bytes; or NULL */
    hearth_write_fn *write;
    void *user;
} hth_session_sink;
/* A source of the bytes of a saved session. */
typedef struct hth_session_source {
    const char *name; /* name in error messages */
    uint64_t size;    /* UINT64_MAX: the head tells it */
    hearth_read_fn *read;
    hearth_status (*rewind)(void *user, hearth_error *err); /* to the first byte; NULL: it cannot */
    void *user;
} hth_session_source;
/* session_file.c: all ways to save and to restore. progress: between blocks; NULL: none. */
hearth_status hth_session_put(const hearth_session *s, const hth_session_sink *sink, hearth_progress_fn *progress,
                              void *user, hearth_error *err);
hearth_status hth_session_get(hearth_session *s, const hth_session_source *source, hearth_error *err);
/* hearth_session_save, with progress between its blocks; NULL: none. CANCELLED. */
hearth_status hth_session_write(const hearth_session *s, const char *path, hearth_progress_fn *progress,
                                void *user, hearth_error *err);
/* A hash of what a file of this session is bound to beside its tokens: the model, the arithmetic, options. */
hearth_status hth_session_binding(const hearth_session *s, uint64_t *hash, hearth_error *err);
/* The last position up to `position` to which a copy can return without evaluating tokens again; 0: none. */
uint32_t hth_session_reachable(const hearth_session *s, uint32_t position);
/* Whether the pages hold the cache of all tokens, on a device or here: it does not wait to be rebuilt. */
bool hth_session_has_cache(const hearth_session *s);
/* The selector of the session's own evaluations. */
hearth_selector hth_session_selector(const hearth_session *s);
/* Drops all tokens. */
void hth_session_reset(hearth_session *s);
/* After tokens, logits and pages of the host were replaced. */
void hth_session_set(hearth_session *s, uint32_t position, bool has_logits, bool has_cache);

#endif
