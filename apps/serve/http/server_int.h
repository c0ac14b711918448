/* Shared by server.c, listen.c and the files of connections. */
#ifndef HEARTH_APPS_SERVE_HTTP_SERVER_INT_H
#define HEARTH_APPS_SERVE_HTTP_SERVER_INT_H

#include "common/buffer.h"
#include "serve/http/attempts.h"
#include "serve/http/framing.h"
#include "serve/http/server.h"

#include <uv.h>

typedef struct connection connection;

typedef union socket_handle {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_tcp_t tcp;
    uv_pipe_t pipe;
} socket_handle;

typedef struct listener {
    struct listener *next;
    socket_handle io;
    socket_handle refused; /* a connection that is closed at once, for which there was no memory */
    server *server;
    bool is_unix, is_closed;
    bool is_refusing; /* `refused` is in use */
    bool is_waiting;  /* another connection could not be taken meanwhile */
} listener;

enum { SERVER_READ_SIZE = 64 << 10, SERVER_N_CODE = 17 };

struct server {
    server_options options;
    uv_loop_t loop;
    uv_async_t wake;
    uv_signal_t signals[2];
    uv_timer_t shutdown_timer;
    exchange *exchange;
    listener *listeners;
    connection *connections;        /* all that are not closed */
    connection *idle, *idle_newest; /* those without a request, the oldest first */
    size_t n_connection;
    size_t n_body_bytes; /* sum over all bodies */
    call *calls;         /* calls that are not over, the newest first */
    worker *reader;      /* parses large bodies */
    attempts attempts;   /* counts wrong keys by address */
    call *reading;       /* calls whose bodies the reader parses, the newest first */
    uint64_t (
        *counters)[SERVER_N_CODE]; /* [n_route + 1] answers by path and status; the last row: no route */
    size_t n_route;
    char addresses[600];
    bool exposed;
    bool is_open; /* the loop has its handles */
    bool stopping;
    int end_signal; /* the signal that ended the server at once; 0: none */
    _Atomic bool ready, stop_asked;
    char read_buffer[SERVER_READ_SIZE];
};

/* server.c */
void server_count(server *s, size_t i_route, int status);
void server_add_call(server *s, call *c);
/* Frees a call that the engine thread has not. */
void server_drop_call(server *s, call *c);
/* Has the reader read a call's body; connection_body_read follows. */
void server_read_body(server *s, call *c);
/* A connection is freed. */
void server_connection_closed(server *s);
void server_log(server *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* listen.c */
void listeners_close(server *s);
/* Frees a listener that is closed, unless a connection is being refused. */
void listener_free(listener *l);

/* connection.c: takes a connection of a listener, or refuses it. */
void connection_accept(listener *l);
/* The reader has read a body, unless the server stopped before. */
void connection_body_read(server *s, call *c);
/* An event of the connection's call. The last one ends the call. */
void connection_event(connection *c, event *e);
/* The server stops: a connection without a request closes, others after their answer. */
void connection_wind_up(connection *c);
void connection_abort(connection *c);
/* Its time is over: a request that the engine thread has is answered with an error, others close. */
void connection_cut(connection *c);
connection *connection_next(connection *c);

#endif
