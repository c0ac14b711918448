/* The loop: signals, events of the engine thread, and how the server stops. */
#define _GNU_SOURCE
#include "serve/http/server_int.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Statuses that metrics tell apart; the first one stands for all others, and for requests without an answer. */
static const int codes[SERVER_N_CODE] = {0,   200, 204, 400, 401, 403, 404, 405, 408,
                                         413, 414, 415, 417, 429, 431, 500, 503};

server_limits server_default_limits(void)
{
    const uint64_t second = 1000000000u;
    return (server_limits){.idle_ns = 75 * second,
                           .head_ns = 10 * second,
                           .body_ns = 60 * second,
                           .write_ns = 60 * second,
                           .shutdown_ns = 30 * second,
                           .ping_ns = 5 * second,
                           .max_body = 16 << 20,
                           .max_bodies = 256 << 20,
                           .max_connections = 1024,
                           .max_waiting = 64};
}

/* ---- figures ------------------------------------------------------------------------------------------- */

void server_count(server *s, size_t i_route, int status)
{
    size_t i = SERVER_N_CODE - 1;
    while (i > 0 && codes[i] != status) i--;
    s->counters[i_route][i]++;
}

void server_write_counters(const server *s, FILE *out)
{
    for (size_t r = 0; r <= s->n_route; r++)
        for (size_t i = 0; i < SERVER_N_CODE; i++) {
            if (s->counters[r][i] == 0) continue;
            fprintf(out, "hearth_http_requests_total{path=\"%s\",code=\"%d\"} %llu\n",
                    r < s->n_route ? s->options.routes[r].path : "other", codes[i],
                    (unsigned long long)s->counters[r][i]);
        }
}

size_t server_n_connection(const server *s) { return s->n_connection; }
exchange *server_exchange(server *s) { return s->exchange; }
void *server_user(const server *s) { return s->options.call_user; }
bool server_is_ready(const server *s) { return atomic_load(&s->ready); }

void server_log(server *s, const char *format, ...)
{
    char line[800];
    va_list list;
    if (!s->options.log) return;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    s->options.log(line);
}

/* ---- calls --------------------------------------------------------------------------------------------- */

void server_add_call(server *s, call *c)
{
    c->next = s->calls;
    c->previous = NULL;
    if (c->next) c->next->previous = c;
    s->calls = c;
}

static void remove_call(server *s, call *c)
{
    *(c->previous ? &c->previous->next : &s->calls) = c->next;
    if (c->next) c->next->previous = c->previous;
}

void server_drop_call(server *s, call *c)
{
    remove_call(s, c);
    call_free(c);
}

static void read_body(worker_job *j) { call_read_body((call *)(void *)((char *)j - offsetof(call, reading))); }

void server_read_body(server *s, call *c)
{
    c->reading.run = read_body;
    c->next_reading = s->reading;
    s->reading = c;
    worker_add(s->reader, &c->reading);
}

/* Calls whose bodies were read go on. */
static void take_bodies(server *s)
{
    for (call **at = &s->reading, *c = *at; c; c = *at) {
        if (!worker_has_ended(s->reader, &c->reading)) {
            at = &c->next_reading;
            continue;
        }
        *at = c->next_reading;
        connection_body_read(s, c);
    }
}

void server_for_each_call(const server *s, void (*fn)(void *user, const call *c), void *user)
{
    for (const call *c = s->calls; c; c = c->next) fn(user, c);
}

static void handle_event(server *s, event *e)
{
    call *c = e->call;
    connection *client = c->connection;
    bool is_last = e == &c->last;
    if (client) connection_event(client, e);
    free(e->bytes);
    if (is_last) {
        server_drop_call(s, c);
    } else {
        free(e);
    }
}

/* ---- stopping ------------------------------------------------------------------------------------------ */

/* The loop ends when nothing is left that it waits for. */
static void end_if_done(server *s)
{
    if (!s->stopping || s->connections) return;
    uv_timer_stop(&s->shutdown_timer);
    uv_unref((uv_handle_t *)&s->wake);
    for (size_t i = 0; i < sizeof s->signals / sizeof *s->signals; i++) uv_signal_stop(&s->signals[i]);
}

void server_connection_closed(server *s) { end_if_done(s); }

static void abort_all(server *s)
{
    for (connection *c = s->connections, *next; c; c = next) {
        next = connection_next(c);
        connection_abort(c);
    }
}

static void on_last_time(uv_timer_t *timer) { abort_all(timer->data); }

