/* The table of endpoints, and how a path finds its row. There is no file system behind paths. */
#ifndef HEARTH_APPS_SERVE_HTTP_ROUTES_H
#define HEARTH_APPS_SERVE_HTTP_ROUTES_H

#include "serve/exchange.h"
#include "serve/http/head.h"
#include "serve/reply.h"

typedef struct server server;

/* The request, for an endpoint that answers on the network thread. */
typedef struct request {
    server *server;
    const char *tail; /* the variable end of a path, decoded: "my-model" in /v1/models/my-model */
    size_t n_tail;
} request;

/* Runs on the network thread, so it must not compute and not wait. */
typedef void answer_fn(const request *r, reply *out);

/* A row has one of `answer` and `run`. */
typedef struct route {
    unsigned method;  /* HTTP_GET, which HEAD is answered by too, HTTP_POST or HTTP_DELETE */
    const char *path; /* "/v1/models/{id}": the last part is variable; also the label in metrics */
    answer_fn *answer;
    call_fn *run;   /* with the body of the request, where the model may be read; see exchange.h */
    bool is_public; /* no key is asked for */
    bool is_quiet;  /* not logged when it is answered with 200: the page asks once a second */
} route;

/* The endpoints of hearth serve, up to a row without a path. The user of their calls is the engine (engine.h). */
extern const route serve_routes[];

enum { ROUTE_MAX_PATH = 512 }; /* decoded */

typedef struct route_match {
    const route *route; /* NULL: no such path, or another method */
    size_t i_route;
    bool known;                /* the path exists */
    api_form form;             /* by how the path begins */
    char allow[64];            /* methods of the path */
    char path[ROUTE_MAX_PATH]; /* decoded, without prefix and query */
    size_t n_path;
    const char *tail; /* in path */
} route_match;

/* Escapes of the path are decoded once. prefix: paths that begin with it are looked up without it; NULL: none. */
void route_find(const route *routes, const char *prefix, unsigned method, text_part target, route_match *out);

#endif
