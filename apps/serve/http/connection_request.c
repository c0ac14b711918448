/* Reads requests from a connection. The head is checked, cheap checks first; then the body is collected; then the
 * request goes to its endpoint. An invalid request is answered once and ends the connection, because the following
 * bytes may not be the beginning of a request. */
#define _GNU_SOURCE
#include "serve/http/connection.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* ---- requests ------------------------------------------------------------------------------------------ */

void connection_leave_call(connection *c)
{
    call *left = c->request->call;
    if (!left) return;
    c->request->call = NULL;
    left->connection = NULL;
    call_cancel(left);
    if (c->server->options.on_cancel) c->server->options.on_cancel();
}

void active_request_free(connection *c)
{
    active_request *r = c->request;
    if (!r) return;
    connection_leave_call(c);
    c->request = NULL;
    c->server->n_body_bytes -= r->n_body;
    const char *method = r->has_method ? parser_method_name(r->method) : "-";
    server_count(c->server, r->i_route, r->status);
    if (!(r->route && r->route->is_quiet && r->status == 200))
        server_log(c->server, "%s %.200s %d%s %llu bytes %.1f ms %s", method, r->n_path > 0 ? r->path : "-",
                   r->status, r->is_sent ? "" : " (not ended)", (unsigned long long)r->n_sent,
                   hth_clock_since(r->start_ns) * 1e3, *r->id ? r->id : "-");
    free(r->body.bytes);
    free(r);
}

/* The client's own id if it is a plain word, else 128 random bits. */
static void choose_id(active_request *r, text_part given)
{
    unsigned char bits[16];
    bool plain = given.text && given.n > 0 && given.n < sizeof r->id;
    for (size_t i = 0; plain && i < given.n; i++) plain = is_token_byte((unsigned char)given.text[i]);
    if (plain) {
        memcpy(r->id, given.text, given.n);
        return;
    }
    if (getrandom(bits, sizeof bits, 0) != sizeof bits) return;
    for (size_t i = 0; i < sizeof bits; i++) sprintf(r->id + 2 * i, "%02x", bits[i]);
}

void connection_refuse(connection *c, int status, const char *param, const char *format, ...)
{
    reply out = {.close = true};
    problem p;
    char message[300];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    problem_set(&p, status, param, "%s", message);
    if (!*c->request->id) choose_id(c->request, (text_part){0}); /* its head was not read */
    reply_problem(&out, &p, c->request->form);
    if (status == 503) out.retry_after = 1;
    connection_reply(c, &out);
}

/* Copies a header of names to be sent back, if it has nothing else. */
static void copy_names(char *out, size_t size, text_part names)
{
    if (!names.text || names.n >= size) return;
    for (size_t i = 0; i < names.n; i++)
        if (!is_token_byte((unsigned char)names.text[i]) && names.text[i] != ',' && names.text[i] != ' ')
            return;
    memcpy(out, names.text, names.n);
}

/* Examples of Ollama's send the type of `curl -d`, or none. Programs may do so, but not pages, as a page of another site
 * can send such a request too. */
static bool may_lack_type(const head *h, api_form form)
{
    text_part type = h->field[HEAD_CONTENT_TYPE];
    bool is_page = h->n_field[HEAD_ORIGIN] > 0 || h->n_field[HEAD_FETCH_SITE] > 0;
    return form == FORM_OLLAMA && !is_page && (!type.text || text_is(text_trim(type), "application/x-www-form-urlencoded"));
}

static bool is_json(text_part type)
{
    const char *semicolon = type.text ? memchr(type.text, ';', type.n) : NULL;
    if (semicolon) type.n = (size_t)(semicolon - type.text);
    return text_is(text_trim(type), "application/json");
}

/* ---- checks -------------------------------------------------------------------------------------------- */

/* Why another HTTP program, such as a proxy, could read the request differently; NULL: it could not. */
static const char *ambiguity(const head *h)
{
    unsigned n_host = h->n_field[HEAD_HOST];
    if (n_host > 1) return "there is more than one Host header";
    if (n_host == 0 && h->is_http_1_1) return "the Host header is missing";
    if (h->chunked && !h->is_http_1_1) return "HTTP/1.0 has no chunked bodies";
    return NULL;
}

