/* The session, for the files that implement it: session.c, session_file.c. */
#ifndef HTH_ENGINE_SESSION_INT_H
#define HTH_ENGINE_SESSION_INT_H

#include "engine/engine.h"

struct hearth_session {
    const hearth_model *model;
    hearth_session_options options; /* as opened, with n_ctx as computed */
    hth_sequence seq;
    uint32_t position;        /* tokens evaluated; seq.n_tok is less only while its cache waits to be rebuilt */
    hearth_batch *pending_in; /* a batch that was not run yet; NULL: none */
    bool has_logits;
    uint64_t size;       /* counted in the limit of the model */
    uint64_t model_hash; /* hth_model_hash; valid if has_model_hash (hth_engine_prepare_save) */
    bool has_model_hash;
    uint32_t generation; /* of the placement with which its tokens were evaluated */
    int32_t *tokens;     /* [n_ctx] evaluated so far */
    float *logits;       /* [n_vocab] */
    hearth_batch *own;
    uint64_t n_counted; /* tokens whose active neurons were counted */
    uint64_t *n_active; /* [n_layer] */
};

/* Whether the pages hold the cache of all tokens, on a device or here: it does not wait to be rebuilt. */
bool hth_session_has_cache(const hearth_session *s);
/* The selector of the session's own evaluations. */
hearth_selector hth_session_selector(const hearth_session *s);
/* Drops all tokens. */
void hth_session_reset(hearth_session *s);
/* After tokens, logits and pages of the host were replaced. */
void hth_session_set(hearth_session *s, uint32_t position, bool has_logits, bool has_cache);

#endif
