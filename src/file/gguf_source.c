/* The bytes of one part: a regular file, or memory. All system calls that read a model are here: opening without
 * blocking, reads that handle interruptions, short counts and failures that pass, mapping. Called by the cursor and by
 * hth_gguf_read. The file may shrink at any time: sizes are those at opening, and a read past the new end is an error
 * and never blocks. */
#define _GNU_SOURCE /* O_PATH */
#include "base/format_errno.h"
#include "base/log.h"
#include "file/gguf_int.h"
#include "file/read_failure.h"
#include "file/sigbus_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* More than a system reads ahead. */
enum { READ_AHEAD = 32 << 20 };

/* ---- faults for tests -------------------------------------------------------- */

static _Atomic uint64_t n_read, fail_at;
static atomic_int fail_how;

void hth_gguf_fail_read_at(uint64_t n, hth_read_fault fault)
{
    atomic_store(&fail_how, (int)fault);
    atomic_store(&fail_at, n == 0 ? 0 : atomic_load(&n_read) + n);
}

uint64_t hth_gguf_n_read(void) { return atomic_load(&n_read); }

static ssize_t read_once(int fd, void *dst, size_t size, uint64_t at)
{
    uint64_t mine = atomic_fetch_add(&n_read, 1) + 1,
             at_fault = atomic_load_explicit(&fail_at, memory_order_relaxed);
    int how = atomic_load_explicit(&fail_how, memory_order_relaxed);
    if (at_fault > 0 && (mine == at_fault || (mine > at_fault && how == HTH_READ_FAILS_ALWAYS))) {
        if (how != HTH_READ_SHORT) {
            errno = how == HTH_READ_INTERRUPTED ? EINTR : how == HTH_READ_FAILS ? ENODEV : EIO;
            return -1;
        }
        size = size > 1 ? size / 2 : size;
    }
    return pread(fd, dst, size, (off_t)at);
}

/* ---- opening ------------------------------------------------------------------- */

hearth_status hth_gguf_fail_errno(hearth_error *err, const char *path, const char *what, int error)
{
    const char *remedy = error == EMFILE ? " (raise the limit of open files, RLIMIT_NOFILE)" : "";
    return hth_fail(err, HEARTH_ERROR_IO, "%s: cannot %s: %s%s", path, what,
                    hth_format_errno(error).text, remedy);
}

static const char *kind_of(mode_t mode)
{
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISFIFO(mode)) return "a pipe";
    if (S_ISSOCK(mode)) return "a socket";
    if (S_ISCHR(mode)) return "a character device";
    if (S_ISBLK(mode)) return "a block device";
    return "not a regular file";
}

static hearth_status fail_kind(const hth_gguf_source *s, hearth_status status, mode_t mode, hearth_error *err)
{
    return hth_fail(err, status, "%s: is %s; a model must be a regular file", s->label, kind_of(mode));
}

/* wrong_kind: the status if it is no regular file. */
static hearth_status read_size(hth_gguf_source *s, hearth_status wrong_kind, hearth_error *err)
{
    struct stat st;
    if (fstat(s->fd, &st) != 0) return hth_gguf_fail_errno(err, s->label, "look at", errno);
    if (!S_ISREG(st.st_mode)) return fail_kind(s, wrong_kind, st.st_mode, err);
    s->size = (uint64_t)st.st_size;
    s->written = st.st_mtim;
    return HEARTH_OK;
}

const char *hth_gguf_label(const char *path)
{
    enum { SHOWN = 200 };
    size_t n = strlen(path);
    return n > SHOWN ? path + n - SHOWN : path;
}

static hearth_status keep_path(hth_gguf_source *s, const char *path, hearth_error *err)
{
    size_t size = strlen(path) + 1;
    s->path = hth_alloc(size, 1);
    if (!s->path) return hth_fail_memory(err, size, "the path of a model");
    memcpy(s->path, path, size);
    s->label = hth_gguf_label(s->path);
    return HEARTH_OK;
}

hearth_status hth_gguf_source_open(hth_gguf_source *s, const char *path, hearth_error *err)
{
    struct stat st;
    *s = (hth_gguf_source){.fd = -1};
    hearth_status status = keep_path(s, path, err);
    if (status != HEARTH_OK) return status;
    /* O_NONBLOCK: a pipe without a writer opens at once and is rejected below. */
    do {
        s->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    } while (s->fd < 0 && errno == EINTR);
    if (s->fd < 0) {
        int error = errno;
        if (error == ENXIO && stat(path, &st) == 0 && !S_ISREG(st.st_mode))
            status = fail_kind(s, HEARTH_ERROR_IO, st.st_mode, err); /* sockets cannot be opened */
        else status = hth_gguf_fail_errno(err, s->label, "open", error);
    } else status = read_size(s, HEARTH_ERROR_IO, err);
    if (status != HEARTH_OK) hth_gguf_source_close(s);
    return status;
}

/* The file of a descriptor, opened once more, so that reading ahead is nothing that the caller's descriptor shares; where
 * that is not allowed, a duplicate. */
static int open_again(int fd)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return again >= 0 ? again : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

