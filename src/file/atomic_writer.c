/* Writes files atomically: whatever fails, a reader sees the old file, the new one, or none. All bytes go to
 * PATH.hearth-part, a name that no other program uses, which is renamed only after fsync. A symbolic link stays a
 * link: its target is written. Called by gguf_write.c and by commands. Every error names the path that the caller
 * passed. */
#define _GNU_SOURCE
#include "file/atomic_writer.h"

#include "base/same.h"
#include "file/gguf_int.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_SIZE = 1 << 16 };
_Static_assert(HTH_PATH_MAX == PATH_MAX, "what realpath writes");

/* ---- faults for tests ---------------------------------------------------------------- */

static _Atomic uint64_t n_write, fail_at;

void hth_atomic_writer_fail_write_at(uint64_t n)
{
    atomic_store(&fail_at, n == 0 ? 0 : atomic_load(&n_write) + n);
}

/* Counts one operation on the disk. False, with errno, if a test asked for this one to fail. */
static bool count_write(void)
{
    uint64_t mine = atomic_fetch_add(&n_write, 1) + 1;
    if (mine != atomic_load_explicit(&fail_at, memory_order_relaxed)) return true;
    errno = ENOSPC;
    return false;
}

static hearth_status fail(const hth_atomic_writer *s, const char *what, hearth_error *err)
{
    return hth_gguf_fail_errno(err, s->label, what, errno);
}

/* ---- opening ----------------------------------------------------------------------------- */

static bool is_too_long(void)
{
    errno = ENAMETOOLONG;
    return false;
}

/* The rule of Linux's fs.protected_symlinks, which does not see a link that we follow ourselves: in a folder in which
 * all users make files, a link of another user leads nowhere, unless the folder is his too. */
static bool may_follow(const char *folder, const char *link)
{
    struct stat of_folder, of_link;
    if (stat(folder, &of_folder) != 0 || lstat(link, &of_link) != 0) return false;
    bool is_shared = of_folder.st_mode & S_ISVTX && of_folder.st_mode & S_IWOTH;
    if (!is_shared || of_link.st_uid == geteuid() || of_link.st_uid == of_folder.st_uid) return true;
    errno = EACCES;
    return false;
}

bool hth_atomic_writer_target(const char *path, char target[HTH_PATH_MAX])
{
    enum { MAX_LINK = 40 }; /* the limit of Linux */
    char at[HTH_PATH_MAX], folder[HTH_PATH_MAX], link[HTH_PATH_MAX];
    if (snprintf(at, sizeof at, "%s", path) >= HTH_PATH_MAX) return is_too_long();
    for (int i = 0; i < MAX_LINK; i++) {
        const char *slash = strrchr(at, '/'), *name = slash ? slash + 1 : at;
        snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - at) + 1 : 1, slash ? at : ".");
        ssize_t n = readlink(at, link, sizeof link - 1);
        if (n < 0) {
            if (realpath(at, target)) return true;
            if (!realpath(folder, target)) return false;
            size_t used = strlen(target);
            int more = snprintf(target + used, HTH_PATH_MAX - used, "/%s", name);
            return more < (int)(HTH_PATH_MAX - used) || is_too_long();
        }
        link[n] = '\0';
        if (!may_follow(folder, at)) return false;
        if (snprintf(at, sizeof at, "%s%s%s", link[0] == '/' ? "" : folder, link[0] == '/' ? "" : "/",
                     link) >= HTH_PATH_MAX)
            return is_too_long();
    }
    errno = ELOOP;
    return false;
}

static hearth_status set_paths(hth_atomic_writer *s, const char *given, hearth_error *err)
{
    char target[HTH_PATH_MAX];
    struct stat st;
    bool is_link = lstat(given, &st) == 0 && S_ISLNK(st.st_mode);
    if (is_link && !hth_atomic_writer_target(given, target))
        return hth_gguf_fail_errno(err, hth_gguf_label(given), "follow the link", errno);
    const char *path = is_link ? target : given;
    size_t n = strlen(path), n_given = strlen(given);
    s->path = hth_alloc(n + 1, 1);
    s->part_path = hth_alloc(n + sizeof HTH_ATOMIC_PART, 1);
    s->given = hth_alloc(n_given + 1, 1);
    s->buffer = hth_alloc(BUFFER_SIZE, 1);
    if (!s->path || !s->part_path || !s->given || !s->buffer)
        return hth_fail_memory(err, 2 * n + n_given + BUFFER_SIZE, "writing a file");
    memcpy(s->path, path, n + 1);
    memcpy(s->given, given, n_given + 1);
    s->label = hth_gguf_label(s->given);
    memcpy(s->part_path, path, n);
    memcpy(s->part_path + n, HTH_ATOMIC_PART, sizeof HTH_ATOMIC_PART);
    return HEARTH_OK;
}

