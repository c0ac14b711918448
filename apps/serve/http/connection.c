/* Sockets and time. Every state has its deadline, which is total: it does not move when bytes come. One timer serves
 * all times of a connection. */
#define _GNU_SOURCE
#include "serve/http/connection.h"

#include "base/clock.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { MILLISECOND = 1000000, FIRST_LOOK_MS = 10, LOOK_MS = 100, MAX_DROPPED = 4 << 20 };

/* ---- lists --------------------------------------------------------------------------------------------- */

static void list_idle(connection *c)
{
    server *s = c->server;
    c->previous_idle = s->idle_newest;
    c->next_idle = NULL;
    *(s->idle_newest ? &s->idle_newest->next_idle : &s->idle) = c;
    s->idle_newest = c;
    c->is_listed_idle = true;
}

static void unlist_idle(connection *c)
{
    server *s = c->server;
    if (!c->is_listed_idle) return;
    *(c->previous_idle ? &c->previous_idle->next_idle : &s->idle) = c->next_idle;
    *(c->next_idle ? &c->next_idle->previous_idle : &s->idle_newest) = c->previous_idle;
    c->is_listed_idle = false;
}

static void list(connection *c)
{
    server *s = c->server;
    c->next = s->connections;
    if (c->next) c->next->previous = c;
    s->connections = c;
    s->n_connection++;
}

static void unlist(connection *c)
{
    server *s = c->server;
    *(c->previous ? &c->previous->next : &s->connections) = c->next;
    if (c->next) c->next->previous = c->previous;
    s->n_connection--;
}

connection *connection_next(connection *c) { return c->next; }

/* ---- closing ------------------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle)
{
    connection *c = handle->data;
    server *s = c->server;
    if (--c->n_handle > 0) return;
    free(c->input.bytes);
    free(c);
    server_connection_closed(s);
}

void connection_close(connection *c)
{
    if (c->state == CONNECTION_CLOSED) return;
    unlist_idle(c);
    unlist(c);
    c->state = CONNECTION_CLOSED;
    active_request_free(c);
    uv_close((uv_handle_t *)&c->timer, on_closed);
    uv_close(&c->io.handle, on_closed);
}

void connection_abort(connection *c) { connection_close(c); }

void connection_wind_up(connection *c)
{
    if (c->state == CONNECTION_IDLE || c->state == CONNECTION_LINGER) connection_close(c);
    else if (c->request) c->request->keep_alive = false;
}

/* ---- time ---------------------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer);

void connection_set_timer(connection *c)
{
    uint64_t due = UINT64_MAX, now = hth_clock_ns();
    if (c->state == CONNECTION_CLOSED) return;
    if (c->deadline_ns > 0) due = c->deadline_ns;
    if (c->ping_ns > 0 && c->ping_ns < due) due = c->ping_ns;
    if (c->check_ns > 0 && c->check_ns < due) due = c->check_ns;
    if (due == UINT64_MAX) {
        uv_timer_stop(&c->timer);
        return;
    }
    uv_update_time(&c->server->loop);
    uv_timer_start(&c->timer, on_timer, due > now ? (due - now) / MILLISECOND + 1 : 0, 0);
}

void connection_set_state(connection *c, connection_state state, uint64_t deadline_in_ns)
{
    c->state = state;
    c->deadline_ns = deadline_in_ns > 0 ? hth_clock_ns() + deadline_in_ns : 0;
    if (state == CONNECTION_IDLE) {
        c->scan = (head_scan){0};
        c->n_scanned = 0;
        c->ping_ns = 0;
        list_idle(c);
    } else {
        unlist_idle(c);
    }
    connection_set_timer(c);
}

/* Whether the client has closed both directions. A TCP socket shows it once something was sent to it since. */
static bool is_gone(const connection *c)
{
    uv_os_fd_t fd;
    if (uv_fileno(&c->io.handle, &fd) != 0) return true;
    struct pollfd p = {.fd = fd};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
}

