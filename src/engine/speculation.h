/* Drafts of sessions (hearth_draft_options). A step evaluates the next token of a text and a draft of those after it; the
 * session is then ahead of its position. Its caller samples token by token: hth_session_advance takes a token
 * that was drafted, with the logits that are there, and drops what is ahead otherwise. So samplers, constraints and
 * penalties see what they would see without drafts. Used by sessions themselves and by the scheduler. */
#ifndef HTH_ENGINE_SPECULATION_H
#define HTH_ENGINE_SPECULATION_H

#include "draft/draft.h"
#include "engine/engine.h"

typedef struct hth_mtp_feed hth_mtp_feed;

/* Shared by the sessions of a batch, whose steps it decides about. */
typedef struct hth_drafter {
    const hearth_model *target;
    hearth_draft_options options;
    /* Makes drafts where the text has none: another one, or the target's block; or NULL. */
    hearth_model *model;
    hth_draft_source source; /* which of both */
    hth_draft_costs costs;
    hth_draft_offer *offers; /* [n_sequence] */
    float *rows;             /* [n_row][n_vocab] the logits behind drafts, of one step */
    uint8_t *states;         /* [n_row][state_size] those before their tokens (hth_batch_token); NULL: none */
    size_t state_size;
    uint32_t n_sequence, n_row;
    uint64_t size; /* counted in the limit of the model */
    hearth_draft_stats stats;
    /* With a model: */
    hearth_batch *batch;
    hth_kv_budget pages;
    uint64_t pages_size; /* counted in the limit of that model */
    float *logits;       /* [n_vocab] of the target */
    bool has_failed;     /* it is not used again */
} hth_drafter;

/* The drafts of one session. */
typedef struct hth_speculation {
    hth_drafter *drafter;
    bool owns_drafter;
    hth_draft_history history;
    hth_draft_source source;
    hearth_draft_stats stats;
    hearth_session *model;         /* the same text in the model of drafts; NULL: it is not used */
    hth_mtp_feed *mtp;             /* input of an MTP block; owns `model`; NULL: there is no block */
    hearth_sampler *sampler;       /* the text's sampler; NULL: the most likely token is drafted */
    hearth_sampler *follower;      /* draws the tokens that sampler would draw */
} hth_speculation;

/* Drafts for at most n_sequence sessions with these options, which have n_position positions together. *out NULL: there are
 * none, perhaps with a warning. ARGUMENT: as hearth_session_use_drafts; MEMORY. */
hearth_status hth_drafter_open(const hearth_model *target, const hearth_draft_options *options,
                               const hearth_session_options *session, uint32_t n_position,
                               uint32_t n_sequence, hth_drafter **out, hearth_error *err);
/* After all sessions that use it. */
void hth_drafter_close(hth_drafter *d);

/* From now on a session takes part in drafts. sampler: as hearth_session_use_drafts. MEMORY. */
hearth_status hth_speculation_open(hearth_session *s, hth_drafter *d, const hearth_sampler *sampler,
                                   hearth_error *err);
/* The session is where its position is, and takes no further part. */
void hth_speculation_close(hearth_session *s);
/* Its text is another one. */
void hth_speculation_forget(hearth_session *s);

/* A session whose next token a step evaluates. */
typedef struct hth_draft_place {
    hearth_session *session;
    const int32_t *tokens; /* [n_token] its text, with that token */
    size_t n_token;
    uint32_t n_most; /* tokens of a draft at most */
    size_t from;     /* index in the text whose following tokens are the draft */
    uint32_t n;      /* tokens of the draft */
    int32_t draft[HTH_DRAFT_MAX];
} hth_draft_place;

/* Chooses n of each place, at most n_room in all. The caller may take less. */
void hth_drafter_choose(hth_drafter *d, hth_draft_place *places, uint32_t n_place, uint32_t n_room);
/* Makes the n tokens of each draft, or fewer. */
void hth_drafter_make(hth_drafter *d, hth_draft_place *places, uint32_t n_place);
/* A step of n_token tokens, all of texts and drafts, took that long. */
void hth_drafter_measure(hth_drafter *d, uint32_t n_token, double seconds);

/* hearth_session_eval of a token, for a session with drafts and a batch of its own. */
hearth_status hth_speculation_eval(hearth_session *s, int32_t token, hearth_error *err);
/* The session was evaluated with n tokens of a draft. */
void hth_speculation_note_step(hearth_session *s, uint32_t n);
/* Statistics of the session's drafts so far. */
hearth_draft_stats hth_session_draft_stats(const hearth_session *s);
/* A token of a draft was compared. */
void hth_speculation_note(hearth_session *s, bool is_right);

#endif
