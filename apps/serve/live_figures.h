/* The model at work, for GET /stats and /metrics: what the engine thread notes between steps, and what the network thread
 * writes of it. Neither waits for the other longer than a copy takes. */
#ifndef HEARTH_APPS_SERVE_LIVE_FIGURES_H
#define HEARTH_APPS_SERVE_LIVE_FIGURES_H

#include <hearth/experimental.h>
#include <hearth/hearth.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

struct served_model;
typedef struct json json; /* common/json.h */

enum { LIVE_MAX_REQUESTS = 64 };

typedef struct live_request {
    char name[48]; /* id of its answer, which its client knows from the first event of the stream */
    unsigned i_key;
    hearth_request_progress progress;
} live_request;

/* Counters since the model was opened, at a time. */
typedef struct live_counts {
    uint64_t time_ns;
    hearth_scheduler_stats scheduler;
    bool is_streamed;
    hearth_storage_stats storage;
    uint64_t n_token;   /* tokens whose active neurons were counted; 0: none were */
    uint32_t n_request; /* valid entries of `requests` */
    live_request requests[LIVE_MAX_REQUESTS];
} live_counts;

typedef struct live_figures {
    pthread_mutex_t lock; /* guards what follows until asked_ns */
    live_counts counts;
    uint64_t (*layers)[2];     /* [n_layer] n_hit and n_miss of the store */
    double *shares;            /* [n_layer] share of active neurons, over n_token tokens */
    _Atomic uint64_t asked_ns; /* when /stats was asked for the last time; 0: never */
    /* Used by the engine thread. */
    bool is_counting; /* active neurons are counted */
    double *counted;  /* [n_layer] shares before they are published */
    uint32_t n_layer;
} live_figures;

/* All three on the engine thread; close also without open. False: out of memory. */
bool live_figures_open(struct served_model *m);
void live_figures_close(live_figures *f);
/* Between two steps: takes figures if the last ones are old; now: if they are not old either. */
void live_figures_take(struct served_model *m, bool now);

/* On the network thread, while the model is loaded: members of an object for /stats; adds those of weights from storage to
 * a sum, false: there are none. */
void live_figures_write(struct served_model *m, json *j);
bool live_figures_add_storage(struct served_model *m, hearth_storage_stats *sum);

#endif
