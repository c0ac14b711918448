/* Requests of several users over one model. */
#ifndef HEARTH_SCHEDULER_H
#define HEARTH_SCHEDULER_H

#include <hearth/constraint.h>
#include <hearth/draft.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Evaluates requests of several users over one model, and samples their tokens. Each step takes one token of every
 * request that generates, perhaps with a draft, and a part of the prompts of others. Keys and values lie in pages of
 * one budget; a request shares those of the tokens with which it begins, if another one had evaluated them before it
 * began. What a request gets does not depend on other requests. Used by one thread at a time. */
typedef struct hearth_scheduler hearth_scheduler;
#define HEARTH_KEPT_NONE UINT32_MAX /* value of n_kept: the cache of a request ends with it */
typedef struct hearth_scheduler_options {
    size_t size;         /* of this struct: Versions in hearth.h */
    uint32_t n_position; /* of the cache, for all requests and what is kept of earlier ones; 0: 4 times n_ctx, with
                            a device all that it was opened for (gpu.n_ctx) */
    uint32_t n_ctx;      /* of a request at most, as in hearth_session_options */
    uint32_t n_batch;    /* tokens of a step at most; 0: as HEARTH_BATCH_AUTO of hearth_session_options */
    uint32_t n_running;  /* requests in a step at most; 0: 16 */
    uint32_t n_kept;     /* earlier requests whose cache is kept, at most; 0: 64; or HEARTH_KEPT_NONE */
    uint32_t n_thread;   /* 0: one per physical core */
    bool no_pin;         /* worker threads may run on all cores: Threads in hearth.h */
    hearth_kv_type kv;
    double max_delay;    /* seconds that a step may take longer because of prompts, while others generate; 0: 0.15 */
    hearth_draft_options draft; /* of all requests; a warning says why there are none */
} hearth_scheduler_options;

/* What happened to a request. */
typedef enum hearth_request_state {
    HEARTH_REQUEST_TOKEN,     /* a token was sampled */
    HEARTH_REQUEST_END,       /* the text has ended: by a token that ends generation, or the constraint is complete */
    HEARTH_REQUEST_LENGTH,    /* max_token, or the context, is reached */
    HEARTH_REQUEST_STOPPED,   /* by its function */
    HEARTH_REQUEST_CANCELLED, /* by hearth_scheduler_cancel */
    HEARTH_REQUEST_FAILED,    /* error says why */
    HEARTH_REQUEST_STOP_TEXT, /* a stop text was found: the text ends before it */
} hearth_request_state;

/* Returns a short English name ("stop text"), or "unknown state": never NULL.
 * Errors: none.
 * Ownership: the string is the library's, and stays valid.
 * Threads: any. */
HEARTH_API const char *hearth_request_state_name(hearth_request_state state);

typedef struct hearth_request_event {
    hearth_request_state state; /* all others than TOKEN are the last event of a request */
    int32_t token;              /* TOKEN, END; -1: the constraint is complete */
    const float *logits;        /* float[n_vocab] that the model computed, while the function runs; TOKEN, END, or NULL */
    uint32_t n_cached;          /* tokens of the prompt that were not evaluated, as an earlier request had them */
    hearth_draft_stats draft;   /* of the request so far */
    const hearth_error *error;  /* FAILED, and valid while the function runs */
    const char *text;           /* [n_text] bytes that can be shown now, if the request has with_text or stops: characters
                                   are whole, and no stop text may have begun. With the last event those that were kept
                                   back, but for STOPPED. Valid while the function runs */
    size_t n_text;
    uint64_t i_stop; /* STOP_TEXT: which */
    uint64_t reserved[4];
} hearth_request_event;

/* TOKEN: false ends the request. Called within functions of the scheduler, on their thread; it can call none of them,
 * but hearth_request_cancel and those that only tell. */
typedef bool hearth_request_fn(void *user, const hearth_request_event *event);

