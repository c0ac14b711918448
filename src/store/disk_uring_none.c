/* Takes the place of disk_uring.c where liburing is not found. */
#include "store/disk.h"

hearth_status hth_disk_open_uring(hth_disk **out, hearth_error *err)
{
    *out = NULL;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "io_uring: built without liburing");
}

bool hth_disk_has_uring(void) { return false; }
