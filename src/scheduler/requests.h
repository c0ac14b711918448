/* The scheduler and its requests, for scheduler.c, requests.c and what is around its steps (scheduler_prefix_cache.c). */
#ifndef HTH_SCHEDULER_REQUESTS_H
#define HTH_SCHEDULER_REQUESTS_H

#include "engine/generated_text.h"
#include "engine/session_int.h"
#include "scheduler/prefix_cache.h"
#include "scheduler/scheduler_int.h"

typedef struct hth_request hth_request;
struct hth_request {
    hth_request *next; /* in the list of those that wait, or run, in order of arrival */
    uint64_t id, owner;
    hearth_request_fn *fn;
    void *user;
    hearth_sampler *sampler;
    hearth_constraint *constraint; /* held; or NULL */
    hth_generated_text text;       /* if has_text */
    hearth_session *session;       /* NULL: it waits */
    int32_t *tokens;               /* [n_token], with room for n_max: the prompt, then what was generated */
    size_t n_token, n_prompt, n_max;
    uint32_t n_cached, n_part;  /* n_part: tokens in the step, without those of a draft */
    hth_draft_place *place;     /* in the step; NULL: no draft */
    hearth_draft_stats drafted; /* before its session was opened */
    bool ignore_end, has_begun, is_paused, has_text;
};

enum { HTH_N_CANCELLED = 64 };

struct hearth_scheduler {
    const hearth_model *model;
    hth_in_use in_use;
    _Atomic uint64_t cancelled[HTH_N_CANCELLED]; /* ids of hearth_request_cancel; 0: free */
    hearth_scheduler_options options;
    hth_kv_budget pages;
    uint64_t pages_size; /* counted in the limit of the model */
    hth_prefix_cache prefix_cache;
    hearth_batch *batch;
    float *masked; /* [n_vocab] */
    hth_request *waiting, *running;
    uint64_t n_id;
    double token_seconds,
        step_seconds;        /* as measured: of a token of a prompt, of a step without; 0: not yet */
    hth_drafter *drafter;    /* NULL: there are no drafts */
    hth_draft_place *places; /* [n_running] of requests that generate in the step */
    hth_scheduler_part_fn *part;
    void *part_user;
    hearth_scheduler_stats stats;
};

/* Adds a request at the end of a list, or takes it out of one. */
void hth_request_append(hth_request **list, hth_request *r);
void hth_request_unlink(hth_request **list, hth_request *r);
void hth_request_free_all(hth_request *list);
/* Draft statistics of the request so far, in all of its sessions. */
hearth_draft_stats hth_request_drafts(const hth_request *r);
/* Calls its function. False: it ends the request. */
bool hth_request_tell(const hth_request *r, const hearth_request_event *event);
/* The last event. The cache of a request that ran is kept. */
void hth_request_end(hearth_scheduler *s, hth_request *r, hearth_request_event event);
/* Ends those that hearth_request_cancel named. */
void hth_request_end_cancelled(hearth_scheduler *s);

/* Options of the sessions of requests. */
hearth_session_options hth_scheduler_session_options(const hearth_scheduler *s);
/* The length of a list. */
uint32_t hth_request_count(const hth_request *r);

#endif
