/* Makes folders, one below the other. Other programs may make them at the same time. */
#define _GNU_SOURCE
#include "base/system/folder.h"

#include "base/format_errno.h"
#include "base/status.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_SIZE = 4096 }; /* as long as Linux takes them */

hearth_status hth_folder_make(const char *path, unsigned mode, hearth_error *err)
{
    struct stat there;
    if (mkdir(path, (mode_t)mode) == 0) return HEARTH_OK;
    int why = errno;
    if (why == EEXIST && stat(path, &there) == 0) {
        if (S_ISDIR(there.st_mode)) return HEARTH_OK;
        why = ENOTDIR;
    }
    (void)hth_fail(err, HEARTH_ERROR_IO, "%s: cannot be made: %s", path, hth_format_errno(why).text);
    errno = why;
    return HEARTH_ERROR_IO;
}

hearth_status hth_folder_make_parents(const char *path, unsigned mode, hearth_error *err)
{
    char part[PATH_SIZE];
    size_t n = strlen(path);
    if (n == 0) return HEARTH_OK;
    if (n >= PATH_SIZE) {
        errno = ENAMETOOLONG;
        return hth_fail(err, HEARTH_ERROR_IO, "%.100s...: the path is too long", path);
    }
    memcpy(part, path, n + 1);
    for (char *at = part; (at = strchr(at + 1, '/'));) {
        *at = '\0';
        hearth_status st = hth_folder_make(part, mode, err);
        if (st != HEARTH_OK) return st;
        *at = '/';
    }
    return HEARTH_OK;
}