static bool is_from_here(connection *c, const head *h)
{
    const access_rules *a = c->server->options.access;
    active_request *r = c->request;
    bool foreign;
    if (h->n_field[HEAD_HOST] > 0 && !c->is_unix && !access_host_ok(a, h->field[HEAD_HOST])) {
        connection_refuse(c, 403, "",
                          "the Host header names another host; --allow-host adds names of this one");
        return false;
    }
    if (!access_origin_ok(a, h, &foreign)) {
        connection_refuse(c, 403, "", "pages of this origin may not ask; --cors-origin allows it");
        return false;
    }
    if (foreign) memcpy(r->origin, h->field[HEAD_ORIGIN].text, h->field[HEAD_ORIGIN].n);
    return true;
}

static void refuse_path(connection *c, const head *h, const route_match *m)
{
    /* A body is not read, nor what a client means for another server. */
    reply out = {.close = h->chunked || h->content_length > 0 || h->method == HTTP_CONNECT};
    problem p;
    if (m->known) problem_set(&p, 405, "", "%s takes %s", m->path, m->allow);
    else problem_set(&p, 404, "", "there is no such path");
    memcpy(out.allow, m->allow, sizeof out.allow);
    reply_problem(&out, &p, m->form);
    connection_reply(c, &out);
}

/* A browser asks before it sends a request of a page of another origin. */
static void answer_preflight(connection *c, const head *h, const route_match *m)
{
    active_request *r = c->request;
    reply out = {.status = 204};
    copy_names(r->headers, sizeof r->headers, h->field[HEAD_REQUEST_HEADERS]);
    r->is_preflight = true;
    memcpy(out.allow, m->allow, sizeof out.allow);
    connection_reply(c, &out);
}

/* True: the request may go on. */
static bool check_body(connection *c, const head *h)
{
    const server_limits *limits = &c->server->options.limits;
    bool needs_engine = c->request->route->run != NULL;
    if (h->n_field[HEAD_EXPECT] > 0 && !text_is(h->field[HEAD_EXPECT], "100-continue")) {
        connection_refuse(c, 417, "", "100-continue alone can be expected");
    } else if (h->n_field[HEAD_CONTENT_ENCODING] > 0 && !text_is(h->field[HEAD_CONTENT_ENCODING], "identity")) {
        connection_refuse(c, 415, "", "bodies are taken without Content-Encoding");
    } else if (h->method == HTTP_POST && needs_engine && !is_json(h->field[HEAD_CONTENT_TYPE]) && !may_lack_type(h, c->request->form)) {
        connection_refuse(c, 415, "", "the Content-Type must be application/json");
    } else if (!h->chunked && h->content_length > limits->max_body) {
        connection_refuse(c, 413, "", "the body has %llu bytes; %zu are allowed",
                          (unsigned long long)h->content_length, limits->max_body);
    } else if (needs_engine && !server_is_ready(c->server)) {
        connection_refuse(c, 503, "", "the model is still being read");
    } else {
        return true;
    }
    return false;
}

/* Reads the address of the client. An IPv6 network counts as one address, as each of its members has as many as it likes.
 * Clients of a Unix socket share one. */
static void read_address(const connection *c, uint8_t out[ATTEMPTS_ADDRESS])
{
    struct sockaddr_storage storage;
    const void *any = &storage;
    int n = sizeof storage;
    memset(out, 0, ATTEMPTS_ADDRESS);
    if (c->is_unix || uv_tcp_getpeername(&c->io.tcp, (struct sockaddr *)&storage, &n) != 0) return;
    if (storage.ss_family == AF_INET) memcpy(out, &((const struct sockaddr_in *)any)->sin_addr, 4);
    if (storage.ss_family != AF_INET6) return;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)any)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(v6)) memcpy(out, v6->s6_addr + 12, 4);
    else memcpy(out, v6->s6_addr, 8);
}

