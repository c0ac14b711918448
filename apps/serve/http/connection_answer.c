/* Writes answers to a connection. Bytes are written to the socket at once as far as it takes them; libuv queues the
 * rest. A call is paused while too many bytes are queued (exchange.h). check() in connection.c closes the connection
 * of a client that takes nothing for write_ns. */
#define _GNU_SOURCE
#include "serve/http/connection.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct queued_write {
    uv_write_t request;
    connection *connection;
    size_t n_part; /* bytes of parts of a stream among them */
    char bytes[];
} queued_write;

static void end_answer(connection *c);

bool connection_note_progress(connection *c)
{
    uint64_t taken = c->n_queued - uv_stream_get_write_queue_size(&c->io.stream);
    if (taken == c->n_taken) return false;
    c->n_taken = taken;
    c->progress_ns = hth_clock_ns();
    return true;
}

/* ---- bytes --------------------------------------------------------------------------------------------- */

static void parts_are_sent(connection *c, size_t n_part)
{
    if (n_part > 0 && c->request && c->request->call) call_sent(c->request->call, n_part);
}

static void on_written(uv_write_t *written, int status)
{
    queued_write *w = written->data;
    connection *c = w->connection;
    if (c->state != CONNECTION_CLOSED) {
        parts_are_sent(c, w->n_part);
        if (status < 0) connection_close(c);
    }
    free(w);
    if (c->state == CONNECTION_CLOSED) return;
    connection_note_progress(c);
    if (c->state != CONNECTION_SENDING || uv_stream_get_write_queue_size(&c->io.stream) > 0) return;
    end_answer(c);
    connection_advance(c);
}

/* Queues what the system did not take. */
static void queue(connection *c, const uv_buf_t *bytes, unsigned n_buf, size_t skip, size_t n_part)
{
    size_t n = 0, at = 0;
    for (unsigned i = 0; i < n_buf; i++) n += bytes[i].len;
    queued_write *w = malloc(sizeof *w + n - skip);
    if (!w) {
        connection_close(c);
        return;
    }
    w->connection = c;
    w->n_part = n_part;
    w->request.data = w;
    for (unsigned i = 0; i < n_buf; i++) {
        size_t from = skip < bytes[i].len ? skip : bytes[i].len;
        memcpy(w->bytes + at, bytes[i].base + from, bytes[i].len - from);
        at += bytes[i].len - from;
        skip -= from;
    }
    bool was_empty = uv_stream_get_write_queue_size(&c->io.stream) == 0;
    uv_buf_t all = uv_buf_init(w->bytes, (unsigned)at);
    if (uv_write(&w->request, &c->io.stream, &all, 1, on_written) != 0) {
        free(w);
        connection_close(c);
        return;
    }
    if (was_empty) { /* from now on progress is watched */
        c->progress_ns = hth_clock_ns();
        uint64_t look = c->progress_ns + c->server->options.limits.write_ns / 8 + 1;
        if (c->check_ns == 0 || look < c->check_ns) c->check_ns = look;
        connection_set_timer(c);
    }
}

static void send_bytes(connection *c, const uv_buf_t *bytes, unsigned n_buf, size_t n_part)
{
    size_t n = 0;
    for (unsigned i = 0; i < n_buf; i++) n += bytes[i].len;
    if (c->state == CONNECTION_CLOSED || n == 0) return;
    int taken = uv_try_write(&c->io.stream, bytes, n_buf);
    if (taken < 0 && taken != UV_EAGAIN) {
        connection_close(c);
        return;
    }
    c->n_queued += n;
    if (taken > 0 && (size_t)taken == n) {
        c->n_taken += n;
        parts_are_sent(c, n_part);
    } else {
        queue(c, bytes, n_buf, taken > 0 ? (size_t)taken : 0, n_part);
    }
}

static void send_text(connection *c, char *text, size_t n)
{
    uv_buf_t b = uv_buf_init(text, (unsigned)n);
    send_bytes(c, &b, 1, 0);
}

void connection_interim(connection *c, const char *line)
{
    char text[64];
    int n = snprintf(text, sizeof text, "HTTP/1.1 %s\r\n\r\n", line);
    send_text(c, text, (size_t)n);
}

/* ---- heads of answers ---------------------------------------------------------------------------------- */

/* A head is at most this long: the texts in it are bounded, each by less than 300 bytes, and
 * those of reply.headers. */
enum { MAX_HEAD = 2048 };

typedef struct head_text {
    char text[MAX_HEAD];
    size_t n;
} head_text;

