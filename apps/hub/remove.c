/* Removes a model from the cache: first links, then blobs without links. Folders are removed only if they are
 * empty, or contain only records about removed files. */
#define _GNU_SOURCE
#include "base/format_errno.h"
#include "hub/parts.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct removal {
    char repo[200], folder[HUB_PATH]; /* models--ORG--NAME */
    hub_file_name name;
    char relative[HUB_NAME]; /* path of the first part in a snapshot */
    uint64_t freed;
    hearth_error *err;
} removal;

static hearth_status remove_file(removal *r, const char *path)
{
    struct stat st;
    bool is_last = lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1; /* hub_copy links blobs */
    uint64_t size = is_last ? (uint64_t)st.st_size : 0;
    if (unlink(path) == 0) r->freed += size;
    else if (errno != ENOENT) return hth_fail(r->err, HEARTH_ERROR_IO, "%s: %s", path, hth_format_errno(errno).text);
    return HEARTH_OK;
}

/* ---- links ---------------------------------------------------------------------------------------------------- */

typedef struct users {
    const char *etag;
    bool is_used;
} users;

static bool visit_user(void *user, const char *path, const char *relative)
{
    users *u = user;
    char etag[128];
    (void)relative;
    u->is_used = hub_cache_blob(path, etag) && strcmp(etag, u->etag) == 0;
    return !u->is_used;
}

static bool is_used(const removal *r, const char *etag)
{
    char snapshots[HUB_PATH];
    users u = {.etag = etag};
    if (!hub_path(snapshots, "%s/snapshots", r->folder)) return true;
    hub_walk(snapshots, 10, visit_user, &u);
    return u.is_used;
}

/* Removes the empty folders above path, up to the snapshot. */
static void remove_empty(const removal *r, const char *path)
{
    char folder[HUB_PATH], top[HUB_PATH];
    if (!hub_path(folder, "%s", path) || !hub_path(top, "%s/snapshots", r->folder)) return;
    for (char *cut; (cut = strrchr(folder, '/')) != NULL;) {
        *cut = '\0';
        if (strlen(folder) <= strlen(top) || rmdir(folder) != 0) return;
    }
}

/* Removes one part in one snapshot, and its blob if that was the last link to it. */
static hearth_status remove_link(removal *r, const char *path)
{
    struct stat st;
    char etag[128], blob[HUB_PATH];
    if (lstat(path, &st) != 0) return HEARTH_OK;
    bool has_blob =
        S_ISLNK(st.st_mode) && hub_cache_blob(path, etag) && hub_path(blob, "%s/blobs/%s", r->folder, etag);
    int lock = -1;
    hearth_status status = has_blob ? hub_cache_lock(r->repo, etag, &lock, r->err) : HEARTH_OK;
    if (status == HEARTH_OK && has_blob && lock < 0)
        status = hth_fail(r->err, HEARTH_ERROR_ARGUMENT, "%s: another program is bringing it now", path);
    if (status == HEARTH_OK) status = remove_file(r, path);
    if (status == HEARTH_OK && has_blob && !is_used(r, etag)) status = remove_file(r, blob);
    if (lock >= 0) close(lock);
    remove_empty(r, path);
    return status;
}

static hearth_status remove_from(removal *r, const char *snapshot)
{
    hearth_status st = HEARTH_OK;
    for (uint32_t i = 1; i <= r->name.n_part && st == HEARTH_OK; i++) {
        char path[HUB_PATH];
        bool good = r->name.n_part == 1 ? hub_path(path, "%s/%s", snapshot, r->relative)
                                        : hub_path(path, "%s/%s-%05u-of-%05u.gguf", snapshot, r->name.stem, i,
                                                   r->name.n_part);
        if (good) st = remove_link(r, path);
    }
    return st;
}

/* ---- rest of a repository --------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st, (void)where;
    if (kind == FTW_DP) rmdir(path);
    else unlink(path);
    return 0;
}

/* Does not follow links. */
static void remove_tree(const char *path) { nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT); }

