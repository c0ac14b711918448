/* Requests to a hub: HTTP with libcurl. Redirects are followed in this module, so that the token is sent only
 * to the endpoint's own host. api.c and pull.c call it. A build without libcurl reports that when a connection
 * is opened. */
#ifndef HEARTH_APPS_HUB_HTTP_H
#define HEARTH_APPS_HUB_HTTP_H

#include "hub/parts.h"

typedef struct hub_http hub_http;

/* Response of a server, collected over redirects; the first response describes the file. */
typedef struct hub_reply {
    long status;
    char code[64];        /* X-Error-Code: RepoNotFound, RevisionNotFound, GatedRepo, EntryNotFound */
    char link[2048];      /* URL of the next page, from the header Link with rel="next"; "": none */
    uint64_t linked_size; /* X-Linked-Size; 0: not sent */
    bool has_length, has_range;
    uint64_t length;                  /* bytes of this response's body */
    uint64_t range_from, range_total; /* Content-Range */
    long retry_after;                 /* seconds; 0: not sent */
} hub_reply;

/* Receives bytes of a body of status 200 or 206. False stops the request. */
typedef bool hub_take_fn(void *user, const hub_reply *reply, const uint8_t *bytes, size_t n);

typedef enum hub_outcome {
    HUB_ANSWERED, /* complete; reply->status is valid */
    HUB_BROKEN,   /* the connection broke or timed out: a retry may help; error in err */
    HUB_STOPPED,  /* take returned false */
    HUB_FAILED,   /* a retry would not help, or the watch cancelled; error in err */
} hub_outcome;

/* Reads HF_ENDPOINT and HF_TOKEN. ARGUMENT: not an address, or not a token; UNSUPPORTED. */
hearth_status hub_http_open(const hub_pull_options *options, hub_http **out, hearth_error *err);
void hub_http_close(hub_http *http);
/* "https://..." without a trailing slash. */
const char *hub_http_endpoint(const hub_http *http);
bool hub_http_has_token(const hub_http *http);

/* GETs url from byte `from` on (0: without a range). */
hub_outcome hub_http_get(hub_http *http, const char *url, uint64_t from, hub_take_fn *take, void *user,
                         hub_reply *reply, hearth_error *err);
/* Escapes text for one component of a URL; whole_path: keeps '/'. False: too long. */
bool hub_http_escape(char *out, size_t n_out, const char *text, bool whole_path);

/* Waits before a retry, as long as the server requests, or 1, 2, 4 ... seconds. It is called after an outcome or a
 * status where a retry may help: a broken connection, 408, 429, 5xx. *n_try counts up to the options' n_retry. False,
 * with err set: no more retries, or the watch cancelled. what: name for messages. */
bool hub_http_wait(hub_http *http, const char *what, const hub_reply *reply, hub_outcome outcome,
                   unsigned *n_try, hearth_error *err);
/* Whether a retry may give another status. */
bool hub_http_may_pass(const hub_reply *reply);

#endif
