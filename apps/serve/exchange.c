/* The two queues between the network thread and the engine thread, each a list under one lock. Parts of a stream are
 * allocated by the engine thread and freed by the network thread; the event that ends a call is inside the call. */
#define _POSIX_C_SOURCE 200809L
#include "serve/exchange.h"

#include "base/clock.h"
#include "base/thread.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct exchange {
    pthread_mutex_t lock; /* guards all but the functions to call */
    pthread_cond_t changed;
    uint64_t n_change;
    call *first_call, **end_call;
    event *first_event, **end_event;
    size_t n_waiting, n_running, max_waiting;
    bool closed;
    void (*wake)(void *user);
    void *wake_user;
};

exchange *exchange_open(size_t max_waiting, void (*wake)(void *user), void *user)
{
    exchange *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    pthread_mutex_init(&x->lock, NULL);
    hth_cond_init(&x->changed);
    x->end_call = &x->first_call;
    x->end_event = &x->first_event;
    x->max_waiting = max_waiting;
    x->wake = wake;
    x->wake_user = user;
    return x;
}

void exchange_free(exchange *x)
{
    if (!x) return;
    for (call *c = x->first_call, *next; c; c = next) {
        next = c->next_queued;
        call_free(c);
    }
    for (event *e = exchange_events(x), *next; e; e = next) {
        next = e->next;
        free(e->bytes);
        if (e == &e->call->last) call_free(e->call);
        else free(e);
    }
    pthread_cond_destroy(&x->changed);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

/* With the lock held. */
static void note_change(exchange *x)
{
    x->n_change++;
    pthread_cond_broadcast(&x->changed);
}

void exchange_wake(exchange *x)
{
    pthread_mutex_lock(&x->lock);
    note_change(x);
    pthread_mutex_unlock(&x->lock);
}

/* ---- the network thread -------------------------------------------------------------------------------- */

call *call_make(exchange *x, call_fn *run, void *user, const char *path, char *body, size_t n_body)
{
    call *c = calloc(1, sizeof *c);
    if (!c) {
        free(body);
        return NULL;
    }
    c->exchange = x;
    c->run = run;
    c->user = user;
    c->path = path;
    c->body = body;
    c->n_body = n_body;
    return c;
}

void call_read_body(call *c)
{
    static const hth_json_limits limits = {.max_depth = CALL_MAX_DEPTH, .max_bytes = CALL_MAX_VALUES};
    if (c->n_body > 0) c->document = hth_json_open(c->body, c->n_body, &limits, &c->unread);
    free(c->body);
    c->body = NULL;
}

void call_drop_document(call *c)
{
    hth_json_close(c->document);
    c->document = NULL;
}

void call_free(call *c)
{
    if (!c) return;
    hth_json_close(c->document);
    free(c->body);
    free(c);
}

bool exchange_submit(exchange *x, call *c)
{
    c->submit_ns = hth_clock_ns();
    pthread_mutex_lock(&x->lock);
    bool ok = !x->closed && x->n_waiting < x->max_waiting;
    if (ok) {
        *x->end_call = c;
        x->end_call = &c->next_queued;
        x->n_waiting++;
        note_change(x);
    }
    pthread_mutex_unlock(&x->lock);
    return ok;
}

void call_cancel(call *c)
{
    if (atomic_exchange(&c->cancelled, true)) return;
    exchange_wake(c->exchange);
}

void call_sent(call *c, size_t n)
{
    size_t before = atomic_fetch_sub(&c->n_unsent, n), half = CALL_PAUSE_BYTES / 2;
    if (before >= half && before - n < half) exchange_wake(c->exchange);
}

event *exchange_events(exchange *x)
{
    pthread_mutex_lock(&x->lock);
    event *first = x->first_event;
    x->first_event = NULL;
    x->end_event = &x->first_event;
    pthread_mutex_unlock(&x->lock);
    return first;
}

void exchange_count(exchange *x, size_t *n_waiting, size_t *n_running)
{
    pthread_mutex_lock(&x->lock);
    *n_waiting = x->n_waiting;
    *n_running = x->n_running;
    pthread_mutex_unlock(&x->lock);
}

void exchange_close(exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->closed = true;
    note_change(x);
    pthread_mutex_unlock(&x->lock);
}

/* ---- the engine thread --------------------------------------------------------------------------------- */

static void post(exchange *x, event *e)
{
    bool is_last = e == &e->call->last;
    pthread_mutex_lock(&x->lock);
    bool was_empty = x->first_event == NULL;
    e->next = NULL;
    *x->end_event = e;
    x->end_event = &e->next;
    x->n_running -= is_last;
    pthread_mutex_unlock(&x->lock);
    if (was_empty) x->wake(x->wake_user); /* after that, an ended call may be gone */
}

/* An ended call is the network thread's, which frees it at once or later. AddressSanitizer sees what touches it after its
 * end only if it is gone by then. */
static void let_it_be_freed(void)
{
#ifdef __SANITIZE_ADDRESS__
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
#endif
}

static void post_last(call *c, event_kind kind, int status, char *bytes, size_t n)
{
    c->last.call = c;
    c->last.kind = kind;
    c->last.status = status;
    c->last.bytes = bytes;
    c->last.n = bytes ? n : 0;
    post(c->exchange, &c->last);
    let_it_be_freed();
}

static bool post_part(call *c, event_kind kind, const char *bytes, size_t n)
{
    event *e = calloc(1, sizeof *e);
    char *copy = n > 0 ? malloc(n) : NULL;
    if (!e || (n > 0 && !copy)) {
        free(e);
        free(copy);
        return false;
    }
    if (n > 0) memcpy(copy, bytes, n);
    *e = (event){.call = c, .kind = kind, .bytes = copy, .n = n};
    atomic_fetch_add(&c->n_unsent, n);
    post(c->exchange, e);
    return true;
}

call *exchange_take(exchange *x)
{
    for (;;) {
        pthread_mutex_lock(&x->lock);
        call *c = x->first_call;
        if (c) {
            x->first_call = c->next_queued;
            if (!x->first_call) x->end_call = &x->first_call;
            c->next_queued = NULL;
            x->n_waiting--;
            x->n_running++;
        }
        pthread_mutex_unlock(&x->lock);
        if (!c || !call_is_cancelled(c)) {
            if (c) atomic_store(&c->taken, true);
            return c;
        }
        call_break(c);
    }
}

bool exchange_is_closed(exchange *x)
{
    pthread_mutex_lock(&x->lock);
    bool closed = x->closed;
    pthread_mutex_unlock(&x->lock);
    return closed;
}

uint64_t exchange_changes(exchange *x)
{
    pthread_mutex_lock(&x->lock);
    uint64_t n = x->n_change;
    pthread_mutex_unlock(&x->lock);
    return n;
}

void exchange_wait(exchange *x, uint64_t seen, uint64_t end_ns)
{
    pthread_mutex_lock(&x->lock);
    while (x->n_change == seen && hth_cond_wait_until(&x->changed, &x->lock, end_ns)) {
    }
    pthread_mutex_unlock(&x->lock);
}

bool call_is_cancelled(const call *c) { return atomic_load(&c->cancelled); }
bool call_is_paused(const call *c) { return atomic_load(&c->n_unsent) >= CALL_PAUSE_BYTES; }

bool call_begin_stream(call *c) { return post_part(c, EVENT_STREAM, NULL, 0); }
bool call_send(call *c, const char *bytes, size_t n) { return n == 0 || post_part(c, EVENT_PART, bytes, n); }
void call_reply(call *c, int status, char *json, size_t n) { post_last(c, EVENT_REPLY, status, json, n); }

void call_reply_later(call *c, int status, unsigned retry_after, char *json, size_t n)
{
    c->last.retry_after = retry_after;
    call_reply(c, status, json, n);
}

void call_end(call *c) { post_last(c, EVENT_END, 0, NULL, 0); }
void call_break(call *c) { post_last(c, EVENT_BREAK, 0, NULL, 0); }
