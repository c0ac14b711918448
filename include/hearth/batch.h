/* Several sessions of one model at once. */
#ifndef HEARTH_BATCH_H
#define HEARTH_BATCH_H

#include <hearth/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Evaluates several sessions of one model at once: weights are read once for all. A session's bits do not depend
 * on the other sessions. Used by one thread at a time, which also uses the sessions in it. */
typedef struct hearth_batch hearth_batch;

/* Opens an empty batch of up to n_tok tokens per run, 1 to 65536. n_thread 0: one per physical core.
 * Errors: ARGUMENT: n_tok (also more than gpu.n_batch with gpu.placement "all"), n_thread; MEMORY: also beyond the limit
 * of the model; IO: as of hearth_session_open.
 * Ownership: *out is the caller's, until hearth_batch_close, and keeps the model.
 * Threads: any. */
HEARTH_API hearth_status hearth_batch_open(const hearth_model *model, uint32_t n_tok, uint32_t n_thread,
                                           hearth_batch **out, hearth_error *err);

/* Lets the worker threads of a batch run on all cores from now on.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: one at a time, unchecked; not while the batch runs. */
HEARTH_API void hearth_batch_unpin(hearth_batch *batch);

/* Gives a batch n_thread threads from now on, as hearth_session_set_threads; sessions stay in it.
 * Errors: ARGUMENT: n_thread is above 256; MEMORY. The threads are as before then.
 * Ownership: nothing is kept.
 * Threads: one at a time. */
HEARTH_API hearth_status hearth_batch_set_threads(hearth_batch *batch, uint32_t n_thread, hearth_error *err);

/* Closes a batch, and takes out the sessions that are in it.
 * Errors: none.
 * Ownership: gives it up.
 * Threads: any, but not beside another function of it. */
HEARTH_API void hearth_batch_close(hearth_batch *batch);

/* Appends tokens[n], n > 0, of a session to the batch, which must have capacity for all. A session can be in a batch
 * only once. Closing it removes it. After an error both are as before.
 * Errors: CONTEXT: they do not fit into its context; ARGUMENT: an id out of range, the session is of another model or
 * in a batch, no room in the batch, or more than release_window takes at once.
 * Ownership: the tokens are copied; the session stays the caller's.
 * Threads: one at a time, of the batch and of the session. */
HEARTH_API hearth_status hearth_batch_add(hearth_batch *batch, hearth_session *session,
                                          const int32_t *tokens, size_t n, hearth_error *err);

/* Evaluates the batch. Each session then has the logits after its last token, and the batch is empty. After an error
 * the positions and logits of the sessions are as before, and the batch keeps its tokens: run it again, or clear it.
 * Errors: CANCELLED; NUMERIC; IO; MEMORY; DEVICE: as of hearth_session_eval; ARGUMENT: a session of it is in use.
 * Ownership: nothing is kept.
 * Threads: one at a time, which also has the sessions in it. */
HEARTH_API hearth_status hearth_batch_run(hearth_batch *batch, hearth_error *err);

/* Cancels hearth_batch_run, as hearth_session_cancel does an evaluation of the session.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any, also while the batch is in use, and signal handlers; not during or after hearth_batch_close. */
HEARTH_API void hearth_batch_cancel(hearth_batch *batch);

/* Takes out all sessions, which are as before they were added.
 * Errors: none; nothing happens while it is in use.
 * Ownership: nothing is kept.
 * Threads: one at a time. */
HEARTH_API void hearth_batch_clear(hearth_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