typedef struct hearth_request {
    size_t size;           /* of this struct: Versions in hearth.h */
    const int32_t *tokens; /* [n_token] the prompt */
    size_t n_token;
    uint32_t max_token;                    /* to generate; 0: until the context ends */
    bool prompt_only;                      /* nothing is generated: the prompt is evaluated and kept for later requests,
                                              then LENGTH ends it */
    bool ignore_end;                       /* tokens that end generation are as others */
    bool with_text;    /* events have the text of their tokens */
    bool at_start;     /* that text is one of its own, as an answer in a chat; false: it continues that of the prompt */
    bool show_special; /* control tokens appear in it by name */
    const hearth_sampler_options *sampler; /* NULL: the defaults */
    hearth_constraint *constraint;         /* at the beginning of its text; the scheduler keeps and uses it until the
                                              request ends. NULL: all texts are allowed */
    uint64_t owner; /* requests begin in turns of owners, and share the cache of their own owner only */
    hearth_request_fn *fn;
    void *user; /* passed to fn: valid until the request ends, or the scheduler is closed */
    const char *const *stops; /* [n_stop] texts before which the text ends, none of them empty */
    size_t n_stop;
} hearth_request;

/* Returns zeros, and size.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API hearth_request hearth_request_defaults(void);

/* Returns zeros, and size.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API hearth_scheduler_options hearth_scheduler_defaults(void);

/* Opens a scheduler without requests, and reserves the memory of its cache.
 * Errors: ARGUMENT: an option; MEMORY: also beyond the limit of the model; IO: as of hearth_session_open.
 * Ownership: *out is the caller's, until hearth_scheduler_close, and keeps the model, and that of draft.
 * Threads: any. */
HEARTH_API hearth_status hearth_scheduler_open(const hearth_model *model, const hearth_scheduler_options *options,
                                               hearth_scheduler **out, hearth_error *err);

/* Gives the steps of a scheduler n_thread threads from now on, as hearth_session_set_threads.
 * Errors: ARGUMENT: n_thread is above 256, or it is called within a function of a request; MEMORY. The threads are as
 * before then.
 * Ownership: nothing is kept.
 * Threads: one at a time. */
HEARTH_API hearth_status hearth_scheduler_set_threads(hearth_scheduler *scheduler, uint32_t n_thread, hearth_error *err);

/* Closes a scheduler; requests end without further events.
 * Errors: none.
 * Ownership: gives it up, with all requests and what they use.
 * Threads: any, but not beside another function of it. */
HEARTH_API void hearth_scheduler_close(hearth_scheduler *scheduler);

/* Adds a request, which begins in a later step. *id is never 0.
 * Errors: CONTEXT: its prompt has more than n_ctx or n_position tokens; ARGUMENT: a field, or the constraint is that of
 * another model or of a request that has not ended;
 * UNSUPPORTED, FORMAT: with_text and stops need a vocabulary that is supported; MEMORY.
 * Ownership: the request is copied, with its tokens and its sampler's options. The scheduler keeps the constraint, and
 * alone uses it, until the request ends; user is passed to fn as it is.
 * Threads: one at a time. */
HEARTH_API hearth_status hearth_scheduler_add(hearth_scheduler *scheduler, const hearth_request *request, uint64_t *id,
                                              hearth_error *err);

/* Ends a request, if there is one of that id; its function is called.
 * Errors: none; nothing happens while it is in use.
 * Ownership: as after the last event of the request.
 * Threads: one at a time. The request's function is called on the calling thread. */
HEARTH_API void hearth_scheduler_cancel(hearth_scheduler *scheduler, uint64_t id);

/* The same, at any time: a step that runs ends early, and hearth_scheduler_step calls the request's function, the
 * one that runs or else the next. That takes a step, also for a paused request. True also for an id that no request
 * has. False: 64 ids are waiting for that; call it again after a step.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any, also within a request's function, and signal handlers; not during or after hearth_scheduler_close. */
HEARTH_API bool hearth_request_cancel(hearth_scheduler *scheduler, uint64_t id);

