/* Streams and hang-ups against a server in this process whose engine thread is the test's: order and form of events,
 * slow and vanished readers, silence, errors after the status. */
#include "base/clock.h"
#include "base/thread.h"
#include "common/buffer.h"
#include "serve/engine.h"
#include "serve/api/fields.h"
#include "support/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>

enum { PART = 1000, MILLISECOND = 1000000 };

typedef struct setup {
    server *server;
    access_rules access;
    unsigned port;
    pthread_t network, engine;
    int end_signal;             /* of server_run */
    _Atomic bool go;            /* busy calls end when it is set */
    _Atomic uint64_t n_sent;    /* bytes of parts */
    _Atomic uint64_t cancel_ns; /* when a call was seen to be cancelled */
    _Atomic unsigned n_run, n_paused;
} setup;

/* ---- what the engine thread does ----------------------------------------------------------------------- */

static void nap(void) { usleep(1000); }

/* Answers without any model, when it may. */
static void busy_run(void *user, call *c)
{
    setup *t = user;
    problem p;
    t->n_run++;
    while (!t->go && !call_is_cancelled(c)) nap();
    if (call_is_cancelled(c)) t->cancel_ns = hth_clock_ns();
    problem_set(&p, 404, "field", "done");
    call_problem(c, &p);
}

/* Works without looking at the call. */
static void deaf_run(void *user, call *c)
{
    setup *t = user;
    t->n_run++;
    while (!t->go) nap();
    call_reply(c, 200, strdup("{}\n"), 3);
}

/* Sends as many parts as the body says, and pauses when it should. */
static void stream_run(void *user, call *c)
{
    setup *t = user;
    char text[PART + 1];
    unsigned long n = (unsigned long)c->document->integer;
    t->n_run++;
    bool ok = call_begin_stream(c);
    for (unsigned long i = 0; ok && i < n && !call_is_cancelled(c); i++) {
        for (; call_is_paused(c) && !call_is_cancelled(c); nap()) t->n_paused++;
        snprintf(text, sizeof text, "data: %0*lu\n\n", PART - 8, i);
        ok = call_send(c, text, PART);
        t->n_sent += PART;
    }
    if (call_is_cancelled(c)) t->cancel_ns = hth_clock_ns();
    if (ok && !call_is_cancelled(c)) call_end(c);
    else call_break(c);
}

/* Begins a stream, and sends nothing until it may. */
static void silent_run(void *user, call *c)
{
    setup *t = user;
    t->n_run++;
    if (!call_begin_stream(c)) {
        call_break(c);
        return;
    }
    while (!t->go && !call_is_cancelled(c)) nap();
    if (call_is_cancelled(c)) t->cancel_ns = hth_clock_ns();
    call_end(c);
}

static void late_run(void *user, call *c)
{
    problem p;
    (void)user;
    problem_set(&p, 500, "", "too late");
    if (!call_begin_stream(c) || (c->n_body > 0 && !call_send(c, "data: 1\n\n", 9))) {
        call_break(c);
        return;
    }
    call_problem(c, &p);
}

static void *engine_thread(void *arg)
{
    setup *t = arg;
    exchange *x = server_exchange(t->server);
    server_set_ready(t->server);
    for (;;) {
        uint64_t seen = exchange_changes(x);
        for (call *c = exchange_take(x); c; c = exchange_take(x)) c->run(c->user, c);
        if (exchange_is_closed(x)) return NULL;
        exchange_wait(x, seen, UINT64_MAX);
    }
}

static void *network_thread(void *arg)
{
    setup *t = arg;
    t->end_signal = server_run(t->server);
    return NULL;
}

static void slots(const request *r, reply *out);
static const route routes[] = {{.method = HTTP_POST, .path = "/busy", .run = busy_run},
                               {.method = HTTP_POST, .path = "/deaf", .run = deaf_run},
                               {.method = HTTP_POST, .path = "/stream", .run = stream_run},
                               {.method = HTTP_POST, .path = "/silent", .run = silent_run},
                               {.method = HTTP_POST, .path = "/late", .run = late_run},
                               {.method = HTTP_POST, .path = "/api/late", .run = late_run},
                               {.method = HTTP_GET, .path = "/slots", .answer = slots},
                               {0}};

