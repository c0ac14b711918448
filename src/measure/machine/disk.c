/* Read speed of a file from storage, with direct reads, so that the page cache need not be dropped. hearth
 * doctor calls it. */
#define _GNU_SOURCE
#include "base/alloc.h"
#include "base/clock.h"
#include "base/format_errno.h"
#include "measure/machine/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK_SIZE = 8 << 20 }; /* as the loader reads */

static hearth_status read_all(int fd, const char *path, uint8_t *block, uint64_t limit, uint64_t *n_read,
                              hearth_error *err)
{
    for (*n_read = 0; *n_read < limit;) {
        ssize_t n = pread(fd, block, BLOCK_SIZE, (off_t)*n_read);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EINVAL)
            return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: its file system has no direct reads", path);
        if (n < 0)
            return hth_fail(err, HEARTH_ERROR_IO, "%s: reading at %llu: %s", path,
                            (unsigned long long)*n_read, hth_format_errno(errno).text);
        *n_read += (uint64_t)n;
        if (n < BLOCK_SIZE) break; /* end of the file */
    }
    return HEARTH_OK;
}

hearth_status hth_disk_read_rate(const char *path, uint64_t limit, double *rate, uint64_t *n_read,
                                 hearth_error *err)
{
    *rate = 0.0;
    *n_read = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (fd < 0) {
        if (errno == EINVAL)
            return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: its file system has no direct reads", path);
        return hth_fail(err, HEARTH_ERROR_IO, "%s: %s", path, hth_format_errno(errno).text);
    }
    uint8_t *block = hth_pages_alloc(BLOCK_SIZE); /* aligned to a page of its size */
    hearth_status st = HEARTH_OK;
    if (!block) {
        st = hth_fail_memory(err, BLOCK_SIZE, "a read");
    } else {
        memset(block, 0, BLOCK_SIZE);
        uint64_t start = hth_clock_ns();
        st = read_all(fd, path, block, limit, n_read, err);
        double seconds = hth_clock_since(start);
        if (st == HEARTH_OK && seconds > 0.0) *rate = (double)*n_read / seconds;
    }
    hth_pages_free(block, BLOCK_SIZE);
    close(fd);
    return st;
}
