/* A sampler turns logits into a token. */
#ifndef HEARTH_SAMPLER_H
#define HEARTH_SAMPLER_H

#include <hearth/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hearth_logit_bias {
    int32_t id;
    float bias; /* added to the logit; -infinity bans the token */
    uint32_t reserved[2];
} hearth_logit_bias;

/* A stage of the program's own: changes logits[n_vocab], which have bias and penalties; -infinity bans a token. Called
 * by hearth_sampler_sample and hearth_generate on their thread, and by hearth_scheduler_step; not for drafts. It must
 * not use the sampler. */
typedef void hearth_sampler_fn(void *user, float *logits, size_t n_vocab);

/* Applied in this order: bias, penalties, DRY, fn, top-n-sigma, top-k, typical, top-p, min-p, XTC, temperature, draw. Zero
 * turns each of them off: {.temperature = 0.7f} draws from all tokens. With mirostat, none between fn and temperature. */
typedef struct hearth_sampler_options {
    size_t size;             /* of this struct: Versions in hearth.h */
    float temperature;       /* 0: greedy (the largest logit, the lowest id among equals); at most 100 */
    int32_t top_k;           /* 0: all */
    float typical_p;         /* above 0, to 1; 0 and 1: off */
    float top_p;             /* above 0, to 1; 0 and 1: off */
    float min_p;             /* 0 to 1; 0: off */
    float repeat_penalty;    /* 0.01 to 100; 0 and 1: off */
    float presence_penalty;  /* -100 to 100; 0: off */
    float frequency_penalty; /* -100 to 100; 0: off */
    int32_t repeat_last_n;   /* tokens that penalties consider, at most 1048576; 0: 64, -1: all */
    uint64_t seed;           /* same seed, same text, on every machine */
    const hearth_logit_bias *bias; /* [n_bias] */
    size_t n_bias;
    hearth_sampler_fn *fn; /* NULL: none */
    void *user;            /* passed to fn: valid until the sampler and its clones are closed */
    float top_n_sigma;        /* logits this many standard deviations below the largest are left out; 0: off */
    float xtc_probability;    /* with which the likeliest tokens are left out, but for the last one of them; 0: off */
    float xtc_threshold;      /* those of at least this probability; 0: 0.1, above 0.5: off */
    float dynatemp_range;     /* the temperature lies that far around it, by the entropy; 0: off */
    float dynatemp_exponent;  /* 0: 1 */
    float dry_multiplier;     /* penalty of a token that would lengthen a repetition; 0: off */
    float dry_base;           /* times this for each token more that is repeated; 0: 1.75 */
    int32_t dry_allowed_length; /* of a repetition without penalty; 0: 2 */
    int32_t dry_last_n;       /* tokens that are looked at, at most 1048576; 0 and -1: a context of the model's training */
    int32_t mirostat;         /* 1 or 2: the version; 0: off */
    float mirostat_tau;       /* the surprise that texts are held at, in bits; 0: 5 */
    float mirostat_eta;       /* how fast; 0: 0.1 */
    const char *const *dry_breakers; /* [n_dry_breaker] texts that no repetition goes across, and that it does not penalise; NULL: "\n", ":", "\"", "*" */
    size_t n_dry_breaker;
} hearth_sampler_options;

/* Returns zeros, and size: greedy.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API hearth_sampler_options hearth_sampler_defaults(void);

/* Draws the tokens of one text. */
typedef struct hearth_sampler hearth_sampler;

/* Opens a sampler for the vocabulary of the model, with an empty history.
 * Errors: ARGUMENT: an option, or the model was opened with vocab_only; MEMORY.
 * Ownership: *out is the caller's, until hearth_sampler_close; it does not keep the model. bias[n_bias] is copied; user
 * is passed to fn as it is.
 * Threads: any. */
HEARTH_API hearth_status hearth_sampler_open(const hearth_model *model,
                                             const hearth_sampler_options *options,
                                             hearth_sampler **out, hearth_error *err);

/* Opens a sampler that draws and penalises from now on as this one does: a second way for one text to go on.
 * Errors: MEMORY.
 * Ownership: *out is the caller's, until hearth_sampler_close; they share nothing but fn and user.
 * Threads: one at a time, or several that clone it. */
HEARTH_API hearth_status hearth_sampler_clone(const hearth_sampler *sampler, hearth_sampler **out, hearth_error *err);

/* Closes a sampler. A session that follows it with drafts keeps it.
 * Errors: none.
 * Ownership: gives up the caller's reference.
 * Threads: any, but not beside another function of it. */
HEARTH_API void hearth_sampler_close(hearth_sampler *sampler);

/* Draws from now on as a sampler that was opened with this seed. The history stays.
 * Errors: none; nothing happens while it is in use.
 * Ownership: nothing is kept.
 * Threads: one at a time. */
HEARTH_API void hearth_sampler_reseed(hearth_sampler *sampler, uint64_t seed);

/* Empties the history of the penalties, for another text. The sequence of drawn numbers goes on.
 * Errors: none; nothing happens while it is in use.
 * Ownership: nothing is kept.
 * Threads: one at a time. */
HEARTH_API void hearth_sampler_forget(hearth_sampler *sampler);

/* Adds a token of the prompt, or a sampled one, to the history of the penalties; ids out of range are not added.
 * Errors: none; nothing happens while it is in use.
 * Ownership: nothing is kept.
 * Threads: one at a time. */
HEARTH_API void hearth_sampler_accept(hearth_sampler *sampler, int32_t id);

/* Samples a token from logits[n_vocab] into *id. After an error nothing is drawn.
 * Errors: ARGUMENT: logits is NULL, as hearth_session_logits may be; NUMERIC: one of them, or one that fn gives, is NaN
 * or +infinity, or all are banned.
 * Ownership: nothing is kept.
 * Threads: one at a time; fn is called on the calling thread. */
HEARTH_API hearth_status hearth_sampler_sample(hearth_sampler *sampler, const float *logits, int32_t *id,
                                               hearth_error *err);

#ifdef __cplusplus
}
#endif
#endif
