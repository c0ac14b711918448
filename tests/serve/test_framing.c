/* Heads and chunks byte by byte: what passes, what is refused, and that pieces make no difference. */
#include "serve/http/framing.h"
#include "serve/http/head.h"
#include "serve/http/routes.h"
#include "support/test.h"

#define REQUEST "GET /a HTTP/1.1\r\n"

/* Scans in pieces of `step` bytes. Returns the status; *n_used: up to the end of the head. */
static int scan_head(const char *text, size_t n, size_t step, size_t *n_used, bool *is_complete)
{
    head_scan h = {0};
    const char *why = "";
    int status = 0;
    *n_used = 0;
    *is_complete = false;
    while (*n_used < n && status == 0 && !*is_complete) {
        size_t used, some = n - *n_used < step ? n - *n_used : step;
        status = head_scan_bytes(&h, text + *n_used, some, &used, is_complete, &why);
        *n_used += used;
    }
    CHECK(status == 0 || *why);
    return status;
}

static int scan_chunks(const char *text, size_t n, size_t step, size_t *n_used, bool *is_complete)
{
    chunk_scan k = {0};
    const char *why = "";
    int status = 0;
    *n_used = 0;
    *is_complete = false;
    while (*n_used < n && status == 0 && !*is_complete) {
        size_t used, some = n - *n_used < step ? n - *n_used : step;
        status = chunk_scan_bytes(&k, text + *n_used, some, &used, is_complete, &why);
        *n_used += used;
    }
    CHECK(status == 0 || *why);
    return status;
}

typedef struct scan_case {
    const char *text;
    int status;    /* 0: it passes */
    size_t n_rest; /* bytes behind the end; SIZE_MAX: the end is not there */
} scan_case;

static void check_cases(const scan_case *cases, size_t n_case,
                        int (*scan)(const char *, size_t, size_t, size_t *, bool *))
{
    for (size_t i = 0; i < n_case; i++)
        for (size_t step = 1; step <= strlen(cases[i].text); step++) {
            const scan_case *c = &cases[i];
            size_t n = strlen(c->text), used;
            bool complete;
            int status = scan(c->text, n, step, &used, &complete);
            bool ends = c->status == 0 && c->n_rest != SIZE_MAX;
            if (status == c->status && complete == ends && (!ends || n - used == c->n_rest)) continue;
            test_fail(__FILE__, __LINE__, "'%s' in pieces of %zu: %d, complete %d, %zu left", c->text, step,
                      status, complete, n - used);
            return;
        }
}

TEST(heads_end_where_they_end_in_any_pieces)
{
    static const scan_case cases[] = {
        {REQUEST "Host: a\r\n\r\n", 0, 0},
        {REQUEST "\r\nrest", 0, 4},
        {"\r\n" REQUEST "Host: a\r\n\r\nGET", 0, 3},
        {REQUEST "A:\r\nB: \t\r\n\r\n", 0, 0},
        {REQUEST "A: \x80\xff\t(\"\r\n\r\n", 0, 0},
        {"M-SEARCH * HTTP/1.0\r\n\r\n", 0, 0},
        {REQUEST "Host: a\r\n", 0, SIZE_MAX},
        {REQUEST, 0, SIZE_MAX},
        {"G", 0, SIZE_MAX},
        {"\r\n\r\n" REQUEST, 400, 0},
        {" GET / HTTP/1.1\r\n", 400, 0},
        {"GET  / HTTP/1.1\r\n", 400, 0},
        {"GET / HTTP/1.1 \r\n", 400, 0},
        {"GET / HTTP/1.2\r\n", 400, 0},
        {"GET / HTTP/1.10\r\n", 400, 0},
        {"GET / http/1.1\r\n", 400, 0},
        {"GET / HTTP/1.\r\n", 400, 0},
        {"GET /\r\n", 400, 0},
        {"GET / \r\n", 400, 0},
        {"GET\r\n", 400, 0},
        {"GET /\x7f HTTP/1.1\r\n", 400, 0},
        {"GET /\n", 400, 0},
        {"GET /\rX", 400, 0},
        {"ABCDEFGHIJKLMNOPQRSTU / HTTP/1.1\r\n", 400, 0},
        {REQUEST " A: b\r\n", 400, 0},
        {REQUEST "A: b\r\n\tc\r\n", 400, 0},
        {REQUEST "A : b\r\n", 400, 0},
        {REQUEST ": b\r\n", 400, 0},
        {REQUEST "A\r\n", 400, 0},
        {REQUEST "A(: b\r\n", 400, 0},
        {REQUEST "A: b\n", 400, 0},
        {REQUEST "A: b\r\r\n", 400, 0},
        {REQUEST "A: \x01\r\n", 400, 0},
    };
    check_cases(cases, sizeof cases / sizeof *cases, scan_head);
}

