/* The engine thread: it loads models and runs the calls that need them, one after the other. With several models, calls
 * wait in its queue while theirs is not loaded (model_turns.c). What would delay all of them is given to workers
 * (worker.h): constraints and indexes of vocabularies to one, calls with much to read or to write to another
 * (large_call.h). */
#ifndef HEARTH_APPS_SERVE_ENGINE_H
#define HEARTH_APPS_SERVE_ENGINE_H

#include "serve/figures.h"
#include "serve/served_model.h"
#include "serve/http/server.h"
#include "serve/worker.h"
#include "text/json.h"

#include <hearth/hearth.h>
#include <pthread.h>

typedef struct engine {
    /* Set by the caller of engine_start. */
    server *server;
    served_model *models; /* [n_model] the first one is loaded at the start */
    size_t n_model;
    uint32_t max_loaded; /* models at once */
    /* On the engine thread: opens the model, its draft with options in scheduling, its chat if a format is given. */
    hearth_status (*load)(void *user, served_model *m, hearth_error *err);
    /* Whether a model can have all of its weights in memory beside those that are loaded. */
    bool (*fits)(void *user, const served_model *m);
    void *user;
    void (*on_loaded)(const served_model *m); /* on the engine thread */
    void (*on_ready)(void);
    hearth_scheduler_options scheduling; /* n_ctx: wanted; 0: as the library chooses */
    uint32_t max_waiting;                /* requests beyond those that share a step */
    uint64_t max_request_ns;             /* from a request to the end of its answer; 0: no limit */
    uint64_t kept_size;                  /* limit of the cache that is kept between runs, in bytes */
    uint64_t responses_size;             /* limit of the stored responses of the Responses API, in bytes; 0: none */
    uint64_t keep_ns;                    /* time without requests after which a model's cache is written */
    bool keeps_billing;                  /* conversation.h */
    uint32_t max_token;                  /* limit of answers whose request sets none; 0: no limit */
    bool has_seed;                       /* requests without a seed have this one */
    uint64_t seed;
    hth_json *variables;                 /* object of template variables, which requests override; NULL: none */
    hearth_pooling pooling;              /* pooling of embeddings */
    bool has_no_page;                    /* / is 404 */
    /* Used by the network thread and the engine thread. */
    pthread_mutex_t
        lock; /* the network thread holds it while it reads of models; the engine thread, to change which are
                             loaded */
    figures figures;    /* sums over all models (figures.h) */
    _Atomic bool stops; /* nothing more is loaded */
    /* Used by the engine thread. */
    struct response_store *responses;
    call *waiting; /* calls that were taken and wait for their models, the oldest first (call.next_queued) */
    hearth_scheduler_stats ended; /* sums of models that were closed */
    bool failed;                  /* the only model did not open */
    worker *worker, *reader;      /* NULL: the server does not run */
    struct large_call *large_calls; /* calls on the reader's thread, the oldest first */
    pthread_t thread;
} engine;

void engine_init(engine *e);
/* Calls server_set_ready when the first model is loaded, or server_stop if it is the only one and cannot be. False: the
 * system has no threads. */
bool engine_start(engine *e);
/* From the network thread, when the server begins to stop. */
void engine_stop_loading(engine *e);
/* After server_run: ends the thread and closes the models. */
void engine_stop(engine *e);

void engine_lock(engine *e);
void engine_unlock(engine *e);
/* The first loaded model after another one, or of all (NULL); NULL: there is none. With the lock held, or on the engine
 * thread. */
served_model *engine_next_loaded(const engine *e, const served_model *after);
/* Requests of one model that may be there, in steps or before them; others get 429. */
uint32_t engine_max_requests(const engine *e);
/* The model of a client's name; NULL: there is none. */
served_model *engine_find(const engine *e, const char *name, size_t n, bool with_tag);

/* model_turns.c, on the engine thread: takes all calls of the server; those whose model is loaded and whose turn it is
 * run. Returns when the next one that waits has waited too long (UINT64_MAX: none). */
uint64_t engine_run_calls(engine *e);
/* Whether engine_run_calls would do more now, because a model has no requests any more. */
bool engine_can_go_on(const engine *e);
/* Ends the calls that wait, without an answer. */
void engine_drop_calls(engine *e);

#endif
