/* The engine thread: it opens the model and runs the calls that need it, one after the other. Facts that the network
 * thread reports are fixed before the server is ready. */
#ifndef HEARTH_APPS_SERVE_ENGINE_H
#define HEARTH_APPS_SERVE_ENGINE_H

#include "serve/figures.h"
#include "serve/live_figures.h"
#include "serve/server.h"
#include "serve/tasks.h"

#include <hearth/hearth.h>
#include <pthread.h>

typedef struct engine {
    /* Set by the caller of engine_start. */
    server *server;
    /* On the engine thread: opens model, and draft with its options in scheduling. False: an error was reported. */
    bool (*load)(void *user, struct engine *e);
    void *load_user;
    void (*on_ready)(const struct engine *e); /* on the engine thread; NULL: none */
    const char *id;                           /* of the model, for clients */
    int64_t created;                          /* seconds since 1970 */
    hearth_scheduler_options scheduling;      /* n_ctx: wanted; 0: as the library chooses */
    uint32_t max_waiting;                     /* requests that wait for their turn */
    uint64_t max_request_ns;                  /* from a request to the end of its answer; 0: no limit */
    const char *kept; /* folder of what is kept between runs, of at most kept_size bytes; NULL */
    uint64_t kept_size;
    bool keeps_billing; /* conversation.h */
    /* Of the engine thread; after server_is_ready also read by the network thread, which changes nothing. */
    hearth_model *model, *draft; /* draft: NULL, or the model that makes drafts */
    hearth_scheduler *scheduler;
    struct generation *generations; /* answers that are being written */
    task *tasks;
    hearth_chat *chat;              /* NULL: chat_error says why */
    hearth_error chat_error;
    hearth_model_info info;
    figures figures; /* of both threads, as figures.h says */
    live_figures live;
    char digest[17]; /* of the model's weights (hth_model_hash), for clients that compare models */
    bool failed;     /* the model did not open */
    pthread_t thread;
} engine;

/* Calls server_set_ready when the model is open, or server_stop if it does not open. False: the system has no
 * thread. */
bool engine_start(engine *e);
/* After server_run: ends the thread and closes the model. */
void engine_stop(engine *e);

/* The positions of a context, as a session with these options would have them. */
uint32_t engine_n_ctx(const engine *e);

#endif
