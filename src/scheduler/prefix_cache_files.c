/* Names, lists and writes the files of kept sequences. scheduler.c calls it when a program begins, ends, or has nothing
 * else to do. */
#define _POSIX_C_SOURCE 200809L
#include "scheduler/prefix_cache_files.h"

#include "base/alloc.h"
#include "base/format_errno.h"
#include "base/hash.h"
#include "base/status.h"
#include "engine/session_int.h"
#include "file/atomic_writer.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Owner and hash_of. */
#define NAME_FORMAT "%016" PRIx64 "-%016" PRIx64 ".kv"
enum { NAME_SIZE = 16 + 1 + 16 + 3 + 1, PART_SIZE = NAME_SIZE + sizeof HTH_ATOMIC_PART - 1 };

static char *join(const char *folder, const char *name)
{
    size_t n = strlen(folder) + 1 + strlen(name) + 1;
    char *path = hth_alloc(n, 1);
    if (path) snprintf(path, n, "%s/%s", folder, name);
    return path;
}

/* Whether such a file of ours has that name, or one that is being written (*is_part). */
static bool read_name(const char *name, uint64_t *owner, bool *is_part)
{
    uint64_t hash;
    char same[PART_SIZE];
    char *end;
    size_t n = strlen(name);
    *is_part = n == PART_SIZE - 1;
    if (n != NAME_SIZE - 1 && !*is_part) return false;
    *owner = strtoull(name, &end, 16);
    hash = *end == '-' ? strtoull(end + 1, &end, 16) : 0;
    snprintf(same, sizeof same, NAME_FORMAT "%s", *owner, hash, *is_part ? HTH_ATOMIC_PART : "");
    return strcmp(same, name) == 0;
}

/* ---- lists -------------------------------------------------------------------------------------------------- */

void hth_prefix_cache_free_files(hth_prefix_cache_file *files, size_t n)
{
    for (size_t i = 0; i < n; i++) hth_free(files[i].path);
    hth_free(files);
}

static int newer(const void *a, const void *b)
{
    const hth_prefix_cache_file *x = a, *y = b;
    if (x->time != y->time) return x->time > y->time ? -1 : 1;
    return strcmp(x->path, y->path);
}

static hearth_status add_file(const char *folder, const char *name, hth_prefix_cache_file **files, size_t *n,
                              hearth_error *err)
{
    struct stat stat_of;
    uint64_t owner;
    bool is_part;
    if (!read_name(name, &owner, &is_part)) return HEARTH_OK;
    char *path = join(folder, name);
    if (path && is_part && hth_atomic_writer_is_abandoned(path)) (void)unlink(path);
    hth_prefix_cache_file *more = path ? hth_realloc(*files, *n + 1, sizeof **files) : NULL;
    if (more) *files = more;
    if (!more || lstat(path, &stat_of) != 0 || !S_ISREG(stat_of.st_mode)) {
        hth_free(path);
        return more ? HEARTH_OK : hth_fail_memory(err, *n * sizeof **files, "a list of files");
    }
    uint64_t time = (uint64_t)stat_of.st_mtim.tv_sec * 1000000000 + (uint64_t)stat_of.st_mtim.tv_nsec;
    (*files)[(*n)++] = (hth_prefix_cache_file){owner, time, (uint64_t)stat_of.st_size, path, is_part};
    return HEARTH_OK;
}

hearth_status hth_prefix_cache_list_files(const char *folder, hth_prefix_cache_file **files, size_t *n, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    *files = NULL, *n = 0;
    DIR *dir = opendir(folder);
    if (!dir) return hth_fail(err, HEARTH_ERROR_IO, "%s: %s", folder, hth_format_errno(errno).text);
    for (const struct dirent *e; st == HEARTH_OK && (e = readdir(dir));)
        st = add_file(folder, e->d_name, files, n, err);
    closedir(dir);
    if (st != HEARTH_OK) {
        hth_prefix_cache_free_files(*files, *n);
        *files = NULL, *n = 0;
        return st;
    }
    if (*n > 0) qsort(*files, *n, sizeof **files, newer);
    return HEARTH_OK;
}

/* ---- saving ------------------------------------------------------------------------------------------------- */

/* All sessions are of one scheduler, so that one of them tells for all. */
static hearth_status find_binding(hth_prefix_cache *k, hearth_error *err)
{
    if (k->has_binding || k->n == 0) return HEARTH_OK;
    hearth_status st = hth_session_binding(k->entries[0].session, &k->binding, err);
    k->has_binding = st == HEARTH_OK;
    return st;
}

/* Files of another model with the same tokens have another name: they are not its own, and it deletes none of them. */
static uint64_t hash_of(const hth_prefix_cache *k, const hearth_session *s)
{
    return hth_hash_more(k->binding, hearth_session_tokens(s), hearth_session_position(s) * sizeof(int32_t));
}

static char *path_of(const char *folder, uint64_t owner, uint64_t hash)
{
    char name[NAME_SIZE];
    snprintf(name, sizeof name, NAME_FORMAT, owner, hash);
    return join(folder, name);
}

/* Deletes the file that the entry continues, which is not needed any more. */
static void delete_older(const char *folder, struct hth_prefix_cache_entry *e)
{
    char *path = e->older_file && e->older_file != e->file ? path_of(folder, e->owner, e->older_file) : NULL;
    if (path) (void)unlink(path);
    hth_free(path);
    e->older_file = 0;
}

static hearth_status save_one(const hth_prefix_cache *k, const char *folder, struct hth_prefix_cache_entry *e,
                              hearth_progress_fn *progress, void *user, hearth_error *err)
{
    const hearth_session *s = e->session;
    uint64_t hash = hash_of(k, s);
    char *path = path_of(folder, e->owner, hash);
    if (!path) return hth_fail_memory(err, strlen(folder), "a path");
    hearth_status st = access(path, F_OK) == 0 ? HEARTH_OK : hth_session_write(s, path, progress, user, err);
    hth_free(path);
    if (st != HEARTH_OK) return st;
    e->file = hash;
    delete_older(folder, e);
    return HEARTH_OK;
}

static void delete_oldest(const hth_prefix_cache_file *files, size_t n, uint64_t max_size)
{
    uint64_t size = 0;
    for (size_t i = 0; i < n; i++) {
        size += files[i].size;
        if (size > max_size && !files[i].is_part) (void)unlink(files[i].path);
    }
}

hearth_status hth_prefix_cache_save(hth_prefix_cache *k, const char *folder, uint64_t max_size, hearth_progress_fn *progress,
                            void *user, hearth_error *err)
{
    hth_prefix_cache_file *files;
    size_t n;
    hearth_status st = find_binding(k, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < k->n; i++)
        st = save_one(k, folder, &k->entries[i], progress, user, err);
    if (st == HEARTH_OK) st = hth_prefix_cache_list_files(folder, &files, &n, err);
    if (st != HEARTH_OK) return st;
    delete_oldest(files, n, max_size);
    hth_prefix_cache_free_files(files, n);
    k->is_changed = false;
    return HEARTH_OK;
}

void hth_prefix_cache_note_files(hth_prefix_cache *k)
{
    hearth_error ignored; /* then they are written again when something is to be saved */
    if (find_binding(k, &ignored) == HEARTH_OK)
        for (uint32_t i = 0; i < k->n; i++) k->entries[i].file = hash_of(k, k->entries[i].session);
    k->is_changed = false;
}
