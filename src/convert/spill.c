/* Streams in memory or in an unnamed file. predictors.c and study.c use it for the data that they keep of a
 * text. */
#define _GNU_SOURCE
#include "convert/spill.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "base/format_errno.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct hth_spill {
    uint64_t stream_size;
    uint8_t *memory; /* NULL: data is in the file */
    size_t size;
    int fd;
    char *path; /* the file is in the folder of this path */
};

static hearth_status fail(const hth_spill *s, const char *what, int error, hearth_error *err)
{
    return hth_fail(err, HEARTH_ERROR_IO, "%s: cannot %s what is kept of the text beside it: %s", s->path, what,
                    hth_format_errno(error).text);
}

/* Opens a file without a name if the file system supports it. Otherwise it has a name for a moment, stored in
 * path[]. */
static int open_nameless(const char *beside, char *path, size_t size)
{
    const char *slash = strrchr(beside, '/');
    snprintf(path, size, "%.*s", slash ? (int)(slash - beside) + 1 : 1, slash ? beside : ".");
    int fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0) return fd;
    snprintf(path, size, "%s.XXXXXX", beside);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) unlink(path);
    return fd;
}

static hearth_status open_file(hth_spill *s, const char *beside, hearth_error *err)
{
    size_t n = strlen(beside) + 8;
    s->path = hth_alloc(n, 1);
    char *path = hth_alloc(n, 1);
    hearth_status st = s->path && path ? HEARTH_OK : hth_fail_memory(err, n, "the path of a file");
    if (st == HEARTH_OK) {
        memcpy(s->path, beside, strlen(beside) + 1);
        s->fd = open_nameless(beside, path, n);
        if (s->fd < 0) st = fail(s, "keep", errno, err);
    }
    hth_free(path);
    return st;
}

hearth_status hth_spill_open(uint32_t n_stream, uint64_t stream_size, uint64_t memory, const char *beside,
                             hth_spill **out, hearth_error *err)
{
    size_t size;
    *out = NULL;
    hth_spill *s = hth_alloc(1, sizeof *s);
    if (!s) return hth_fail_memory(err, sizeof *s, "streams");
    *s = (hth_spill){.stream_size = stream_size, .fd = -1};
    bool fits = hth_mul_size(n_stream, (size_t)stream_size, &size) && size <= memory;
    if (fits) s->memory = hth_pages_alloc(s->size = size);
    hearth_status st = s->memory ? HEARTH_OK : open_file(s, beside, err);
    if (st == HEARTH_OK) *out = s;
    else hth_spill_close(s);
    return st;
}

void hth_spill_close(hth_spill *s)
{
    if (!s) return;
    hth_pages_free(s->memory, s->size);
    if (s->fd >= 0) close(s->fd);
    hth_free(s->path);
    hth_free(s);
}

hearth_status hth_spill_put(hth_spill *s, uint32_t i_stream, uint64_t at, const void *bytes, size_t size,
                            hearth_error *err)
{
    uint64_t place = i_stream * s->stream_size + at;
    const uint8_t *from = bytes;
    if (s->memory) memcpy(s->memory + place, bytes, size);
    while (!s->memory && size > 0) {
        ssize_t n = pwrite(s->fd, from, size, (off_t)place);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail(s, "write", n < 0 ? errno : ENOSPC, err);
        from += n, place += (uint64_t)n, size -= (size_t)n;
    }
    return HEARTH_OK;
}

hearth_status hth_spill_get(const hth_spill *s, uint32_t i_stream, uint64_t at, void *bytes, size_t size,
                            hearth_error *err)
{
    uint64_t place = i_stream * s->stream_size + at;
    uint8_t *to = bytes;
    if (s->memory) memcpy(bytes, s->memory + place, size);
    while (!s->memory && size > 0) {
        ssize_t n = pread(s->fd, to, size, (off_t)place);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail(s, "read", n < 0 ? errno : EIO, err);
        to += n, place += (uint64_t)n, size -= (size_t)n;
    }
    return HEARTH_OK;
}