TEST(chunks_end_where_they_end_in_any_pieces)
{
    static const scan_case cases[] = {
        {"0\r\n\r\n", 0, 0},
        {"3\r\nabc\r\n0\r\n\r\nGET", 0, 3},
        {"a;x=y\r\n0123456789\r\n00;z\r\nT: u\r\nV: w\r\n\r\n", 0, 0},
        {"3\r\n\r\n\r\r\n0\r\n\r\n", 0, 0},
        {"0;a=b;c\r\nTransfer: u\r\nContent-Lengths:\r\n\r\n", 0, 0},
        {"3\r\nabc\r\n0\r\n", 0, SIZE_MAX},
        {"3\r\nab", 0, SIZE_MAX},
        {"fffffffffffffff\r\nabc", 0, SIZE_MAX},
        {"\r\n", 400, 0},
        {"x\r\n", 400, 0},
        {"0x3\r\n", 400, 0},
        {" 3\r\n", 400, 0},
        {"3 \r\n", 400, 0},
        {"+3\r\n", 400, 0},
        {"0000000000000003\r\n", 400, 0},
        {"3\nabc", 400, 0},
        {"3\rXabc", 400, 0},
        {"3\r\nabcd\r\n", 400, 0},
        {"3\r\nabc\n0\r\n", 400, 0},
        {"3\r\nabc\rX", 400, 0},
        {"3;\x01\r\n", 400, 0},
        {"3;\r\n", 400, 0},
        {"3;a=\r\n", 400, 0},
        {"3;a=b=c\r\n", 400, 0},
        {"3; a\r\n", 400, 0},
        {"3;a\xc2\r\n", 400, 0},
        {"3;a=\"b\"\r\n", 400, 0},
        {"3;a;;b\r\n", 400, 0},
        {"0\r\nA\r\n\r\n", 400, 0},
        {"0\r\n: a\r\n\r\n", 400, 0},
        {"0\r\nA: b\r\n\tc\r\n\r\n", 400, 0},
        {"0\r\nA : b\r\n\r\n", 400, 0},
        {"0\r\nTransfer-ENCODING: gzip\r\n\r\n", 400, 0},
        {"0\r\nA: b\r\ncontent-length:3\r\n\r\n", 400, 0},
        {"0\r\nA: \x01\r\n\r\n", 400, 0},
        {"0\r\nA: b\n\r\n", 400, 0},
        {"0\r\n\rX", 400, 0},
    };
    check_cases(cases, sizeof cases / sizeof *cases, scan_chunks);
}

/* A request of `n` bytes 'a' between two texts. */
static int padded(const char *before, size_t n, const char *after)
{
    size_t used, n_before = strlen(before), n_after = strlen(after);
    bool complete;
    FREED char *text = malloc(n_before + n + n_after);
    memcpy(text, before, n_before);
    memset(text + n_before, 'a', n);
    memcpy(text + n_before + n, after, n_after);
    int status = scan_head(text, n_before + n + n_after, 4096, &used, &complete);
    CHECK(complete == (status == 0));
    return status;
}

