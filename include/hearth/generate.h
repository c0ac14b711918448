/* The text that a model writes after a prompt. */
#ifndef HEARTH_GENERATE_H
#define HEARTH_GENERATE_H

#include <hearth/constraint.h>
#include <hearth/sampler.h>
#include <hearth/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Why a text ended. */
typedef enum hearth_end {
    HEARTH_END_NONE = 0,  /* it did not: there was an error */
    HEARTH_END_TOKEN,     /* a token that ends generation was sampled */
    HEARTH_END_COMPLETE,  /* the constraint allows nothing more */
    HEARTH_END_STOP_TEXT, /* a stop text was found; the text ends before it */
    HEARTH_END_LENGTH,    /* max_token is reached, or the prompt alone was wanted */
    HEARTH_END_CONTEXT,   /* the context of the session is full */
    HEARTH_END_FUNCTION,  /* the program's function gave false */
} hearth_end;

/* Returns a short English name ("stop text"), or "unknown end": never NULL.
 * Errors: none.
 * Ownership: the string is the library's, and stays valid.
 * Threads: any. */
HEARTH_API const char *hearth_end_name(hearth_end end);

typedef struct hearth_generated {
    int32_t token; /* that was sampled; -1: none, but text that was kept back */
    bool is_end;   /* the token ends generation, and is no part of the text */
    const char *text; /* [n] bytes: characters are whole, and no stop text may have begun. n may be 0 */
    size_t n;
    const float *logits; /* float[n_vocab] that the model computed for the token; NULL without a token */
    uint64_t reserved[4];
} hearth_generated;

/* Gets each token and its text, on the calling thread. All that it is given is valid while it runs. False: the text
 * ends with this token, and what is kept back of it is not given. It may call functions of the session that only tell,
 * and hearth_session_cancel; the sampler and the constraint are the call's until it ends. */
typedef bool hearth_generate_fn(void *user, const hearth_generated *part);

typedef struct hearth_generate_options {
    size_t size;           /* of this struct: Versions in hearth.h */
    const int32_t *tokens; /* [n_token] all of the text so far: not only what is new. Those with which the session begins
                              are not evaluated again, and the session's others are removed */
    size_t n_token;
    uint64_t max_token; /* to generate; 0: until the text ends otherwise */
    bool prompt_only;   /* nothing is generated: the tokens are evaluated */
    bool ignore_end;    /* tokens that end generation are as others, unless there is a constraint */
    bool at_start;      /* the generated text is one of its own, as an answer in a chat: the space that a vocabulary puts
                           before a text is removed. false: it continues the text of the prompt */
    bool show_special;  /* control tokens appear in the text by name */
    hearth_sampler *sampler;       /* of the same model, whose history becomes the tokens of the text; NULL: the most likely tokens */
    hearth_constraint *constraint; /* of the same model, where the generated text goes on; NULL: all texts are allowed */
    const char *const *stops;      /* [n_stop] texts before which the text ends, none of them empty. The first that is
                                      complete ends it; of several, the one that begins first, then the lower index */
    size_t n_stop;
    hearth_progress_fn *progress; /* of the prompt, in tokens: after the first 32, then about once a second; false
                                      cancels. NULL: none */
    void *progress_user;
    hearth_generate_fn *fn; /* NULL: tokens are those of the session afterwards */
    void *user;             /* passed to fn */
} hearth_generate_options;

/* Returns zeros, and size. tokens have to be set.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API hearth_generate_options hearth_generate_defaults(void);

/* Tells what a call of hearth_generate did. */
typedef struct hearth_usage {
    size_t size;     /* set by the caller: Versions in hearth.h */
    hearth_end end;
    uint32_t i_stop;      /* STOP_TEXT: which */
    uint32_t n_prompt;    /* tokens that were given */
    uint32_t n_cached;    /* of them those that the session had */
    uint32_t n_evaluated; /* of them those that were evaluated: the others, unless there was an error */
    uint32_t n_generated; /* tokens that were sampled, with the one that ended the text */
    double prompt_seconds, generate_seconds; /* of evaluation; of all that follows it */
} hearth_usage;

/* Evaluates a text as far as the session does not have it, and generates what follows, token by token. Afterwards the
 * session has the tokens of the prompt and those that were generated, but for the last one: unless LENGTH ended the
 * text, that one was sampled but not evaluated. The next call with a longer text evaluates what is missing. If a text
 * ends within a character, the bytes of it are given with token -1, and again by a call that goes on with the text.
 * What was evaluated and given before an error stays, and usage is filled in. hearth_session_cancel ends the call
 * before its next token, and what comes too late for that ends nothing.
 * Errors: CONTEXT: n_token exceeds the session's n_ctx; ARGUMENT: an option, a sampler or a constraint of another
 * model, or the session is in a batch or has no steps of its own; FORMAT and UNSUPPORTED: the vocabulary is none, or
 * not supported; UNSUPPORTED: no token can follow by the constraint; CANCELLED; NUMERIC; IO; MEMORY; DEVICE.
 * Ownership: what options point to must stay valid during the call. The sampler has the tokens of the text as its
 * history afterwards, and the constraint is behind them. usage may be NULL.
 * Threads: one at a time; fn, progress and the sampler's fn are called on it. hearth_session_cancel: any. */
HEARTH_API hearth_status hearth_generate(hearth_session *session, const hearth_generate_options *options,
                                         hearth_usage *usage, hearth_error *err);

#ifdef __cplusplus
}
#endif
#endif
