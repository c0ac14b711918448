/* Failures of reads: which of them are tried again, how often, and what a person is told. A disk that is being reset,
 * or a server that restarts, answers again within a second. */
#include "file/read_failure.h"

#include "file/gguf_int.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

const uint64_t hth_read_retry_ns[HTH_READ_MAX_RETRY] = {10000000, 100000000, 1000000000};

bool hth_read_may_recover(int error)
{
    return error != ENODEV && error != ENXIO && error != ESTALE && error != EBADF;
}

hearth_status hth_fail_read(hearth_error *err, const char *path, uint64_t at, uint64_t file_size, int error)
{
    char what[40];
    if (error == 0)
        return hth_fail(err, HEARTH_ERROR_IO,
                        "%s: ends at or before byte %" PRIu64 ", but had %" PRIu64
                        " bytes when it was opened: the file became shorter",
                        path, at, file_size);
    snprintf(what, sizeof what, "read at byte %" PRIu64, at);
    return hth_gguf_fail_errno(err, path, what, error);
}
