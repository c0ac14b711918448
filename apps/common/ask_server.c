/* One request for each connection, by HTTP/1.0: the answer ends where the connection does. */
#define _GNU_SOURCE
#include "common/ask_server.h"

#include "base/format_errno.h"
#include "common/buffer.h"
#include "common/output.h"
#include "text/json.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAX_ANSWER = 16 << 20 };

/* A descriptor; -1: errno says why. */
static int connect_to(int family, const void *address, socklen_t n)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, address, n) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static int connect_unix(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    errno = ENAMETOOLONG;
    if (strlen(path) >= sizeof to.sun_path) return -1;
    memcpy(to.sun_path, path, strlen(path) + 1);
    return connect_to(AF_UNIX, &to, sizeof to);
}

static int connect_tcp(const char *host, const char *port)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list;
    int fd = -1, wrong = getaddrinfo(host, port, &hints, &list);
    errno = EADDRNOTAVAIL;
    if (wrong) return -1;
    for (const struct addrinfo *i = list; i && fd < 0; i = i->ai_next)
        fd = connect_to(i->ai_family, i->ai_addr, i->ai_addrlen);
    freeaddrinfo(list);
    return fd;
}

/* Reports what lacks if there is no server. */
static int connect_as_asked(const args *a, char place[300])
{
    const char *path = args_text(a, "unix-socket", NULL), *host = args_text(a, "host", "127.0.0.1");
    char port[16];
    snprintf(port, sizeof port, "%llu", (unsigned long long)args_uint(a, "port", 8080));
    if (path) snprintf(place, 300, "%s", path);
    else snprintf(place, 300, "%s port %s", host, port);
    int fd = path ? connect_unix(path) : connect_tcp(host, port);
    if (fd < 0)
        report_text("%s: %s; hearth serve MODEL starts a server, and --host, --port and --unix-socket name "
                    "another one",
                    place, hth_format_errno(errno).text);
    return fd;
}

static bool send_all(int fd, const char *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t put = send(fd, bytes + at, n - at, MSG_NOSIGNAL);
        if (put < 0 && errno != EINTR) return false;
        if (put > 0) at += (size_t)put;
    }
    return true;
}

/* "": none is given. */
static const char *given_key(void)
{
    const char *key = getenv("HEARTH_API_KEY");
    return key ? key : "";
}

static bool send_request(int fd, const char *path, const char *body)
{
    const char *key = given_key();
    size_t n = body ? strlen(body) : 0;
    char *text;
    bool has_key = *key;
    int length = asprintf(&text,
                          "%s %s HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                          "Content-Length: %zu\r\n%s%s%s\r\n%s",
                          body ? "POST" : "GET", path, n, has_key ? "Authorization: Bearer " : "", key,
                          has_key ? "\r\n" : "", body ? body : "");
    if (length < 0) return false;
    bool sent = send_all(fd, text, (size_t)length);
    free(text);
    return sent;
}

static bool read_answer(int fd, buffer *all)
{
    char part[4096];
    for (;;) {
        ssize_t got = recv(fd, part, sizeof part, 0);
        if (got == 0) return true;
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 || all->n + (size_t)got > MAX_ANSWER || !buffer_add(all, part, (size_t)got)) return false;
    }
}

/* Reads what the server said was wrong: {"error": TEXT} or {"error": {"message": TEXT}}. */
static void report_refusal(const char *place, const char *body, size_t n, unsigned status)
{
    hth_json *answer = hth_json_open(body, n, NULL, NULL);
    const hth_json *error = hth_json_member(answer, "error"), *inner = hth_json_member(error, "message");
    const char *text = hth_json_text(inner ? inner : error);
    if (status == 401 && !*given_key()) report_text("%s: the server wants a key, in HEARTH_API_KEY", place);
    else report_text("%s: %s", place, text ? text : "the answer is not that of a hearth serve");
    hth_json_close(answer);
}

char *ask_server(const args *a, const char *path, const char *body, size_t *n)
{
    char place[300];
    buffer all = {0};
    unsigned status = 0;
    int fd = connect_as_asked(a, place);
    if (fd < 0) return NULL;
    bool ok = send_request(fd, path, body) && read_answer(fd, &all);
    close(fd);
    const char *end = ok && all.bytes ? strstr(all.bytes, "\r\n\r\n") : NULL;
    if (!end || sscanf(all.bytes, "HTTP/1.%*1[01] %3u", &status) != 1) {
        report_text("%s: no answer came", place);
        free(all.bytes);
        return NULL;
    }
    *n = all.n - (size_t)(end + 4 - all.bytes);
    memmove(all.bytes, end + 4, *n + 1);
    if (status == 200) return all.bytes;
    report_refusal(place, all.bytes, *n, status);
    free(all.bytes);
    return NULL;
}