static void on_shutdown_time(uv_timer_t *timer)
{
    const uint64_t last_ms = 1000; /* time in which clients may read the errors */
    server *s = timer->data;
    for (connection *c = s->connections, *next; c; c = next) {
        next = connection_next(c);
        connection_cut(c);
    }
    uv_timer_start(timer, on_last_time, last_ms, 0);
    end_if_done(s);
}

static void begin_stop(server *s)
{
    if (s->stopping) return;
    s->stopping = true;
    if (s->options.on_stop) s->options.on_stop(s->options.call_user);
    listeners_close(s);
    for (connection *c = s->connections, *next; c; c = next) {
        next = connection_next(c);
        connection_wind_up(c);
    }
    uv_update_time(&s->loop);
    uv_timer_start(&s->shutdown_timer, on_shutdown_time, s->options.limits.shutdown_ns / 1000000 + 1, 0);
    end_if_done(s);
}

static void on_signal(uv_signal_t *handle, int number)
{
    server *s = handle->data;
    bool at_once = s->stopping || !server_is_ready(s);
    begin_stop(s);
    if (!at_once) return;
    s->end_signal = number;
    abort_all(s);
}

static void on_wake(uv_async_t *handle)
{
    server *s = handle->data;
    for (event *e = exchange_events(s->exchange), *next; e; e = next) {
        next = e->next;
        handle_event(s, e);
    }
    take_bodies(s);
    if (atomic_load(&s->stop_asked)) begin_stop(s);
}

/* From the engine thread, and from the reader. */
static void wake(void *user)
{
    server *s = user;
    uv_async_send(&s->wake);
}

void server_set_ready(server *s) { atomic_store(&s->ready, true); }

void server_stop(server *s)
{
    atomic_store(&s->stop_asked, true);
    uv_async_send(&s->wake);
}

/* ---- opening ------------------------------------------------------------------------------------------- */

static hearth_status open_loop(server *s, hearth_error *err)
{
    int error = uv_loop_init(&s->loop);
    if (error)
        return hth_fail(err, HEARTH_ERROR_IO, "the event loop cannot be opened: %s", uv_strerror(error));
    s->is_open = true;
    error = uv_async_init(&s->loop, &s->wake, on_wake);
    s->wake.data = s;
    uv_timer_init(&s->loop, &s->shutdown_timer);
    s->shutdown_timer.data = s;
    for (size_t i = 0; i < sizeof s->signals / sizeof *s->signals; i++) {
        uv_signal_init(&s->loop, &s->signals[i]);
        s->signals[i].data = s;
    }
    if (error)
        return hth_fail(err, HEARTH_ERROR_IO, "the event loop cannot be opened: %s", uv_strerror(error));
    return HEARTH_OK;
}

hearth_status server_open(const server_options *options, server **out, hearth_error *err)
{
    server *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return hth_fail_memory(err, sizeof *s, "the server");
    s->options = *options;
    while (options->routes[s->n_route].path) s->n_route++;
    s->counters = calloc(s->n_route + 1, sizeof *s->counters);
    s->exchange = exchange_open(options->limits.max_waiting, wake, s);
    hearth_status st = s->counters && s->exchange ? HEARTH_OK : hth_fail_memory(err, sizeof *s, "the server");
    if (st == HEARTH_OK) st = open_loop(s, err);
    if (st == HEARTH_OK) *out = s;
    else server_close(s);
    return st;
}

static void close_handle(uv_handle_t *handle, void *user)
{
    (void)user;
    if (!uv_is_closing(handle)) uv_close(handle, NULL);
}

void server_close(server *s)
{
    if (!s) return;
    if (s->is_open) {
        abort_all(s);
        for (call *c; (c = s->reading); server_drop_call(s, c)) {
            s->reading = c->next_reading;
            worker_settle(s->reader, &c->reading);
        }
        worker_close(s->reader);
        listeners_close(s);
        uv_run(&s->loop, UV_RUN_NOWAIT); /* connections and listeners are freed by their callbacks */
        uv_walk(&s->loop, close_handle, NULL);
        uv_run(&s->loop, UV_RUN_DEFAULT);
        uv_loop_close(&s->loop);
    }
    exchange_free(s->exchange);
    free(s->counters);
    free(s);
}

bool server_start(server *s) { return (s->reader = worker_open("hearth-reader", wake, s)) != NULL; }

int server_run(server *s)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    for (size_t i = 0; i < sizeof s->signals / sizeof *s->signals; i++)
        uv_signal_start(&s->signals[i], on_signal, numbers[i]);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    return s->end_signal;
}
