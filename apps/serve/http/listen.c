/* Addresses on which the server listens. */
#define _GNU_SOURCE
#include "base/format_errno.h"
#include "serve/http/server_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 512, FIRST_PASSED_FD = 3, MAX_PASSED = 16 };

void listener_free(listener *l)
{
    if (l->is_closed && !l->is_refusing) free(l);
}

static void on_listener_closed(uv_handle_t *handle)
{
    listener *l = handle->data;
    l->is_closed = true;
    listener_free(l);
}

void listeners_close(server *s)
{
    for (listener *l = s->listeners, *next; l; l = next) {
        next = l->next;
        uv_close(&l->io.handle, on_listener_closed);
    }
    s->listeners = NULL;
}

const char *server_addresses(const server *s) { return s->addresses; }
bool server_is_exposed(const server *s) { return s->exposed; }

static void on_connection(uv_stream_t *stream, int status)
{
    if (status == 0) connection_accept(stream->data);
}

static void add_address(server *s, const char *text)
{
    size_t n = strlen(s->addresses);
    snprintf(s->addresses + n, sizeof s->addresses - n, "%s%s", n > 0 ? ", " : "", text);
}

static bool is_loopback(const struct sockaddr *address)
{
    const void *any = address;
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)any)->sin_addr.s_addr) >> 24 == 127;
    if (address->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)any)->sin6_addr);
    return true;
}

static unsigned port_of(const struct sockaddr *address)
{
    const void *any = address;
    if (address->sa_family == AF_INET) return ntohs(((const struct sockaddr_in *)any)->sin_port);
    return ntohs(((const struct sockaddr_in6 *)any)->sin6_port);
}

static void set_port(struct sockaddr *address, unsigned port)
{
    void *any = address;
    if (address->sa_family == AF_INET) ((struct sockaddr_in *)any)->sin_port = htons((uint16_t)port);
    else ((struct sockaddr_in6 *)any)->sin6_port = htons((uint16_t)port);
}

static listener *make_listener(server *s, bool is_unix, hearth_error *err)
{
    listener *l = calloc(1, sizeof *l);
    if (!l) {
        hth_fail_memory(err, sizeof *l, "a listening socket");
        return NULL;
    }
    l->server = s;
    l->is_unix = is_unix;
    if (is_unix) uv_pipe_init(&s->loop, &l->io.pipe, 0);
    else uv_tcp_init(&s->loop, &l->io.tcp);
    l->io.handle.data = l;
    l->next = s->listeners;
    s->listeners = l;
    return l;
}

/* Takes the newest listener out of use after an error. */
static void drop_listener(server *s)
{
    listener *l = s->listeners;
    s->listeners = l->next;
    uv_close(&l->io.handle, on_listener_closed);
}

/* Starts to listen, and notes the address. */
static int start(server *s, listener *l, unsigned *port)
{
    struct sockaddr_storage bound;
    struct sockaddr *address = (struct sockaddr *)&bound;
    int n = sizeof bound;
    char text[INET6_ADDRSTRLEN], shown[INET6_ADDRSTRLEN + 32];
    int error = uv_listen(&l->io.stream, BACKLOG, on_connection);
    if (!error) error = uv_tcp_getsockname(&l->io.tcp, address, &n);
    if (error) return error;
    const void *any = address;
    bool v6 = address->sa_family == AF_INET6;
    if (v6) uv_ip6_name(any, text, sizeof text);
    else uv_ip4_name(any, text, sizeof text);
    *port = port_of(address);
    snprintf(shown, sizeof shown, v6 ? "http://[%s]:%u" : "http://%s:%u", text, *port);
    add_address(s, shown);
    if (!is_loopback(address)) s->exposed = true;
    return 0;
}

static int listen_on(server *s, const struct sockaddr *address, unsigned *port, hearth_error *err)
{
    listener *l = make_listener(s, false, err);
    if (!l) return UV_ENOMEM;
    int error = uv_tcp_bind(&l->io.tcp, address, address->sa_family == AF_INET6 ? UV_TCP_IPV6ONLY : 0);
    if (!error) error = start(s, l, port);
    if (error) drop_listener(s);
    return error;
}

static hearth_status fail_listen(const char *host, unsigned port, int error, hearth_error *err)
{
    const char *hint = error == UV_EADDRINUSE ? "; another program uses it: --port N takes another one"
                       : error == UV_EACCES   ? "; ports below 1024 are for root"
                                              : "";
    return hth_fail(err, HEARTH_ERROR_IO, "%s port %u: %s%s", host, port, uv_strerror(error), hint);
}

hearth_status server_listen(server *s, const char *host, unsigned *port, hearth_error *err)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE},
                    *found;
    int error = getaddrinfo(host, NULL, &hints, &found);
    if (error) return hth_fail(err, HEARTH_ERROR_IO, "--host %s: %s", host, gai_strerror(error));
    hearth_status st = HEARTH_ERROR_IO;
    for (struct addrinfo *a = found; a; a = a->ai_next) {
        set_port(a->ai_addr, *port);
        error = listen_on(s, a->ai_addr, port, err);
        if (error) {
            if (st != HEARTH_OK) st = fail_listen(host, *port, error, err);
        } else {
            st = HEARTH_OK;
        }
    }
    freeaddrinfo(found);
    return st;
}

