/* Kept files: a head with mark, length and hash, then the bytes. Written beside their place and renamed, so
 * that two processes never see half of one. */
#define _GNU_SOURCE
#include "base/disk_cache.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct head {
    uint8_t magic[8];
    uint64_t mark, n, hash; /* hash: of mark, n and the bytes */
} head;

static const uint8_t magic[8] = {'H', 'E', 'A', 'R', 'T', 'H', 'K', '1'};

enum { PATH_SIZE = 4096 };

static uint64_t hash_of(uint64_t mark, const void *bytes, size_t n)
{
    uint64_t sizes[2] = {mark, n};
    return hth_hash_more(hth_hash_more(0, sizes, sizeof sizes), bytes, n);
}

static bool is_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    size_t n = strlen(name);
    return n > 0 && n <= HTH_DISKCACHE_NAME && strspn(name, allowed) == n && name[0] != '.';
}

/* An absolute path, as the system's rules for such directories ask; a relative one counts as none. */
static const char *variable(const char *name)
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
    const char *own = getenv("HEARTH_CACHE"), *cache = variable("XDG_CACHE_HOME"), *home = variable("HOME");
    if (own) return own[0] != '\0' && format(to, own, "", "");
    if (cache) return format(to, cache, "/hearth", "");
    return home && format(to, home, "/.cache/hearth", "");
}

/* The folder and those above it, for this user alone. */
static bool make_folder(char *path)
{
    for (char *at = path + 1; *at; at++) {
        if (*at != '/') continue;
        *at = '\0';
        int failed = mkdir(path, 0700) != 0 && errno != EEXIST;
        *at = '/';
        if (failed) return false;
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

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

/* A file of this user's that nobody else may write: what is kept goes to drivers too. */
static bool is_own(int fd, struct stat *s)
{
    return fstat(fd, s) == 0 && S_ISREG(s->st_mode) && s->st_uid == geteuid() && (s->st_mode & 022) == 0;
}

static uint8_t *read_body(int fd, uint64_t mark, size_t *n)
{
    head h;
    struct stat s;
    if (!is_own(fd, &s) || !read_all(fd, &h, sizeof h) || memcmp(h.magic, magic, sizeof magic) != 0 ||
        h.mark != mark)
        return NULL;
    if (h.n > HTH_DISKCACHE_MAX || (uint64_t)s.st_size != sizeof h + h.n) return NULL;
    uint8_t *bytes = hth_alloc(1, (size_t)h.n);
    if (bytes && read_all(fd, bytes, (size_t)h.n) && hash_of(mark, bytes, (size_t)h.n) == h.hash) {
        *n = (size_t)h.n;
        return bytes;
    }
    hth_free(bytes);
    return NULL;
}

uint8_t *hth_diskcache_get(const char *name, uint64_t mark, size_t *n)
{
    char folder[PATH_SIZE], path[PATH_SIZE];
    if (!is_name(name) || !find_folder(folder) || !format(path, folder, "/", name)) return NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return NULL;
    uint8_t *bytes = read_body(fd, mark, n);
    close(fd);
    return bytes;
}

/* By errno. */
static bool cannot_keep(const char *what)
{
    char reason[100];
    int why = errno;
    hth_log(
        HEARTH_LOG_WARN,
        "%s: %s: nothing is kept there for later runs; HEARTH_CACHE names another folder, or none where it "
        "is empty",
        what, strerror_r(why, reason, sizeof reason));
    return false;
}

/* False: errno says why. */
static bool write_file(const char *path, const char *part, int fd, const head *h, const void *bytes)
{
    bool done = write_all(fd, h, sizeof *h) && write_all(fd, bytes, h->n);
    int why = errno;
    if (close(fd) != 0 && done) done = false, why = errno;
    if (done && rename(part, path) != 0) done = false, why = errno;
    if (!done) unlink(part);
    errno = why;
    return done;
}

bool hth_diskcache_put(const char *name, uint64_t mark, const void *bytes, size_t n)
{
    char folder[PATH_SIZE], path[PATH_SIZE], part[PATH_SIZE];
    if (!is_name(name) || n > HTH_DISKCACHE_MAX || !find_folder(folder) || !format(path, folder, "/", name) ||
        !format(part, folder, "/.part-", "XXXXXX"))
        return false;
    head h = {.mark = mark, .n = n, .hash = hash_of(mark, bytes, n)};
    memcpy(h.magic, magic, sizeof magic);
    int fd = make_folder(folder) ? mkostemp(part, O_CLOEXEC) : -1;
    if (fd < 0) return cannot_keep(folder);
    return write_file(path, part, fd, &h, bytes) ? true : cannot_keep(path);
}
