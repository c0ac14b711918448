/* One of the models that are served. The engine thread opens and closes it, and runs what is asked of it. The network
 * thread tells of it, while it holds the engine's lock (engine.h). */
#ifndef HEARTH_APPS_SERVE_SERVED_MODEL_H
#define HEARTH_APPS_SERVE_SERVED_MODEL_H

#include "serve/live_figures.h"
#include "serve/model_facts.h"
#include "serve/tasks.h"
#include "serve/worker.h"

#include <hearth/hearth.h>

/* Indexes the vocabulary, which else the first request with a constraint would wait for. */
typedef struct indexing {
    worker_job job;
    const hearth_model *model;
} indexing;

typedef struct served_model {
    struct engine *engine;
    /* Fixed before the server runs. */
    char *path;                       /* NULL: the embedded model */
    char *id;                         /* its name for clients */
    const struct chat_format *format; /* template of --template; NULL: the one of its file */
    char *kept;                       /* folder of the cache that is kept between runs; NULL: none */
    int64_t created;                  /* seconds since 1970 */
    bool is_of_folder;                /* it was not named itself */
    char listed[17]; /* a hash of its name, size and time: the same whether it is loaded or not */
    /* Changed with the engine's lock held. */
    model_facts facts;
    char digest[17]; /* hash of its weights (hth_model_hash); "": it was not loaded yet */
    bool is_loaded;
    /* Used by the engine thread. The network thread may read the fields that do not change while the model is
     * loaded. */
    hearth_model *model, *draft; /* draft: NULL, or the model that makes drafts */
    hearth_scheduler_options scheduling;
    hearth_scheduler *scheduler;
    hearth_sampler_options sampling; /* defaults of requests, from options and the file */
    hearth_chat *chat; /* NULL: chat_error says why */
    hearth_error chat_error;
    hearth_model_info info;
    live_figures live;
    struct generation *generations; /* answers that are being written */
    task *tasks;
    size_t n_large; /* its calls on the reader's thread */
    indexing indexing;
    uint64_t used_ns; /* when the last request for it began; 0: none did */
    uint64_t busy_ns; /* when it had requests last, or when writing its cache was put off */
    bool keep_failed; /* its cache could not be written; it is tried again at the end */
    bool leaves;      /* a client wants it to, once it has no requests */
    bool needs_room;  /* it did not fit beside those that are loaded */
} served_model;

/* Opens it with a scheduler, by the engine's options, and finds again what was kept. Nothing is open after a failure. */
hearth_status served_model_open(served_model *m, hearth_error *err);
/* Ends its requests, if there are any left, and closes it. */
void served_model_close(served_model *m);
/* Writes what is kept between runs. goes_on: false ends it, and then the rest is to be written later; NULL: none. */
void served_model_keep(served_model *m, hearth_progress_fn *goes_on, void *user);

/* Whether requests are in it. */
bool served_model_is_busy(const served_model *m);
/* Whether it scores documents, and writes no text: by its file, unless the server was told to pool otherwise. */
bool served_model_is_reranker(const served_model *m);
/* The positions of a context, as a session with these options would have them. */
uint32_t served_model_n_ctx(const served_model *m);
/* Whether a client's name of a model is that of this one; with_tag: "ID:latest" too. */
bool served_model_is_called(const served_model *m, const char *name, size_t n, bool with_tag);

#endif
