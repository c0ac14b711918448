/* Paths and folders: builds, checks and traverses all paths of this module. */
#define _GNU_SOURCE
#include "hub/parts.h"

#include "text/utf8.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool hub_path(char out[HUB_PATH], const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = vsnprintf(out, HUB_PATH, format, list);
    va_end(list);
    if (n > 0 && n < HUB_PATH) return true;
    out[0] = '\0';
    return false;
}

const char *hub_variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

/* Controls, and what changes how the text around it is shown: a name must look like what it is (UTS 55). */
static bool is_hidden(uint32_t code)
{
    static const uint32_t ranges[][2] = {{0x00, 0x1F},     {0x7F, 0x9F},     {0xAD, 0xAD},     {0x061C, 0x061C},
                                         {0x180E, 0x180E}, {0x200B, 0x200F}, {0x2028, 0x202E}, {0x2060, 0x206F},
                                         {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xE0000, 0xE0FFF}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (code >= ranges[i][0] && code <= ranges[i][1]) return true;
    return false;
}

bool hub_is_safe_path(const char *path)
{
    if (strlen(path) >= HUB_NAME) return false;
    for (const char *p = path;; p++) {
        size_t n = strcspn(p, "/");
        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.')) return false;
        for (size_t i = 0, length; i < n; i += length) {
            uint32_t code;
            length = hth_text_utf8_decode(p + i, n - i, &code);
            if (length == 0 || code == '\\' || is_hidden(code)) return false;
        }
        p += n;
        if (!*p) return true;
    }
}

char *hub_read_file(const char *path, size_t max, size_t *n)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return NULL;
    char *bytes = NULL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size <= max)
        bytes = malloc((size_t)st.st_size + 1);
    ssize_t got = 1;
    *n = 0;
    while (bytes && got > 0 && *n < (size_t)st.st_size) {
        got = read(fd, bytes + *n, (size_t)st.st_size - *n);
        if (got > 0) *n += (size_t)got;
    }
    close(fd);
    if (bytes) bytes[*n] = '\0';
    if (bytes && *n == (size_t)st.st_size) return bytes;
    free(bytes);
    return NULL;
}

/* relative: the part of path after root; "" at the top. */
static bool walk(char path[HUB_PATH], size_t n_root, unsigned depth, hub_visit_fn *visit, void *user)
{
    size_t n = strlen(path);
    DIR *folder = opendir(path);
    bool goes_on = true;
    for (struct dirent *e; folder && goes_on && (e = readdir(folder)) != NULL;) {
        struct stat st;
        size_t n_name = strlen(e->d_name);
        if (e->d_name[0] == '.' || n + n_name + 2 > HUB_PATH) continue;
        path[n] = '/';
        memcpy(path + n + 1, e->d_name, n_name + 1);
        bool is_link = lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
        if (stat(path, &st) != 0) continue; /* a dangling link */
        if (S_ISREG(st.st_mode)) goes_on = visit(user, path, path + n_root + 1);
        else if (S_ISDIR(st.st_mode) && !is_link && depth > 0)
            goes_on = walk(path, n_root, depth - 1, visit, user);
    }
    if (folder) closedir(folder);
    path[n] = '\0';
    return goes_on;
}

bool hub_walk(const char *root, unsigned depth, hub_visit_fn *visit, void *user)
{
    char path[HUB_PATH];
    return !hub_path(path, "%s", root) || walk(path, strlen(path), depth, visit, user);
}
