/* The network thread: a libuv loop that listens, reads requests, answers those that need no model, and hands the others
 * to an engine thread (exchange.h). One thread calls all functions, but for those that say otherwise. */
#ifndef HEARTH_APPS_SERVE_HTTP_SERVER_H
#define HEARTH_APPS_SERVE_HTTP_SERVER_H

#include "base/status.h"
#include "serve/http/access.h"
#include "serve/exchange.h"
#include "serve/http/routes.h"

typedef struct server_limits {
    uint64_t idle_ns;     /* a connection without a request */
    uint64_t head_ns;     /* from the first byte of a request to the end of its head */
    uint64_t body_ns;     /* to receive a body, plus a second for each MiB */
    uint64_t write_ns;    /* while a client takes nothing of an answer */
    uint64_t shutdown_ns; /* for running requests to end after the server is told to stop */
    uint64_t ping_ns; /* the first comment in a stream that is silent; later ones come at three times that */
    size_t max_body;
    size_t max_bodies; /* bytes of all bodies together */
    size_t max_connections;
    size_t max_waiting; /* calls */
} server_limits;
server_limits server_default_limits(void);

typedef struct server_options {
    server_limits limits;
    const route *routes;
    const char *prefix; /* prefix of paths, which a proxy removes or leaves; NULL: none */
    const access_rules *access;
    void *call_user; /* call.user of all calls; server_user returns it to answers */
    /* A line about each request, without contents. NULL: none. */
    void (*log)(const char *line);
    void (*on_stop)(void *user); /* called once with call_user when the server begins to stop. NULL: none */
    void (*on_cancel)(void); /* called when a call was cancelled: its evaluation may end early. NULL: none */
} server_options;

hearth_status server_open(const server_options *options, server **out, hearth_error *err);
/* After server_run, or without it. The engine thread has ended. */
void server_close(server *s);

exchange *server_exchange(server *s);
void *server_user(const server *s);

/* ---- addresses (listen.c) ------------------------------------------------------------------------------ */

/* Listens on a name or an address of an interface. port 0: any that is free. *port: the one it is. */
hearth_status server_listen(server *s, const char *host, unsigned *port, hearth_error *err);
/* On 127.0.0.1, and on ::1 where the machine has it. */
hearth_status server_listen_loopback(server *s, unsigned *port, hearth_error *err);
/* On a path that its owner alone may use; a socket that no program listens on is replaced. */
hearth_status server_listen_unix(server *s, const char *path, hearth_error *err);
/* On the sockets that the service manager passed (LISTEN_FDS). *n: how many; 0: none. */
hearth_status server_listen_passed(server *s, unsigned *n, hearth_error *err);
/* "http://127.0.0.1:8080, http://[::1]:8080" */
const char *server_addresses(const server *s);
/* Whether some address can be reached from other machines. */
bool server_is_exposed(const server *s);

/* ---- running ------------------------------------------------------------------------------------------- */

/* Before server_run: starts the thread that reads large bodies; server_open starts none. False: the system has none. */
bool server_start(server *s);
/* Until SIGTERM or SIGINT, or server_stop; returns when all connections are closed. Returns 0; or the number of a
 * signal that ended it at once: of a second one, or of one before server_set_ready. */
int server_run(server *s);

/* From any thread. Until the server is ready, requests that need the engine get 503. */
void server_set_ready(server *s);
bool server_is_ready(const server *s);
/* From any thread: stops accepting, lets requests end, and then ends server_run. */
void server_stop(server *s);

/* ---- figures (metrics.c, endpoints) -------------------------------------------------------------------- */

size_t server_n_connection(const server *s);
/* Calls fn for each call that is not over, the newest first. */
void server_for_each_call(const server *s, void (*fn)(void *user, const call *c), void *user);
/* The lines of Prometheus for requests by path and code. */
void server_write_counters(const server *s, FILE *out);

#endif
