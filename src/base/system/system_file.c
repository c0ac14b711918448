/* Reads and parses texts of /proc and /sys. */
#define _GNU_SOURCE
#include "base/system/system_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool hth_system_read(const char *folder, const char *name, char text[HTH_SYSTEM_TEXT])
{
    char path[HTH_SYSTEM_PATH];
    size_t n = 0;
    int length = snprintf(path, sizeof path, "%s%s%s", folder, *name == '/' ? "" : "/", name);
    if (length < 0 || length >= HTH_SYSTEM_PATH) return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    for (;;) {
        ssize_t got = read(fd, text + n, HTH_SYSTEM_TEXT - 1 - n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        n += (size_t)got;
    }
    close(fd);
    text[n] = '\0';
    return n > 0;
}

uint64_t hth_system_number(const char **p)
{
    uint64_t v = 0;
    for (; **p >= '0' && **p <= '9'; (*p)++)
        if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(**p - '0'), &v))
            v = UINT64_MAX;
    return v;
}

const char *hth_system_value(const char *text, const char *key)
{
    size_t n = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) != 0) continue;
        const char *p = line + n + strspn(line + n, " \t");
        if (*p != ':' && p == line + n) continue;
        p += *p == ':';
        return p + strspn(p, " \t");
    }
    return NULL;
}

uint64_t hth_system_kilobytes(const char *text, const char *key)
{
    const char *p = hth_system_value(text, key);
    uint64_t kb = p ? hth_system_number(&p) : 0;
    return kb <= UINT64_MAX / 1024 ? kb * 1024 : UINT64_MAX;
}
