/* A session: one sequence of tokens over a model. */
#ifndef HEARTH_SESSION_H
#define HEARTH_SESSION_H

#include <hearth/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One sequence of tokens over a model: its KV cache and position. Used by one thread at a time. */
typedef struct hearth_session hearth_session;

/* Value of n_ctx: all positions that the model was trained for. */
#define HEARTH_CTX_TRAINED UINT32_MAX

/* Values of n_batch. AUTO: 256; if experts of a mixture pass through a GPU in prompts and gpu.n_batch is AUTO too, 512 to
 * 4096, as far as values take a 16th of its budget; without a GPU, if weights are read when they are needed, 512 or 1024,
 * as far as a session needs no more than a 16th of the limit of memory (hearth_model_options.ram) for them. NONE: the
 * session is used in batches only. */
#define HEARTH_BATCH_AUTO 0
#define HEARTH_BATCH_NONE UINT32_MAX

typedef struct hearth_session_options {
    size_t size;       /* of this struct: Versions in hearth.h */
    uint32_t n_ctx;    /* positions; 0: as the model was trained, at most 4096; or HEARTH_CTX_TRAINED */
    uint32_t n_batch;  /* prompt tokens per step; or HEARTH_BATCH_AUTO, HEARTH_BATCH_NONE. With gpu.placement "all" at
                          most gpu.n_batch */
    uint32_t n_thread; /* 0: one per physical core */
    bool bf16_dot;     /* compute prompts with BF16 matrices by the CPU's bf16 dot products, with inputs rounded to
                          bf16: an approximation; not in batches of several sessions */
    bool release_window; /* reuse the cache of layers with a window (Gemma, Mistral) behind the window: less memory, but
                            a session that goes back to before the window computes its cache again, and a batch takes
                            at most n_batch of its tokens (256 if that is NONE) */
    bool no_pin;       /* worker threads may run on all cores: Threads in hearth.h */
    hearth_kv_type kv; /* element type of the cache; affects the result */
    hearth_selector selector; /* AUTO: the model's. Another one is possible only if the model could have been
                                 opened with it, and is slower */
} hearth_session_options;

/* Returns zeros, and size.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API hearth_session_options hearth_session_defaults(void);

/* Opens an empty session, and reserves the memory of all of its positions.
 * Errors: ARGUMENT: an option, also a selector that the weights are not there or not laid out for; UNSUPPORTED:
 * bf16_dot on this CPU, a selector for experts; MEMORY: also beyond the limit of the model (hearth_model_options.ram);
 * IO: weights of a lost device cannot be read.
 * Ownership: *out is the caller's, until hearth_session_close, and keeps the model.
 * Threads: any. */
HEARTH_API hearth_status hearth_session_open(const hearth_model *model,
                                             const hearth_session_options *options,
                                             hearth_session **out, hearth_error *err);

/* Closes a session, and takes it out of a batch that was not run.
 * Errors: none.
 * Ownership: gives it up, with the logits and tokens that it gave.
 * Threads: any, but not beside another function of it, nor of the batch that it is in. */
HEARTH_API void hearth_session_close(hearth_session *session);

/* Returns the bytes that a session with these options allocates; 0 if that overflows, if the type of the cache does
 * not suit the model, or if an option has a size or a value that does not exist.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API uint64_t hearth_session_bytes(const hearth_model *model,
                                         const hearth_session_options *options);

/* Appends tokens[n] and computes the logits after the last one. The bits do not depend on how a text is split into
 * calls. n may be 0: nothing happens. After an error the position and the logits are as before.
 * Errors: CONTEXT: they do not fit; ARGUMENT: an id out of range, the session is in a batch that was not run or has no
 * steps of its own (HEARTH_BATCH_NONE); CANCELLED: by hearth_session_cancel or hearth_model_options.cancel; NUMERIC: a
 * logit is not finite; IO: weights cannot be read; MEMORY; DEVICE.
 * Ownership: nothing is kept.
 * Threads: one at a time. */
HEARTH_API hearth_status hearth_session_eval(hearth_session *session, const int32_t *tokens, size_t n,
                                             hearth_error *err);

/* The evaluation that runs, or else the next one, ends with CANCELLED, within the time of one small unit of work (a
 * read of weights that are in the file is waited for). That ends the cancellation: evaluations behind it run. Those of
 * a hearth_batch are cancelled by hearth_batch_cancel.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any, also while the session is in use, and signal handlers; not during or after hearth_session_close. */
