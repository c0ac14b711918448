/* Datagrams to a Unix socket; a name that begins with @ is abstract. */
#define _GNU_SOURCE
#include "serve/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int manager = -1;

void notify_open(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    size_t n = path ? strlen(path) : 0;
    if (n < 2 || n >= sizeof address.sun_path) return;
    memcpy(address.sun_path, path, n);
    if (*path == '@') address.sun_path[0] = '\0';
    manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    if (manager < 0 || connect(manager, (struct sockaddr *)&address, size) == 0) return;
    close(manager);
    manager = -1;
}

void notify_manager(const char *state)
{
    if (manager < 0) return;
    ssize_t ignored = send(manager, state, strlen(state), MSG_NOSIGNAL);
    (void)ignored;
}
