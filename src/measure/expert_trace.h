/* Records the experts that a mixture chooses over a text, token by token, in the order of the text. hearth profile calls
 * it. */
#ifndef HTH_MEASURE_EXPERT_TRACE_H
#define HTH_MEASURE_EXPERT_TRACE_H

#include "sparse/expert_trace.h"

typedef struct hth_expert_trace_options {
    const char *out;      /* the trace */
    uint32_t n_tok;       /* the largest number of tokens: whole chunks of them are recorded */
    const char *settings; /* session settings that may change a choice: at most 63 bytes */
    hearth_progress_fn *progress; /* counts tokens; may be NULL; false: stop */
    void *progress_user;
} hth_expert_trace_options;

/* Runs over the first chunks of text[n], of the session's context, and writes o->out. The session must have its own
 * batch, the selector dense and no device. *out is the trace, owned by the caller. If progress returned false, or the
 * evaluation was cancelled, it has the chunks that are complete: fewer tokens are a trace as well, so that no state is
 * saved. CANCELLED: there is none. UNSUPPORTED: the model has no experts. ARGUMENT: the text or n_tok is shorter than a
 * chunk, or n_tok too large. */
hearth_status hth_measure_expert_trace(const hearth_model *model, hearth_session *session, const char *text, size_t n,
                                       const hth_expert_trace_options *o, hth_expert_trace **out, hearth_error *err);

#endif