/* The client sends nothing more, but may still wait for its answer (shutdown of one direction). If it has closed the
 * whole connection instead, its system refuses what is sent to it: hence an interim answer or a comment, and a look at
 * the socket after that. */
static void on_end(connection *c)
{
    c->has_ended = true;
    uv_read_stop(&c->io.stream);
    c->is_reading = false;
    if (c->state == CONNECTION_SENDING) return;
    if (c->state != CONNECTION_PENDING) {
        connection_close(c);
        return;
    }
    active_request *r = c->request;
    r->keep_alive = false;
    if (!c->is_unix) {
        if (r->is_stream) {
            connection_ping(c);
        } else if (r->is_http_1_1) {
            connection_interim(c, "102 Processing");
        } else { /* HTTP/1.0 has no interim answers */
            connection_close(c);
            return;
        }
    }
    if (c->state == CONNECTION_CLOSED) return;
    c->check_ns = hth_clock_ns() + (uint64_t)FIRST_LOOK_MS * MILLISECOND;
    connection_set_timer(c);
}

/* Looks at what no event of the loop tells. */
static void check(connection *c, uint64_t now)
{
    bool is_sending = uv_stream_get_write_queue_size(&c->io.stream) > 0;
    c->check_ns = 0;
    if (is_sending && !connection_note_progress(c) &&
        now - c->progress_ns >= c->server->options.limits.write_ns) {
        connection_close(c);
        return;
    }
    if (is_sending) c->check_ns = now + c->server->options.limits.write_ns / 8 + 1;
    if (!c->has_ended || c->state != CONNECTION_PENDING) return;
    if (is_gone(c)) connection_close(c);
    else c->check_ns = now + (uint64_t)LOOK_MS * MILLISECOND;
}

static void on_deadline(connection *c, uint64_t now)
{
    const server_limits *limits = &c->server->options.limits;
    const uint64_t second = 1000000000u;
    active_request *r = c->request;
    c->deadline_ns = 0;
    if (c->state == CONNECTION_HEAD) {
        connection_refuse(c, 408, "", "the head of the request took longer than allowed");
    } else if (c->state == CONNECTION_BODY) {
        uint64_t end = r->body_ns + limits->body_ns + (r->n_body >> 20) * second;
        if (r->chunked && end > now) {
            c->deadline_ns = end;
            return;
        }
        connection_refuse(c, 408, "", "the body of the request took longer than allowed");
    } else {
        connection_close(c);
    }
}

static void on_timer(uv_timer_t *timer)
{
    connection *c = timer->data;
    uint64_t now = hth_clock_ns();
    if (c->deadline_ns > 0 && now >= c->deadline_ns) on_deadline(c, now);
    if (c->state != CONNECTION_CLOSED && c->check_ns > 0 && now >= c->check_ns) check(c, now);
    if (c->state == CONNECTION_PENDING && c->ping_ns > 0 && now >= c->ping_ns) {
        c->ping_ns = now + 3 * c->server->options.limits.ping_ns;
        connection_ping(c);
    }
    connection_set_timer(c);
    connection_advance(c);
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    connection *c = handle->data;
    (void)suggested;
    *out = uv_buf_init(c->server->read_buffer, SERVER_READ_SIZE);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *bytes)
{
    connection *c = stream->data;
    if (n == 0 || c->state == CONNECTION_CLOSED) return;
    if (n == UV_EOF) {
        on_end(c);
    } else if (n < 0) {
        connection_close(c);
    } else if (c->state == CONNECTION_LINGER || c->drops) {
        c->n_dropped += (size_t)n;
        if (c->n_dropped > MAX_DROPPED) connection_close(c);
    } else {
        if (buffer_add(&c->input, bytes->base, (size_t)n)) connection_advance(c);
        else connection_close(c);
    }
}

/* So much is not kept for later; but reading goes on, because the end of the connection comes behind it. */
static void drop_input(connection *c)
{
    c->drops = true;
    c->request->keep_alive = false;
    connection_use_input(c, c->input.n);
}