/* True: the request may go on. */
static bool check_key(connection *c, const head *h)
{
    server *s = c->server;
    const access_rules *a = s->options.access;
    uint8_t address[ATTEMPTS_ADDRESS];
    unsigned wait = 0, *i_key = &c->request->i_key;
    bool is_right = access_key_ok(a, h, i_key);
    bool has_key = h->n_field[HEAD_API_KEY] + h->n_field[HEAD_AUTHORIZATION] > 0;
    if (a->n_key > 0 && has_key) {
        read_address(c, address);
        wait = attempts_note(&s->attempts, address, is_right ? *i_key : 0, hth_clock_ns());
    }
    if (wait > 0) {
        reply out = {.close = true, .retry_after = wait};
        problem p;
        problem_set(&p, 429, "", "%d wrong API keys came from this address; wait %u s", ATTEMPTS_MAX, wait);
        reply_problem(&out, &p, c->request->form);
        connection_reply(c, &out);
        return false;
    }
    if (!is_right) connection_refuse(c, 401, "", "an API key is needed: Authorization: Bearer KEY");
    return is_right;
}

static bool check_head(connection *c, const head *h)
{
    active_request *r = c->request;
    server *s = c->server;
    route_match m;
    const char *why = ambiguity(h);
    route_find(s->options.routes, s->options.prefix, h->method, h->target, &m);
    r->form = m.form;
    memcpy(r->path, m.path, m.n_path);
    r->n_path = m.n_path;
    if (m.route) r->i_route = m.i_route, r->i_tail = (size_t)(m.tail - m.path), r->route = m.route;
    if (why) {
        connection_refuse(c, 400, "", "%s", why);
        return false;
    }
    if (!is_from_here(c, h)) return false;
    if (h->method == HTTP_OPTIONS && text_is(h->target, "*")) {
        reply out = {.status = 204, .allow = "GET, HEAD, POST, DELETE, OPTIONS"};
        connection_reply(c, &out);
        return false;
    }
    if (h->method == HTTP_OPTIONS && *r->origin && m.known) {
        answer_preflight(c, h, &m);
        return false;
    }
    if (!(m.route && m.route->is_public) && !check_key(c, h)) return false;
    if (!m.route) {
        refuse_path(c, h, &m);
        return false;
    }
    return check_body(c, h);
}

/* ---- endpoints ----------------------------------------------------------------------------------------- */

/* Gives the engine thread a call whose body was read. */
static void submit(connection *c)
{
    active_request *r = c->request;
    if (exchange_submit(c->server->exchange, r->call)) return;
    server_drop_call(c->server, r->call);
    r->call = NULL;
    reply out = {.retry_after = 1};
    problem p;
    problem_set(&p, 429, "", "too many requests wait");
    reply_problem(&out, &p, r->form);
    connection_reply(c, &out);
}

void connection_body_read(server *s, call *made)
{
    if (made->connection) submit(made->connection);
    else server_drop_call(s, made);
}

/* Reads the body of a call, a large one on a thread of its own: this one has all connections to serve. */
static void make_call(connection *c)
{
    enum { LARGE = 256 << 10 };
    active_request *r = c->request;
    server *s = c->server;
    call *made =
        call_make(s->exchange, r->route->run, s->options.call_user, r->route->path, r->body.bytes, r->body.n);
    r->body = (buffer){0};
    if (!made) {
        connection_refuse(c, 503, "", "out of memory");
        return;
    }
    made->form = r->form;
    made->i_key = r->i_key;
    snprintf(made->tail, sizeof made->tail, "%.*s", (int)(r->n_path - r->i_tail), r->path + r->i_tail);
    made->owner = access_owner(s->options.access, r->i_key);
    made->connection = c;
    r->call = made;
    server_add_call(s, made);
    connection_set_state(c, CONNECTION_PENDING, 0);
    if (made->n_body > LARGE) {
        server_read_body(s, made);
        return;
    }
    call_read_body(made);
    submit(c);
}

