/* Requests to a hub: HTTP by libcurl, redirects followed here, so that the token goes to the endpoint's own
 * host alone. Called by api.c and pull.c. A build without libcurl says so when a connection is opened. */
#ifndef HEARTH_APPS_HUB_HTTP_H
#define HEARTH_APPS_HUB_HTTP_H

#include "hub/parts.h"

typedef struct hub_http hub_http;

/* What a server said; gathered over redirects, of which the first one describes the file. */
typedef struct hub_reply {
    long status;
    char code[64];        /* X-Error-Code: RepoNotFound, RevisionNotFound, GatedRepo, EntryNotFound */
    char link[2048];      /* of rel="next": the next page; "" */
    uint64_t linked_size; /* X-Linked-Size; 0: not said */
    bool has_length, has_range;
    uint64_t length;                  /* of this answer's body */
    uint64_t range_from, range_total; /* Content-Range */
    long retry_after;                 /* seconds; 0: not said */
} hub_reply;

/* Takes bytes of a body of status 200 or 206; false stops the request. */
typedef bool hub_take_fn(void *user, const hub_reply *reply, const uint8_t *bytes, size_t n);

typedef enum hub_outcome {
    HUB_ANSWERED, /* to the end: reply->status counts */
    HUB_BROKEN,   /* the connection broke, or nothing came for too long: again may help; err says what */
    HUB_STOPPED,  /* take returned false */
    HUB_FAILED,   /* again would not help, or the watch stopped it: err says */
} hub_outcome;

/* HF_ENDPOINT and HF_TOKEN are read here. ARGUMENT: not an address, or no token; UNSUPPORTED. */
hearth_status hub_http_open(const hub_pull_options *options, hub_http **out, hearth_error *err);
void hub_http_close(hub_http *http);
/* "https://..." without a slash at the end. */
const char *hub_http_endpoint(const hub_http *http);
bool hub_http_has_token(const hub_http *http);

/* GET of url, from byte `from` on (0: no range is asked for). */
hub_outcome hub_http_get(hub_http *http, const char *url, uint64_t from, hub_take_fn *take, void *user,
                         hub_reply *reply, hearth_error *err);
/* text for one piece of an address; whole_path: '/' stays. False: too long. */
bool hub_http_escape(char *out, size_t n_out, const char *text, bool whole_path);

/* After an outcome or a status that again may help (a broken connection, 408, 429, 5xx): waits as long as the
 * server asks, or 1, 2, 4 ... seconds. *n_try counts, up to the options' n_retry: then, or where the watch
 * stops, false, with err filled in. what: of messages. */
bool hub_http_wait(hub_http *http, const char *what, const hub_reply *reply, hub_outcome outcome,
                   unsigned *n_try, hearth_error *err);
/* Whether a status may be another one when asked again. */
bool hub_http_may_pass(const hub_reply *reply);

#endif
