/* A connection and its states, for connection.c (sockets, time), connection_request.c (what comes in) and
 * connection_answer.c (what goes out). A connection has one request at a time; the next one is read after its
 * answer. */
#ifndef HEARTH_APPS_SERVE_HTTP_CONNECTION_H
#define HEARTH_APPS_SERVE_HTTP_CONNECTION_H

#include "serve/http/server_int.h"

typedef enum connection_state {
    CONNECTION_IDLE, /* nothing of a request has come */
    CONNECTION_HEAD,
    CONNECTION_BODY,
    CONNECTION_PENDING, /* the engine thread has the request, or its answer is a stream that goes on */
    CONNECTION_SENDING, /* all of the answer is queued */
    CONNECTION_LINGER, /* nothing more is sent; what still comes is dropped, so that the answer is not lost */
    CONNECTION_CLOSED,
} connection_state;

/* A request, from its first byte until its answer is sent. */
typedef struct active_request {
    unsigned method; /* as in head */
    bool has_method; /* the head was parsed */
    bool is_http_1_1, keep_alive, chunked;
    uint64_t content_length;
    const route *route; /* NULL: none */
    size_t i_route;
    api_form form;
    unsigned i_key; /* as in call */
    char path[ROUTE_MAX_PATH];
    size_t i_tail, n_path;
    char id[65];       /* x-request-id */
    char origin[256];  /* origin of a web page that may read the answer; "": none */
    char headers[256]; /* headers that the page may send, in a preflight request */
    bool is_preflight;
    chunk_scan chunks;
    buffer body;
    size_t n_body; /* bytes of it so far, as counted in server.n_body_bytes */
    int refusal;   /* status of what is wrong with the body; 0: nothing */
    uint64_t start_ns, body_ns;
    call *call;                         /* NULL: the engine thread has nothing of it */
    bool is_stream, head_sent, is_sent; /* is_sent: the system has all of the answer */
    int status;                         /* status of the answer; 0: none yet */
    uint64_t n_sent;                    /* bytes of its body */
} active_request;

struct connection {
    socket_handle io;
    uv_timer_t timer;
    uv_shutdown_t shutdown;
    server *server;
    connection *next, *previous, *next_idle, *previous_idle;
    active_request *request; /* NULL: idle, or after the answer */
    connection_state state;
    message_reader reader;
    head_scan scan;
    buffer input;      /* bytes that were read and not used yet */
    size_t n_scanned;  /* bytes of it */
    size_t n_dropped;  /* bytes that came and were not used */
    unsigned n_handle; /* not closed yet */
    bool is_unix, is_listed_idle, is_reading;
    bool has_ended; /* the client sends nothing more */
    bool drops;     /* further input is dropped; the connection ends after this answer */
    /* Times by base/clock.h; 0: none. */
    uint64_t deadline_ns, ping_ns, check_ns;
    uint64_t n_queued, n_taken, progress_ns; /* bytes that were to be sent, and that the system took */
};

enum { CONNECTION_MAX_INPUT = 64 << 10 }; /* bytes that are kept behind a request that is not answered */

/* ---- connection.c -------------------------------------------------------------------------------------- */

void connection_close(connection *c);
void connection_set_state(connection *c, connection_state state, uint64_t deadline_in_ns);
/* Sets the timer by the times. */
void connection_set_timer(connection *c);
/* Handles what was read, as far as the state allows. */
void connection_advance(connection *c);

/* ---- connection_request.c ------------------------------------------------------------------------------ */

/* Both return whether there may be more to do at once. */
bool connection_read_head(connection *c);
bool connection_read_body(connection *c);
/* Answers with an error and ends the connection. */
void connection_refuse(connection *c, int status, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Drops the first n bytes of the input. */
void connection_use_input(connection *c, size_t n);
void active_request_free(connection *c);
/* The engine thread is told to end the request's call, whose events are not waited for. */
void connection_leave_call(connection *c);

/* ---- connection_answer.c ------------------------------------------------------------------------------- */

/* Sends a whole answer, whose body it frees. */
void connection_reply(connection *c, reply *r);
/* 100 Continue, 102 Processing. */
void connection_interim(connection *c, const char *line);
/* A comment in a stream, which begins with it if it has not. */
void connection_ping(connection *c);
/* Counts what the system has taken since the last call. True: something. */
bool connection_note_progress(connection *c);

#endif