static void dispatch(connection *c)
{
    active_request *r = c->request;
    reply out = {0};
    if (r->route->run) {
        make_call(c);
        return;
    }
    request q = {.server = c->server, .tail = r->path + r->i_tail, .n_tail = r->n_path - r->i_tail};
    r->route->answer(&q, &out);
    connection_reply(c, &out);
}

/* ---- heads --------------------------------------------------------------------------------------------- */

static void begin_body(connection *c, const head *h)
{
    const uint64_t second = 1000000000u;
    active_request *r = c->request;
    bool continues = h->n_field[HEAD_EXPECT] > 0 && h->is_http_1_1;
    uint64_t more = h->chunked ? 0 : (h->content_length >> 20) * second;
    r->body_ns = hth_clock_ns();
    connection_set_state(c, CONNECTION_BODY, c->server->options.limits.body_ns + more);
    if (continues) connection_interim(c, "100 Continue");
}

static void handle_head(connection *c, const head *h)
{
    active_request *r = c->request;
    r->method = h->method;
    r->has_method = true;
    r->is_http_1_1 = h->is_http_1_1;
    r->keep_alive = h->keep_alive && !c->server->stopping;
    r->chunked = h->chunked;
    r->content_length = h->content_length;
    choose_id(r, h->field[HEAD_REQUEST_ID]);
    if (!check_head(c, h)) return;
    if (h->chunked || h->content_length > 0) begin_body(c, h);
    else dispatch(c);
}

bool connection_read_head(connection *c)
{
    size_t n_used;
    bool is_complete;
    const char *why = "";
    head h;
    int status = head_scan_bytes(&c->scan, c->input.bytes + c->n_scanned, c->input.n - c->n_scanned, &n_used,
                                 &is_complete, &why);
    c->n_scanned += n_used;
    if (status == 0 && !is_complete) return false;
    if (status == 0 && !head_read(&c->reader, c->input.bytes, c->n_scanned, &h, &why))
        status = h.refusal ? h.refusal : 400;
    if (status != 0) {
        connection_refuse(c, status, "", "%s", why);
        return true;
    }
    size_t n_head = c->n_scanned;
    handle_head(c, &h);
    if (c->state != CONNECTION_CLOSED && c->state != CONNECTION_LINGER) connection_use_input(c, n_head);
    return true;
}

/* ---- bodies -------------------------------------------------------------------------------------------- */

static bool take_body(void *user, const char *at, size_t n)
{
    connection *c = user;
    active_request *r = c->request;
    const server_limits *limits = &c->server->options.limits;
    if (r->n_body + n > limits->max_body) {
        r->refusal = 413;
        return false;
    }
    if (c->server->n_body_bytes + n > limits->max_bodies || (r->route->run && !buffer_add(&r->body, at, n))) {
        r->refusal = 503;
        return false;
    }
    r->n_body += n;
    c->server->n_body_bytes += n;
    return true;
}

static void refuse_body(connection *c, const char *why)
{
    active_request *r = c->request;
    if (r->refusal == 413)
        connection_refuse(c, 413, "", "the body is larger than %zu bytes",
                          c->server->options.limits.max_body);
    else if (r->refusal == 503) connection_refuse(c, 503, "", "there is no memory for the body now");
    else connection_refuse(c, 400, "", "%s", why);
}

bool connection_read_body(connection *c)
{
    active_request *r = c->request;
    size_t n = c->input.n, n_scanned, n_read;
    bool is_complete = false;
    const char *why = "the body cannot be parsed";
    if (n == 0) return false;
    if (r->chunked && chunk_scan_bytes(&r->chunks, c->input.bytes, n, &n_scanned, &is_complete, &why) != 0) {
        refuse_body(c, why);
        return true;
    }
    if (r->chunked) n = n_scanned;
    bool ok = body_read(&c->reader, c->input.bytes, n, take_body, c, &n_read);
    if (!ok || (r->chunked && is_complete != c->reader.is_complete)) {
        refuse_body(c, why);
        return true;
    }
    connection_use_input(c, n_read);
    if (!c->reader.is_complete) return false;
    dispatch(c);
    return true;
}
