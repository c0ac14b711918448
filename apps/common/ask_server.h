/* Requests to a hearth serve of this machine, or of another one. */
#ifndef HEARTH_APPS_COMMON_ASK_SERVER_H
#define HEARTH_APPS_COMMON_ASK_SERVER_H

#include "common/options/options.h"

/* Which server: rows of an option table. */
#define SERVER_OPTIONS                                                                                       \
    OPT_TEXT("host", 0, "ADDR", "where the server listens; default 127.0.0.1"),                              \
        OPT_UINT("port", 0, "N", 1, 65535, "its port; default 8080"),                                        \
        OPT_FILE("unix-socket", 0, "PATH", "its socket, instead of an address")

/* Sends a request by these options, with the key of HEARTH_API_KEY; body NULL: a GET. The answer's body, [*n] with a NUL
 * after it, is freed with free. NULL: an error was reported, also that the server refused. */
char *ask_server(const args *a, const char *path, const char *body, size_t *n);

#endif