hearth_status server_listen_loopback(server *s, unsigned *port, hearth_error *err)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    v4.sin_port = htons((uint16_t)*port);
    bool any = *port == 0;
    int error = listen_on(s, (struct sockaddr *)&v4, port, err);
    if (error) return fail_listen("127.0.0.1", *port, error, err);
    v6.sin6_port = htons((uint16_t)*port);
    error = listen_on(s, (struct sockaddr *)&v6, port, err);
    /* A machine without IPv6 has no ::1; a port that was chosen for IPv4 need not be free there. */
    if (!error || error == UV_EADDRNOTAVAIL || error == UV_EAFNOSUPPORT || (any && error == UV_EADDRINUSE))
        return HEARTH_OK;
    return fail_listen("::1", *port, error, err);
}

/* ---- Unix sockets -------------------------------------------------------------------------------------- */

/* Removes a socket that no program listens on. */
static hearth_status remove_stale(const char *path, hearth_error *err)
{
    struct stat info;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "--unix-socket %s: the path has more than %zu bytes",
                        path, sizeof address.sun_path - 1);
    strcpy(address.sun_path, path);
    if (lstat(path, &info) != 0) return HEARTH_OK;
    if (!S_ISSOCK(info.st_mode))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "--unix-socket %s: a file that is no socket is there",
                        path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool used = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0) close(fd);
    if (used) return hth_fail(err, HEARTH_ERROR_IO, "--unix-socket %s: another program listens there", path);
    if (unlink(path) != 0)
        return hth_fail(err, HEARTH_ERROR_IO, "--unix-socket %s: %s", path, hth_format_errno(errno).text);
    return HEARTH_OK;
}

hearth_status server_listen_unix(server *s, const char *path, hearth_error *err)
{
    hearth_status st = remove_stale(path, err);
    if (st != HEARTH_OK) return st;
    listener *l = make_listener(s, true, err);
    if (!l) return HEARTH_ERROR_MEMORY;
    mode_t before = umask(0177);
    int error = uv_pipe_bind(&l->io.pipe, path);
    umask(before);
    if (!error) error = uv_listen(&l->io.stream, BACKLOG, on_connection);
    if (error) {
        drop_listener(s);
        const char *slash = strrchr(path, '/'); /* libuv says EACCES of a folder that is missing */
        struct stat info;
        char folder[sizeof((struct sockaddr_un *)0)->sun_path];
        snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
        if (slash > path && stat(folder, &info) != 0) error = -errno;
        return hth_fail(err, HEARTH_ERROR_IO, "--unix-socket %s: %s", path, uv_strerror(error));
    }
    char shown[160];
    snprintf(shown, sizeof shown, "unix:%s", path);
    add_address(s, shown);
    return HEARTH_OK;
}

/* ---- sockets of a service manager ---------------------------------------------------------------------- */

static hearth_status take_passed(server *s, int fd, hearth_error *err)
{
    struct sockaddr_storage bound;
    struct sockaddr *address = (struct sockaddr *)&bound;
    socklen_t n = sizeof bound;
    int listens = 0;
    unsigned port;
    socklen_t n_listens = sizeof listens;
    if (getsockname(fd, address, &n) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n_listens) != 0 || !listens)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "LISTEN_FDS: descriptor %d is no listening socket", fd);
    bool is_unix = address->sa_family == AF_UNIX;
    listener *l = make_listener(s, is_unix, err);
    if (!l) return HEARTH_ERROR_MEMORY;
    int error = is_unix ? uv_pipe_open(&l->io.pipe, fd) : uv_tcp_open(&l->io.tcp, fd);
    if (!error) error = is_unix ? uv_listen(&l->io.stream, BACKLOG, on_connection) : start(s, l, &port);
    if (error) {
        drop_listener(s);
        return hth_fail(err, HEARTH_ERROR_IO, "LISTEN_FDS: descriptor %d: %s", fd, uv_strerror(error));
    }
    if (is_unix) add_address(s, "a Unix socket of the service manager");
    return HEARTH_OK;
}

hearth_status server_listen_passed(server *s, unsigned *n, hearth_error *err)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    hearth_status st = HEARTH_OK;
    *n = 0;
    if (!pid || !count || strtol(pid, NULL, 10) != (long)getpid()) return HEARTH_OK;
    unsigned long n_fd = strtoul(count, NULL, 10);
    if (n_fd > MAX_PASSED)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "LISTEN_FDS=%s: at most %d sockets can be passed", count,
                        MAX_PASSED);
    for (; st == HEARTH_OK && *n < n_fd; (*n)++) st = take_passed(s, FIRST_PASSED_FD + (int)*n, err);
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    return st;
}