static void __attribute__((format(printf, 2, 3))) head_add(head_text *h, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = vsnprintf(h->text + h->n, MAX_HEAD - h->n, format, list);
    va_end(list);
    if (n > 0) h->n += (size_t)n < MAX_HEAD - h->n ? (size_t)n : MAX_HEAD - h->n - 1;
}

/* As RFC 9110, 5.6.7 has it: Sun, 06 Nov 1994 08:49:37 GMT. */
static void head_date(head_text *h)
{
    char text[64];
    time_t now = time(NULL);
    struct tm t;
    if (gmtime_r(&now, &t) && strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &t) > 0)
        head_add(h, "Date: %s\r\n", text);
}

static void head_begin(head_text *h, const active_request *r, int status, bool keep_alive)
{
    h->n = 0;
    head_add(h, "HTTP/1.1 %d %s\r\nConnection: %s\r\n", status, status_words(status),
             keep_alive ? "keep-alive" : "close");
    head_date(h);
    if (*r->id) head_add(h, "x-request-id: %s\r\n", r->id);
    if (*r->origin)
        head_add(h,
                 "Access-Control-Allow-Origin: %s\r\nAccess-Control-Expose-Headers: x-request-id\r\nVary: "
                 "Origin\r\n",
                 r->origin);
}

static void head_preflight(head_text *h, const active_request *r, const reply *out)
{
    head_add(h, "Access-Control-Allow-Methods: %s\r\nAccess-Control-Max-Age: 600\r\n", out->allow);
    if (*r->headers) head_add(h, "Access-Control-Allow-Headers: %s\r\n", r->headers);
}

/* ---- whole answers ------------------------------------------------------------------------------------- */

/* All of the answer is with the system. */
static void end_answer(connection *c)
{
    server *s = c->server;
    bool goes_on = c->request->keep_alive && !c->has_ended && !s->stopping;
    c->request->is_sent = true;
    active_request_free(c);
    if (goes_on) {
        connection_set_state(c, CONNECTION_IDLE, s->options.limits.idle_ns);
    } else if (c->has_ended || uv_shutdown(&c->shutdown, &c->io.stream, NULL) != 0) {
        connection_close(c);
    } else {
        const uint64_t linger_ns = 1000000000u;
        connection_use_input(c, c->input.n);
        connection_set_state(c, CONNECTION_LINGER, linger_ns);
    }
}

static void finish(connection *c)
{
    if (c->state == CONNECTION_CLOSED) return;
    c->request->call = NULL;
    c->ping_ns = 0;
    connection_set_state(c, CONNECTION_SENDING, 0);
    if (uv_stream_get_write_queue_size(&c->io.stream) == 0) end_answer(c);
}

void connection_reply(connection *c, reply *out)
{
    static char no_memory[] =
        "{\"error\": {\"message\": \"out of memory\", \"type\": \"unavailable_error\", \"param\": null, "
        "\"code\": null}}\n";
    active_request *r = c->request;
    head_text h;
    bool lost = !out->body && out->status >= 400;
    char *body = lost ? no_memory : out->body;
    size_t n = lost ? sizeof no_memory - 1 : out->n;
    if (out->close) r->keep_alive = false;
    if (c->has_ended || c->server->stopping) r->keep_alive = false;
    r->status = out->status;
    r->head_sent = true;
    head_begin(&h, r, out->status, r->keep_alive);
    if (out->status == 401) head_add(&h, "WWW-Authenticate: Bearer\r\n");
    if (r->is_preflight) head_preflight(&h, r, out);
    else if (*out->allow) head_add(&h, "Allow: %s\r\n", out->allow);
    if (out->retry_after > 0) head_add(&h, "Retry-After: %u\r\n", out->retry_after);
    if (out->status != 204)
        head_add(&h, "Content-Type: %s\r\nX-Content-Type-Options: nosniff\r\nContent-Length: %zu\r\n",
                 out->type ? out->type : "application/json", n);
    if (out->status == 408) head_add(&h, "x-should-retry: false\r\n"); /* it would take as long again */
    head_add(&h, "%s\r\n", out->headers ? out->headers : "");
    if (r->has_method && r->method == HTTP_HEAD) n = 0;
    uv_buf_t parts[] = {uv_buf_init(h.text, (unsigned)h.n), uv_buf_init(body, (unsigned)n)};
    r->n_sent = n;
    send_bytes(c, parts, n > 0 ? 2 : 1, 0);
    free(out->body);
    finish(c);
}

/* ---- streams ------------------------------------------------------------------------------------------- */

static bool is_chunked(const active_request *r) { return r->is_http_1_1; }