static void read_on(connection *c)
{
    if (c->is_reading || c->has_ended) return;
    if (uv_read_start(&c->io.stream, on_alloc, on_read) != 0) connection_close(c);
    else c->is_reading = true;
}

void connection_use_input(connection *c, size_t n)
{
    c->input.n -= n;
    if (c->input.n > 0) {
        memmove(c->input.bytes, c->input.bytes + n, c->input.n);
        return;
    }
    free(c->input.bytes); /* a connection that waits has no buffer */
    c->input = (buffer){0};
}

static void begin_request(connection *c)
{
    c->request = calloc(1, sizeof *c->request);
    if (!c->request) {
        connection_close(c);
        return;
    }
    c->request->start_ns = hth_clock_ns();
    c->request->i_route = c->server->n_route;
    connection_set_state(c, CONNECTION_HEAD, c->server->options.limits.head_ns);
}

void connection_advance(connection *c)
{
    bool more = true;
    while (more) {
        more = false;
        if (c->state == CONNECTION_IDLE && c->input.n > 0) begin_request(c), more = true;
        else if (c->state == CONNECTION_HEAD) more = connection_read_head(c);
        else if (c->state == CONNECTION_BODY) more = connection_read_body(c);
    }
    if (c->state == CONNECTION_CLOSED) return;
    if (c->state == CONNECTION_IDLE && c->has_ended) {
        connection_close(c);
        return;
    }
    bool waits = c->state == CONNECTION_PENDING || c->state == CONNECTION_SENDING;
    if (waits && c->input.n > CONNECTION_MAX_INPUT) drop_input(c);
    read_on(c);
}

/* ---- accepting ----------------------------------------------------------------------------------------- */

static bool init(connection *c, listener *l)
{
    server *s = l->server;
    c->server = s;
    c->is_unix = l->is_unix;
    int error = l->is_unix ? uv_pipe_init(&s->loop, &c->io.pipe, 0) : uv_tcp_init(&s->loop, &c->io.tcp);
    if (error) return false;
    uv_timer_init(&s->loop, &c->timer);
    c->io.handle.data = c->timer.data = c;
    c->n_handle = 2;
    return true;
}

static void on_refused(uv_handle_t *handle)
{
    listener *l = handle->data;
    l->is_refusing = false;
    if (l->is_closed) listener_free(l);
    else if (l->is_waiting) connection_accept(l);
}

/* Without memory for a connection: it must be taken all the same, because its listener takes no other one before. */
static void refuse(listener *l)
{
    l->is_waiting = l->is_refusing;
    if (l->is_refusing) return;
    int error = l->is_unix ? uv_pipe_init(&l->server->loop, &l->refused.pipe, 0)
                           : uv_tcp_init(&l->server->loop, &l->refused.tcp);
    if (error) return;
    l->refused.handle.data = l;
    l->is_refusing = true;
    uv_accept(&l->io.stream, &l->refused.stream);
    uv_close(&l->refused.handle, on_refused);
}

void connection_accept(listener *l)
{
    server *s = l->server;
    connection *c = calloc(1, sizeof *c);
    l->is_waiting = false;
    if (!c || !init(c, l)) {
        free(c);
        refuse(l);
        return;
    }
    bool accepted = uv_accept(&l->io.stream, &c->io.stream) == 0;
    if (s->n_connection >= s->options.limits.max_connections && s->idle) connection_close(s->idle);
    bool full = s->n_connection >= s->options.limits.max_connections;
    list(c);
    if (!accepted || s->stopping) {
        connection_close(c);
        return;
    }
    if (!l->is_unix) {
        const unsigned probe_s = 60; /* a machine that is gone without a word */
        uv_tcp_nodelay(&c->io.tcp, 1);
        uv_tcp_keepalive(&c->io.tcp, 1, probe_s);
    }
    connection_set_state(c, CONNECTION_IDLE, s->options.limits.idle_ns);
    if (full) {
        begin_request(c);
        if (c->request) connection_refuse(c, 503, "", "there are too many connections");
    }
    connection_advance(c);
}
