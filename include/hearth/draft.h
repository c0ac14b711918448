/* Speculative decoding: drafts of tokens, which cost no step of their own if they come true. */
#ifndef HEARTH_DRAFT_H
#define HEARTH_DRAFT_H

#include <hearth/session.h>
#include <hearth/sampler.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Speculative decoding: tokens that may follow, a draft, are evaluated together with the next token of a text. Those
 * that are then sampled cost no step of their own. Tokens and logits are those that come without drafts, to the bit. */

/* Values of n_draft. AUTO: as many as are worth their time, by the times of steps and by how often drafts came true.
 * NONE: there are no drafts. */
#define HEARTH_DRAFT_AUTO 0
#define HEARTH_DRAFT_NONE UINT32_MAX

/* Options for a session (hearth_session_use_drafts) and for a scheduler: zeros mean the same for both. */
typedef struct hearth_draft_options {
    uint32_t n_draft;          /* tokens of a draft at most, 1 to 15; or HEARTH_DRAFT_AUTO, HEARTH_DRAFT_NONE */
    bool no_mtp;               /* not by a block of the model's own file */
    const hearth_model *model; /* a small model of the same vocabulary, whose weights are in memory; what uses it keeps
                                  it. It makes drafts where the text does not repeat what it had. NULL: a block of
                                  the model's own file that predicts a token further (MTP), if it has one */
    uint64_t reserved[4];
} hearth_draft_options;

/* Returns zeros.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API hearth_draft_options hearth_draft_defaults(void);

/* From now on hearth_session_eval of a single token may evaluate a draft with it, and then needs no evaluation for
 * tokens that were drafted. options NULL: zeros. sampler: that of the text, which a model follows when it drafts;
 * NULL: the model drafts the most likely tokens. There are no drafts, and a warning says why if n_draft or a model was
 * given, where a sequence cannot go back (release_window), weights are read when they are needed, or bits depend on
 * the number of tokens (bf16_dot; a GPU that is not bit-exact).
 * Errors: ARGUMENT: an option, the session has no steps of its own or is in a batch that was not run, or the model has
 * another vocabulary or no weights in memory; MEMORY. A wrong option or too little memory leaves the session without
 * drafts.
 * Ownership: the session keeps the sampler and the model until other drafts replace them, or it is closed.
 * Threads: one at a time; the sampler is used by the thread that evaluates the session. */
HEARTH_API hearth_status hearth_session_use_drafts(hearth_session *session, const hearth_draft_options *options,
                                                   const hearth_sampler *sampler, hearth_error *err);

typedef struct hearth_draft_stats {
    uint64_t n_drafted, n_accepted; /* tokens that were evaluated as drafts, and those of them that were the next */
    uint64_t reserved[2];
} hearth_draft_stats;

/* Fills in *stats, of the session so far; zeros without drafts.
 * Errors: ARGUMENT.
 * Ownership: nothing is kept.
 * Threads: one at a time, unchecked. */
HEARTH_API hearth_status hearth_session_get_draft_stats(const hearth_session *session, hearth_draft_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