TEST(limits_of_heads_are_met_to_the_byte)
{
    CHECK_INT(padded("GET /", HEAD_MAX_TARGET - 1, " HTTP/1.1\r\n\r\n"), 0);
    CHECK_INT(padded("GET /", HEAD_MAX_TARGET, " HTTP/1.1\r\n\r\n"), 414);
    /* Of all lines but the last, CR and LF count too. */
    CHECK_INT(padded(REQUEST "A: ", HEAD_MAX_HEADERS - 3, "\r\n\r\n"), 0);
    CHECK_INT(padded(REQUEST "A: ", HEAD_MAX_HEADERS - 2, "\r\n\r\n"), 431);
    CHECK_INT(padded(REQUEST "B:\r\nA: ", HEAD_MAX_HEADERS - 7, "\r\n\r\n"), 0);
    CHECK_INT(padded(REQUEST "B:\r\nA: ", HEAD_MAX_HEADERS - 6, "\r\n\r\n"), 431);
    for (int n = HEAD_MAX_LINES; n <= HEAD_MAX_LINES + 1; n++) {
        char text[4096] = REQUEST;
        size_t used;
        bool complete;
        for (int i = 0; i < n; i++) strcat(text, "A: b\r\n");
        strcat(text, "\r\n");
        CHECK_INT(scan_head(text, strlen(text), sizeof text, &used, &complete), n > HEAD_MAX_LINES ? 431 : 0);
    }
}

static text_part part(const char *text) { return (text_part){text, strlen(text)}; }

TEST(heads_are_read_as_they_are)
{
    static const char text[] =
        "POST /x?y HTTP/1.1\r\nHost:  a:1 \r\ncontent-TYPE:application/json\r\nContent-Length: 12\r\n"
        "Expect:\r\nHOST: b\r\nX: y\r\nOrigin: http://o\r\n\r\n";
    message_reader m;
    head h;
    const char *why;
    CHECK(head_read(&m, text, sizeof text - 1, &h, &why));
    CHECK_INT(h.method, HTTP_POST);
    CHECK(h.is_http_1_1 && h.keep_alive && !h.chunked);
    CHECK_INT(h.content_length, 12);
    CHECK(text_is(h.target, "/x?y") && text_is(h.field[HEAD_CONTENT_TYPE], "APPLICATION/json"));
    CHECK_INT(h.n_field[HEAD_HOST], 2);
    CHECK(text_is(h.field[HEAD_HOST], "b") && text_is(h.field[HEAD_ORIGIN], "http://o"));
    CHECK(h.n_field[HEAD_EXPECT] == 1 && h.field[HEAD_EXPECT].n == 0 && h.n_field[HEAD_API_KEY] == 0);
    CHECK(!head_read(&m, "FLY / HTTP/1.1\r\n\r\n", 18, &h, &why) && strstr(why, "method"));
}

/* Whatever the parser of this build takes of these. */
TEST(heads_whose_bodies_could_end_in_two_places_are_refused)
{
    static const char *const refused[] = {
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: chunked,",
        "Transfer-Encoding: ,chunked",
        "Transfer-Encoding:",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding:\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 3",
        "Content-Length: 3\r\nTransfer-Encoding: chunked",
        "Content-Length: 3\r\nContent-Length: 3",
        "Content-Length: 3, 3",
        "Content-Length:",
        "Content-Length: +3",
        "Content-Length: 3 3",
        "Content-Length: 18446744073709551616",
    };
    static const char *const methods[] = {"QUERY", "PRI", "DESCRIBE", "get", "GETX"};
    message_reader m;
    head h;
    const char *why;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char text[200];
        why = "";
        int n = snprintf(text, sizeof text, "POST / HTTP/1.1\r\n%s\r\n\r\n", refused[i]);
        if (head_read(&m, text, (size_t)n, &h, &why) || !*why) test_fail(__FILE__, __LINE__, "%s", refused[i]);
    }
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        char text[200];
        int n = snprintf(text, sizeof text, "%s / HTTP/1.1\r\n\r\n", methods[i]);
        why = "";
        if (head_read(&m, text, (size_t)n, &h, &why) || !*why) test_fail(__FILE__, __LINE__, "%s", methods[i]);
    }
}

static bool count_bytes(void *user, const char *bytes, size_t n)
{
    (void)bytes;
    *(size_t *)user += n;
    return true;
}

