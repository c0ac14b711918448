/* Queues between the network thread and the engine thread: calls to the engine, and events back.
 *
 * A call is one request that needs the model. The network thread makes it, submits it, and may cancel it at any time:
 * when the client hangs up, also before the call was taken. The engine thread takes calls, and ends each of them once,
 * by call_reply, call_end or call_break; until then it may begin a stream and send parts of it. It may give a call to
 * another thread, which then does that in its place: both queues have one lock. Nothing of a client
 * is known here, and nothing of the model: the thread that takes calls decides what runs when.
 *
 * Bytes that a client has not taken count as unsent. While there are too many, call_is_paused is true, and the engine
 * sends nothing more; every change that may let it go on wakes exchange_wait. A loop that also steps sequences:
 *
 *     for (;;) {
 *         uint64_t seen = exchange_changes(x);
 *         while ((c = exchange_take(x))) c->run(c->user, c);
 *         if (step_runnable_sequences()) continue;
 *         if (exchange_is_closed(x)) break;
 *         exchange_wait(x, seen, UINT64_MAX);
 *     } */
#ifndef HEARTH_APPS_SERVE_EXCHANGE_H
#define HEARTH_APPS_SERVE_EXCHANGE_H

#include "serve/worker.h"
#include "text/json.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CALL_MAX_DEPTH = 64, CALL_MAX_VALUES = 64 << 20, /* limits of a body's JSON: nesting, and memory of its values */
    CALL_PAUSE_BYTES = 256 << 10, /* unsent bytes at which a call is paused; it goes on at half of them */
};

typedef struct exchange exchange;
typedef struct call call;

/* The protocol of a path, which decides the form of errors and streams. */
typedef enum api_form { FORM_OPENAI, FORM_OLLAMA, FORM_ANTHROPIC } api_form;

/* Runs on the engine thread, or on that of a worker, which then has the call (large_call.h). It ends the call, or keeps it
 * and ends it later. */
typedef void call_fn(void *user, call *c);

typedef enum event_kind {
    EVENT_REPLY, /* the whole answer; the call is over */
    EVENT_STREAM, /* the request is accepted: from now on its answer is a stream, whose first part may take long */
    EVENT_PART,  /* bytes of the stream */
    EVENT_END,   /* the stream is complete; the call is over */
    EVENT_BREAK, /* nothing more comes, because memory ran out or the call was cancelled; the call is over */
} event_kind;

typedef struct event {
    struct event *next;
    call *call;
    event_kind kind;
    int status;           /* HTTP status of an EVENT_REPLY */
    unsigned retry_after; /* seconds, of an EVENT_REPLY; 0: the client is told nothing */
    char *bytes; /* [n] JSON of an EVENT_REPLY, bytes of an EVENT_PART; freed with free; NULL: none */
    size_t n;
} event;

struct call {
    /* Set before exchange_submit; the engine thread reads them. */
    call_fn *run;
    void *user;       /* which the engine thread may change */
    const char *path; /* the route's path, for reports */
    char tail[80];    /* the variable end of a path, truncated */
    char *body;       /* [n_body] the request's body and a NUL; until call_read_body */
    size_t n_body;
    hth_json *document; /* the body; NULL: unread says why it is none, or it was dropped */
    hearth_error unread;
    unsigned i_key; /* the client's API key, from 1; 0: it has none */
    uint64_t owner; /* owner of data that is stored for the client: access_owner */
    api_form form;
    uint64_t submit_ns; /* by base/clock.h */
    /* Used by both threads. */
    _Atomic bool cancelled;  /* the client is gone, or the server stops: end the call without an answer */
    _Atomic bool taken;      /* by the engine thread */
    /* The name of its model, which lives as long as the server; NULL: not known yet. */
    _Atomic(const char *) model;
    _Atomic size_t n_unsent; /* bytes of parts that the client has not taken */
    exchange *exchange;
    /* Used by the network thread. */
    void *connection;      /* NULL: gone */
    call *next, *previous; /* among all calls that are not over */
    call *next_reading;    /* among those whose bodies a worker reads */
    worker_job reading;
    /* Used with the queue's lock; by the engine thread alone once the call is taken. */
    call *next_queued;
    struct large_call *large; /* its entry while it runs on a worker's thread; NULL: it does not */
    event last; /* the event that ends the call, so that ending it allocates nothing */
};

/* ---- both threads -------------------------------------------------------------------------------------- */

/* At most max_waiting calls wait. wake(user) is called by the engine thread after an event was queued, and must be
 * thread-safe. NULL: out of memory. */
exchange *exchange_open(size_t max_waiting, void (*wake)(void *user), void *user);
/* From any thread: wakes exchange_wait, as something that the engine thread waits for is there. */
void exchange_wake(exchange *x);
/* Frees what is left in both queues. The engine thread has ended. */
void exchange_free(exchange *x);

/* ---- the network thread -------------------------------------------------------------------------------- */

/* Reads the body as JSON, of at most CALL_MAX_DEPTH levels and CALL_MAX_VALUES bytes of values. On any thread, before
 * exchange_submit. */
void call_read_body(call *c);
/* On the thread that has the call, when nothing more is read of it: values take some times the bytes of their text. */
void call_drop_document(call *c);
/* body belongs to the call from now on, also if this fails. NULL: out of memory. */
call *call_make(exchange *x, call_fn *run, void *user, const char *path, char *body, size_t n_body);
/* False: too many calls wait, or the exchange is closed. The caller still owns the call, and frees it. */
bool exchange_submit(exchange *x, call *c);
/* Marks the call as cancelled; the engine thread ends it soon. Its events still come. */
void call_cancel(call *c);
/* n bytes of parts went out to the client. */
void call_sent(call *c, size_t n);
/* All events so far, oldest first; the caller frees their bytes, and after the last event of a call the call. The
 * event that ends a call is a part of it. */
event *exchange_events(exchange *x);
void call_free(call *c);
/* Calls that wait and calls that were taken and are not over. */
void exchange_count(exchange *x, size_t *n_waiting, size_t *n_running);
/* From now on nothing can be submitted, and the engine thread is told to end. */
void exchange_close(exchange *x);

/* ---- the engine thread --------------------------------------------------------------------------------- */

/* The call that was submitted first; NULL: none waits. Cancelled calls are ended here and not returned. */
call *exchange_take(exchange *x);
bool exchange_is_closed(exchange *x);
/* A number that changes with every call that is submitted or cancelled or can go on, with exchange_wake, and when the
 * exchange closes. */
uint64_t exchange_changes(exchange *x);
/* Waits until exchange_changes is not `seen`, or until end_ns by base/clock.h (UINT64_MAX: without a limit). */
void exchange_wait(exchange *x, uint64_t seen, uint64_t end_ns);

/* On the engine thread, or on that of the worker that has the call: one thread at a time. */

bool call_is_cancelled(const call *c);
/* Whether so much is unsent that nothing more should be sent now. */
bool call_is_paused(const call *c);

/* The request is valid, and its answer will be a stream. False: out of memory; then the call must end. */
bool call_begin_stream(call *c);
/* Sends a copy of n bytes as a part of the stream. False: out of memory; then the call must end by call_break. */
bool call_send(call *c, const char *bytes, size_t n);
/* Ends the call by a whole answer. json belongs to the event (freed with free); NULL: memory ran out. */
void call_reply(call *c, int status, char *json, size_t n);
/* The same for a request that can be repeated after some seconds. */
void call_reply_later(call *c, int status, unsigned retry_after, char *json, size_t n);
void call_end(call *c);
void call_break(call *c);

#endif