/* Copies NAME of "NAME.incomplete" or "NAME.lock". */
static bool strip_suffix(const char *file, const char *suffix, char name[256])
{
    size_t n = strlen(file), n_suffix = strlen(suffix);
    if (n <= n_suffix || n - n_suffix >= 256 || strcmp(file + n - n_suffix, suffix) != 0) return false;
    snprintf(name, 256, "%.*s", (int)(n - n_suffix), file);
    return true;
}

/* Removes the files of a folder that end with the suffix, except those of blobs that another program is
 * downloading. */
static void remove_unlocked(removal *r, const char *folder, const char *suffix)
{
    char file[HUB_PATH], etag[256];
    DIR *files = opendir(folder);
    for (struct dirent *e; files && (e = readdir(files)) != NULL;) {
        int lock = -1;
        if (!strip_suffix(e->d_name, suffix, etag) || !hub_path(file, "%s/%s", folder, e->d_name)) continue;
        if (hub_cache_lock(r->repo, etag, &lock, r->err) != HEARTH_OK || lock < 0) continue;
        remove_file(r, file);
        close(lock);
    }
    if (files) closedir(files);
    rmdir(folder);
}

/* Removes incomplete downloads, refs and records of files that no longer exist. A download that another program
 * is continuing under its lock keeps its file and the folders. */
static void remove_rest(removal *r)
{
    char path[HUB_PATH], blobs[HUB_PATH], locks[HUB_PATH], root[HUB_PATH];
    if (!hub_path(path, "%s/snapshots", r->folder) || (rmdir(path) != 0 && errno != ENOENT)) return;
    if (!hub_path(blobs, "%s/blobs", r->folder) || !hub_cache_root(root) ||
        !hub_path(locks, "%s/.locks/%s", root, strrchr(r->folder, '/') + 1))
        return;
    remove_unlocked(r, blobs, ".incomplete");
    if (access(blobs, F_OK) == 0) return;
    if (hub_path(path, "%s/refs", r->folder)) remove_tree(path);
    if (hub_path(path, "%s/.no_exist", r->folder)) remove_tree(path);
    rmdir(r->folder);
    remove_unlocked(r, locks, ".lock");
}

static bool split_path(removal *r, const char *path)
{
    char commit[HUB_NAME];
    return hub_cache_split(path, r->repo, commit, r->relative) && hub_parse_file(r->relative, &r->name) &&
           hub_cache_repo(r->repo, r->folder);
}

void hub_remove_begun(const char *repo, uint64_t *freed)
{
    hearth_error ignored;
    removal r = {.err = &ignored};
    char path[HUB_PATH];
    *freed = 0;
    if (strlen(repo) >= sizeof r.repo || !hub_is_repo(repo) || !hub_cache_repo(repo, r.folder)) return;
    snprintf(r.repo, sizeof r.repo, "%s", repo);
    if (hub_path(path, "%s/blobs", r.folder)) remove_unlocked(&r, path, ".incomplete");
    remove_rest(&r);
    *freed = r.freed;
}

hearth_status hub_remove(const hub_model *model, uint64_t *freed, hearth_error *err)
{
    removal r = {.err = err};
    char path[HUB_PATH];
    hearth_status st = HEARTH_OK;
    *freed = 0;
    if (model->place != HUB_PLACE_CACHE || !split_path(&r, model->path))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: is not of hearth pull, so it stays; it is %s, of %s",
                        model->name, model->path, hub_place_name(model->place));
    DIR *snapshots = hub_path(path, "%s/snapshots", r.folder) ? opendir(path) : NULL;
    for (struct dirent *e; snapshots && st == HEARTH_OK && (e = readdir(snapshots)) != NULL;) {
        char snapshot[HUB_PATH];
        if (e->d_name[0] != '.' && hub_path(snapshot, "%s/%s", path, e->d_name))
            st = remove_from(&r, snapshot);
    }
    if (snapshots) closedir(snapshots);
    if (st == HEARTH_OK) remove_rest(&r);
    *freed = r.freed;
    return st;
}