/* A paused request keeps its place and its pages, but takes part in no step.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: one at a time, unchecked; not within a request's function. */
HEARTH_API void hearth_scheduler_pause(hearth_scheduler *scheduler, uint64_t id, bool is_paused);

/* Evaluates one batch, and never waits: a program with nothing to evaluate waits by its own means until it has a
 * request to add. *more: whether a further step can have something to do; false: no request is left, or only paused
 * ones. more may be NULL. What fails in a step is told to the requests of it.
 * Errors: CANCELLED: while hearth_model_options.cancel is not 0 nothing is evaluated, and *more is as before;
 * ARGUMENT: it is called within a function of a request.
 * Ownership: nothing is kept.
 * Threads: one at a time. Functions of requests are called on the calling thread. */
HEARTH_API hearth_status hearth_scheduler_step(hearth_scheduler *scheduler, bool *more, hearth_error *err);

/* Writes the cache of earlier requests to a folder that is there, one file each, with checksums, unless it is there;
 * deletes files of texts that others continue, and keeps at most max_size bytes of those that lie there. Restored by a
 * scheduler of the same model and options, requests find it again. With a device nothing is found again. progress: of
 * the bytes of each file; NULL: none.
 * Errors: IO; MEMORY; CANCELLED: by progress. Each file that is there is whole.
 * Ownership: user is passed to progress as it is.
 * Threads: one at a time. progress is called on the calling thread. */
HEARTH_API hearth_status hearth_scheduler_save(hearth_scheduler *scheduler, const char *folder,
                                               uint64_t max_size, hearth_progress_fn *progress, void *user,
                                               hearth_error *err);

/* Returns whether the cache of a request was kept since hearth_scheduler_save succeeded, or hearth_scheduler_restore.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: one at a time, unchecked. */
HEARTH_API bool hearth_scheduler_has_unsaved(const hearth_scheduler *scheduler);

/* Reads such a folder. Files of others and damaged ones are named in a warning and left out.
 * Errors: IO: the folder cannot be read; MEMORY.
 * Ownership: the scheduler has what was read, as if requests had left it.
 * Threads: one at a time. */
HEARTH_API hearth_status hearth_scheduler_restore(hearth_scheduler *scheduler, const char *folder, hearth_error *err);

typedef struct hearth_scheduler_stats {
    size_t size; /* set by the caller: Versions in hearth.h */
    uint32_t n_waiting, n_running, n_kept;
    uint32_t n_page, n_page_used; /* of layers without a window */
    uint64_t n_prompt, n_cached, n_generated; /* tokens so far: evaluated of prompts, found, sampled */
    uint64_t n_preempted;                     /* requests whose pages others took, and that were evaluated again */
    hearth_draft_stats draft;
} hearth_scheduler_stats;

/* Fills in *stats, as far as stats->size goes.
 * Errors: ARGUMENT: stats->size is too small; nothing is written.
 * Ownership: nothing is kept.
 * Threads: one at a time, unchecked. */
HEARTH_API hearth_status hearth_scheduler_get_stats(const hearth_scheduler *scheduler, hearth_scheduler_stats *stats);

/* How far a request is. */
typedef struct hearth_request_progress {
    size_t size;       /* set by the caller: Versions in hearth.h */
    bool is_running;   /* false: it waits for its turn, or for pages that others took */
    uint32_t n_before; /* of those that wait: requests that came earlier and wait too */
    uint32_t n_prompt, n_cached, n_generated; /* tokens: of the prompt, of those found, sampled */
    uint32_t n_evaluated;                     /* tokens of the prompt whose keys and values are there, found ones too */
} hearth_request_progress;

/* Fills in *out, as far as out->size goes. False: no request has that id, or out->size is too small; nothing is
 * written.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: one at a time, unchecked. */
HEARTH_API bool hearth_scheduler_get_progress(const hearth_scheduler *scheduler, uint64_t id,
                                              hearth_request_progress *out);

#ifdef __cplusplus
}
#endif
#endif