/* The head goes out with the first bytes: until then the engine thread may still answer with an error. */
static void begin_stream(connection *c)
{
    active_request *r = c->request;
    head_text h;
    if (r->head_sent) return;
    r->head_sent = true;
    r->status = 200;
    if (!is_chunked(r)) r->keep_alive = false;
    head_begin(&h, r, 200, r->keep_alive);
    head_add(&h, "Content-Type: %s\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n",
             r->form == FORM_OLLAMA ? "application/x-ndjson" : "text/event-stream; charset=utf-8");
    head_add(&h, "%s\r\n", is_chunked(r) ? "Transfer-Encoding: chunked\r\n" : "");
    send_text(c, h.text, h.n);
}

static void send_part(connection *c, char *bytes, size_t n, size_t n_part)
{
    static char line_end[] = "\r\n";
    char size[24];
    active_request *r = c->request;
    begin_stream(c);
    if (c->state == CONNECTION_CLOSED) return;
    int n_size = snprintf(size, sizeof size, "%zx\r\n", n);
    uv_buf_t parts[] = {uv_buf_init(size, (unsigned)n_size), uv_buf_init(bytes, (unsigned)n),
                        uv_buf_init(line_end, 2)};
    r->n_sent += n;
    if (is_chunked(r)) send_bytes(c, parts, 3, n_part);
    else send_bytes(c, parts + 1, 1, n_part);
}

void connection_ping(connection *c)
{
    static char comment[] = ": ping\n\n";
    if (c->request->form == FORM_OLLAMA) return; /* lines of JSON have no comments */
    send_part(c, comment, sizeof comment - 1, 0);
}

/* An error when the stream has begun: an event, behind which the connection ends. */
static void send_error(connection *c, char *bytes, size_t n)
{
    char name[] = "event: error\n", data[] = "data: ", end[] = "\n";
    const api_form form = c->request->form;
    c->request->keep_alive = false;
    if (form == FORM_ANTHROPIC) send_part(c, name, sizeof name - 1, 0);
    if (form != FORM_OLLAMA && c->state != CONNECTION_CLOSED) send_part(c, data, sizeof data - 1, 0);
    if (c->state != CONNECTION_CLOSED) send_part(c, bytes, n, 0); /* it ends with one newline */
    if (form != FORM_OLLAMA && c->state != CONNECTION_CLOSED) send_part(c, end, 1, 0);
}

static void break_stream(connection *c, const event *e)
{
    c->request->keep_alive = false;
    if (e->bytes) send_error(c, e->bytes, e->n);
    finish(c);
}

static void whole_answer(connection *c, event *e)
{
    active_request *r = c->request;
    reply out = {.status = e->status, .body = e->bytes, .n = e->n, .retry_after = e->retry_after};
    if (e->kind == EVENT_BREAK) out.status = 503; /* without a body: memory ran out */
    if (r->head_sent) {
        break_stream(c, e);
        return;
    }
    e->bytes = NULL;
    connection_reply(c, &out);
}

static void end_stream(connection *c)
{
    char end[] = "0\r\n\r\n";
    begin_stream(c);
    if (c->state != CONNECTION_CLOSED && is_chunked(c->request)) send_text(c, end, sizeof end - 1);
    finish(c);
}

void connection_cut(connection *c)
{
    static const char reason[] = "the server stops";
    active_request *r = c->request;
    problem p;
    size_t n;
    if (c->state != CONNECTION_PENDING || !r->call) {
        connection_close(c);
        return;
    }
    connection_leave_call(c);
    if (!r->head_sent) {
        connection_refuse(c, 503, "", "%s", reason);
        return;
    }
    problem_set(&p, 503, "", "%s", reason);
    char *bytes = problem_json(&p, r->form, &n);
    if (bytes) send_error(c, bytes, n);
    free(bytes);
    if (c->state != CONNECTION_CLOSED) end_stream(c);
}

void connection_event(connection *c, event *e)
{
    active_request *r = c->request;
    switch (e->kind) {
    case EVENT_STREAM:
        r->is_stream = true;
        c->ping_ns = hth_clock_ns() + c->server->options.limits.ping_ns;
        connection_set_timer(c);
        break;
    case EVENT_PART:
        send_part(c, e->bytes, e->n, e->n);
        if (c->state == CONNECTION_CLOSED) return;
        c->ping_ns = hth_clock_ns() + c->server->options.limits.ping_ns;
        break;
    case EVENT_END: end_stream(c); break;
    case EVENT_REPLY:
    case EVENT_BREAK: whole_answer(c, e); break;
    }
    connection_advance(c);
}
