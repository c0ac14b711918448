/* A folder that stands in for the root of a system: files as /proc and /sys have them. */
#ifndef HEARTH_TESTS_SUPPORT_SYSTEM_ROOT_H
#define HEARTH_TESTS_SUPPORT_SYSTEM_ROOT_H

#include "support/test.h"

#include <errno.h>
#include <sys/stat.h>

/* Writes a file below root, and the folders that it needs. */
static inline void system_root_put(const char *root, const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *p = whole + 1; *p; p++) {
        if (*p != '/') continue;
        *p = '\0';
        CHECK(mkdir(whole, 0700) == 0 || errno == EEXIST);
        *p = '/';
    }
    CHECK(test_write_file(whole, text, strlen(text)));
}

#endif
