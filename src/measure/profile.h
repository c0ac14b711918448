/* Profiles a model over a text: one pass that computes all neurons and reads them through the probe. Partial
 * counts are saved beside the profile from time to time, so that an interrupted run can continue. */
#ifndef HTH_MEASURE_PROFILE_H
#define HTH_MEASURE_PROFILE_H

#include "sparse/profile.h"

#define HTH_PROFILE_SAVE_NS 30000000000u

typedef struct hth_profile_options {
    const char *out;      /* the profile; its unfinished state is OUT.resume */
    uint32_t n_sample;    /* tokens for which co-activation is recorded; fewer in shorter texts */
    const char *settings; /* session settings that may change a bit: at most 63 bytes */
    uint64_t save_ns;     /* time between two saves of the state */
    hearth_progress_fn
        *progress; /* counts tokens, including those of an earlier run; may be NULL; false: stop */
    void *progress_user;
} hth_profile_options;

/* Runs over text[n] in chunks of the session's context and writes o->out. The session must have its own batch
 * and the selector dense. *out is the finished profile, owned by the caller. CANCELLED: the message says what
 * was saved. ARGUMENT: OUT.resume belongs to another run, or the text is too short. */
hearth_status hth_measure_profile(const hearth_model *model, hearth_session *session, const char *text,
                                  size_t n, const hth_profile_options *o, hth_profile **out,
                                  hearth_error *err);

#endif