static void count(void *user, const call *c) { (void)c, ++*(unsigned *)user; }

static void slots(const request *r, reply *out)
{
    unsigned n = 0;
    json_line l;
    server_for_each_call(r->server, count, &n);
    if (json_line_begin(&l)) json_uint(&l.j, "n", n);
    reply_line(out, &l);
}

/* ---- a server for each case ---------------------------------------------------------------------------- */

static setup *opened;

static bool open_setup(void)
{
    setup *t = opened = calloc(1, sizeof *opened);
    server_options o = {
        .limits = server_default_limits(), .routes = routes, .access = &t->access, .call_user = t};
    o.limits.ping_ns = 50 * MILLISECOND;
    o.limits.write_ns = 1000 * (uint64_t)MILLISECOND;
    o.limits.max_waiting = 4;
    CHECK_OK(server_open(&o, &t->server, err));
    CHECK_OK(server_listen_loopback(t->server, &t->port, err));
    bool ok =
        server_start(t->server) && hth_thread_start(&t->network, network_thread, t, "network") &&
        hth_thread_start(&t->engine, engine_thread, t, "engine");
    while (ok && !server_is_ready(t->server)) nap();
    return CHECK(ok);
}

static void close_setup(void)
{
    opened->go = true;
    server_stop(opened->server);
    pthread_join(opened->network, NULL);
    exchange_close(server_exchange(opened->server));
    pthread_join(opened->engine, NULL);
    server_close(opened->server);
    free(opened);
}

__attribute__((constructor)) static void set_hooks(void)
{
    test_before_each = open_setup;
    test_after_each = close_setup;
}

/* ---- a client ------------------------------------------------------------------------------------------ */

