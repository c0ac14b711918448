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

/* Up to n_tok tokens per run, 1 to 65536; n_thread 0: one per physical core. ARGUMENT; MEMORY. */
HEARTH_API hearth_status hearth_batch_open(const hearth_model *model, uint32_t n_tok, uint32_t n_thread,
                                           hearth_batch **out, hearth_error *err);
/* Its worker threads may run on all cores from now on: see Threads above. */
HEARTH_API void hearth_batch_unpin(hearth_batch *batch);
/* Also takes out the sessions that are in it. */
HEARTH_API void hearth_batch_close(hearth_batch *batch);
/* Appends n > 0 tokens of a session to the batch, which must have capacity for all. A session can be in a batch only
 * once. Closing it removes it. CONTEXT: they do not fit into its context; ARGUMENT. After an error both are as before. */
HEARTH_API hearth_status hearth_batch_add(hearth_batch *batch, hearth_session *session,
                                          const int32_t *tokens, size_t n, hearth_error *err);
/* Evaluates the batch. Each session then has the logits after its last token, and the batch is empty. After an error
 * (CANCELLED; NUMERIC; IO; MEMORY; DEVICE) the positions and logits of the sessions are as before, and the batch keeps its
 * tokens: run it again, or clear it. */
HEARTH_API hearth_status hearth_batch_run(hearth_batch *batch, hearth_error *err);
/* As hearth_session_cancel, for hearth_batch_run. */
HEARTH_API void hearth_batch_cancel(hearth_batch *batch);
/* Takes out all sessions, which are as before they were added. */
HEARTH_API void hearth_batch_clear(hearth_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