/* Trailers come to the callbacks of heads, when the head is gone. What follows the end is not read. */
TEST(bodies_end_where_they_end_in_any_pieces)
{
    static const struct {
        const char *head, *body;
        size_t n_data, n_rest;
    } cases[] = {
        {"Transfer-Encoding: Chunked", "3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nHost: u\r\nV: w\r\n\r\nGET / HTTP/1.1\r\n", 5, 16},
        {"Content-Length: 5\r\nConnection: Upgrade\r\nUpgrade: h2c", "abcdeGET", 5, 3},
        {"Content-Length: 5\r\nConnection: close", "abcde", 5, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];
        size_t n_body = strlen(cases[i].body);
        size_t n = (size_t)snprintf(text, sizeof text, "POST / HTTP/1.1\r\n%s\r\n\r\n", cases[i].head);
        for (size_t step = 1; step <= n_body; step++) {
            message_reader m;
            head h;
            const char *why;
            size_t at = 0, n_data = 0, used;
            CHECK(head_read(&m, text, n, &h, &why));
            memset(&h, 0xff, sizeof h);
            for (; at < n_body && !m.is_complete; at += used) {
                size_t some = n_body - at < step ? n_body - at : step;
                if (!CHECK(body_read(&m, cases[i].body + at, some, count_bytes, &n_data, &used))) return;
            }
            CHECK(m.is_complete && n_data == cases[i].n_data && n_body - at == cases[i].n_rest);
        }
    }
}

static answer_fn answer;
static void answer(const request *r, reply *out) { (void)r, (void)out; }

static const route routes[] = {{.method = HTTP_GET, .path = "/a", .answer = answer},
                               {.method = HTTP_POST, .path = "/a", .answer = answer},
                               {.method = HTTP_GET, .path = "/m/{id}", .answer = answer},
                               {.method = HTTP_GET, .path = "/", .answer = answer},
                               {0}};

TEST(routes_are_found_by_decoded_paths)
{
    static const struct {
        unsigned method;
        const char *target, *path, *tail, *allow;
    } cases[] = {
        {HTTP_GET, "/a", "/a", "", "GET, HEAD, POST"},
        {HTTP_HEAD, "/a?b", "/a", "", "GET, HEAD, POST"},
        {HTTP_POST, "/%61", "/a", "", "GET, HEAD, POST"},
        {HTTP_PUT, "/a", NULL, NULL, "GET, HEAD, POST"},
        {HTTP_GET, "/m/x%2Fy", "/m/{id}", "x/y", "GET, HEAD"},
        {HTTP_GET, "/m/x/", "/m/{id}", "x", "GET, HEAD"},
        {HTTP_GET, "/a/", "/a", "", "GET, HEAD, POST"},
        {HTTP_GET, "/a//", NULL, NULL, ""},
        {HTTP_GET, "/", "/", "", "GET, HEAD"},
        {HTTP_GET, "/m/", NULL, NULL, ""},
        {HTTP_GET, "/%2561", NULL, NULL, ""},
        {HTTP_GET, "/%6", NULL, NULL, ""},
        {HTTP_GET, "/a%00", NULL, NULL, ""},
        {HTTP_GET, "/A", NULL, NULL, ""},
        {HTTP_GET, "", NULL, NULL, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        route_match m;
        route_find(routes, NULL, cases[i].method, part(cases[i].target), &m);
        if (!CHECK((m.route != NULL) == (cases[i].path != NULL))) continue;
        CHECK_TEXT(m.allow, cases[i].allow);
        if (m.route) CHECK_TEXT(m.route->path, cases[i].path);
        if (m.route) CHECK_TEXT(m.tail, cases[i].tail);
    }
}

TEST(paths_below_a_prefix_are_those_without_it)
{
    static const char *const cases[][3] = {
        {"/p/q/a?b", "/a", ""},   {"/p/%71/m/x/", "/m/{id}", "x"},
        {"/a", "/a", ""},         {"/p/q", "/", ""},
        {"/p/q/", "/", ""},       {"/p/qa", NULL, ""},
        {"/p/q/p/q/a", NULL, ""}, {"/p/q//", NULL, ""},
        {"/p", NULL, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        route_match m;
        route_find(routes, "/p/q", HTTP_GET, part(cases[i][0]), &m);
        if (!CHECK((m.route != NULL) == (cases[i][1] != NULL)) || !m.route) continue;
        CHECK_TEXT(m.route->path, cases[i][1]);
        CHECK_TEXT(m.tail, cases[i][2]);
    }
}