static int connect_here(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    a.sin_port = htons((uint16_t)opened->port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {.tv_sec = 20};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    return fd;
}

static void post(int fd, const char *path, const char *body, const char *version)
{
    char text[400];
    int n = snprintf(
        text, sizeof text,
        "POST %s %s\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
        path, version, strlen(body), body);
    CHECK(send(fd, text, (size_t)n, MSG_NOSIGNAL) == n);
}

/* The io_uring of libuv 1.45 and later interrupts a recv with a time limit in the thread that opened the loop. */
static ssize_t receive(int fd, void *to, size_t n)
{
    ssize_t got;
    do got = recv(fd, to, n, 0);
    while (got < 0 && errno == EINTR);
    return got;
}

/* Reads until the text has occurred, or to the end; the caller frees. */
static char *read_up_to(int fd, const char *text)
{
    buffer b = {0};
    char part[4096];
    ssize_t n;
    buffer_add(&b, "", 0);
    while (!(text && strstr(b.bytes, text)) && (n = receive(fd, part, sizeof part)) > 0)
        buffer_add(&b, part, (size_t)n);
    if (text && !strstr(b.bytes, text))
        test_fail(__FILE__, __LINE__, "'%s' is not in the %zu bytes '%.200s'", text, b.n, b.bytes);
    return b.bytes;
}

static void expect_text(int fd, const char *text) { free(read_up_to(fd, text)); }

static char *get(const char *path)
{
    char text[200];
    int fd = connect_here(),
        n = snprintf(text, sizeof text, "GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n", path);
    CHECK(send(fd, text, (size_t)n, MSG_NOSIGNAL) == n);
    char *got = read_up_to(fd, NULL);
    close(fd);
    return got;
}

static unsigned n_call(void)
{
    if (test_n_failed() > 0) return UINT32_MAX;
    FREED char *got = get("/slots");
    const char *n = strstr(got, "\"n\": ");
    return n ? (unsigned)strtoul(n + 5, NULL, 10) : UINT32_MAX;
}

#define WAIT_FOR(X)                                                                                          \
    do {                                                                                                     \
        uint64_t end_ = hth_clock_ns() + 20000 * (uint64_t)MILLISECOND;                                      \
        while (!(X) && test_n_failed() == 0 && hth_clock_ns() < end_) nap();                                 \
        CHECK(X);                                                                                            \
    } while (0)

/* The content of a chunked body; false: it has no end. */
static bool join_chunks(const char *body, buffer *out)
{
    for (;;) {
        char *end;
        size_t n = strtoul(body, &end, 16);
        if (end == body || strncmp(end, "\r\n", 2) != 0) return false;
        if (n == 0) return strcmp(end, "\r\n\r\n") == 0;
        buffer_add(out, end + 2, n);
        if (strncmp(end + 2 + n, "\r\n", 2) != 0) return false;
        body = end + 2 + n + 2;
    }
}

/* ---- cases --------------------------------------------------------------------------------------------- */

TEST(a_stream_arrives_whole_and_in_order)
{
    int fd = connect_here();
    for (int round = 0; round < 2; round++) { /* on the same connection */
        buffer joined = {0};
        post(fd, "/stream", "3000", "HTTP/1.1");
        FREED char *got = read_up_to(fd, "\r\n0\r\n\r\n");
        const char *body = strstr(got, "\r\n\r\n");
        CHECK(strncmp(got, "HTTP/1.1 200 OK\r\n", 17) == 0 &&
              strstr(got, "text/event-stream; charset=utf-8"));
        CHECK(strstr(got, "Cache-Control: no-cache\r\n") && strstr(got, "X-Accel-Buffering: no\r\n"));
        if (!CHECK(body && join_chunks(body + 4, &joined)) || !CHECK_INT(joined.n, 3000 * PART)) return;
        for (unsigned long i = 0; i < 3000; i++) CHECK_INT(strtoul(joined.bytes + i * PART + 6, NULL, 10), i);
        free(joined.bytes);
    }
    close(fd);
}

TEST(http_1_0_gets_a_stream_without_chunks)
{
    int fd = connect_here();
    post(fd, "/stream", "10", "HTTP/1.0");
    FREED char *got = read_up_to(fd, NULL);
    const char *body = strstr(got, "\r\n\r\n");
    CHECK(!strstr(got, "chunked") && strstr(got, "Connection: close"));
    CHECK(body && strlen(body + 4) == 10 * PART);
    close(fd);
}

TEST(a_slow_reader_pauses_its_stream_and_is_cut_off)
{
    int fd = connect_here(), small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    post(fd, "/stream", "1000000", "HTTP/1.1"); /* a GB */
    WAIT_FOR(opened->n_paused > 0);
    CHECK_INT(n_call(), 1);
    WAIT_FOR(opened->cancel_ns > 0); /* after write_ns without progress */
    WAIT_FOR(n_call() == 0);
    test_note("%.1f MB were sent before", (double)opened->n_sent * 1e-6);
    CHECK(opened->n_sent < 64 << 20); /* what the system's own buffers take, and 256 KiB */
    close(fd);
}

TEST(a_reader_that_goes_on_slowly_is_kept)
{
    enum { N = 20000 };
    int fd = connect_here(), small = 128 << 10;
    char part[64 << 10];
    size_t n_read = 0;
    ssize_t n;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    post(fd, "/stream", "20000", "HTTP/1.0");
    uint64_t begin = hth_clock_ns();
    while ((n = receive(fd, part, sizeof part)) > 0) {
        n_read += (size_t)n;
        if (hth_clock_ns() - begin < 3000 * (uint64_t)MILLISECOND)
            usleep(10000); /* longer than write_ns in all */
    }
    CHECK(n == 0 && n_read > (size_t)N * PART);
    CHECK_INT(opened->cancel_ns, 0);
    close(fd);
}

TEST(a_hang_up_is_noticed_at_once_in_silence_and_before_the_start)
{
    int first = connect_here(), second = connect_here(), third = connect_here();
    post(first, "/deaf", "1", "HTTP/1.1");
    WAIT_FOR(opened->n_run == 1);
    post(second, "/busy", "1", "HTTP/1.1"); /* waits: the engine thread has the first */
    post(third, "/silent", "1", "HTTP/1.1");
    WAIT_FOR(n_call() == 3);
    close(second);
    usleep(50000);
    opened->go = true; /* before the silent one runs, so that it would end by itself */
    expect_text(first, "{}");
    expect_text(third, "0\r\n\r\n");
    WAIT_FOR(n_call() == 0);
    CHECK_INT(opened->n_run, 2); /* the second one never ran */
    opened->go = false;
    uint64_t begin = hth_clock_ns();
    int fourth = connect_here();
    post(fourth, "/busy", "1", "HTTP/1.1");
    WAIT_FOR(opened->n_run == 3);
    begin = hth_clock_ns();
    close(fourth);
    WAIT_FOR(opened->cancel_ns > 0);
    uint64_t took = opened->cancel_ns - begin;
    test_note("a hang-up was noticed after %.1f ms", (double)took * 1e-6);
    CHECK(took < 5000 * (uint64_t)MILLISECOND);
    close(first);
    close(third);
}

TEST(a_hang_up_by_reset_and_behind_much_unread_input_is_noticed)
{
    static char junk[200000];
    struct linger reset = {.l_onoff = 1};
    for (int kind = 0; kind < 2; kind++) {
        opened->cancel_ns = 0;
        int fd = connect_here();
        post(fd, "/busy", "1", "HTTP/1.1");
        WAIT_FOR(n_call() == 1);
        if (kind == 0) setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        else CHECK(send(fd, junk, sizeof junk, MSG_NOSIGNAL) > 0);
        usleep(20000);
        close(fd);
        WAIT_FOR(opened->cancel_ns > 0);
        WAIT_FOR(n_call() == 0);
    }
}

TEST(a_half_closed_connection_gets_its_answer)
{
    int fd = connect_here();
    post(fd, "/busy", "1", "HTTP/1.1");
    WAIT_FOR(opened->n_run == 1);
    shutdown(fd, SHUT_WR);
    usleep(300000);
    CHECK_INT(opened->cancel_ns, 0);
    opened->go = true;
    FREED char *got = read_up_to(fd, NULL);
    CHECK(strncmp(got, "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 404 Not Found\r\n", 50) == 0);
    CHECK(strstr(got, "\"param\": \"field\""));
    close(fd);
}

TEST(a_silent_stream_has_comments)
{
    int fd = connect_here();
    post(fd, "/silent", "1", "HTTP/1.1");
    FREED char *got = read_up_to(fd, ": ping\n\n\r\n8\r\n: ping");
    CHECK(strncmp(got, "HTTP/1.1 200 OK\r\n", 17) == 0);
    opened->go = true;
    expect_text(fd, "0\r\n\r\n");
    close(fd);
}

TEST(an_error_before_the_first_part_has_its_status_and_later_is_an_event)
{
    int fd = connect_here();
    post(fd, "/late", "", "HTTP/1.1");
    FREED char *early = read_up_to(fd, "too late");
    CHECK(strncmp(early, "HTTP/1.1 500 ", 13) == 0 && strstr(early, "server_error"));
    post(fd, "/late", "1", "HTTP/1.1");
    FREED char *late = read_up_to(fd, NULL); /* the connection ends, without the last chunk */
    const char *error = strstr(late, "{\"error\": {\"message\": \"too late\"");
    CHECK(strncmp(late, "HTTP/1.1 200 OK\r\n", 17) == 0 && strstr(late, "9\r\ndata: 1\n\n\r\n"));
    CHECK(error && !strstr(late, "\r\n0\r\n\r\n"));
    close(fd);
    fd = connect_here();
    post(fd, "/api/late", "1", "HTTP/1.1");
    FREED char *lines = read_up_to(fd, NULL);
    CHECK(strstr(lines, "application/x-ndjson") && strstr(lines, "{\"error\": \"too late\"}\n"));
    close(fd);
}

TEST(too_many_calls_are_told_to_come_later)
{
    enum { N = 5 };
    int fds[N];
    for (int i = 0; i < N; i++) {
        fds[i] = connect_here();
        post(fds[i], "/deaf", "1", "HTTP/1.1");
        WAIT_FOR(n_call() == (unsigned)i + 1);
        if (i == 0) WAIT_FOR(opened->n_run == 1); /* the others wait */
    }
    int more = connect_here();
    post(more, "/deaf", "1", "HTTP/1.1");
    FREED char *got = read_up_to(more, "too many requests wait");
    CHECK(strncmp(got, "HTTP/1.1 429 ", 13) == 0 && strstr(got, "Retry-After: 1\r\n") &&
          strstr(got, "rate_limit_error"));
    opened->go = true;
    for (int i = 0; i < N; i++) {
        expect_text(fds[i], "{}");
        close(fds[i]);
    }
    post(more, "/deaf", "1", "HTTP/1.1"); /* on the same connection */
    expect_text(more, "{}");
    close(more);
}

TEST(what_runs_is_answered_when_the_server_stops)
{
    int call_fd = connect_here(), stream_fd = connect_here(), idle_fd = connect_here();
    char byte;
    post(call_fd, "/deaf", "1", "HTTP/1.1");
    WAIT_FOR(opened->n_run == 1);
    post(stream_fd, "/stream", "10", "HTTP/1.1");
    WAIT_FOR(n_call() == 2);
    server_stop(opened->server);
    CHECK_INT(receive(idle_fd, &byte, 1), 0);
    opened->go = true;
    FREED char *got = read_up_to(call_fd, NULL);
    CHECK(strstr(got, "HTTP/1.1 200 OK\r\nConnection: close\r\n") && strstr(got, "{}"));
    FREED char *stream = read_up_to(stream_fd, NULL);
    CHECK(strlen(stream) > 10 * PART && strcmp(stream + strlen(stream) - 5, "0\r\n\r\n") == 0);
    close(call_fd);
    close(stream_fd);
    close(idle_fd);
}

TEST(many_clients_come_and_go)
{
    enum { N = 300 };
    test_random r = {7};
    opened->go = true;
    static const char *const paths[] = {"/busy", "/deaf", "/stream", "/silent", "/late"};
    for (int i = 0; i < N; i++) {
        int fd = connect_here();
        post(fd, paths[test_random_below(&r, 5)], "200", "HTTP/1.1");
        if (test_random_below(&r, 2)) {
            expect_text(fd, "HTTP/1.1 ");
        }
        close(fd);
    }
    WAIT_FOR(n_call() == 0);
}

TEST(while_the_model_is_read_requests_are_told_so_and_a_signal_ends_all)
{
    static const char *const unready[] = {"/health", "/props", "/api/tags"};
    static char id[] = "slow", name[] = "";
    served_model m = {
        .id = id, .created = 5, .facts = {.architecture = "llama", .type = "F32", .name = name, .n_ctx = 7}};
    engine e = {.models = &m, .n_model = 1, .max_loaded = 1};
    setup t = {0}, *before = opened;
    m.engine = &e;
    engine_init(&e);
    server_options o = {
        .limits = server_default_limits(), .routes = serve_routes, .access = &t.access, .call_user = &e};
    CHECK_OK(server_open(&o, &t.server, err));
    CHECK_OK(server_listen_loopback(t.server, &t.port, err));
    if (!CHECK(server_start(t.server) && hth_thread_start(&t.network, network_thread, &t, "network"))) return;
    opened = &t;
    for (size_t i = 0; i < sizeof unready / sizeof *unready; i++) {
        FREED char *got = get(unready[i]);
        CHECK(strncmp(got, "HTTP/1.1 503 ", 13) == 0 && strstr(got, "Retry-After: 1\r\n") &&
              strstr(got, "still being read"));
    }
    FREED char *models = get("/v1/models");
    CHECK(strstr(models, "\"id\": \"slow\"") && strstr(models, "\"loaded\": false"));
    int fd = connect_here();
    post(fd, "/tokenize", "{}", "HTTP/1.1");
    FREED char *refused = read_up_to(fd, NULL);
    CHECK(strncmp(refused, "HTTP/1.1 503 ", 13) == 0 && strstr(refused, "unavailable_error"));
    close(fd);
    kill(getpid(), SIGTERM);
    pthread_join(t.network, NULL);
    CHECK_INT(t.end_signal, SIGTERM);
    exchange_close(server_exchange(t.server));
    server_close(t.server);
    opened = before;
}
