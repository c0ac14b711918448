/* A profile of a model over a text: one pass in which all neurons compute, looked at through the
 * observation point. What was counted is kept beside the profile from time to time, so that a run
 * that was ended goes on where it was. */
#ifndef HTH_MEASURE_PROFILE_H
#define HTH_MEASURE_PROFILE_H

#include "sparse/profile.h"

#define HTH_PROFILE_SAVE_NS 30000000000u

typedef struct hth_profile_options {
    const char *out;      /* the profile; until it is finished its state is OUT.resume */
    uint32_t n_sample;    /* tokens of which it is kept who fired together; fewer in shorter texts */
    const char *settings; /* of the session, as far as they may change a bit: at most 63 bytes */
    uint64_t save_ns;     /* work between two saves of the state */
    hearth_progress_fn
        *progress; /* of tokens; first with those of an earlier run; may be NULL; false: stop */
    void *progress_user;
} hth_profile_options;

/* Goes over text[n] in windows of the session's context and writes o->out. The session must have a batch of
 * its own and the selector dense. *out is the finished profile, of which the caller is the owner. CANCELLED:
 * the message says what was kept. ARGUMENT: OUT.resume is of another run, or the text is too short. */
hearth_status hth_measure_profile(const hearth_model *model, hearth_session *session, const char *text,
                                  size_t n, const hth_profile_options *o, hth_profile **out,
                                  hearth_error *err);

#endif
