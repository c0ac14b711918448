/* The text of an error of the system: see format_errno.h. Calls the strerror_r of POSIX, which glibc declares only where
 * _GNU_SOURCE is not defined; the flags of a build may define it. */
#undef _GNU_SOURCE
#define _POSIX_C_SOURCE 200809L
#include "base/format_errno.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

hth_errno_text hth_format_errno(int error)
{
    hth_errno_text t = {""};
    int before = errno;
    if (strerror_r(error, t.text, sizeof t.text) != 0) snprintf(t.text, sizeof t.text, "error %d", error);
    errno = before;
    return t;
}