static hearth_status open_writer(hth_atomic_writer *s, const char *path, bool is_private, hearth_error *err)
{
    struct stat st;
    *s = (hth_atomic_writer){.fd = -1};
    hearth_status status = set_paths(s, path, err);
    if (status != HEARTH_OK) return status;
    bool replaces = stat(s->path, &st) == 0;
    if (!replaces && errno != ENOENT) return fail(s, "look at", err);
    if (replaces && !S_ISREG(st.st_mode))
        return hth_fail(err, HEARTH_ERROR_IO,
                        "%s: is there already and not a regular file; choose another name", s->label);
    if (replaces && access(s->path, W_OK) != 0) return fail(s, "replace", err);
    /* A file system for reading says so before it looks for the file. */
    if (unlink(s->part_path) != 0 && errno != ENOENT && errno != EROFS)
        return fail(s,
                    errno == ENAMETOOLONG ? "write it as " HTH_ATOMIC_PART " first"
                                          : "remove the unfinished " HTH_ATOMIC_PART " beside it",
                    err);
    /* O_EXCL: does not follow a link that another user created. */
    s->fd = open(s->part_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, is_private ? 0600 : 0666);
    if (s->fd < 0) return fail(s, "create (as " HTH_ATOMIC_PART ")", err);
    s->exists = true;
    (void)flock(s->fd, LOCK_EX | LOCK_NB); /* hth_atomic_writer_is_abandoned */
    if (replaces && !is_private && fchmod(s->fd, st.st_mode & 0777) != 0)
        return fail(s, "keep the permissions of", err);
    return HEARTH_OK;
}

hearth_status hth_atomic_writer_open(hth_atomic_writer *s, const char *path, hearth_error *err)
{
    return open_writer(s, path, false, err);
}

hearth_status hth_atomic_writer_open_private(hth_atomic_writer *s, const char *path, hearth_error *err)
{
    return open_writer(s, path, true, err);
}

bool hth_atomic_writer_is_abandoned(const char *part_path)
{
    int fd = open(part_path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return false;
    bool is_free = flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return is_free;
}

/* ---- writing ------------------------------------------------------------------------------- */

static hearth_status write_all(hth_atomic_writer *s, const unsigned char *data, size_t size,
                               hearth_error *err)
{
    while (size > 0) {
        ssize_t done = count_write() ? write(s->fd, data, size) : -1;
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return fail(s, "write", err);
        data += done;
        size -= (size_t)done;
    }
    return HEARTH_OK;
}

static hearth_status flush(hth_atomic_writer *s, hearth_error *err)
{
    size_t n = s->n;
    s->n = 0;
    return write_all(s, s->buffer, n, err);
}

hearth_status hth_atomic_writer_write(hth_atomic_writer *s, const void *data, size_t size, hearth_error *err)
{
    hearth_status status = HEARTH_OK;
    if (size > BUFFER_SIZE - s->n) status = flush(s, err);
    if (status != HEARTH_OK) return status;
    s->at += size;
    if (size >= BUFFER_SIZE) return write_all(s, data, size, err);
    if (size > 0) memcpy(s->buffer + s->n, data, size);
    s->n += size;
    return HEARTH_OK;
}

hearth_status hth_atomic_writer_pad(hth_atomic_writer *s, uint64_t n, hearth_error *err)
{
    static const unsigned char zeros[512];
    hearth_status status = HEARTH_OK;
    while (n > 0 && status == HEARTH_OK) {
        size_t some = n < sizeof zeros ? (size_t)n : sizeof zeros;
        status = hth_atomic_writer_write(s, zeros, some, err);
        n -= some;
    }
    return status;
}

/* ---- finishing ------------------------------------------------------------------------------- */

/* Another program that writes the same name removes our part file. Its unfinished file must not be renamed by us. */
static hearth_status check_still_ours(hth_atomic_writer *s, hearth_error *err)
{
    struct stat ours, there;
    if (fstat(s->fd, &ours) != 0) return fail(s, "look at what was written to", err);
    if (stat(s->part_path, &there) == 0 && hth_same_stat(&ours, &there)) return HEARTH_OK;
    s->exists = false;
    return hth_fail(err, HEARTH_ERROR_IO,
                    "%s: its " HTH_ATOMIC_PART
                    " was removed or replaced while it was written, probably by another process that "
                    "writes the same file; let one finish, or give each another name",
                    s->label);
}

/* The rename itself must reach the disk. File systems that cannot sync a folder return EINVAL. A folder without
 * read permission cannot be synced. */
static hearth_status sync_folder(const hth_atomic_writer *s, char *path_copy, hearth_error *err)
{
    hearth_status status = HEARTH_OK;
    int fd = open(dirname(path_copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return HEARTH_OK;
    if ((!count_write() || fsync(fd) != 0) && errno != EINVAL) status = fail(s, "sync the folder of", err);
    close(fd);
    return status;
}

hearth_status hth_atomic_writer_finish(hth_atomic_writer *s, hearth_error *err)
{
    hearth_status status = flush(s, err);
    if (status == HEARTH_OK && (!count_write() || fsync(s->fd) != 0)) status = fail(s, "sync", err);
    if (status == HEARTH_OK) status = check_still_ours(s, err);
    if (status != HEARTH_OK) return status;
    int closed = close(s->fd);
    s->fd = -1;
    if (closed != 0) return fail(s, "close", err);
    if (!count_write() || rename(s->part_path, s->path) != 0)
        return fail(s, "give the finished file its name:", err);
    s->exists = false;
    memcpy(s->part_path, s->path, strlen(s->path) + 1); /* dirname modifies its argument */
    return sync_folder(s, s->part_path, err);
}

void hth_atomic_writer_close(hth_atomic_writer *s)
{
    if (s->fd >= 0) close(s->fd);
    if (s->exists) unlink(s->part_path);
    hth_free(s->buffer);
    hth_free(s->part_path);
    hth_free(s->path);
    hth_free(s->given);
    *s = (hth_atomic_writer){.fd = -1};
}

hearth_status hth_atomic_writer_check(const char *path, hearth_error *err)
{
    hth_atomic_writer s;
    hearth_status status = hth_atomic_writer_open(&s, path, err);
    hth_atomic_writer_close(&s);
    return status;
}