HEARTH_API void hearth_session_cancel(hearth_session *session);

/* Returns the logits after the last token: float[n_vocab]. NULL: before the first token, and, until a token is
 * evaluated, after hearth_session_truncate to a smaller position, hearth_session_eval_hidden, and a
 * hearth_session_restore that failed while it read, or of a session that had none. To have them again, truncate to one
 * position less and evaluate that token.
 * Errors: none.
 * Ownership: they are the session's, valid until the next call that changes it.
 * Threads: one at a time, unchecked. */
HEARTH_API const float *hearth_session_logits(const hearth_session *session);

/* Gets the logits of token i_token of those that are evaluated: float[n_vocab], or float[d_model] of the last layer. A
 * status other than HEARTH_OK, for which it may fill in err, stops the evaluation and is returned, with the position as
 * before. It may call functions that only tell; others of the model or its sessions it must not. */
typedef hearth_status hearth_logits_fn(void *user, size_t i_token, const float *logits,
                                       hearth_error *err);

/* As hearth_session_eval, but passes the logits of every token to fn, in order. fn NULL: as hearth_session_eval.
 * Errors: as of hearth_session_eval; a status of fn; ARGUMENT: fn returned what is no status.
 * Ownership: user is passed to fn as it is; logits are valid during its call.
 * Threads: one at a time. fn is called on the calling thread. */
HEARTH_API hearth_status hearth_session_eval_each(hearth_session *session, const int32_t *tokens,
                                                  size_t n, hearth_logits_fn *fn, void *user,
                                                  hearth_error *err);

/* As hearth_session_eval_each, but passes float[d_model] in place of logits: what the last layer makes of each token,
 * normed as for the head. Of them hearth_embed makes vectors of texts. hearth_session_logits is NULL after success.
 * Errors: as of hearth_session_eval_each; ARGUMENT: also if fn is NULL; UNSUPPORTED: with a device.
 * Ownership: as of hearth_session_eval_each.
 * Threads: one at a time. fn is called on the calling thread. */
HEARTH_API hearth_status hearth_session_eval_hidden(hearth_session *session, const int32_t *tokens,
                                                    size_t n, hearth_logits_fn *fn, void *user,
                                                    hearth_error *err);

/* Returns the number of tokens of a session.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: one at a time, unchecked. */
HEARTH_API uint32_t hearth_session_position(const hearth_session *session);

/* Returns the tokens before the position: int32_t[position].
 * Errors: none.
 * Ownership: they are the session's, valid until the next call that changes it.
 * Threads: one at a time, unchecked. */
HEARTH_API const int32_t *hearth_session_tokens(const hearth_session *session);

/* Returns how many of the tokens, from the first on, are in the cache. Fewer than position after a truncation
 * (recurrent layers; release_window), a change of the device, or if a file without a cache was restored: the next
 * evaluation computes the others again.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: one at a time, unchecked. */
HEARTH_API uint32_t hearth_session_n_cached(const hearth_session *session);

/* Returns the n_ctx of a session, as chosen.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API uint32_t hearth_session_n_ctx(const hearth_session *session);

/* Returns the n_thread of a session, as chosen; 0: it is used in batches only.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: one at a time, unchecked. */
HEARTH_API uint32_t hearth_session_n_thread(const hearth_session *session);

/* Gives evaluations n_thread threads from now on, 0: one per physical core, also those of the session's drafts; copies
 * have them too. Bits stay the same. Cores to which workers were pinned are given back, and others are taken.
 * Errors: ARGUMENT: n_thread is above 256, or the session has no steps of its own (HEARTH_BATCH_NONE: see
 * hearth_batch_set_threads); MEMORY. The threads are as before then.
 * Ownership: nothing is kept.
 * Threads: one at a time. */
HEARTH_API hearth_status hearth_session_set_threads(hearth_session *session, uint32_t n_thread, hearth_error *err);

/* Removes all tokens from position on; the logits are gone, unless position is the number of tokens. If the cache
 * before position was released (release_window), the next evaluation computes it again.
 * Errors: ARGUMENT: position exceeds the number of tokens, or the session is in a batch that was not run.
 * Ownership: nothing is kept.
 * Threads: one at a time. */
HEARTH_API hearth_status hearth_session_truncate(hearth_session *session, uint32_t position,
                                                 hearth_error *err);

