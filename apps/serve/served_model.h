/* One of the models that are served. The engine thread opens and closes it, and runs what is asked of it. The network
 * thread tells of it, while it holds the engine's lock (engine.h). */
#ifndef HEARTH_APPS_SERVE_SERVED_MODEL_H
#define HEARTH_APPS_SERVE_SERVED_MODEL_H

#include "serve/live_figures.h"
#include "serve/model_facts.h"
#include "serve/tasks.h"

#include <hearth/hearth.h>

typedef struct served_model {
    struct engine *engine;
    /* Fixed before the server runs. */
    char *path;        /* NULL: the embedded model */
    char *id;          /* for clients */
    char *kept;        /* folder of what is kept between runs; NULL: nothing is */
    int64_t created;   /* seconds since 1970 */
    bool is_of_folder; /* it was not named itself */
    /* Changed with the engine's lock held. */
    model_facts facts;
    char digest
        [17]; /* of its weights (hth_model_hash), for clients that compare models; "": it was not loaded yet */
    bool is_loaded;
    /* Of the engine thread; the network thread may read those that stay the same while it is loaded. */
    hearth_model *model, *draft; /* draft: NULL, or the model that makes drafts */
    hearth_scheduler_options scheduling;
    hearth_scheduler *scheduler;
    hearth_chat *chat; /* NULL: chat_error says why */
    hearth_error chat_error;
    hearth_model_info info;
    live_figures live;
    struct generation *generations; /* answers that are being written */
    task *tasks;
    uint64_t used_ns; /* when the last request for it began; 0: none did */
    bool needs_room;  /* it did not fit beside those that are loaded */
} served_model;

/* Opens it with a scheduler, by the engine's options, and finds again what was kept. Nothing is open after a failure. */
hearth_status served_model_open(served_model *m, hearth_error *err);
/* Ends its requests, if there are any left, and closes it. */
void served_model_close(served_model *m);
/* Writes what is kept between runs. */
void served_model_keep(const served_model *m);

/* Whether requests are in it. */
bool served_model_is_busy(const served_model *m);
/* The positions of a context, as a session with these options would have them. */
uint32_t served_model_n_ctx(const served_model *m);
/* Whether a client's name of a model is that of this one; with_tag: "ID:latest" too. */
bool served_model_is_called(const served_model *m, const char *name, size_t n, bool with_tag);

#endif