hearth_status hth_gguf_source_descriptor(hth_gguf_source *s, int fd, const char *name, hearth_error *err)
{
    *s = (hth_gguf_source){.fd = -1};
    hearth_status status = keep_path(s, name, err);
    if (status != HEARTH_OK) return status;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0) status = hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: descriptor %d is not open", s->label, fd);
    else if ((flags & O_ACCMODE) == O_WRONLY || (flags & O_PATH))
        status = hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: descriptor %d is not open for reading", s->label, fd);
    else if ((s->fd = open_again(fd)) < 0)
        status = hth_gguf_fail_errno(err, s->label, "duplicate its descriptor", errno);
    else status = read_size(s, HEARTH_ERROR_ARGUMENT, err);
    if (status != HEARTH_OK) hth_gguf_source_close(s);
    return status;
}

hearth_status hth_gguf_source_memory(hth_gguf_source *s, const void *data, size_t size, const char *name,
                                     hearth_error *err)
{
    *s = (hth_gguf_source){.fd = -1, .bytes = data, .size = size};
    return keep_path(s, name, err);
}

void hth_gguf_source_close(hth_gguf_source *s)
{
    if (s->mapped) {
        void *map;
        memcpy(&map, &s->bytes, sizeof map); /* removes const from the pointer */
        hth_sigbus_guard_remove(s->guard);
        munmap(map, (size_t)s->size);
    }
    if (s->fd >= 0) close(s->fd);
    hth_free(s->path);
    *s = (hth_gguf_source){.fd = -1};
}

/* ---- reading -------------------------------------------------------------------- */

/* Waits before a further attempt. False: there is none. */
static bool try_again(const hth_gguf_source *s, uint64_t at, int error, uint32_t *n_failure)
{
    hearth_error why;
    if (!hth_read_may_recover(error) || *n_failure == HTH_READ_MAX_RETRY) return false;
    hth_fail_read(&why, s->label, at, s->size, error);
    hth_log(HEARTH_LOG_WARN, "%s; trying again", why.message);
    uint64_t ns = hth_read_retry_ns[(*n_failure)++];
    nanosleep(&(struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)}, NULL);
    return true;
}

/* Takes the bytes before `end` out of the page cache. All of them, as the system keeps folios (of up to 2 MiB) that a
 * range has in part: what one read leaves goes with the next. */
static void drop_cached(const hth_gguf_source *s, uint64_t end)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    posix_fadvise(s->fd, 0, (off_t)((end + page - 1) / page * page), POSIX_FADV_DONTNEED);
}

void hth_gguf_source_read_uncached(hth_gguf_source *s, uint64_t end)
{
    if (s->fd < 0) return;
    s->uncached = true;
    posix_fadvise(s->fd, 0, 0, POSIX_FADV_RANDOM);
    drop_cached(s, end + READ_AHEAD);
}

hearth_status hth_gguf_source_read(const hth_gguf_source *s, uint64_t at, size_t size, void *dst,
                                   hearth_error *err)
{
    unsigned char *to = dst;
    uint32_t n_failure = 0;
    if (s->fd < 0) {
        if (size > 0) memcpy(to, s->bytes + at, size);
        return HEARTH_OK;
    }
    while (size > 0) {
        ssize_t got = read_once(s->fd, to, size, at);
        if (got < 0 && (errno == EINTR || try_again(s, at, errno, &n_failure))) continue;
        if (got <= 0) return hth_fail_read(err, s->label, at, s->size, got < 0 ? errno : 0);
        to += got;
        at += (uint64_t)got;
        size -= (size_t)got;
    }
    if (s->uncached) drop_cached(s, at);
    return HEARTH_OK;
}

bool hth_gguf_source_was_written(const hth_gguf_source *s)
{
    struct stat st;
    return s->fd >= 0 && fstat(s->fd, &st) == 0 &&
           (st.st_mtim.tv_sec != s->written.tv_sec || st.st_mtim.tv_nsec != s->written.tv_nsec);
}

/* Mapping a file that is shorter than its directory says would raise SIGBUS on access. This check finds a file
 * that is already shorter. */
hearth_status hth_gguf_source_map(hth_gguf_source *s, hearth_error *err)
{
    struct stat st;
    if (s->bytes || s->fd < 0 || s->size == 0) return HEARTH_OK;
    if (fstat(s->fd, &st) != 0) return hth_gguf_fail_errno(err, s->label, "look at", errno);
    if ((uint64_t)st.st_size < s->size)
        return hth_fail(err, HEARTH_ERROR_IO,
                        "%s: has %" PRIu64 " bytes, but had %" PRIu64
                        " when it was opened: the file became shorter",
                        s->label, (uint64_t)st.st_size, s->size);
    if (s->size > SIZE_MAX) return hth_gguf_fail_errno(err, s->label, "map", ENOMEM);
    void *map = mmap(NULL, (size_t)s->size, PROT_READ, MAP_SHARED, s->fd, 0);
    if (map == MAP_FAILED) return hth_gguf_fail_errno(err, s->label, "map", errno);
    s->guard = hth_sigbus_guard_add(map, (size_t)s->size);
    if (s->guard < 0) {
        munmap(map, (size_t)s->size);
        return hth_fail(err, HEARTH_ERROR_MEMORY,
                        "%s: %d files are mapped already; close some, or read this one", s->label,
                        HTH_MAP_GUARD_MAX);
    }
    s->bytes = map;
    s->mapped = true;
    return HEARTH_OK;
}

hearth_status hth_gguf_source_check_map(const hth_gguf_source *s, hearth_error *err)
{
    if (!s->mapped || !hth_sigbus_guard_broken(s->guard)) return HEARTH_OK;
    return hth_fail(
        err, HEARTH_ERROR_IO,
        "%s: the file became shorter, or could not be read, while it was mapped: what was computed "
        "from it does not count; open it again",
        s->label);
}