/* Makes a copy of a session at its position, with the same options, but without drafts. Both share the cache of their
 * common tokens, on a device too; pages of 32 positions are copied when one of them writes there. The copy reserves
 * memory for all of its positions, as any other session.
 * Errors: MEMORY; ARGUMENT: the session is in a batch that was not run; IO: as of hearth_session_open.
 * Ownership: *out is the caller's, until hearth_session_close, and keeps the model, not the session.
 * Threads: one at a time, or several that copy and save it, if it makes no drafts. */
HEARTH_API hearth_status hearth_session_fork(const hearth_session *session, hearth_session **out, hearth_error *err);

/* Writes tokens, cache and logits to a file, with a checksum; it replaces path when it is whole. What lies on a device
 * is not written, but computed again after hearth_session_restore.
 * Errors: IO: path cannot be written, or the model's file not be read; MEMORY; ARGUMENT: the session is in a batch
 * that was not run.
 * Ownership: nothing is kept.
 * Threads: one at a time, or several that copy and save it, if it makes no drafts. */
HEARTH_API hearth_status hearth_session_save(const hearth_session *session, const char *path, hearth_error *err);

/* Replaces the session's tokens by those of a file. What follows has the bits of the saved session. After an error the
 * session is unchanged; if the file changes while it is read, it is empty.
 * Errors: IO; FORMAT: damaged; UNSUPPORTED: of another version; ARGUMENT: of another model or other options, or the
 * session is in a batch that was not run; CONTEXT: n_ctx is too small; MEMORY.
 * Ownership: nothing is kept.
 * Threads: one at a time. */
HEARTH_API hearth_status hearth_session_restore(hearth_session *session, const char *path, hearth_error *err);

/* Gets the next n bytes of a session, 65536 at most. A status other than HEARTH_OK, for which it may fill in err, ends
 * the saving and is returned (ARGUMENT for one that does not exist). It may call functions that only tell, and fork
 * and save a session that makes no drafts; others of the session fail with ARGUMENT. */
typedef hearth_status hearth_write_fn(void *user, const void *data, size_t n, hearth_error *err);
/* The same for restoring: fills in all n bytes, and fails if there are fewer. */
typedef hearth_status hearth_read_fn(void *user, void *data, size_t n, hearth_error *err);

/* Passes the bytes of hearth_session_save to fn, in order.
 * Errors: what fn returns; IO: of the model's file; MEMORY; ARGUMENT: the session is in a batch that was not run.
 * Ownership: user is passed to fn as it is.
 * Threads: one at a time, or several that copy and save it, if it makes no drafts. fn is called on the calling thread. */
HEARTH_API hearth_status hearth_session_save_to(const hearth_session *session, hearth_write_fn *fn, void *user,
                                                hearth_error *err);

/* Restores a session, as hearth_session_restore, from bytes that fn gives once, in order: exactly those of a saved
 * session, so that others may follow. What belongs to another model, to other options or to another version is refused
 * after 128 bytes, and the session is unchanged. Damage is found at the end: after all other errors the session is
 * empty, but for one within the first 65536 bytes, which may leave it unchanged.
 * Errors: what fn returns; ARGUMENT, UNSUPPORTED, FORMAT, CONTEXT: as of hearth_session_restore; IO: of the model's
 * file; MEMORY.
 * Ownership: user is passed to fn as it is.
 * Threads: one at a time. fn is called on the calling thread. */
HEARTH_API hearth_status hearth_session_restore_from(hearth_session *session, hearth_read_fn *fn, void *user,
                                                     hearth_error *err);

/* Writes the bytes of hearth_session_save to memory.
 * Errors: MEMORY; IO: of the model's file; ARGUMENT: the session is in a batch that was not run.
 * Ownership: *data, *n bytes, is the caller's: hearth_free.
 * Threads: one at a time, or several that copy and save it, if it makes no drafts. */
HEARTH_API hearth_status hearth_session_save_memory(const hearth_session *session, void **data, size_t *n,
                                                    hearth_error *err);

/* Restores a session, as hearth_session_restore, from those bytes. After any error the session is unchanged. More or
 * fewer bytes than were saved are damage, as in a file.
 * Errors: ARGUMENT, UNSUPPORTED, FORMAT, CONTEXT: as of hearth_session_restore; IO: of the model's file; MEMORY.
 * Ownership: nothing is kept.
 * Threads: one at a time. */
HEARTH_API hearth_status hearth_session_restore_memory(hearth_session *session, const void *data, size_t n,
                                                       hearth_error *err);

#ifdef __cplusplus
}
#endif
#endif
