/* Cache files: a header with key, length and hash, then the bytes. A file is written beside its path and renamed,
 * so that no process sees a partial one. */
#define _GNU_SOURCE
#include "base/disk_cache.h"

#include "base/alloc.h"
#include "base/system/folder.h"
#include "base/format_errno.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/switches.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct header {
    uint8_t magic[8];
    uint64_t key, n, hash; /* hash: of key, n and the bytes */
} header;

static const uint8_t magic[8] = {'H', 'E', 'A', 'R', 'T', 'H', 'K', '1'};

enum { PATH_SIZE = HTH_DISKCACHE_PATH };

static uint64_t hash_of(uint64_t key, const void *bytes, size_t n)
{
    uint64_t sizes[2] = {key, n};
    return hth_hash_more(hth_hash_more(0, sizes, sizeof sizes), bytes, n);
}

static bool is_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    size_t n = strlen(name);
    return n > 0 && n <= HTH_DISKCACHE_NAME && strspn(name, allowed) == n && name[0] != '.';
}

/* An absolute path, as the XDG base directory specification demands; a relative one is ignored. */
static const char *absolute_path(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] == '/' ? value : NULL;
}

static bool format(char *to, const char *a, const char *b, const char *c)
{
    int n = snprintf(to, PATH_SIZE, "%s%s%s", a, b, c);
    return n > 0 && n < PATH_SIZE;
}

static bool find_folder(char *to)
{
    const char *cache = absolute_path("XDG_CACHE_HOME"), *home = absolute_path("HOME");
    if (hth_settings_cache(to)) return to[0] != '\0';
    if (cache) return format(to, cache, "/hearth", "");
    return home && format(to, home, "/.cache/hearth", "");
}

static bool make_folder(const char *path)
{
    return hth_folder_make_parents(path, 0700, NULL) == HEARTH_OK &&
           hth_folder_make(path, 0700, NULL) == HEARTH_OK;
}

bool hth_diskcache_folder(char to[HTH_DISKCACHE_PATH]) { return find_folder(to) && make_folder(to); }

static bool read_all(int fd, void *to, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = read(fd, (uint8_t *)to + done, n - done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

static bool write_all(int fd, const void *from, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t put = write(fd, (const uint8_t *)from + done, n - done);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        done += (size_t)put;
    }
    return true;
}

/* True for a file that this user owns and only this user may write: cached bytes are passed to drivers. */
static bool is_private(int fd, struct stat *s)
{
    return fstat(fd, s) == 0 && S_ISREG(s->st_mode) && s->st_uid == geteuid() && (s->st_mode & 022) == 0;
}

static uint8_t *read_body(int fd, uint64_t key, size_t *n)
{
    header h;
    struct stat s;
    if (!is_private(fd, &s) || !read_all(fd, &h, sizeof h) || memcmp(h.magic, magic, sizeof magic) != 0 ||
        h.key != key)
        return NULL;
    if (h.n > HTH_DISKCACHE_MAX || (uint64_t)s.st_size != sizeof h + h.n) return NULL;
    uint8_t *bytes = hth_alloc(1, (size_t)h.n);
    if (bytes && read_all(fd, bytes, (size_t)h.n) && hash_of(key, bytes, (size_t)h.n) == h.hash) {
        *n = (size_t)h.n;
        return bytes;
    }
    hth_free(bytes);
    return NULL;
}

uint8_t *hth_diskcache_get(const char *name, uint64_t key, size_t *n)
{
    char folder[PATH_SIZE], path[PATH_SIZE];
    if (!is_name(name) || !find_folder(folder) || !format(path, folder, "/", name)) return NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return NULL;
    uint8_t *bytes = read_body(fd, key, n);
    close(fd);
    return bytes;
}

/* Warns with the reason in errno; returns false. */
static bool warn_not_cached(const char *what)
{
    hth_log(
        HEARTH_LOG_WARN,
        "%s: %s: nothing is kept there for later runs; HEARTH_CACHE names another folder, or none where it "
        "is empty",
        what, hth_format_errno(errno).text);
    return false;
}

/* False: errno holds the reason. */
static bool write_file(const char *path, const char *part, int fd, const header *h, const void *bytes)
{
    bool done = write_all(fd, h, sizeof *h) && write_all(fd, bytes, h->n);
    int why = errno;
    if (close(fd) != 0 && done) done = false, why = errno;
    if (done && rename(part, path) != 0) done = false, why = errno;
    if (!done) unlink(part);
    errno = why;
    return done;
}

bool hth_diskcache_put(const char *name, uint64_t key, const void *bytes, size_t n)
{
    char folder[PATH_SIZE], path[PATH_SIZE], part[PATH_SIZE];
    if (!is_name(name) || n > HTH_DISKCACHE_MAX || !find_folder(folder) || !format(path, folder, "/", name) ||
        !format(part, folder, "/.part-", "XXXXXX"))
        return false;
    header h = {.key = key, .n = n, .hash = hash_of(key, bytes, n)};
    memcpy(h.magic, magic, sizeof magic);
    int fd = make_folder(folder) ? mkostemp(part, O_CLOEXEC) : -1;
    if (fd < 0) return warn_not_cached(folder);
    return write_file(path, part, fd, &h, bytes) ? true : warn_not_cached(path);
}
